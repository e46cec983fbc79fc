"""Requests: which type, namespace, object and subresource a URL names, and what its query asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from dovetail.api.schema.causes import Cause
from dovetail.sim.kube import status
from dovetail.sim.kube.core import DeleteOptions, WriteOptions, parse_delete_options
from dovetail.sim.kube.faults import ApiCall

if TYPE_CHECKING:
    from dovetail.sim.kube.store import Key
    from dovetail.sim.kube.types import TypeInfo, TypeRegistry


# Below a namespace these are the namespace's own subresources, not resources within it.
_NAMESPACE_PARTS = ("status", "finalize")
_ITEM_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}


class NotServed(LookupError):
    """No such path or group: answered as plain text, as a real server does."""


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """What an object path names. `watching` is the deprecated `/watch/` prefix.

    `beyond` is what a path has below a proxy: a path of the service's own.
    """

    info: TypeInfo
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watching: bool = False
    beyond: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """The object's key in the store."""
        return (self.namespace, self.name)

    def find_verb(self, method: str) -> str:
        """What a method means here, or a 405."""
        table = _ITEM_VERBS if self.name else _COLLECTION_VERBS
        if self.subresource:
            table = {**_ITEM_VERBS, "POST": "create"}
        verb = table.get(method, "")
        if not verb or verb not in self._list_allowed_verbs():
            raise status.method_not_allowed(method)
        if self.info.namespaced and not self.namespace and verb in ("create", "deletecollection"):
            raise status.method_not_allowed(method)
        return verb

    def _list_allowed_verbs(self) -> tuple[str, ...]:
        if not self.subresource:
            return self.info.verbs
        sub = self.info.find_subresource(self.subresource)
        if sub is None:
            raise status.unknown_resource()
        return sub.verbs


def split_path(raw_path: str) -> list[str]:
    """The decoded parts of a path; a trailing slash does not count."""
    return [unquote(part) for part in raw_path.strip("/").split("/")] if raw_path.strip("/") else []


def parse_group_version(parts: list[str]) -> tuple[str, str, list[str]]:
    """A path below `/api` or `/apis` as group, version and the rest."""
    if parts[0] == "api":
        return "", parts[1], parts[2:]
    return parts[1], parts[2], parts[3:]


def find_route(registry: TypeRegistry, parts: list[str]) -> ApiRoute:
    """The route of an object path."""
    group, version, rest = parse_group_version(parts)
    if version not in registry.list_versions(group):
        if group in registry.list_groups():
            raise status.unknown_resource()
        raise NotServed("/".join(parts))
    watching = rest[0] == "watch" and len(rest) > 1
    if watching:
        rest = rest[1:]
    namespace = ""
    own_part = len(rest) == 3 and rest[2] in _NAMESPACE_PARTS
    if rest[0] == "namespaces" and len(rest) >= 3 and not own_part:
        namespace, rest = rest[1], rest[2:]
    beyond: list[str] = []
    if rest[2:3] == ["proxy"]:
        rest, beyond = rest[:3], rest[3:]
    info = registry.find_type(group, version, rest[0])
    if info is None or len(rest) > 3 or not all(rest):
        raise status.unknown_resource()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if bool(namespace) is not info.namespaced and (namespace or name):
        raise status.unknown_resource()
    if subresource and info.find_subresource(subresource) is None:
        raise status.unknown_resource()
    return ApiRoute(info, namespace, name, subresource, watching, tuple(beyond))


_VALIDATIONS = ("Strict", "Warn", "Ignore")
_NAME_LIMIT = 128


@dataclass(frozen=True, slots=True)
class QueryParameters:
    """The query of one request."""

    values: Mapping[str, str]

    def read_text(self, name: str) -> str:
        """A parameter as it is."""
        return self.values.get(name, "")

    def read_flag(self, name: str) -> bool | None:
        """A parameter that is true or false, or None if it was not given."""
        value = self.values.get(name)
        # Whatever is not plainly false is true; apimachinery reads flags so.
        return None if value is None else value.lower() not in ("false", "0")

    def read_number(self, name: str) -> int | None:
        """A parameter that is a whole number, or None if it was not given."""
        value = self.values.get(name)
        if value is None or value == "":
            return None
        sign, digits = (-1, value[1:]) if value[:1] == "-" else (1, value)
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
            raise status.bad_request(f'invalid value "{value}" for {name}: it must be a whole number')
        return sign * int(digits)

    def read_write_options(self, verb: str, manager: str, user: str, warnings: list[str]) -> WriteOptions:
        """Options of a write; `manager` is who writes unless the query says so."""
        kind = f"{verb.capitalize()}Options"
        validation = self.read_text("fieldValidation") or "Warn"
        causes = []
        if validation not in _VALIDATIONS:
            causes.append(_unsupported_parameter("fieldValidation", validation, _VALIDATIONS))
        if len(self.read_text("fieldManager")) > _NAME_LIMIT:
            text = f"Too long: may not be more than {_NAME_LIMIT} bytes"
            causes.append(Cause("fieldManager", "FieldValueTooLong", text))
        if causes:
            raise status.invalid_kind(kind, "meta.k8s.io", "", causes)
        return WriteOptions(
            dry_run=self.is_dry_run(kind),
            manager=self.read_text("fieldManager") or manager,
            user=user,
            validation=validation,
            force=bool(self.read_flag("force")),
            warnings=warnings,
        )

    def is_dry_run(self, kind: str = "DeleteOptions") -> bool:
        """Whether nothing is to be stored."""
        value = self.read_text("dryRun")
        if value not in ("", "All"):
            cause = _unsupported_parameter("dryRun", value, ("All",))
            raise status.invalid_kind(kind, "meta.k8s.io", "", [cause])
        return value == "All"

    def read_delete_options(self, body: Any) -> DeleteOptions:
        """Options of a delete; what the body says wins."""
        if body is not None and not isinstance(body, dict):
            raise status.bad_request("DeleteOptions cannot be decoded: it must be an object")
        options = parse_delete_options(body or {})
        if options.grace is None:
            options = replace(options, grace=self.read_number("gracePeriodSeconds"))
        if not options.propagation:
            options = replace(options, propagation=self._read_propagation())
        return replace(options, dry_run=options.dry_run or self.is_dry_run())

    def _read_propagation(self) -> str:
        orphan = self.read_flag("orphanDependents")
        if self.read_text("propagationPolicy") or orphan is None:
            return self.read_text("propagationPolicy")
        return "Orphan" if orphan else "Background"


def _unsupported_parameter(name: str, value: str, supported: tuple[str, ...]) -> Cause:
    listed = ", ".join(f'"{each}"' for each in supported)
    return Cause(name, "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {listed}')


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """All of a request that matters."""

    method: str
    parts: list[str]
    query: Mapping[str, str]
    accept: str = ""
    content_type: str = ""
    agent: str = ""
    if_none_match: str = ""
    user: str = ""
    address: str = ""
    body: bytes = b""
    warnings: list[str] = field(default_factory=list)

    @property
    def parameters(self) -> QueryParameters:
        """The query."""
        return QueryParameters(self.query)

    @property
    def client(self) -> str:
        """The client's own name: its user agent up to the first slash."""
        return self.agent.partition("/")[0]

    @property
    def of_objects(self) -> bool:
        """Whether the path is below a group version."""
        prefix = {"api": 2, "apis": 3}.get(self.parts[0] if self.parts else "")
        return prefix is not None and len(self.parts) > prefix

    def read_write_options(self, verb: str, manager: str) -> WriteOptions:
        """What a write asks for."""
        return self.parameters.read_write_options(verb, manager, self.user, self.warnings)

    def describe_call(self, registry: TypeRegistry) -> ApiCall | None:
        """The request as fault rules know it; None when it is not about objects."""
        if not self.of_objects:
            return None
        try:
            route = find_route(registry, self.parts)
            verb = route.find_verb(self.method)
        except (NotServed, status.ApiError):
            return None
        if verb in ("list", "get") and (route.watching or self.query.get("watch") in ("true", "1")):
            verb = "watch"
        return ApiCall(verb, route.info.resource, route.namespace, route.name, route.subresource, self.client)
