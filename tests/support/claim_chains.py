"""Whether records of decisions tell the whole life of every NodeClaim, judged by the API server's own log.

Nothing here asks the recorder: what was created, launched, deleted and gone is read off the server's commits,
and which deletions were ours off the requests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from dovetail.history.record import DecisionRecord
from dovetail.runtime.transport import ApiReply, ApiRequest, Lines, Transport
from dovetail.sim.kube.store import ObjectStore, StoreEvent

__all__ = ["ClaimLog"]

ENDINGS = frozenset(
    (
        "CommandStarted",
        "Interrupted",
        "Repaired",
        "Expired",
        "NodeGivenUp",
        "NodeReleased",
        "LaunchRefused",
    )
)
# What may cause a record; an empty word where it may be the first of its chain.
CAUSES: dict[str, frozenset[str]] = {
    "NodeOrdered": frozenset(("", "CommandStarted", "PodUnschedulable")),
    "NodeLaunched": frozenset(("NodeOrdered",)),
    "LaunchRefused": frozenset(("NodeOrdered",)),
    "NodeReady": frozenset(("NodeLaunched",)),
    # The last of these: an instance that is found when its NodeClaim is gone.
    "NodeGivenUp": frozenset(("", "NodeOrdered", "NodeLaunched", "NodeGone")),
    "CommandStarted": frozenset(("CommandDecided",)),
    "CommandDropped": frozenset(("CommandDecided",)),
    "CommandDone": frozenset(("CommandStarted",)),
    "CommandTakenBack": frozenset(("CommandStarted",)),
    "NodeDraining": ENDINGS | {""},
    "NodeGone": ENDINGS | {"", "NodeDraining"},
    "PodEvicted": frozenset(("NodeDraining",)),
    "PodForced": frozenset(("NodeDraining",)),
}


@dataclass
class _Life:
    """What the server knows of one NodeClaim."""

    launched: bool = False
    initialized: bool = False
    draining: bool = False
    provider_id: str = ""
    deleted: bool = False
    gone: bool = False
    # Its Node was deleted before it was: whoever did that ended it.
    node_first: bool = False


class ClaimLog:
    """Follows the commits of an API server, and the requests of our processes."""

    def __init__(self, store: ObjectStore) -> None:
        self.lives: dict[str, _Life] = defaultdict(_Life)
        self._ours: set[str] = set()
        self._nodes_deleted: set[str] = set()
        store.on_commit(self._read_commit)

    def listen_to(self, transport: Transport) -> Transport:
        """The transport of a process, with an ear on the deletions that it heard the answer of."""
        return _Listening(transport, self._ours)

    def _read_commit(self, event: StoreEvent) -> None:
        obj = event.new.obj
        kind, meta = obj.get("kind"), obj["metadata"]
        if kind == "Node" and "deletionTimestamp" in meta:
            self._nodes_deleted.add(obj.get("spec", {}).get("providerID", ""))
        if kind != "NodeClaim":
            return
        life = self.lives[meta["name"]]
        status: dict[str, Any] = obj.get("status") or {}
        true = {each["type"] for each in status.get("conditions") or () if each["status"] == "True"}
        life.draining |= "Drained" in {each["type"] for each in status.get("conditions") or ()}
        life.launched |= "Launched" in true
        life.initialized |= "Initialized" in true
        life.provider_id = status.get("providerID") or life.provider_id
        if "deletionTimestamp" in meta and not life.deleted:
            life.deleted, life.node_first = True, life.provider_id in self._nodes_deleted
        life.gone |= event.type == "DELETED"

    def find_gaps(self, records: Sequence[DecisionRecord]) -> Iterator[str]:
        """What is missing in the records, or out of order."""
        by_id: dict[str, DecisionRecord] = {}
        for record in records:
            if record.id in by_id:
                yield f"two records have the id {record.id}: {by_id[record.id]} and {record}"
            by_id[record.id] = record
            yield from _check_cause(record, by_id)
        for name, life in self.lives.items():
            mine = [each for each in records if name in (*each.names, each.subject.partition("/")[2])]
            for gap in self._check_life(name, life, mine, by_id):
                told = "\n".join(f"  {each.time} {each.kind} {each.subject} {each.reason}" for each in mine)
                yield f"NodeClaim {name}: {gap}; its records are\n{told}"

    def _check_life(
        self, name: str, life: _Life, mine: Sequence[DecisionRecord], by_id: dict[str, DecisionRecord]
    ) -> Iterator[str]:
        ordered = [each for each in mine if each.kind == "NodeOrdered"]
        gone = [each for each in mine if each.kind == "NodeGone"]
        yield from _check_count("NodeOrdered", ordered, 1)
        yield from _check_count("NodeLaunched", mine, life.launched)
        yield from _check_count("NodeReady", mine, life.initialized)
        yield from _check_count("NodeGone", gone, life.gone)
        if life.draining:
            yield from _check_count("NodeDraining", mine, 1)
        for each in gone:
            root, kinds = each, [str(each.kind)]
            while root.parent:
                root = by_id[root.parent]
                kinds.append(str(root.kind))
            unexplained = root.kind in ("NodeGone", "NodeDraining")
            if unexplained and name in self._ours and not life.node_first:
                yield f"we deleted it, and no record says why: {' < '.join(kinds)}"


def _check_count(kind: str, records: Iterable[DecisionRecord], wanted: int) -> Iterator[str]:
    found = sum(each.kind == kind for each in records)
    if found != wanted:
        yield f"it has {found} records {kind}, not {int(wanted)}"


def _check_cause(record: DecisionRecord, by_id: dict[str, DecisionRecord]) -> Iterator[str]:
    """Its cause must be known by now, and one that can cause it."""
    allowed = CAUSES.get(record.kind)
    if allowed is None:
        return
    cause = by_id.get(record.parent)
    if record.parent and cause is None:
        yield f"{record.kind} of {record.subject} was caused by {record.parent}, which nobody recorded before"
    elif (str(cause.kind) if cause else "") not in allowed:
        by = f"by {cause.kind} of {cause.subject}" if cause else "by nothing"
        yield f"{record.kind} of {record.subject} ({record.reason}) was caused {by}"


class _Listening:
    """A transport that writes down which NodeClaims were deleted through it."""

    def __init__(self, transport: Transport, deleted: set[str]) -> None:
        self._transport = transport
        self._deleted = deleted

    async def send(self, request: ApiRequest) -> ApiReply:
        reply = await self._transport.send(request)
        path = request.path.partition("?")[0]
        if request.method == "DELETE" and "/nodeclaims/" in path and reply.status < 300:
            self._deleted.add(path.rpartition("/")[2])
        return reply

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[Lines]:
        async with self._transport.stream(request) as lines:
            yield lines

    async def close(self) -> None:
        await self._transport.close()
