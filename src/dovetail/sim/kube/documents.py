"""What the server says about itself: version, discovery and OpenAPI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.sim.kube import discovery, openapi
from dovetail.sim.kube.negotiation import wants_aggregated_discovery
from dovetail.sim.kube.replies import JSON, Reply
from dovetail.sim.kube.routes import NotServed
from dovetail.sim.kube.store import encode

if TYPE_CHECKING:
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
    """Documents made from the registry, each kept as bytes until the registry changes."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._openapi = openapi.Documents(registry)
        self._revision = -1
        self._kept: dict[tuple[str, ...], tuple[bytes, str]] = {}

    def answer(self, request: Request) -> Reply:
        """The document at a path."""
        parts = tuple(request.parts)
        aggregated = parts in (("api",), ("apis",)) and wants_aggregated_discovery(request.accept)
        body, tag = self._document((*parts, "aggregated") if aggregated else parts, request)
        headers = [("ETag", tag), ("Vary", "Accept")]
        if tag == request.if_none_match:
            return Reply(304, headers=headers)
        return Reply(200, body, discovery.AGGREGATED_TYPE if aggregated else JSON, headers)

    def _document(self, parts: tuple[str, ...], request: Request) -> tuple[bytes, str]:
        if self._revision != self.registry.revision:
            self._revision = self.registry.revision
            self._kept.clear()
        if parts not in self._kept:
            document = self._make(parts, request)
            if document is None:
                raise NotServed("/".join(parts))
            self._kept[parts] = (encode(document), discovery.etag(document))
        return self._kept[parts]

    def _make(self, parts: tuple[str, ...], request: Request) -> dict[str, Any] | None:
        match parts:
            case ("version",):
                return VERSION
            case ():
                return {
                    "paths": [
                        "/api",
                        "/api/v1",
                        "/apis",
                        "/healthz",
                        "/livez",
                        "/openapi/v3",
                        "/readyz",
                        "/version",
                    ]
                }
            case ("api",):
                return discovery.api_versions(request.address)
            case ("api" | "apis" as root, "aggregated"):
                return discovery.aggregated(self.registry, core=root == "api")
            case ("apis",):
                return discovery.group_list(self.registry)
            case ("apis", group):
                return discovery.group(self.registry, group)
            case ("api", version):
                return discovery.resource_list(self.registry, "", version)
            case ("apis", group, version):
                return discovery.resource_list(self.registry, group, version)
            case ("openapi", "v2"):
                return openapi.v2_document()
            case ("openapi", "v3"):
                return self._openapi.index()
            case ("openapi", "v3", "api", version):
                return self._openapi.document("", version)
            case ("openapi", "v3", "apis", group, version):
                return self._openapi.document(group, version)
            case _:
                return None
