"""Objects as the client wants to see them: whole, as a table, or as metadata alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from dovetail.sim.kube import status
from dovetail.sim.kube.status import ApiError
from dovetail.sim.kube.store import StoredRecord, encode
from dovetail.sim.kube.verbs.list_watch import RecordPage

if TYPE_CHECKING:
    from dovetail.sim.kube.apiserver import ApiServer
    from dovetail.sim.kube.http.routes import ApiRoute, ServerRequest
    from dovetail.sim.kube.store import StoredRecord
    from dovetail.sim.kube.types import TypeInfo
    from dovetail.sim.kube.verbs.list_watch import RecordPage, WatchNotice


_JSON_TYPES = ("application/json", "application/*", "*/*")


class ReplyForm(Enum):
    """How an object is shown."""

    PLAIN = "application/json"
    TABLE = "application/json;as=Table"
    METADATA = "application/json;as=PartialObjectMetadata"
    YAML = "application/yaml"


def parse_media_types(header: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The media types of an Accept header with their parameters, best first."""
    found = []
    for position, entry in enumerate(header.split(",")):
        kind, *rest = (part.strip() for part in entry.split(";"))
        pairs = (part.partition("=") for part in rest)
        parameters = {name.strip().lower(): value.strip().strip('"') for name, _, value in pairs}
        if kind:
            found.append((-_parse_quality(parameters.pop("q", "")), position, kind.lower(), parameters))
    for _, _, kind, parameters in sorted(found, key=lambda each: each[:2]):
        yield kind, parameters


def _parse_quality(text: str) -> float:
    try:
        return float(text) if text else 1.0
    except ValueError:
        return 1.0


def choose_form(header: str) -> ReplyForm:
    """The form of an object or list; a 406 if none is acceptable."""
    if not header.strip():
        return ReplyForm.PLAIN
    for kind, parameters in parse_media_types(header):
        form = _match_form(kind, parameters)
        if form is not None:
            return form
    raise status.not_acceptable("application/json, application/yaml")


def _match_form(kind: str, parameters: dict[str, str]) -> ReplyForm | None:
    if kind == "application/yaml" and "as" not in parameters:
        return ReplyForm.YAML
    if kind not in _JSON_TYPES:
        return None
    wanted = parameters.get("as")
    if wanted is None:
        return ReplyForm.PLAIN
    if parameters.get("g") != "meta.k8s.io" or parameters.get("v") != "v1":
        return None
    if wanted == "Table":
        return ReplyForm.TABLE
    return ReplyForm.METADATA if wanted in ("PartialObjectMetadata", "PartialObjectMetadataList") else None


def wants_aggregated_discovery(header: str) -> bool:
    """Whether a client asks `/api` or `/apis` for everything at once."""
    for kind, parameters in parse_media_types(header):
        if kind not in _JSON_TYPES:
            continue
        if parameters.get("as") == "APIGroupDiscoveryList":
            if parameters.get("g") == "apidiscovery.k8s.io" and parameters.get("v") == "v2":
                return True
        elif "as" not in parameters:
            return False
    return False


JSON = "application/json"
SLICE = 500


@dataclass(frozen=True, slots=True)
class ServerReply:
    """One whole answer. A body in several chunks is sent as a stream."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: Sequence[tuple[str, str]] = ()
    chunks: Iterable[bytes] | None = field(default=None)


def build_text_reply(body: str, code: int = 200) -> ServerReply:
    """A plain text answer."""
    return ServerReply(code, body.encode(), "text/plain; charset=utf-8")


def build_error_reply(problem: ApiError) -> ServerReply:
    """A failure as its Status."""
    headers = [("Retry-After", str(problem.retry_after))] if problem.retry_after else []
    if problem.code == 401:
        headers.append(("WWW-Authenticate", "Bearer"))
    return ServerReply(problem.code, encode(problem.to_status()), JSON, headers)


def build_document_reply(obj: Any, form: ReplyForm = ReplyForm.PLAIN, code: int = 200) -> ServerReply:
    """Any document, as JSON or YAML."""
    if form is ReplyForm.YAML:
        body = yaml.safe_dump(obj, sort_keys=False, allow_unicode=True).encode()
        return ServerReply(code, body, "application/yaml")
    return ServerReply(code, encode(obj))


def build_partial_metadata(obj: dict[str, Any]) -> dict[str, Any]:
    """An object reduced to its metadata."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }


def build_list_metadata(page: RecordPage) -> dict[str, Any]:
    """The metadata of a list or table."""
    metadata: dict[str, Any] = {"resourceVersion": str(page.revision)}
    if page.continue_token:
        metadata["continue"] = page.continue_token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
    return metadata


def build_list(info: TypeInfo, objects: Sequence[dict[str, Any]], page: RecordPage) -> dict[str, Any]:
    """A list as a document, for forms that are not made of stored bytes."""
    return {
        "kind": info.list_kind,
        "apiVersion": info.api_version,
        "metadata": build_list_metadata(page),
        "items": list(objects),
    }


def build_metadata_list(page: RecordPage) -> dict[str, Any]:
    """A list of metadata only."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": build_list_metadata(page),
        "items": [build_partial_metadata(record.obj) for record in page.records],
    }


def encode_list_chunks(info: TypeInfo, page: RecordPage) -> Iterator[bytes]:
    """A list as joined stored bytes, some hundred objects at a time.

    Items of built-in kinds carry no kind and apiVersion, as on a real server; both stand first in
    every stored object, so leaving them out is a matter of where to start reading.
    """
    head = {"kind": info.list_kind, "apiVersion": info.api_version, "metadata": build_list_metadata(page)}
    yield encode(head)[:-1] + b',"items":['
    skip = 0 if info.custom else len(f'{{"kind":"{info.kind}","apiVersion":"{info.api_version}",')
    for start in range(0, len(page.records), SLICE):
        part = page.records[start : start + SLICE]
        joined = b",".join(_encode_item(record, skip) for record in part)
        yield joined if start == 0 else b"," + joined
    yield b"]}"


def _encode_item(record: StoredRecord, skip: int) -> bytes:
    return b"{" + record.body[skip:] if skip else record.body


def indent_reply(reply: ServerReply) -> ServerReply:
    """The same answer, indented."""
    body = reply.body if reply.chunks is None else b"".join(reply.chunks)
    if not reply.content_type.startswith(JSON) or not body:
        return reply
    return ServerReply(reply.status, msgspec.json.format(body, indent=2), reply.content_type, reply.headers)


def show_object(api: ApiServer, request: ServerRequest, record: StoredRecord, code: int) -> ServerReply:
    """One object."""
    form = choose_form(request.accept)
    if form is ReplyForm.PLAIN:
        return ServerReply(code, record.body)
    return build_document_reply(_convert_object(api, request, record.info, record.obj, form), form, code)


def show_written(
    api: ApiServer, request: ServerRequest, route: ApiRoute, obj: dict[str, Any], code: int
) -> ServerReply:
    """The answer to a write: an object of the route's type, or something else such as a Status."""
    form = choose_form(request.accept)
    if form in (ReplyForm.TABLE, ReplyForm.METADATA) and obj.get("kind") != route.info.kind:
        form = ReplyForm.PLAIN
    return build_document_reply(_convert_object(api, request, route.info, obj, form), form, code)


def _convert_object(
    api: ApiServer, request: ServerRequest, info: TypeInfo, obj: dict[str, Any], form: ReplyForm
) -> dict[str, Any]:
    if form is ReplyForm.METADATA:
        return build_partial_metadata(obj)
    if form is ReplyForm.TABLE:
        metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        return api.build_table(info, [obj], request.parameters.read_text("includeObject"), metadata)
    return obj


def show_page(api: ApiServer, request: ServerRequest, info: TypeInfo, page: RecordPage) -> ServerReply:
    """A page of a list."""
    form = choose_form(request.accept)
    match form:
        case ReplyForm.PLAIN:
            return _build_plain_page(info, page)
        case ReplyForm.METADATA:
            return build_document_reply(build_metadata_list(page))
        case ReplyForm.TABLE:
            objects = [record.obj for record in page.records]
            wanted = request.parameters.read_text("includeObject")
            return build_document_reply(api.build_table(info, objects, wanted, build_list_metadata(page)))
        case _:
            objects = [record.obj for record in page.records]
            return build_document_reply(build_list(info, objects, page), form)


def _build_plain_page(info: TypeInfo, page: RecordPage) -> ServerReply:
    chunks = encode_list_chunks(info, page)
    if len(page.records) <= SLICE:
        return ServerReply(body=b"".join(chunks))
    return ServerReply(chunks=chunks)


def show_list(
    api: ApiServer, request: ServerRequest, info: TypeInfo, objects: Sequence[dict[str, Any]]
) -> ServerReply:
    """A list of objects that are no longer stored."""
    records = [StoredRecord(info, ("", ""), obj, 0) for obj in objects]
    return show_page(api, request, info, RecordPage(records, api.store.revision))


def build_event_encoder(
    api: ApiServer, request: ServerRequest, info: TypeInfo
) -> Callable[[WatchNotice], bytes]:
    """How a stream's objects are written."""
    form = choose_form(request.accept)
    if form is ReplyForm.METADATA:
        return _encode_metadata_event
    if form is ReplyForm.TABLE:
        return _TableEvents(api, info, request.parameters.read_text("includeObject"))
    return lambda notice: notice.record.body


def _encode_metadata_event(notice: WatchNotice) -> bytes:
    if notice.type == "ERROR":
        return notice.record.body
    return encode(build_partial_metadata(notice.record.obj))


class _TableEvents:
    """Rows one at a time; only the first event says what the columns are."""

    def __init__(self, api: ApiServer, info: TypeInfo, include: str) -> None:
        self.api = api
        self.info = info
        self.include = include
        self.described = False

    def __call__(self, notice: WatchNotice) -> bytes:
        if notice.type in ("ERROR", "BOOKMARK"):
            return notice.record.body
        obj = notice.record.obj
        metadata = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        table = self.api.build_table(self.info, [obj], self.include, metadata)
        if self.described:
            table["columnDefinitions"] = None
        self.described = True
        return encode(table)
