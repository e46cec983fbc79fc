"""From a request to an answer, without a socket in sight."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from dovetail.api.schema.causes import Cause
from dovetail.sim.kube import status
from dovetail.sim.kube.http.bodies import find_patch_kind, parse_media_type, read_object, read_patch
from dovetail.sim.kube.http.proxies import answer_proxied
from dovetail.sim.kube.http.replies import (
    build_document_reply,
    build_event_encoder,
    build_text_reply,
    choose_form,
    show_list,
    show_object,
    show_page,
    show_written,
)
from dovetail.sim.kube.http.routes import ApiRoute, QueryParameters, ServerRequest, find_route
from dovetail.sim.kube.http.streams import BACKLOG, WatchStream
from dovetail.sim.kube.selectors import FieldTerm, ObjectSelector
from dovetail.sim.kube.verbs.list_watch import ListOptions, parse_revision

if TYPE_CHECKING:
    from dovetail.sim.kube.apiserver import ApiServer
    from dovetail.sim.kube.core import WriteOptions
    from dovetail.sim.kube.faults import Fault
    from dovetail.sim.kube.http.replies import ServerReply
    from dovetail.sim.kube.http.routes import ApiRoute, QueryParameters
    from dovetail.sim.kube.http.streams import WatchStream


_LISTS = ("initContainers", "containers", "ephemeralContainers")


def build_log_text(pod: dict[str, Any], query: QueryParameters, now: datetime) -> str:
    """The log of a pod's container, cut as the query asks."""
    container = _find_container(pod, query.read_text("container"))
    lines = (
        []
        if query.read_flag("previous")
        else list(_list_log_lines(pod, container["name"], container.get("image", "")))
    )
    since = _read_since(query, now)
    if since is not None:
        lines = [(moment, line) for moment, line in lines if datetime.fromisoformat(moment) >= since]
    tail = query.read_number("tailLines")
    if tail is not None:
        if tail < 0:
            raise status.bad_request("tailLines must be greater than or equal to 0")
        lines = lines[len(lines) - tail :] if tail < len(lines) else lines
    stamped = bool(query.read_flag("timestamps"))
    whole = "".join(f"{moment} {line}\n" if stamped else f"{line}\n" for moment, line in lines)
    limit = query.read_number("limitBytes")
    return whole if limit is None else whole.encode()[: max(limit, 0)].decode(errors="ignore")


def _find_container(pod: dict[str, Any], name: str) -> dict[str, Any]:
    pod_name = pod["metadata"]["name"]
    everyone = [each for part in _LISTS for each in pod["spec"].get(part) or ()]
    if name:
        found: dict[str, Any] | None = next((each for each in everyone if each["name"] == name), None)
        if found is None:
            raise status.bad_request(f"container {name} is not valid for pod {pod_name}")
        return found
    mains: list[dict[str, Any]] = pod["spec"].get("containers") or []
    if len(mains) != 1:
        names = " ".join(each["name"] for each in mains)
        text = f"a container name must be specified for pod {pod_name}, choose one of: [{names}]"
        raise status.bad_request(text)
    return mains[0]


def _read_since(query: QueryParameters, now: datetime) -> datetime | None:
    seconds, moment = query.read_number("sinceSeconds"), query.read_text("sinceTime")
    if seconds is not None:
        return now - timedelta(seconds=min(abs(seconds), 1 << 31))
    try:
        return datetime.fromisoformat(moment) if moment else None
    except ValueError as error:
        raise status.bad_request(f'sinceTime "{moment}" is not a time') from error


def _list_log_lines(pod: dict[str, Any], name: str, image: str) -> Iterator[tuple[str, str]]:
    states = pod.get("status", {})
    found = [*(states.get("initContainerStatuses") or ()), *(states.get("containerStatuses") or ())]
    for state in (each.get("state", {}) for each in found if each.get("name") == name):
        begun = state.get("running") or state.get("terminated") or {}
        if begun.get("startedAt"):
            yield begun["startedAt"], f"{name}: started {image} on {pod['spec'].get('nodeName', 'no node')}"
        if ended := state.get("terminated", {}).get("finishedAt"):
            yield ended, f"{name}: ended with code {state['terminated'].get('exitCode', 0)}"


_FRESH_WITHIN = 3.0
_FRESH_STEP = 0.05
_SHORTEST_WATCH, _LONGEST_WATCH = 1800, 3600


async def read_item(
    api: ApiServer, request: ServerRequest, route: ApiRoute, fault: Fault | None
) -> ServerReply:
    """One object or subresource."""
    if route.subresource == "log":
        record = api.handler.get(route.info, route.key)
        return build_text_reply(build_log_text(record.obj, request.parameters, api.clock.now()))
    await _wait_for_revision(api, request.parameters.read_text("resourceVersion"))
    if route.subresource not in ("", "status"):
        return build_document_reply(api.handler.subresources.get(route.info, route.key, route.subresource))
    record = api.handler.get(route.info, route.key, fault.behind if fault else 0)
    return show_object(api, request, record, 200)


async def read_list(
    api: ApiServer, request: ServerRequest, route: ApiRoute, fault: Fault | None
) -> ServerReply:
    """A page of objects."""
    await _wait_for_revision(api, request.parameters.read_text("resourceVersion"))
    options = read_list_options(api, request, route)
    if fault is not None and fault.behind and not options.continue_token:
        behind = api.handler.find_revision_behind(route.info, fault.behind)
        options = ListOptions(
            options.namespace, options.selector, options.limit, resource_version=str(behind), match="Exact"
        )
    return show_page(api, request, route.info, api.handler.list(route.info, options))


def read_list_options(api: ApiServer, request: ServerRequest, route: ApiRoute) -> ListOptions:
    """What a list or deletecollection selects."""
    query = request.parameters
    limit = query.read_number("limit") or 0
    return ListOptions(
        namespace=route.namespace,
        selector=_read_selector(api, request, route),
        limit=max(limit, 0),
        continue_token=query.read_text("continue"),
        resource_version=query.read_text("resourceVersion"),
        match=query.read_text("resourceVersionMatch"),
    )


def _read_selector(api: ApiServer, request: ServerRequest, route: ApiRoute) -> ObjectSelector:
    query = request.parameters
    selector = api.handler.parse_selector(
        route.info, query.read_text("labelSelector"), query.read_text("fieldSelector")
    )
    if route.name:
        named = FieldTerm("metadata.name", route.name, False)
        return ObjectSelector(selector.labels, (named, *selector.fields))
    return selector


async def _wait_for_revision(api: ApiServer, asked: str) -> None:
    """Give the server a moment to reach a revision a client has seen elsewhere."""
    revision = parse_revision(asked)
    deadline = api.clock.monotonic() + _FRESH_WITHIN
    while revision > api.store.revision:
        if api.clock.monotonic() >= deadline:
            raise status.version_too_large(revision, api.store.revision)
        await api.clock.sleep(_FRESH_STEP)


async def start_watch(
    api: ApiServer, request: ServerRequest, route: ApiRoute, fault: Fault | None
) -> WatchStream:
    """A stream from where the client asks."""
    query = request.parameters
    initial, bookmarks = query.read_flag("sendInitialEvents"), bool(query.read_flag("allowWatchBookmarks"))
    _check_initial_events(request, initial)
    if initial:
        await _wait_for_revision(api, query.read_text("resourceVersion"))
    watch = api.handler.watch(
        route.info,
        route.namespace,
        _read_selector(api, request, route),
        query.read_text("resourceVersion"),
        initial,
        bookmarks,
        BACKLOG,
    )
    if fault is not None and fault.watch_events is not None:
        watch.end_after(fault.watch_events, fault.watch_end)
    seconds = query.read_number("timeoutSeconds") or api.audit.randint(_SHORTEST_WATCH, _LONGEST_WATCH)
    delay = fault.watch_delay if fault is not None else 0.0
    return WatchStream(watch, build_event_encoder(api, request, route.info), max(seconds, 1), delay)


def _check_initial_events(request: ServerRequest, initial: bool | None) -> None:
    match = request.parameters.read_text("resourceVersionMatch")
    causes = []
    if initial is None and match:
        text_ = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        causes.append(Cause("resourceVersionMatch", "FieldValueForbidden", text_))
    elif initial is not None and match != "NotOlderThan":
        text_ = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        causes.append(Cause("resourceVersionMatch", "FieldValueForbidden", text_))
    if causes:
        raise status.invalid_kind("ListOptions", "meta.k8s.io", "", causes)


_HEALTH = ("healthz", "livez", "readyz")


async def answer_request(
    api: ApiServer, request: ServerRequest, fault: Fault | None = None
) -> ServerReply | WatchStream:
    """The answer to a request."""
    if request.of_objects:
        return await _answer_object_request(api, request, find_route(api.registry, request.parts), fault)
    if request.method != "GET":
        raise status.method_not_allowed(request.method)
    if request.parts and request.parts[0] in _HEALTH:
        return build_text_reply("ok")
    return api.documents.answer_request(request)


async def _answer_object_request(
    api: ApiServer, request: ServerRequest, route: ApiRoute, fault: Fault | None
) -> ServerReply | WatchStream:
    verb = route.find_verb(request.method)
    api.handler.subresources.refuse_containers(route.info, route.key, route.subresource, verb)
    if route.info.deprecation_warning:
        request.warnings.append(route.info.deprecation_warning)
    if route.subresource == "proxy":
        return answer_proxied(api, request, route)
    choose_form(
        request.accept
    )  # before anything is written: a write whose answer cannot be shown must not happen
    if verb in ("list", "get") and (route.watching or request.parameters.read_flag("watch")):
        return await start_watch(api, request, route, fault)
    match verb:
        case "get":
            return await read_item(api, request, route, fault)
        case "list":
            return await read_list(api, request, route, fault)
        case "create":
            return _create_object(api, request, route)
        case "update":
            return _update_object(api, request, route)
        case "patch":
            return _patch_object(api, request, route)
        case _:
            return _delete_object(api, request, route)


def _create_object(api: ApiServer, request: ServerRequest, route: ApiRoute) -> ServerReply:
    options = request.read_write_options("create", request.client or "unknown")
    body = _read_object_body(request, options)
    if route.subresource:
        obj = api.handler.subresources.create(route.info, route.key, route.subresource, body, options)
    else:
        obj = api.handler.create(route.info, route.namespace, body, options)
    return show_written(api, request, route, obj, 201)


def _update_object(api: ApiServer, request: ServerRequest, route: ApiRoute) -> ServerReply:
    options = request.read_write_options("update", request.client or "unknown")
    body = _read_object_body(request, options)
    obj, created = api.handler.update(route.info, route.key, body, options, route.subresource)
    return show_written(api, request, route, obj, 201 if created else 200)


def _patch_object(api: ApiServer, request: ServerRequest, route: ApiRoute) -> ServerReply:
    kind = find_patch_kind(request.content_type)
    options = request.read_write_options("patch", "" if kind == "apply" else request.client or "unknown")
    body = read_patch(request.body, kind, options.validation == "Strict")
    obj, created = api.handler.patch(route.info, route.key, body, kind, options, route.subresource)
    return show_written(api, request, route, obj, 201 if created else 200)


def _delete_object(api: ApiServer, request: ServerRequest, route: ApiRoute) -> ServerReply:
    body = read_object(request.body, request.content_type) if request.body.strip() else None
    options = request.parameters.read_delete_options(body)
    if route.name:
        return show_written(api, request, route, api.handler.delete(route.info, route.key, options), 200)
    listed = read_list_options(api, request, route)
    deleted = api.handler.delete_collection(route.info, listed, options)
    return show_list(api, request, route.info, deleted)


def _read_object_body(request: ServerRequest, options: WriteOptions) -> dict[str, Any]:
    body = read_object(request.body, request.content_type, options.validation == "Strict")
    if not isinstance(body, dict):
        kind = parse_media_type(request.content_type) or "application/json"
        raise status.bad_request(f"the body of the request ({kind}) must be an object")
    return body
