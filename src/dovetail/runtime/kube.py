"""The Kubernetes client: records in, records out, and every failure given its meaning."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import msgspec

from dovetail.api import codec
from dovetail.api.meta import Kind, Object
from dovetail.errors import (
    AlreadyExists,
    Conflict,
    DovetailError,
    Expired,
    Gone,
    Invalid,
    KubeStatus,
    NotAuthorized,
    Refused,
    Retry,
    Throttled,
)
from dovetail.ports import Clock
from dovetail.runtime import metrics
from dovetail.runtime.transport import ApiReply, ApiRequest, Lines, Transport
from dovetail.throttle import Throttle

__all__ = ["KubeCall", "KubeClient", "build_failure", "build_path", "read_retry_after"]


class _Status(msgspec.Struct):
    reason: str = ""
    message: str = ""
    details: dict[str, Any] | None = None


_MEANING: Mapping[int, type[DovetailError]] = {
    400: Invalid,
    401: NotAuthorized,
    403: NotAuthorized,
    404: Gone,
    408: Retry,
    409: Conflict,
    410: Expired,
    422: Invalid,
}


def build_failure(
    doing: str, code: int, body: bytes, headers: Mapping[str, str] | None = None
) -> DovetailError:
    """The error that tells a caller what to do next; the server's words stay attached as its cause."""
    try:
        status = msgspec.json.decode(body, type=_Status)
    except msgspec.MsgspecError:
        # A proxy in between answers in its own words; keep the start of them.
        status = _Status(message=body[:200].decode(errors="replace").strip())
    text = f"{doing}: {status.message or status.reason or f'the server answered {code}'}"
    error: DovetailError
    if code == 429:
        error = Throttled(text, read_retry_after(code, headers or {}))
    elif code == 409 and status.reason == "AlreadyExists":
        error = AlreadyExists(text)
    else:
        error = _MEANING.get(code, Retry if code >= 500 else Refused)(text)
    error.__cause__ = KubeStatus(code, status.reason, status.message, status.details or {})
    return error


def read_retry_after(code: int, headers: Mapping[str, str]) -> float | None:
    """How long the server asked us to wait before the same request, in seconds."""
    if code != 429 and code < 500:
        return None
    text = next((value for name, value in headers.items() if name.lower() == "retry-after"), "")
    return float(text) if text.isascii() and text.isdigit() else None


T = TypeVar("T", bound=Object)
Json = dict[str, Any]

PAGE = 500
MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
# A request that the server asked us to repeat is repeated this often before it counts as failed.
POLITE_TRIES = 5


class KubeCall(msgspec.Struct, frozen=True, kw_only=True):
    """One request as people would say it: a verb, a kind, a name."""

    method: str = "GET"
    verb: str
    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: Mapping[str, str] = {}
    body: bytes | None = None
    content_type: str = "application/json"
    new_name: str = ""
    """The name of an object that is being created, and so is not in the path."""
    polite: bool = True
    """Repeat the request when the server says when to."""

    def __str__(self) -> str:
        names = (self.namespace, self.name or self.new_name, self.subresource)
        return f"{self.verb} {self.kind} {'/'.join(name for name in names if name)}".rstrip()

    def build_request(self) -> ApiRequest:
        path = build_path(self.kind, self.namespace, self.name, self.subresource)
        return ApiRequest(self.method, path, self.query, self.body, self.content_type)


class KubeClient:
    """Speaks to one API server.

    `may_write` is asked right before every write, and before every repetition of one: a fallen leader
    must not act.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        *,
        throttle: Throttle | None = None,
        may_write: Callable[[], bool] = lambda: True,
        page: int = PAGE,
    ) -> None:
        self.transport = transport
        self._clock = clock
        self._throttle = throttle
        self._may_write = may_write
        self._page = page

    @property
    def may_write(self) -> bool:
        """Whether a write would be made just now."""
        return self._may_write()

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        reply = await self._send_call(
            KubeCall(verb="reading", kind=kind.KIND, namespace=namespace, name=name)
        )
        return codec.decode(kind, reply.body)

    async def list(
        self, kind: type[T], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> tuple[T, ...]:
        table = codec.Interner()
        read = partial(codec.decode_list, table=table)
        found: builtins.list[T] = []
        async for page in self.list_pages(kind, namespace, labels=labels, fields=fields, decode=read):
            found += page.items
        return tuple(found)

    async def list_pages(
        self,
        kind: type[T],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        decode: Callable[[type[T], bytes], codec.Listing[T]] = codec.decode_list,
    ) -> AsyncIterator[codec.Listing[T]]:
        """The pages of one list.

        A list that expired under us is heard as Expired: the caller forgets what it had and starts over.
        """
        query = build_selectors(labels, fields) | {"limit": str(self._page)}
        while True:
            call = KubeCall(verb="listing", kind=kind.KIND, namespace=namespace, query=query)
            page = decode(kind, (await self._send_call(call)).body)
            yield page
            if not page.meta.continue_token:
                return
            query = query | {"continue": page.meta.continue_token}
            # A page of pods takes tens of milliseconds to decode; others get their turn in between.
            await asyncio.sleep(0)

    @asynccontextmanager
    async def watch(self, kind: Kind, namespace: str, query: Mapping[str, str]) -> AsyncIterator[Lines]:
        """The lines of one watch; refusals are raised before there are any."""
        call = KubeCall(
            verb="watching", kind=kind, namespace=namespace, query={"watch": "true"} | dict(query)
        )
        if self._throttle is not None:
            await self._throttle.wait()
        async with AsyncExitStack() as stack:
            with metrics.client_request(self._clock, "GET", kind, "") as seen:
                lines = await stack.enter_async_context(self.transport.stream(call.build_request()))
                seen.code = lines.status
            if lines.status != 200:
                raise build_failure(str(call), lines.status, await lines.read(), lines.headers)
            yield lines

    async def create(self, obj: T) -> T:
        call = KubeCall(
            method="POST",
            verb="creating",
            kind=obj.KIND,
            namespace=obj.namespace,
            new_name=obj.name,
            body=codec.encode(obj),
        )
        return codec.decode(type(obj), (await self._send_call(call)).body)

    async def update(self, obj: T, raw: Mapping[str, Any] | None = None, *, subresource: str = "") -> T:
        """Replace the whole object. `raw` is the full document where unknown fields must survive."""
        body = codec.encode(obj) if raw is None else msgspec.json.encode(raw)
        call = _build_call(obj, "PUT", "updating", subresource, body=body)
        return codec.decode(type(obj), (await self._send_call(call)).body)

    async def patch(self, before: T, after: T, *, status: bool = False, guarded: bool = False) -> T:
        diff = codec.merge_patch(before, after)
        changed = diff.pop("status", None)
        if status:
            diff = {} if changed is None else {"status": changed}
        if not diff:
            return before
        if guarded:
            version = {"resourceVersion": before.metadata.resource_version}
            diff = diff | {"metadata": diff.get("metadata", {}) | version}
        return await self.merge_patch(before, diff, subresource="status" if status else "")

    async def merge_patch(self, obj: T, patch: Json, *, subresource: str = "") -> T:
        """A JSON merge patch, sent as it is."""
        return await self._send_patch(obj, msgspec.json.encode(patch), MERGE, subresource)

    async def json_patch(self, obj: T, operations: Sequence[Json], *, subresource: str = "") -> T:
        return await self._send_patch(obj, msgspec.json.encode(operations), JSON, subresource)

    async def apply(self, obj: T, *, manager: str, force: bool = False, subresource: str = "") -> T:
        """Server-side apply: these fields are ours; Conflict when someone else holds one, unless forced."""
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        return await self._send_patch(obj, codec.encode(obj), APPLY, subresource, query)

    async def delete(self, obj: Object, *, grace: int | None = None, guarded: bool = False) -> None:
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions"} | _build_delete_options(
            obj, grace, guarded
        )
        await self._send_call(_build_call(obj, "DELETE", "deleting", body=msgspec.json.encode(options)))

    async def evict(self, obj: Object, *, grace: int | None = None) -> None:
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": obj.name, "namespace": obj.namespace},
            "deleteOptions": _build_delete_options(obj, grace, guarded=bool(obj.uid)),
        }
        body = msgspec.json.encode(eviction)
        # A budget that says no says so with 429: that is the answer, not a reason to ask again here.
        await self._send_call(_build_call(obj, "POST", "evicting", "eviction", body=body, polite=False))

    async def serves_kind(self, kind: Kind) -> bool:
        """Whether the server knows the kind at all."""
        prefix = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        reply = await self.transport.send(ApiRequest("GET", prefix))
        if reply.status == 404:
            return False
        if reply.status != 200:
            raise build_failure(f"asking for {kind}", reply.status, reply.body, reply.headers)
        resources = msgspec.json.decode(reply.body, type=_ResourceList).resources
        return any(r.name == kind.plural for r in resources)

    async def read_version(self) -> str:
        reply = await self.transport.send(ApiRequest("GET", "/version"))
        if reply.status != 200:
            raise build_failure("asking for the version", reply.status, reply.body, reply.headers)
        told = msgspec.json.decode(reply.body, type=_Version)
        # A provider's own builds call their minor version `33+`.
        return f"{told.major}.{told.minor.rstrip('+')}"

    async def _send_patch(
        self,
        obj: T,
        body: bytes,
        content_type: str,
        subresource: str = "",
        query: Mapping[str, str] | None = None,
    ) -> T:
        call = _build_call(
            obj, "PATCH", "patching", subresource, body=body, content_type=content_type, query=query or {}
        )
        return codec.decode(type(obj), (await self._send_call(call)).body)

    async def _send_call(self, call: KubeCall) -> ApiReply:
        request = call.build_request()
        for attempt in range(POLITE_TRIES):
            if self._throttle is not None:
                await self._throttle.wait()
            if call.method != "GET" and not self._may_write():
                raise Refused(f"{call}: this process no longer leads")
            with metrics.client_request(self._clock, call.method, call.kind, call.subresource) as seen:
                reply = await self.transport.send(request)
                seen.code = reply.status
            if reply.status < 400:
                return reply
            wait = read_retry_after(reply.status, reply.headers)
            if wait is None or not call.polite or attempt == POLITE_TRIES - 1:
                break
            await self._clock.sleep(wait)
        raise build_failure(str(call), reply.status, reply.body, reply.headers)


def build_path(kind: Kind, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Where a kind, or one object of it, is found."""
    parts = ["apis", kind.group, kind.version] if kind.group else ["api", kind.version]
    if namespace and kind.namespaced:
        parts += ["namespaces", namespace]
    parts += [p for p in (kind.plural, name, subresource) if p]
    return "/" + "/".join(parts)


def build_selectors(labels: str, fields: str) -> dict[str, str]:
    """The query for these selectors."""
    return {k: v for k, v in (("labelSelector", labels), ("fieldSelector", fields)) if v}


def _build_call(obj: Object, method: str, verb: str, subresource: str = "", **more: Any) -> KubeCall:
    return KubeCall(
        method=method,
        verb=verb,
        kind=obj.KIND,
        namespace=obj.namespace,
        name=obj.name,
        subresource=subresource,
        **more,
    )


def _build_delete_options(obj: Object, grace: int | None, guarded: bool) -> Json:
    options: Json = {} if grace is None else {"gracePeriodSeconds": grace}
    return options | ({"preconditions": {"uid": obj.uid}} if guarded else {})


class _ResourceName(msgspec.Struct):
    name: str


class _Version(msgspec.Struct):
    major: str
    minor: str


class _ResourceList(msgspec.Struct):
    resources: tuple[_ResourceName, ...] = ()
