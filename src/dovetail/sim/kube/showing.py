"""Objects as the client wants to see them: whole, as a table, or as metadata alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.sim.kube import replies
from dovetail.sim.kube.lists import Page
from dovetail.sim.kube.negotiation import Form, choose
from dovetail.sim.kube.replies import Reply
from dovetail.sim.kube.store import Record, encode

if TYPE_CHECKING:
    from dovetail.sim.kube.apiserver import ApiServer
    from dovetail.sim.kube.requests import Request
    from dovetail.sim.kube.routes import Route
    from dovetail.sim.kube.types import TypeInfo
    from dovetail.sim.kube.watch import Notice


def show_object(api: ApiServer, request: Request, record: Record, code: int) -> Reply:
    """One object."""
    form = choose(request.accept)
    if form is Form.PLAIN:
        return Reply(code, record.body)
    return replies.document(_formed(api, request, record.info, record.obj, form), form, code)


def show_written(api: ApiServer, request: Request, route: Route, obj: dict[str, Any], code: int) -> Reply:
    """The answer to a write: an object of the route's type, or something else such as a Status."""
    form = choose(request.accept)
    if form in (Form.TABLE, Form.METADATA) and obj.get("kind") != route.info.kind:
        form = Form.PLAIN
    return replies.document(_formed(api, request, route.info, obj, form), form, code)


def _formed(
    api: ApiServer, request: Request, info: TypeInfo, obj: dict[str, Any], form: Form
) -> dict[str, Any]:
    if form is Form.METADATA:
        return replies.partial_metadata(obj)
    if form is Form.TABLE:
        metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        return api.table(info, [obj], request.parameters.text("includeObject"), metadata)
    return obj


def show_page(api: ApiServer, request: Request, info: TypeInfo, page: Page) -> Reply:
    """A page of a list."""
    form = choose(request.accept)
    match form:
        case Form.PLAIN:
            return _plain_page(info, page)
        case Form.METADATA:
            return replies.document(replies.metadata_list(page))
        case Form.TABLE:
            objects = [record.obj for record in page.records]
            wanted = request.parameters.text("includeObject")
            return replies.document(api.table(info, objects, wanted, replies.list_metadata(page)))
        case _:
            objects = [record.obj for record in page.records]
            return replies.document(replies.list_document(info, objects, page), form)


def _plain_page(info: TypeInfo, page: Page) -> Reply:
    chunks = replies.list_chunks(info, page)
    if len(page.records) <= replies.SLICE:
        return Reply(body=b"".join(chunks))
    return Reply(chunks=chunks)


def show_list(api: ApiServer, request: Request, info: TypeInfo, objects: Sequence[dict[str, Any]]) -> Reply:
    """A list of objects that are no longer stored."""
    records = [Record(info, ("", ""), obj, 0) for obj in objects]
    return show_page(api, request, info, Page(records, api.store.revision))


def event_body(api: ApiServer, request: Request, info: TypeInfo) -> Callable[[Notice], bytes]:
    """How a stream's objects are written."""
    form = choose(request.accept)
    if form is Form.METADATA:
        return _metadata_event
    if form is Form.TABLE:
        return _TableEvents(api, info, request.parameters.text("includeObject"))
    return lambda notice: notice.record.body


def _metadata_event(notice: Notice) -> bytes:
    if notice.type == "ERROR":
        return notice.record.body
    return encode(replies.partial_metadata(notice.record.obj))


class _TableEvents:
    """Rows one at a time; only the first event says what the columns are."""

    def __init__(self, api: ApiServer, info: TypeInfo, include: str) -> None:
        self.api = api
        self.info = info
        self.include = include
        self.described = False

    def __call__(self, notice: Notice) -> bytes:
        if notice.type in ("ERROR", "BOOKMARK"):
            return notice.record.body
        obj = notice.record.obj
        metadata = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        table = self.api.table(self.info, [obj], self.include, metadata)
        if self.described:
            table["columnDefinitions"] = None
        self.described = True
        return encode(table)
