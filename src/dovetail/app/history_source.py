"""Where a history is asked for: of the leader, through the API server or at an address, or of a log.

The API server is asked with the caller's own rights. A Service leads to any replica of the controller; one
that only follows says so, and the question is asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import structs

from dovetail.app.published_settings import CONTROLLERS
from dovetail.errors import BadInput, DovetailError, Misconfigured
from dovetail.history.asking import encode_query, find_nearest
from dovetail.history.record import DecisionRecord, decode_record
from dovetail.history.ring import LIMIT, HistoryQuery, HistoryRing
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.credentials import Anonymous
from dovetail.runtime.history_server import LEADER, NEAREST, REMEMBERS, TELLS
from dovetail.runtime.kubeconfig import connect
from dovetail.runtime.transport import USER_AGENT, ApiReply, ApiRequest, HttpTransport, Transport

__all__ = [
    "HistoryAnswer",
    "HistorySource",
    "LeaderHistory",
    "OpenedHistory",
    "ask_for_all",
    "open_history",
    "open_leader",
]

PORT = "http-metrics"
# Where the chart's own defaults put the Service, for callers who may not list Services.
USUAL = (("kube-system", "karpenter"), ("kube-system", "dovetail"), ("karpenter", "karpenter"))
# Of two replicas one leads: to miss it this often in a row is one chance in four thousand.
TRIES = 12
PATIENCE = 20.0
# Of a log, whatever is in the time that was asked about.
FOREVER, MOST_READ = timedelta(days=36_500), 2_000_000


@dataclass(frozen=True, slots=True)
class HistoryAnswer:
    """Records, newest first; since when is remembered; and the name that was probably meant."""

    records: tuple[DecisionRecord, ...] = ()
    remembers: datetime | None = None
    nearest: str = ""
    unread: int = 0
    tag: str = ""
    unchanged: bool = False
    # Whether there are sinks of notifications, who may still hear of these records.
    tells: bool = False


class HistorySource(Protocol):
    """Something that can be asked for a history."""

    async def ask(self, query: HistoryQuery, known: str = "") -> HistoryAnswer:
        """What is found; `known` is the tag of the last answer. DovetailError says why there is none."""


OpenedHistory = AbstractAsyncContextManager[HistorySource]


async def ask_for_all(source: HistorySource, query: HistoryQuery) -> HistoryAnswer:
    """Everything that matches, in as many questions as it takes."""
    first = answer = await source.ask(structs.replace(query, limit=LIMIT))
    found = {record.id: record for record in answer.records}
    while len(answer.records) == LIMIT:
        before = len(found)
        answer = await source.ask(structs.replace(query, limit=LIMIT, until=answer.records[-1].time))
        found |= {record.id: record for record in answer.records}
        if len(found) == before:
            break
    return replace(first, records=tuple(found.values()))


def open_history(place: str, kubeconfig: str = "", context: str = "") -> OpenedHistory:
    """What `--from` names; without it, the leader of the cluster that a kubeconfig names."""
    if place.startswith(("http://", "https://")):
        return open_address(place)
    return nullcontext(LogHistory(place)) if place else open_leader(kubeconfig, context)


@asynccontextmanager
async def open_leader(kubeconfig: str = "", context: str = "") -> AsyncIterator[LeaderHistory]:
    """The leader of the cluster that a kubeconfig names, for as long as the block lasts."""
    connection = connect(SystemClock(), kubeconfig, context)
    transport = connection.open_transport(USER_AGENT)
    try:
        yield LeaderHistory(transport, connection.server)
    finally:
        await transport.close()


class LeaderHistory:
    """The leader's ring, asked through the API server's proxy below the controller's Service."""

    def __init__(self, transport: Transport, server: str) -> None:
        self._transport = transport
        self._server = server
        self._services: tuple[tuple[str, str], ...] = ()
        self._listed = False

    async def ask(self, query: HistoryQuery, known: str = "") -> HistoryAnswer:
        if not self._services:
            self._services, self._listed = await self._find_services()
        refusals: list[tuple[tuple[str, str], ApiReply]] = []
        for service in self._services:
            reply = await self._ask_service(service, query, known)
            if reply.status in (200, 304):
                self._services = (service,)
                return read_answer(reply, f"Service {service[0]}/{service[1]}")
            refusals.append((service, reply))
        for service, reply in refusals:
            if reply.status != 404:
                raise self._describe_refusal(service, reply)
        raise self._describe_absence(refusals[0] if refusals else None)

    async def _find_services(self) -> tuple[tuple[tuple[str, str], ...], bool]:
        """The Services that may be the controller's, and whether they could be listed at all."""
        query = {"labelSelector": CONTROLLERS}
        reply = await self._send(ApiRequest("GET", "/api/v1/services", query, timeout=PATIENCE))
        if reply.status != 200:
            return USUAL, False
        listed = msgspec.json.decode(reply.body, type=_ServiceList).items
        return tuple(each.key for each in sorted(listed) if each.has_port(PORT)), True

    async def _ask_service(self, service: tuple[str, str], query: HistoryQuery, known: str) -> ApiReply:
        path = f"/api/v1/namespaces/{service[0]}/services/{service[1]}:{PORT}/proxy/history"
        request = ApiRequest("GET", path, encode_query(query), timeout=PATIENCE, known=known)
        for _ in range(TRIES):
            reply = await self._send(request)
            if reply.status != 503 or read_header(reply, LEADER) is None:
                break
        return reply

    async def _send(self, request: ApiRequest) -> ApiReply:
        try:
            return await self._transport.send(request)
        except DovetailError as error:
            told = f"asking the cluster at {self._server} for its history: {error}"
            raise Misconfigured(f"{told}; check --kubeconfig, and that the cluster is up") from error

    def _describe_refusal(self, service: tuple[str, str], reply: ApiReply) -> DovetailError:
        namespace, name = service
        if reply.status in (401, 403):
            return Misconfigured(
                f"asking the cluster at {self._server} for its history: it takes the verb get on "
                f"services/proxy in namespace {namespace} (of {name}:{PORT}), which you do not have"
            )
        if reply.status == 400 and not _read_status(reply):
            return BadInput(_read_sentence(reply))
        said = _read_status(reply) or _read_sentence(reply)
        return Misconfigured(f"asking Service {namespace}/{name} for its history: {said}")

    def _describe_absence(self, missing: tuple[tuple[str, str], ApiReply] | None) -> Misconfigured:
        """Nobody there keeps a history: no Service, or a controller that knows none."""
        asked = f"asking the cluster at {self._server} for its history"
        if missing is not None and self._listed:
            (namespace, name), reply = missing
            said = "" if _read_status(reply) else _read_sentence(reply)
            why = said if "HISTORY_KEEP" in said else "what answers there is no Dovetail of this version"
            return Misconfigured(f"{asked}: Service {namespace}/{name} has none; {why}")
        where = "there is no Service of a controller" if self._listed else "you may not list services"
        return Misconfigured(
            f"{asked}: {where}, labelled app.kubernetes.io/name=karpenter or dovetail, with a port {PORT}; "
            "give --from the address of the controller's metrics port, or a decision log"
        )


class AddressHistory:
    """The ring of the process that listens at an address."""

    def __init__(self, transport: Transport, path: str, shown: str) -> None:
        self._transport = transport
        self._path = path
        self._shown = shown

    async def ask(self, query: HistoryQuery, known: str = "") -> HistoryAnswer:
        request = ApiRequest("GET", self._path, encode_query(query), timeout=PATIENCE, known=known)
        try:
            reply = await self._transport.send(request)
        except DovetailError as error:
            raise Misconfigured(f"asking {self._shown} for its history: {error}") from error
        if reply.status == 400:
            raise BadInput(_read_sentence(reply))
        if reply.status not in (200, 304):
            raise Misconfigured(f"asking {self._shown} for its history: {_read_sentence(reply)}")
        return read_answer(reply, self._shown)


@asynccontextmanager
async def open_address(address: str) -> AsyncIterator[AddressHistory]:
    """Whoever listens at `http://host:port`, or at the whole path of its history."""
    parts = urlsplit(address)
    try:
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if not host or parts.query or parts.fragment:
        raise BadInput("--from: write the address as http://host:port, and what is asked as options")
    shown = f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{f':{port}' if port else ''}"
    transport = HttpTransport(f"{parts.scheme}://{parts.netloc}", Anonymous())
    try:
        yield AddressHistory(transport, parts.path if parts.path.strip("/") else "/history", shown)
    finally:
        await transport.close()


class LogHistory:
    """A decision log in a folder or a bucket, of which only the time that is asked about is read."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._read: tuple[datetime | None, HistoryRing] | None = None

    async def ask(self, query: HistoryQuery, known: str = "") -> HistoryAnswer:
        if self._read is None or self._read[0] != query.since:
            # Reading S3 takes a loop of its own, and there is one here.
            self._read = query.since, await asyncio.to_thread(self._fill_ring, query)
        ring = self._read[1]
        found = ring.find_records(query)
        oldest = datetime.fromtimestamp(ring.oldest, UTC) if ring.oldest is not None else None
        return HistoryAnswer(tuple(found), oldest, "" if found else find_nearest(ring, query.name))

    def _fill_ring(self, query: HistoryQuery) -> HistoryRing:
        # Not everyone reads a log, and boto3 is not small.
        from dovetail.app.decision_log import read_log

        ring = HistoryRing(FOREVER, MOST_READ)
        for record in read_log(self._place, query.since, query.until):
            ring.note_record(record)
        return ring


class _ServiceMeta(msgspec.Struct, order=True):
    namespace: str = ""
    name: str = ""


class _ServicePort(msgspec.Struct, order=True):
    name: str = ""


class _ServiceSpec(msgspec.Struct, order=True):
    ports: tuple[_ServicePort, ...] = ()


class _Service(msgspec.Struct, order=True):
    metadata: _ServiceMeta
    spec: _ServiceSpec = msgspec.field(default_factory=_ServiceSpec)

    @property
    def key(self) -> tuple[str, str]:
        return self.metadata.namespace, self.metadata.name

    def has_port(self, name: str) -> bool:
        return any(port.name == name for port in self.spec.ports)


class _ServiceList(msgspec.Struct):
    items: tuple[_Service, ...] = ()


class _Status(msgspec.Struct):
    kind: str = ""
    message: str = ""


def read_answer(reply: ApiReply, where: str) -> HistoryAnswer:
    """The records of a reply. Those of a kind that is not known here are counted and left out."""
    records, unread = read_lines(reply.body.splitlines())
    if unread and not records:
        raise Misconfigured(f"asking {where} for its history: what answers there is no history")
    remembers = read_header(reply, REMEMBERS)
    return HistoryAnswer(
        tuple(records),
        _parse_time(remembers or ""),
        unquote(read_header(reply, NEAREST) or ""),
        unread,
        read_header(reply, "ETag") or "",
        reply.status == 304,
        read_header(reply, TELLS) == "true",
    )


def read_lines(lines: Iterable[bytes]) -> tuple[list[DecisionRecord], int]:
    """The records on lines, and how many lines are none."""
    records, unread = [], 0
    for line in lines:
        try:
            records.append(decode_record(line))
        except BadInput:
            unread += 1
    return records, unread


def read_header(reply: ApiReply, name: str) -> str | None:
    """A header, however its name is written."""
    return next((value for key, value in reply.headers.items() if key.lower() == name.lower()), None)


def _parse_time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _read_status(reply: ApiReply) -> str:
    """What the API server itself said; empty where whoever stands behind the Service did."""
    try:
        status = msgspec.json.decode(reply.body, type=_Status)
    except msgspec.MsgspecError:
        return ""
    return status.message if status.kind == "Status" else ""


def _read_sentence(reply: ApiReply) -> str:
    """The first line of a refusal, which is a sentence where it is one of ours."""
    said = reply.body[:300].decode(errors="replace").strip().partition("\n")[0]
    return said if said and not said.startswith("<") else f"the answer is {reply.status}"
