"""Paths: which type, namespace, object and subresource a URL names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from dovetail.sim.kube import status

if TYPE_CHECKING:
    from dovetail.sim.kube.store import Key
    from dovetail.sim.kube.types import Registry, TypeInfo

# Below a namespace these are the namespace's own subresources, not resources within it.
_NAMESPACE_PARTS = ("status", "finalize")
_ITEM_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}


class NotServed(LookupError):
    """No such path or group: answered as plain text, as a real server does."""


@dataclass(frozen=True, slots=True)
class Route:
    """What an object path names. `watching` is the deprecated `/watch/` prefix."""

    info: TypeInfo
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watching: bool = False

    @property
    def key(self) -> Key:
        """The object's key in the store."""
        return (self.namespace, self.name)

    def verb(self, method: str) -> str:
        """What a method means here, or a 405."""
        table = _ITEM_VERBS if self.name else _COLLECTION_VERBS
        if self.subresource:
            table = {**_ITEM_VERBS, "POST": "create"}
        verb = table.get(method, "")
        if not verb or verb not in self._allowed():
            raise status.method_not_allowed(method)
        if self.info.namespaced and not self.namespace and verb in ("create", "deletecollection"):
            raise status.method_not_allowed(method)
        return verb

    def _allowed(self) -> tuple[str, ...]:
        if not self.subresource:
            return self.info.verbs
        sub = self.info.subresource(self.subresource)
        if sub is None:
            raise status.unknown_resource()
        return sub.verbs


def split_path(raw_path: str) -> list[str]:
    """The decoded parts of a path; a trailing slash does not count."""
    return [unquote(part) for part in raw_path.strip("/").split("/")] if raw_path.strip("/") else []


def group_version(parts: list[str]) -> tuple[str, str, list[str]]:
    """A path below `/api` or `/apis` as group, version and the rest."""
    if parts[0] == "api":
        return "", parts[1], parts[2:]
    return parts[1], parts[2], parts[3:]


def find_route(registry: Registry, parts: list[str]) -> Route:
    """The route of an object path."""
    group, version, rest = group_version(parts)
    if version not in registry.versions(group):
        if group in registry.groups():
            raise status.unknown_resource()
        raise NotServed("/".join(parts))
    watching = rest[0] == "watch" and len(rest) > 1
    if watching:
        rest = rest[1:]
    namespace = ""
    own_part = len(rest) == 3 and rest[2] in _NAMESPACE_PARTS
    if rest[0] == "namespaces" and len(rest) >= 3 and not own_part:
        namespace, rest = rest[1], rest[2:]
    info = registry.find(group, version, rest[0])
    if info is None or len(rest) > 3 or not all(rest):
        raise status.unknown_resource()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if bool(namespace) is not info.namespaced and (namespace or name):
        raise status.unknown_resource()
    if subresource and info.subresource(subresource) is None:
        raise status.unknown_resource()
    return Route(info, namespace, name, subresource, watching)
