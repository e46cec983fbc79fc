"""GET: one object, a list, a log or a watch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.sim.kube import status
from dovetail.sim.kube.lists import ListOptions
from dovetail.sim.kube.logs import log_text
from dovetail.sim.kube.replies import document, text
from dovetail.sim.kube.schema import Cause
from dovetail.sim.kube.selectors import FieldTerm, Selector
from dovetail.sim.kube.showing import event_body, show_object, show_page
from dovetail.sim.kube.streams import BACKLOG, Stream
from dovetail.sim.kube.watch import parse_revision

if TYPE_CHECKING:
    from dovetail.sim.kube.apiserver import ApiServer
    from dovetail.sim.kube.faults_hook import Fault
    from dovetail.sim.kube.replies import Reply
    from dovetail.sim.kube.requests import Request
    from dovetail.sim.kube.routes import Route

_FRESH_WITHIN = 3.0
_FRESH_STEP = 0.05
_SHORTEST_WATCH, _LONGEST_WATCH = 1800, 3600


async def read_item(api: ApiServer, request: Request, route: Route, fault: Fault | None) -> Reply:
    """One object or subresource."""
    if route.subresource == "log":
        record = api.handler.get(route.info, route.key)
        return text(log_text(record.obj, request.parameters, api.clock.now()))
    await _wait_for_revision(api, request.parameters.text("resourceVersion"))
    if route.subresource not in ("", "status"):
        return document(api.handler.subresources.get(route.info, route.key, route.subresource))
    record = api.handler.get(route.info, route.key, fault.behind if fault else 0)
    return show_object(api, request, record, 200)


async def read_list(api: ApiServer, request: Request, route: Route, fault: Fault | None) -> Reply:
    """A page of objects."""
    await _wait_for_revision(api, request.parameters.text("resourceVersion"))
    options = list_options(api, request, route)
    if fault is not None and fault.behind and not options.continue_token:
        behind = api.handler.revision_behind(route.info, fault.behind)
        options = ListOptions(
            options.namespace, options.selector, options.limit, resource_version=str(behind), match="Exact"
        )
    return show_page(api, request, route.info, api.handler.list(route.info, options))


def list_options(api: ApiServer, request: Request, route: Route) -> ListOptions:
    """What a list or deletecollection selects."""
    query = request.parameters
    limit = query.number("limit") or 0
    return ListOptions(
        namespace=route.namespace,
        selector=_selector(api, request, route),
        limit=max(limit, 0),
        continue_token=query.text("continue"),
        resource_version=query.text("resourceVersion"),
        match=query.text("resourceVersionMatch"),
    )


def _selector(api: ApiServer, request: Request, route: Route) -> Selector:
    query = request.parameters
    selector = api.handler.selector(route.info, query.text("labelSelector"), query.text("fieldSelector"))
    if route.name:
        named = FieldTerm("metadata.name", route.name, False)
        return Selector(selector.labels, (named, *selector.fields))
    return selector


async def _wait_for_revision(api: ApiServer, asked: str) -> None:
    """Give the server a moment to reach a revision a client has seen elsewhere."""
    revision = parse_revision(asked)
    deadline = api.clock.monotonic() + _FRESH_WITHIN
    while revision > api.store.revision:
        if api.clock.monotonic() >= deadline:
            raise status.version_too_large(revision, api.store.revision)
        await api.clock.sleep(_FRESH_STEP)


async def start_watch(api: ApiServer, request: Request, route: Route, fault: Fault | None) -> Stream:
    """A stream from where the client asks."""
    query = request.parameters
    initial, bookmarks = query.flag("sendInitialEvents"), bool(query.flag("allowWatchBookmarks"))
    _check_initial_events(request, initial)
    if initial:
        await _wait_for_revision(api, query.text("resourceVersion"))
    watch = api.handler.watch(
        route.info,
        route.namespace,
        _selector(api, request, route),
        query.text("resourceVersion"),
        initial,
        bookmarks,
        BACKLOG,
    )
    if fault is not None and fault.watch_events is not None:
        watch.doom(fault.watch_events, fault.watch_end)
    seconds = query.number("timeoutSeconds") or api.audit.randint(_SHORTEST_WATCH, _LONGEST_WATCH)
    delay = fault.watch_delay if fault is not None else 0.0
    return Stream(watch, event_body(api, request, route.info), max(seconds, 1), delay)


def _check_initial_events(request: Request, initial: bool | None) -> None:
    match = request.parameters.text("resourceVersionMatch")
    causes = []
    if initial is None and match:
        text_ = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        causes.append(Cause("resourceVersionMatch", "FieldValueForbidden", text_))
    elif initial is not None and match != "NotOlderThan":
        text_ = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        causes.append(Cause("resourceVersionMatch", "FieldValueForbidden", text_))
    if causes:
        raise status.invalid_kind("ListOptions", "meta.k8s.io", "", causes)
