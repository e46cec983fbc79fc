"""What the server says about itself: version, discovery and OpenAPI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.sim.kube import discovery, openapi, openapi_v2
from dovetail.sim.kube.negotiation import wants_aggregated_discovery
from dovetail.sim.kube.replies import JSON, Reply
from dovetail.sim.kube.routes import NotServed
from dovetail.sim.kube.store import encode

if TYPE_CHECKING:
    from dovetail.sim.kube.requests import Request
    from dovetail.sim.kube.types import Registry

VERSION: dict[str, Any] = {
    "major": "1",
    "minor": "35",
    "gitVersion": "v1.35.0",
    "gitCommit": "0000000000000000000000000000000000000000",
    "gitTreeState": "clean",
    "buildDate": "2025-12-17T00:00:00Z",
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
        kind, form = _form_of(parts, request.accept)
        body, tag = self._document((*parts, form) if form else parts, request)
        headers = [("ETag", tag), ("Vary", "Accept")]
        if tag == request.if_none_match:
            return Reply(304, headers=headers)
        return Reply(200, body, kind, headers)

    def _document(self, parts: tuple[str, ...], request: Request) -> tuple[bytes, str]:
        if self._revision != self.registry.revision:
            self._revision = self.registry.revision
            self._kept.clear()
        if parts not in self._kept:
            document = self._make(parts, request)
            if document is None:
                raise NotServed("/".join(parts))
            body = openapi_v2.encode_document(document) if parts[-1:] == ("protobuf",) else encode(document)
            self._kept[parts] = (body, discovery.etag(document))
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
                        "/openapi/v2",
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
            case ("openapi", "v2") | ("openapi", "v2", "protobuf"):
                return self._openapi.merged()
            case ("openapi", "v3"):
                return self._openapi.index()
            case ("openapi", "v3", "api", version):
                return self._openapi.document("", version)
            case ("openapi", "v3", "apis", group, version):
                return self._openapi.document(group, version)
            case _:
                return None


def _form_of(parts: tuple[str, ...], accept: str) -> tuple[str, str]:
    """The media type of an answer, and which form of a document it is made of."""
    if parts in (("api",), ("apis",)) and wants_aggregated_discovery(accept):
        return discovery.AGGREGATED_TYPE, "aggregated"
    if parts == ("openapi", "v2") and openapi_v2.asks_protobuf(accept):
        return openapi_v2.PROTOBUF, "protobuf"
    return JSON, ""
