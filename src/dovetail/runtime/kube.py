"""The Kubernetes client: records in, records out, and every failure given its meaning."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
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
    NotAuthorized,
    Refused,
    Retry,
    Throttled,
)
from dovetail.ports import Clock
from dovetail.runtime import metrics
from dovetail.runtime.throttle import Throttle
from dovetail.runtime.transport import Reply, Request, Transport

__all__ = ["KubeClient", "KubeStatus", "path_of"]

T = TypeVar("T", bound=Object)
Json = dict[str, Any]

PAGE = 500
MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
# A request that the server asked us to repeat is repeated this often before it counts as failed.
POLITE_TRIES = 5


class KubeStatus(Exception):
    """The server's own words about a failure: the cause behind the error a caller sees."""

    def __init__(self, code: int, reason: str, message: str, details: Mapping[str, Any]) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details


class _Status(msgspec.Struct):
    reason: str = ""
    message: str = ""
    details: dict[str, Any] | None = None


class KubeClient:
    """Speaks to one API server. `may_write` is asked before every write: a fallen leader must not act."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        *,
        throttle: Throttle | None = None,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self.transport = transport
        self._clock = clock
        self._throttle = throttle
        self._may_write = may_write

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        reply = await self._call("GET", kind.KIND, namespace, name)
        return codec.decode(kind, reply.body)

    async def list(
        self, kind: type[T], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> tuple[T, ...]:
        found: list[T] = []
        async for page, _ in self.pages(kind, namespace, labels=labels, fields=fields):
            found += page
        return tuple(found)

    async def pages(
        self, kind: type[T], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> AsyncIterator[tuple[tuple[T, ...], str]]:
        """Pages of objects, each with the list's resource version.

        A page that expired under us is heard as Expired: the caller forgets what it had and starts over.
        """
        query = _without_empty({"limit": str(PAGE), "labelSelector": labels, "fieldSelector": fields})
        token = ""
        while True:
            asked = query | ({"continue": token} if token else {})
            reply = await self._call("GET", kind.KIND, namespace, "", query=asked, verb="listing")
            records, meta = codec.decode_list(kind, reply.body)
            yield records, meta.resource_version
            token = meta.continue_token
            if not token:
                return
            # A page of pods takes tens of milliseconds to decode; others get their turn in between.
            await asyncio.sleep(0)

    async def create(self, obj: T) -> T:
        reply = await self._write(
            "POST", obj.KIND, obj.namespace, "", codec.encode(obj), name_for_errors=obj.name
        )
        return codec.decode(type(obj), reply.body)

    async def update(self, obj: T, raw: Mapping[str, Any] | None = None, *, subresource: str = "") -> T:
        """Replace the whole object. `raw` is the full document where unknown fields must survive."""
        body = codec.encode(obj) if raw is None else msgspec.json.encode(raw)
        reply = await self._write("PUT", obj.KIND, obj.namespace, obj.name, body, subresource=subresource)
        return codec.decode(type(obj), reply.body)

    async def patch(self, before: T, after: T, *, status: bool = False, guarded: bool = False) -> T:
        diff = codec.merge_patch(before, after)
        diff = {"status": diff["status"]} if status and "status" in diff else diff
        if not status:
            diff.pop("status", None)
        elif "status" not in diff:
            return before
        if not diff:
            return before
        if guarded:
            diff = diff | {
                "metadata": diff.get("metadata", {}) | {"resourceVersion": before.metadata.resource_version}
            }
        body = msgspec.json.encode(diff)
        return await self.patch_bytes(before, body, MERGE, subresource="status" if status else "")

    async def patch_bytes(
        self,
        obj: T,
        body: bytes,
        content_type: str,
        *,
        subresource: str = "",
        query: Mapping[str, str] | None = None,
    ) -> T:
        """Any patch the server knows, as bytes: merge, JSON, strategic or apply."""
        reply = await self._write(
            "PATCH",
            obj.KIND,
            obj.namespace,
            obj.name,
            body,
            subresource,
            content_type=content_type,
            query=query,
        )
        return codec.decode(type(obj), reply.body)

    async def json_patch(self, obj: T, operations: Sequence[Json], *, subresource: str = "") -> T:
        return await self.patch_bytes(obj, msgspec.json.encode(operations), JSON, subresource=subresource)

    async def strategic_patch(self, obj: T, patch: Json, *, subresource: str = "") -> T:
        return await self.patch_bytes(obj, msgspec.json.encode(patch), STRATEGIC, subresource=subresource)

    async def apply(self, obj: T, *, manager: str, force: bool = False, subresource: str = "") -> T:
        """Server-side apply: these fields are ours; Conflict when someone else holds one, unless forced."""
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        return await self.patch_bytes(obj, codec.encode(obj), APPLY, subresource=subresource, query=query)

    async def delete(self, obj: Object, *, grace: int | None = None, guarded: bool = False) -> None:
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if guarded:
            options["preconditions"] = {"uid": obj.uid}
        await self._write("DELETE", obj.KIND, obj.namespace, obj.name, msgspec.json.encode(options))

    async def evict(self, obj: Object, *, grace: int | None = None) -> None:
        options: Json = {"preconditions": {"uid": obj.uid}} if obj.uid else {}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": obj.name, "namespace": obj.namespace},
            "deleteOptions": options,
        }
        body = msgspec.json.encode(eviction)
        # A budget that says no says so with 429: that is the answer, not a reason to ask again here.
        await self._write("POST", obj.KIND, obj.namespace, obj.name, body, "eviction", polite=False)

    async def serves(self, kind: Kind) -> bool:
        """Whether the server knows the kind at all."""
        prefix = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        reply = await self.transport.send(Request("GET", prefix))
        if reply.status != 200:
            return False
        resources = msgspec.json.decode(reply.body, type=_ResourceList).resources
        return any(r.name == kind.plural for r in resources)

    async def _write(
        self,
        method: str,
        kind: Kind,
        namespace: str,
        name: str,
        body: bytes,
        subresource: str = "",
        *,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
        polite: bool = True,
        name_for_errors: str = "",
    ) -> Reply:
        if not self._may_write():
            raise Refused(f"writing {kind} {name or name_for_errors}: this process no longer leads")
        return await self._call(
            method,
            kind,
            namespace,
            name,
            subresource,
            body,
            content_type,
            query,
            polite=polite,
            shown=name_for_errors,
        )

    async def _call(
        self,
        method: str,
        kind: Kind,
        namespace: str,
        name: str,
        subresource: str = "",
        body: bytes | None = None,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
        *,
        verb: str = "",
        polite: bool = True,
        shown: str = "",
    ) -> Reply:
        request = Request(
            method, path_of(kind, namespace, name, subresource), query or {}, body, content_type
        )
        target = "/".join(part for part in (namespace, name or shown, subresource) if part)
        doing = f"{verb or _VERBS[method]} {kind} {target}"
        for attempt in range(POLITE_TRIES):
            if self._throttle is not None:
                await self._throttle.wait()
            with metrics.client_request(self._clock, method, kind, subresource) as seen:
                reply = await self.transport.send(request)
                seen.code = reply.status
            if reply.status < 400:
                return reply
            wait = _retry_after(reply)
            if wait is None or not polite or attempt == POLITE_TRIES - 1:
                break
            await self._clock.sleep(wait)
        raise failure(doing.rstrip(), reply.status, reply.body, _retry_after(reply))


_VERBS = {"GET": "reading", "POST": "creating", "PUT": "updating", "PATCH": "patching", "DELETE": "deleting"}


class _ResourceName(msgspec.Struct):
    name: str


class _ResourceList(msgspec.Struct):
    resources: tuple[_ResourceName, ...] = ()


def path_of(kind: Kind, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Where a kind, or one object of it, is found."""
    parts = ["apis", kind.group, kind.version] if kind.group else ["api", kind.version]
    if namespace and kind.namespaced:
        parts += ["namespaces", namespace]
    parts += [p for p in (kind.plural, name, subresource) if p]
    return "/" + "/".join(parts)


def failure(doing: str, code: int, body: bytes, wait: float | None = None) -> DovetailError:
    """The error that tells a caller what to do next; the server's words stay attached as its cause."""
    try:
        status = msgspec.json.decode(body, type=_Status)
    except msgspec.MsgspecError:
        # A proxy in between answers in its own words; keep the start of them.
        status = _Status(message=body[:200].decode(errors="replace"))
    text = f"{doing}: {status.message or status.reason or code}"
    error: DovetailError
    if code == 429:
        error = Throttled(text, wait)
    elif code == 409:
        error = AlreadyExists(text) if status.reason == "AlreadyExists" else Conflict(text)
    else:
        error = _MEANING.get(code, Retry if code >= 500 else Refused)(text)
    error.__cause__ = KubeStatus(code, status.reason, status.message, status.details or {})
    return error


_MEANING: Mapping[int, type[DovetailError]] = {
    400: Invalid,
    401: NotAuthorized,
    403: NotAuthorized,
    404: Gone,
    410: Expired,
    422: Invalid,
}


def _retry_after(reply: Reply) -> float | None:
    if reply.status != 429 and reply.status < 500:
        return None
    text = next((v for k, v in reply.headers.items() if k.lower() == "retry-after"), "")
    return float(text) if text.isdigit() else None


def _without_empty(query: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in query.items() if value}
