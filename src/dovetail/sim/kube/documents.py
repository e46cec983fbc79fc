"""What the server says about itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.sim.kube import replies
from dovetail.sim.kube.routes import NotServed

if TYPE_CHECKING:
    from dovetail.sim.kube.replies import Reply
    from dovetail.sim.kube.requests import Request
    from dovetail.sim.kube.types import Registry

VERSION: dict[str, Any] = {
    "major": "1",
    "minor": "34",
    "gitVersion": "v1.34.0",
    "gitCommit": "0000000000000000000000000000000000000000",
    "gitTreeState": "clean",
    "buildDate": "2025-08-27T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "linux/amd64",
}


class Documents:
    """Discovery, OpenAPI and version, made from the registry and kept until it changes."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def answer(self, request: Request) -> Reply:
        """The document at a path."""
        match request.parts:
            case ["version"]:
                return replies.document(VERSION)
            case _:
                raise NotServed("/".join(request.parts))
