"""Requests to S3 and its answers: keys in paths, fields in headers, objects as they are, lists in XML."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import format_datetime
from typing import Any
from urllib.parse import unquote
from xml.sax.saxutils import escape

from aiohttp import web

from dovetail.sim.aws.wire.query_protocol import write_members

__all__ = ["find_s3_operation", "parse_s3_request", "write_s3_answer", "write_s3_error"]

SPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
# Said of every request by clients, and of no meaning here.
_ASIDE = frozenset({"x-id"})


def find_s3_operation(request: web.Request) -> tuple[str, str, str]:
    """The operation, the bucket and the key; an empty operation for one that is not known here."""
    bucket, key = _split_path(request)
    asked = set(request.query) - _ASIDE
    if not bucket:
        return "", "", ""
    if key and not asked:
        return {"PUT": "PutObject", "GET": "GetObject"}.get(request.method, ""), bucket, key
    if request.method == "GET" and request.query.get("list-type") == "2" and not key:
        return "ListObjectsV2", bucket, ""
    if request.method == "PUT" and not key and not asked:
        return "CreateBucket", bucket, ""
    return "", bucket, key


def _split_path(request: web.Request) -> tuple[str, str]:
    path = unquote(request.raw_path.partition("?")[0]).lstrip("/")
    host = request.host.partition(":")[0]
    if host.endswith(".localhost"):
        return host.removesuffix(".localhost").removesuffix(".s3"), path
    bucket, _, key = path.partition("/")
    return bucket, key


def parse_s3_request(shape: Any, request: web.Request, body: bytes, bucket: str, key: str) -> dict[str, Any]:
    """Parameters from the path, the query, the headers and the body."""
    found: dict[str, Any] = {"Bucket": bucket}
    if key:
        found["Key"] = key
    for name, member in shape.members.items():
        place, called = member.serialization.get("location"), member.serialization.get("name", name)
        if place == "querystring" and called in request.query:
            found[name] = request.query[called]
        elif place == "header" and called in request.headers and member.type_name == "string":
            found[name] = request.headers[called]
        elif name == "Body":
            found[name] = body
    return found


def write_s3_answer(operation: Any, answer: Mapping[str, Any], request_id: str) -> web.Response:
    """An object as it is, or a list in XML; everything else in headers."""
    headers, shape = {"x-amz-request-id": request_id}, operation.output_shape
    listed: dict[str, Any] = {}
    for name, member in shape.members.items():
        value = answer.get(name)
        if value is None or name in ("Body", "ContentLength"):
            continue
        if member.serialization.get("location") == "header":
            headers[member.serialization["name"]] = _format_header(value)
        else:
            listed[name] = value
    if shape.serialization.get("payload") == "Body":
        return web.Response(body=answer["Body"], headers=headers)
    if not listed:
        return web.Response(headers=headers)
    out = [f'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="{SPACE}">']
    write_members(shape, listed, out)
    out.append("</ListBucketResult>")
    return web.Response(text="".join(out), content_type="application/xml", headers=headers)


def _format_header(value: Any) -> str:
    return str(value) if isinstance(value, str | int) else format_datetime(value, usegmt=True)


def write_s3_error(code: str, message: str, status: int, request_id: str) -> web.Response:
    said = f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
    text = f'<?xml version="1.0"?>\n<Error>{said}<RequestId>{request_id}</RequestId></Error>'
    headers = {"x-amz-request-id": request_id}
    return web.Response(text=text, content_type="application/xml", status=status, headers=headers)
