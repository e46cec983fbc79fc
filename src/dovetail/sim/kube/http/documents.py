"""What the server says about itself: version, discovery and OpenAPI."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dovetail.sim.kube.http import openapi, openapi_v2
from dovetail.sim.kube.http.replies import JSON, ServerReply, wants_aggregated_discovery
from dovetail.sim.kube.http.routes import NotServed
from dovetail.sim.kube.store import encode
from dovetail.sim.kube.types import Subresource, TypeInfo, TypeRegistry

if TYPE_CHECKING:
    from dovetail.sim.kube.http.routes import ServerRequest
    from dovetail.sim.kube.types import TypeRegistry


# Clients tell the format of a reply by this header alone.
AGGREGATED_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def build_api_versions(address: str = "127.0.0.1") -> dict[str, Any]:
    """`/api`: the versions of the core group."""
    where = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": where}


def build_group_list(registry: TypeRegistry) -> dict[str, Any]:
    """`/apis`: every named group."""
    groups = [_describe_group(registry, name) for name in registry.list_groups()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def build_group(registry: TypeRegistry, name: str) -> dict[str, Any] | None:
    """`/apis/{group}`, or None for a group that is not served."""
    if name not in registry.list_groups():
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_describe_group(registry, name)}


def _describe_group(registry: TypeRegistry, name: str) -> dict[str, Any]:
    versions = [{"groupVersion": f"{name}/{v}", "version": v} for v in registry.list_versions(name)]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def build_resource_list(registry: TypeRegistry, group_name: str, version: str) -> dict[str, Any] | None:
    """`/api/v1` and `/apis/{group}/{version}`, or None for a version that is not served."""
    types = registry.list_types(group_name, version)
    if not types:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": types[0].api_version,
        "resources": [entry for info in types for entry in _describe_resources(info)],
    }


def _describe_resources(info: TypeInfo) -> Iterator[dict[str, Any]]:
    entry: dict[str, Any] = {
        "name": info.plural,
        "singularName": info.singular,
        "namespaced": info.namespaced,
        "kind": info.kind,
        "verbs": list(info.verbs),
    }
    if info.short_names:
        entry["shortNames"] = list(info.short_names)
    if info.categories:
        entry["categories"] = list(info.categories)
    if info.stored:
        entry["storageVersionHash"] = _compute_storage_hash(info)
    yield entry
    for sub in info.subresources:
        yield _describe_subresource(info, sub)


def _describe_subresource(info: TypeInfo, sub: Subresource) -> dict[str, Any]:
    elsewhere = {"group": sub.group, "version": sub.version} if sub.version else {}
    return {
        "name": f"{info.plural}/{sub.name}",
        "singularName": "",
        "namespaced": info.namespaced,
        **elsewhere,
        "kind": sub.kind,
        "verbs": list(sub.verbs),
    }


def _compute_storage_hash(info: TypeInfo) -> str:
    digest = hashlib.sha256(f"{info.storage}/{info.kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def build_aggregated_discovery(registry: TypeRegistry, *, core: bool) -> dict[str, Any]:
    """`/api` (the core group) or `/apis` (all others) with every resource, as kubectl first asks."""
    groups = ("",) if core else registry.list_groups()
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [_describe_aggregated_group(registry, name) for name in groups],
    }


def _describe_aggregated_group(registry: TypeRegistry, name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name} if name else {},
        "versions": [
            {
                "version": version,
                "resources": [
                    _describe_aggregated_resource(info) for info in registry.list_types(name, version)
                ],
                "freshness": "Current",
            }
            for version in registry.list_versions(name)
        ],
    }


def _describe_aggregated_resource(info: TypeInfo) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": info.plural,
        "responseKind": {"group": info.group, "version": info.version, "kind": info.kind},
        "scope": "Namespaced" if info.namespaced else "Cluster",
        "singularResource": info.singular,
        "verbs": list(info.verbs),
    }
    if info.short_names:
        entry["shortNames"] = list(info.short_names)
    if info.categories:
        entry["categories"] = list(info.categories)
    if info.subresources:
        entry["subresources"] = [_describe_aggregated_subresource(info, sub) for sub in info.subresources]
    return entry


def _describe_aggregated_subresource(info: TypeInfo, sub: Subresource) -> dict[str, Any]:
    group_name, version = (sub.group, sub.version) if sub.version else (info.group, info.version)
    return {
        "subresource": sub.name,
        "responseKind": {"group": group_name, "version": version, "kind": sub.kind},
        "verbs": list(sub.verbs),
    }


def compute_etag(document: dict[str, Any]) -> str:
    """A tag that changes exactly when the document does, over restarts too: clients cache on disk."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return f'"{hashlib.sha256(text.encode()).hexdigest().upper()}"'


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


class ServerDocuments:
    """Documents made from the registry, each kept as bytes until the registry changes."""

    def __init__(self, registry: TypeRegistry) -> None:
        self.registry = registry
        self._openapi = openapi.OpenApiDocuments(registry)
        self._revision = -1
        self._kept: dict[tuple[str, ...], tuple[bytes, str]] = {}

    def answer_request(self, request: ServerRequest) -> ServerReply:
        """The document at a path."""
        parts = tuple(request.parts)
        kind, form = _choose_document_form(parts, request.accept)
        body, tag = self._find_document((*parts, form) if form else parts, request)
        headers = [("ETag", tag), ("Vary", "Accept")]
        if tag == request.if_none_match:
            return ServerReply(304, headers=headers)
        return ServerReply(200, body, kind, headers)

    def _find_document(self, parts: tuple[str, ...], request: ServerRequest) -> tuple[bytes, str]:
        if self._revision != self.registry.revision:
            self._revision = self.registry.revision
            self._kept.clear()
        if parts not in self._kept:
            document = self._build_document(parts, request)
            if document is None:
                raise NotServed("/".join(parts))
            body = openapi_v2.encode_document(document) if parts[-1:] == ("protobuf",) else encode(document)
            self._kept[parts] = (body, compute_etag(document))
        return self._kept[parts]

    def _build_document(self, parts: tuple[str, ...], request: ServerRequest) -> dict[str, Any] | None:
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
                return build_api_versions(request.address)
            case ("api" | "apis" as root, "aggregated"):
                return build_aggregated_discovery(self.registry, core=root == "api")
            case ("apis",):
                return build_group_list(self.registry)
            case ("apis", group):
                return build_group(self.registry, group)
            case ("api", version):
                return build_resource_list(self.registry, "", version)
            case ("apis", group, version):
                return build_resource_list(self.registry, group, version)
            case ("openapi", "v2") | ("openapi", "v2", "protobuf"):
                return self._openapi.build_v2_document()
            case ("openapi", "v3"):
                return self._openapi.build_index()
            case ("openapi", "v3", "api", version):
                return self._openapi.find_document("", version)
            case ("openapi", "v3", "apis", group, version):
                return self._openapi.find_document(group, version)
            case _:
                return None


def _choose_document_form(parts: tuple[str, ...], accept: str) -> tuple[str, str]:
    """The media type of an answer, and which form of a document it is made of."""
    if parts in (("api",), ("apis",)) and wants_aggregated_discovery(accept):
        return AGGREGATED_TYPE, "aggregated"
    if parts == ("openapi", "v2") and openapi_v2.asks_protobuf(accept):
        return openapi_v2.PROTOBUF, "protobuf"
    return JSON, ""
