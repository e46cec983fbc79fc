"""From a request to an answer, without a socket in sight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dovetail.sim.kube import status
from dovetail.sim.kube.bodies import media_type, patch_kind, read_object, read_patch
from dovetail.sim.kube.faults_hook import Call
from dovetail.sim.kube.negotiation import choose
from dovetail.sim.kube.parameters import Parameters
from dovetail.sim.kube.reading import list_options, read_item, read_list, start_watch
from dovetail.sim.kube.replies import text
from dovetail.sim.kube.routes import NotServed, Route, find_route
from dovetail.sim.kube.showing import show_list, show_written

if TYPE_CHECKING:
    from dovetail.sim.kube.apiserver import ApiServer
    from dovetail.sim.kube.faults_hook import Fault
    from dovetail.sim.kube.options import WriteOptions
    from dovetail.sim.kube.replies import Reply
    from dovetail.sim.kube.streams import Stream
    from dovetail.sim.kube.types import Registry

_HEALTH = ("healthz", "livez", "readyz")


@dataclass(frozen=True, slots=True)
class Request:
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
    def parameters(self) -> Parameters:
        """The query."""
        return Parameters(self.query)

    @property
    def client(self) -> str:
        """The client's own name: its user agent up to the first slash."""
        return self.agent.partition("/")[0]

    @property
    def of_objects(self) -> bool:
        """Whether the path is below a group version."""
        prefix = {"api": 2, "apis": 3}.get(self.parts[0] if self.parts else "")
        return prefix is not None and len(self.parts) > prefix

    def options(self, verb: str, manager: str) -> WriteOptions:
        """What a write asks for."""
        return self.parameters.write(verb, manager, self.user, self.warnings)

    def call(self, registry: Registry) -> Call | None:
        """The request as fault rules know it; None when it is not about objects."""
        if not self.of_objects:
            return None
        try:
            route = find_route(registry, self.parts)
            verb = route.verb(self.method)
        except (NotServed, status.ApiError):
            return None
        if verb in ("list", "get") and (route.watching or self.query.get("watch") in ("true", "1")):
            verb = "watch"
        return Call(verb, route.info.resource, route.namespace, route.name, route.subresource, self.client)


async def respond(api: ApiServer, request: Request, fault: Fault | None = None) -> Reply | Stream:
    """The answer to a request."""
    if request.of_objects:
        return await _about_objects(api, request, find_route(api.registry, request.parts), fault)
    if request.method != "GET":
        raise status.method_not_allowed(request.method)
    if request.parts and request.parts[0] in _HEALTH:
        return text("ok")
    return api.documents.answer(request)


async def _about_objects(
    api: ApiServer, request: Request, route: Route, fault: Fault | None
) -> Reply | Stream:
    verb = route.verb(request.method)
    api.handler.subresources.refuse_containers(route.info, route.key, route.subresource, verb)
    if route.info.deprecation_warning:
        request.warnings.append(route.info.deprecation_warning)
    choose(request.accept)  # before anything is written: a write whose answer cannot be shown must not happen
    if verb in ("list", "get") and (route.watching or request.parameters.flag("watch")):
        return await start_watch(api, request, route, fault)
    match verb:
        case "get":
            return await read_item(api, request, route, fault)
        case "list":
            return await read_list(api, request, route, fault)
        case "create":
            return _create(api, request, route)
        case "update":
            return _update(api, request, route)
        case "patch":
            return _patch(api, request, route)
        case _:
            return _delete(api, request, route)


def _create(api: ApiServer, request: Request, route: Route) -> Reply:
    options = request.options("create", request.client or "unknown")
    body = _object_body(request, options)
    if route.subresource:
        obj = api.handler.subresources.create(route.info, route.key, route.subresource, body, options)
    else:
        obj = api.handler.create(route.info, route.namespace, body, options)
    return show_written(api, request, route, obj, 201)


def _update(api: ApiServer, request: Request, route: Route) -> Reply:
    options = request.options("update", request.client or "unknown")
    body = _object_body(request, options)
    obj, created = api.handler.update(route.info, route.key, body, options, route.subresource)
    return show_written(api, request, route, obj, 201 if created else 200)


def _patch(api: ApiServer, request: Request, route: Route) -> Reply:
    kind = patch_kind(request.content_type)
    options = request.options("patch", "" if kind == "apply" else request.client or "unknown")
    body = read_patch(request.body, kind, options.validation == "Strict")
    obj, created = api.handler.patch(route.info, route.key, body, kind, options, route.subresource)
    return show_written(api, request, route, obj, 201 if created else 200)


def _delete(api: ApiServer, request: Request, route: Route) -> Reply:
    body = read_object(request.body, request.content_type) if request.body.strip() else None
    options = request.parameters.delete(body)
    if route.name:
        return show_written(api, request, route, api.handler.delete(route.info, route.key, options), 200)
    listed = list_options(api, request, route)
    deleted = api.handler.delete_collection(route.info, listed, options)
    return show_list(api, request, route.info, deleted)


def _object_body(request: Request, options: WriteOptions) -> dict[str, Any]:
    body = read_object(request.body, request.content_type, options.validation == "Strict")
    if not isinstance(body, dict):
        kind = media_type(request.content_type) or "application/json"
        raise status.bad_request(f"the body of the request ({kind}) must be an object")
    return body
