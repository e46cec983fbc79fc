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
from dovetail.errors import Refused
from dovetail.ports import Clock
from dovetail.runtime import metrics
from dovetail.runtime.failures import failure, retry_after
from dovetail.runtime.throttle import Throttle
from dovetail.runtime.transport import Lines, Reply, Request, Transport

__all__ = ["Call", "KubeClient", "path_of"]

T = TypeVar("T", bound=Object)
Json = dict[str, Any]

PAGE = 500
MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
# A request that the server asked us to repeat is repeated this often before it counts as failed.
POLITE_TRIES = 5


class Call(msgspec.Struct, frozen=True, kw_only=True):
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

    def request(self) -> Request:
        path = path_of(self.kind, self.namespace, self.name, self.subresource)
        return Request(self.method, path, self.query, self.body, self.content_type)


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
        reply = await self._call(Call(verb="reading", kind=kind.KIND, namespace=namespace, name=name))
        return codec.decode(kind, reply.body)

    async def list(
        self, kind: type[T], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> tuple[T, ...]:
        table = codec.Interner()
        read = partial(codec.decode_list, table=table)
        found: builtins.list[T] = []
        async for page in self.pages(kind, namespace, labels=labels, fields=fields, decode=read):
            found += page.items
        return tuple(found)

    async def pages(
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
        query = selecting(labels, fields) | {"limit": str(self._page)}
        while True:
            call = Call(verb="listing", kind=kind.KIND, namespace=namespace, query=query)
            page = decode(kind, (await self._call(call)).body)
            yield page
            if not page.meta.continue_token:
                return
            query = query | {"continue": page.meta.continue_token}
            # A page of pods takes tens of milliseconds to decode; others get their turn in between.
            await asyncio.sleep(0)

    @asynccontextmanager
    async def watch(self, kind: Kind, namespace: str, query: Mapping[str, str]) -> AsyncIterator[Lines]:
        """The lines of one watch; refusals are raised before there are any."""
        call = Call(verb="watching", kind=kind, namespace=namespace, query={"watch": "true"} | dict(query))
        if self._throttle is not None:
            await self._throttle.wait()
        async with AsyncExitStack() as stack:
            with metrics.client_request(self._clock, "GET", kind, "") as seen:
                lines = await stack.enter_async_context(self.transport.stream(call.request()))
                seen.code = lines.status
            if lines.status != 200:
                raise failure(str(call), lines.status, await lines.read(), lines.headers)
            yield lines

    async def create(self, obj: T) -> T:
        call = Call(
            method="POST",
            verb="creating",
            kind=obj.KIND,
            namespace=obj.namespace,
            new_name=obj.name,
            body=codec.encode(obj),
        )
        return codec.decode(type(obj), (await self._call(call)).body)

    async def update(self, obj: T, raw: Mapping[str, Any] | None = None, *, subresource: str = "") -> T:
        """Replace the whole object. `raw` is the full document where unknown fields must survive."""
        body = codec.encode(obj) if raw is None else msgspec.json.encode(raw)
        call = _about(obj, "PUT", "updating", subresource, body=body)
        return codec.decode(type(obj), (await self._call(call)).body)

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
        return await self.merge(before, diff, subresource="status" if status else "")

    async def merge(self, obj: T, patch: Json, *, subresource: str = "") -> T:
        """A JSON merge patch, sent as it is."""
        return await self._patched(obj, msgspec.json.encode(patch), MERGE, subresource)

    async def json_patch(self, obj: T, operations: Sequence[Json], *, subresource: str = "") -> T:
        return await self._patched(obj, msgspec.json.encode(operations), JSON, subresource)

    async def strategic_patch(self, obj: T, patch: Json, *, subresource: str = "") -> T:
        return await self._patched(obj, msgspec.json.encode(patch), STRATEGIC, subresource)

    async def apply(self, obj: T, *, manager: str, force: bool = False, subresource: str = "") -> T:
        """Server-side apply: these fields are ours; Conflict when someone else holds one, unless forced."""
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        return await self._patched(obj, codec.encode(obj), APPLY, subresource, query)

    async def delete(self, obj: Object, *, grace: int | None = None, guarded: bool = False) -> None:
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions"} | _deletion(obj, grace, guarded)
        await self._call(_about(obj, "DELETE", "deleting", body=msgspec.json.encode(options)))

    async def evict(self, obj: Object, *, grace: int | None = None) -> None:
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": obj.name, "namespace": obj.namespace},
            "deleteOptions": _deletion(obj, grace, guarded=bool(obj.uid)),
        }
        body = msgspec.json.encode(eviction)
        # A budget that says no says so with 429: that is the answer, not a reason to ask again here.
        await self._call(_about(obj, "POST", "evicting", "eviction", body=body, polite=False))

    async def serves(self, kind: Kind) -> bool:
        """Whether the server knows the kind at all."""
        prefix = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        reply = await self.transport.send(Request("GET", prefix))
        if reply.status == 404:
            return False
        if reply.status != 200:
            raise failure(f"asking for {kind}", reply.status, reply.body, reply.headers)
        resources = msgspec.json.decode(reply.body, type=_ResourceList).resources
        return any(r.name == kind.plural for r in resources)

    async def version(self) -> str:
        reply = await self.transport.send(Request("GET", "/version"))
        if reply.status != 200:
            raise failure("asking for the version", reply.status, reply.body, reply.headers)
        told = msgspec.json.decode(reply.body, type=_Version)
        # A provider's own builds call their minor version `33+`.
        return f"{told.major}.{told.minor.rstrip('+')}"

    async def _patched(
        self,
        obj: T,
        body: bytes,
        content_type: str,
        subresource: str = "",
        query: Mapping[str, str] | None = None,
    ) -> T:
        call = _about(
            obj, "PATCH", "patching", subresource, body=body, content_type=content_type, query=query or {}
        )
        return codec.decode(type(obj), (await self._call(call)).body)

    async def _call(self, call: Call) -> Reply:
        request = call.request()
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
            wait = retry_after(reply.status, reply.headers)
            if wait is None or not call.polite or attempt == POLITE_TRIES - 1:
                break
            await self._clock.sleep(wait)
        raise failure(str(call), reply.status, reply.body, reply.headers)


def path_of(kind: Kind, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Where a kind, or one object of it, is found."""
    parts = ["apis", kind.group, kind.version] if kind.group else ["api", kind.version]
    if namespace and kind.namespaced:
        parts += ["namespaces", namespace]
    parts += [p for p in (kind.plural, name, subresource) if p]
    return "/" + "/".join(parts)


def selecting(labels: str, fields: str) -> dict[str, str]:
    """The query for these selectors."""
    return {k: v for k, v in (("labelSelector", labels), ("fieldSelector", fields)) if v}


def _about(obj: Object, method: str, verb: str, subresource: str = "", **more: Any) -> Call:
    return Call(
        method=method,
        verb=verb,
        kind=obj.KIND,
        namespace=obj.namespace,
        name=obj.name,
        subresource=subresource,
        **more,
    )


def _deletion(obj: Object, grace: int | None, guarded: bool) -> Json:
    options: Json = {} if grace is None else {"gracePeriodSeconds": grace}
    return options | ({"preconditions": {"uid": obj.uid}} if guarded else {})


class _ResourceName(msgspec.Struct):
    name: str


class _Version(msgspec.Struct):
    major: str
    minor: str


class _ResourceList(msgspec.Struct):
    resources: tuple[_ResourceName, ...] = ()
