"""Answers: objects, lists, tables and errors as bytes with their headers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from dovetail.sim.kube.negotiation import Form
from dovetail.sim.kube.status import ApiError
from dovetail.sim.kube.store import encode

if TYPE_CHECKING:
    from dovetail.sim.kube.lists import Page
    from dovetail.sim.kube.store import Record
    from dovetail.sim.kube.types import TypeInfo

JSON = "application/json"
SLICE = 500


@dataclass(frozen=True, slots=True)
class Reply:
    """One whole answer. A body in several chunks is sent as a stream."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: Sequence[tuple[str, str]] = ()
    chunks: Iterable[bytes] | None = field(default=None)


def text(body: str, code: int = 200) -> Reply:
    """A plain text answer."""
    return Reply(code, body.encode(), "text/plain; charset=utf-8")


def error(problem: ApiError) -> Reply:
    """A failure as its Status."""
    headers = [("Retry-After", str(problem.retry_after))] if problem.retry_after else []
    if problem.code == 401:
        headers.append(("WWW-Authenticate", "Bearer"))
    return Reply(problem.code, encode(problem.status()), JSON, headers)


def document(obj: Any, form: Form = Form.PLAIN, code: int = 200) -> Reply:
    """Any document, as JSON or YAML."""
    if form is Form.YAML:
        body = yaml.safe_dump(obj, sort_keys=False, allow_unicode=True).encode()
        return Reply(code, body, "application/yaml")
    return Reply(code, encode(obj))


def partial_metadata(obj: dict[str, Any]) -> dict[str, Any]:
    """An object reduced to its metadata."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }


def list_metadata(page: Page) -> dict[str, Any]:
    """The metadata of a list or table."""
    metadata: dict[str, Any] = {"resourceVersion": str(page.revision)}
    if page.continue_token:
        metadata["continue"] = page.continue_token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
    return metadata


def list_document(info: TypeInfo, objects: Sequence[dict[str, Any]], page: Page) -> dict[str, Any]:
    """A list as a document, for forms that are not made of stored bytes."""
    return {
        "kind": info.list_kind,
        "apiVersion": info.api_version,
        "metadata": list_metadata(page),
        "items": list(objects),
    }


def metadata_list(page: Page) -> dict[str, Any]:
    """A list of metadata only."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": list_metadata(page),
        "items": [partial_metadata(record.obj) for record in page.records],
    }


def list_chunks(info: TypeInfo, page: Page) -> Iterator[bytes]:
    """A list as joined stored bytes, some hundred objects at a time.

    Items of built-in kinds carry no kind and apiVersion, as on a real server; both stand first in
    every stored object, so leaving them out is a matter of where to start reading.
    """
    head = {"kind": info.list_kind, "apiVersion": info.api_version, "metadata": list_metadata(page)}
    yield encode(head)[:-1] + b',"items":['
    skip = 0 if info.custom else len(f'{{"kind":"{info.kind}","apiVersion":"{info.api_version}",')
    for start in range(0, len(page.records), SLICE):
        part = page.records[start : start + SLICE]
        joined = b",".join(_item(record, skip) for record in part)
        yield joined if start == 0 else b"," + joined
    yield b"]}"


def _item(record: Record, skip: int) -> bytes:
    return b"{" + record.body[skip:] if skip else record.body


def pretty(reply: Reply) -> Reply:
    """The same answer, indented."""
    body = reply.body if reply.chunks is None else b"".join(reply.chunks)
    if not reply.content_type.startswith(JSON) or not body:
        return reply
    return Reply(reply.status, msgspec.json.format(body, indent=2), reply.content_type, reply.headers)
