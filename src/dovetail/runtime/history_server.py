"""`GET /history`: the records that the leader remembers, as JSON lines, newest first. It only reads.

A follower remembers nothing, and says who leads. The answer carries an ETag, since when is remembered, and,
for a name nothing is known of, the nearest one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from hashlib import sha256
from time import perf_counter
from typing import Protocol
from urllib.parse import quote

from aiohttp import web
from msgspec.structs import replace

from dovetail.errors import BadInput
from dovetail.history.asking import build_query, find_nearest
from dovetail.history.record import DecisionRecord, encode_record
from dovetail.history.ring import HistoryRing
from dovetail.ports import Clock
from dovetail.runtime.transport import ApiReply

__all__ = ["LEADER", "NEAREST", "REMEMBERS", "TELLS", "HistoryServer", "LeaderView", "build_history_handler"]

REMEMBERS, NEAREST, LEADER = "Dovetail-Remembers-Since", "Dovetail-Nearest-Name", "Dovetail-Leader"
# There are sinks of notifications: which of them heard of a record may still change.
TELLS = "Dovetail-Tells"
TEXT, LINES = "text/plain; charset=utf-8", "application/jsonl; charset=utf-8"
GZIP_FROM = 64 * 1024
# Whoever asks again and again gets a fifth of the loop's time at most.
REST, LONGEST_REST = 4.0, 2.0


class LeaderView(Protocol):
    """Whether this process leads, and otherwise who does, as far as it knows."""

    @property
    def leading(self) -> bool: ...

    @property
    def leader(self) -> str: ...


class HistoryServer:
    """Answers questions about what the leader has decided.

    `list_told` names the sinks of notifications that heard of a record, where there are any.
    """

    def __init__(
        self,
        ring: HistoryRing,
        clock: Clock,
        view: LeaderView | None = None,
        list_told: Callable[[str], tuple[str, ...]] | None = None,
    ) -> None:
        self._ring = ring
        self._clock = clock
        self._view = view
        self._list_told = list_told

    def answer(self, pairs: Iterable[tuple[str, str]], known: str = "") -> ApiReply:
        """The answer to the parameters of a URL; `known` is the ETag of what the caller has already."""
        if self._view is not None and not self._view.leading:
            return _refuse_following(self._view.leader)
        if not self._ring.enabled:
            return _build_text(404, "no history is kept here: HISTORY_KEEP is 0s")
        try:
            query = build_query(pairs, self._clock.now())
        except BadInput as error:
            return _build_text(400, str(error))
        found = [self._add_told(record) for record in self._ring.find_records(query)]
        body = b"".join(encode_record(record) + b"\n" for record in found)
        headers = {"ETag": f'"{sha256(body).hexdigest()[:32]}"', "Cache-Control": "no-cache"}
        oldest = self._ring.oldest
        if oldest is not None:
            headers[REMEMBERS] = _format_time(oldest)
        if self._list_told is not None:
            headers[TELLS] = "true"
        nearest = find_nearest(self._ring, query.name) if not found else ""
        if nearest:
            headers[NEAREST] = quote(nearest, safe="/")
        if headers["ETag"] in (tag.strip().removeprefix("W/") for tag in known.split(",")):
            return ApiReply(304, b"", headers)
        return ApiReply(200, body, {**headers, "Content-Type": LINES})

    def _add_told(self, record: DecisionRecord) -> DecisionRecord:
        told = self._list_told(record.id) if self._list_told is not None else ()
        return replace(record, told=told) if told else record


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _refuse_following(leader: str) -> ApiReply:
    told = f"this process does not lead; {leader} does" if leader else "no process leads yet"
    reply = _build_text(503, f"{told}, and the history is the leader's")
    return ApiReply(reply.status, reply.body, {**reply.headers, LEADER: quote(leader, safe="_")})


def _build_text(status: int, sentence: str) -> ApiReply:
    return ApiReply(status, f"{sentence}\n".encode("utf-8", "replace"), {"Content-Type": TEXT})


def build_history_handler(server: HistoryServer) -> Callable[[web.Request], Awaitable[web.Response]]:
    """The same over HTTP, one answer at a time, with a rest after each."""
    turn, free_at = asyncio.Lock(), float("-inf")

    async def show(request: web.Request) -> web.Response:
        nonlocal free_at
        async with turn:
            await asyncio.sleep(max(0.0, free_at - perf_counter()))
            began = perf_counter()
            reply = server.answer(request.query.items(), request.headers.get("If-None-Match", ""))
            free_at = perf_counter() + min(REST * (perf_counter() - began), LONGEST_REST)
        response = web.Response(status=reply.status, body=reply.body or None, headers=dict(reply.headers))
        if len(reply.body) > GZIP_FROM:
            response.enable_compression()
        return response

    return show
