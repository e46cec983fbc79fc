"""Which groups, versions and resources there are: one document per group version, or all in one."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from typing import Any

from dovetail.sim.kube.types import Registry, Subresource, TypeInfo

# Clients tell the format of a reply by this header alone.
AGGREGATED_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def api_versions(address: str = "127.0.0.1") -> dict[str, Any]:
    """`/api`: the versions of the core group."""
    where = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": where}


def group_list(registry: Registry) -> dict[str, Any]:
    """`/apis`: every named group."""
    groups = [_group(registry, name) for name in registry.groups()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: Registry, name: str) -> dict[str, Any] | None:
    """`/apis/{group}`, or None for a group that is not served."""
    if name not in registry.groups():
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(registry, name)}


def _group(registry: Registry, name: str) -> dict[str, Any]:
    versions = [{"groupVersion": f"{name}/{v}", "version": v} for v in registry.versions(name)]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def resource_list(registry: Registry, group_name: str, version: str) -> dict[str, Any] | None:
    """`/api/v1` and `/apis/{group}/{version}`, or None for a version that is not served."""
    types = registry.types(group_name, version)
    if not types:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": types[0].api_version,
        "resources": [entry for info in types for entry in _resources(info)],
    }


def _resources(info: TypeInfo) -> Iterator[dict[str, Any]]:
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
        entry["storageVersionHash"] = _storage_hash(info)
    yield entry
    for sub in info.subresources:
        yield _subresource(info, sub)


def _subresource(info: TypeInfo, sub: Subresource) -> dict[str, Any]:
    elsewhere = {"group": sub.group, "version": sub.version} if sub.version else {}
    return {
        "name": f"{info.plural}/{sub.name}",
        "singularName": "",
        "namespaced": info.namespaced,
        **elsewhere,
        "kind": sub.kind,
        "verbs": list(sub.verbs),
    }


def _storage_hash(info: TypeInfo) -> str:
    digest = hashlib.sha256(f"{info.storage}/{info.kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def aggregated(registry: Registry, *, core: bool) -> dict[str, Any]:
    """`/api` (the core group) or `/apis` (all others) with every resource, as kubectl first asks."""
    groups = ("",) if core else registry.groups()
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [_aggregated_group(registry, name) for name in groups],
    }


def _aggregated_group(registry: Registry, name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name} if name else {},
        "versions": [
            {
                "version": version,
                "resources": [_aggregated_resource(info) for info in registry.types(name, version)],
                "freshness": "Current",
            }
            for version in registry.versions(name)
        ],
    }


def _aggregated_resource(info: TypeInfo) -> dict[str, Any]:
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
        entry["subresources"] = [_aggregated_subresource(info, sub) for sub in info.subresources]
    return entry


def _aggregated_subresource(info: TypeInfo, sub: Subresource) -> dict[str, Any]:
    group_name, version = (sub.group, sub.version) if sub.version else (info.group, info.version)
    return {
        "subresource": sub.name,
        "responseKind": {"group": group_name, "version": version, "kind": sub.kind},
        "verbs": list(sub.verbs),
    }


def etag(document: dict[str, Any]) -> str:
    """A tag that changes exactly when the document does, over restarts too: clients cache on disk."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return f'"{hashlib.sha256(text.encode()).hexdigest().upper()}"'
