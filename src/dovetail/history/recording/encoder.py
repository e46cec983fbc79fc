"""LookEncoder: a Situation as what differs from the one before, found by identity.

Snapshots share what did not change, so that finding what did is quick: an object that was there at the last
look is known by its identity and is not looked into. Objects are held on to while they are known by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from dovetail.api.core import Node, PodDisruptionBudget
from dovetail.api.meta import Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.disruption.situation import Situation
from dovetail.history.recording.rows import (
    AS_DEFAULT,
    TABLES,
    ListChange,
    LookLine,
    MapChange,
    ObjectRow,
    PodRecordRow,
    PoolRow,
    StateNodeRow,
    compare_lists,
    compare_maps,
    encode_row,
)
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.annotations import strip_object, strip_pod, strip_pool
from dovetail.scheduling.model.device_objects import DeviceState
from dovetail.scheduling.model.snapshot import Snapshot, SnapshotPool, StateNode, Storage

__all__ = ["EPOCH", "LookEncoder", "strip_situation_rest"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MOST_KNOWN = 20_000
"""Of values that many objects share, this many are known by identity before that is begun anew."""

MOST_GONE = 100

T = TypeVar("T")


_Lively = Node | NodeClaim | NodePool | Pod | PodDisruptionBudget
"""What has a spec and a status that others may share."""


_BARE: Final[Mapping[str, _Lively]] = {
    "node": Node(),
    "claim": NodeClaim(),
    "pool": NodePool(),
    "pod": Pod(),
    "budget": PodDisruptionBudget(),
}


class _Table:
    """Distinct values under numbers, in order of first use. Values of this segment are told by a digest."""

    def __init__(self) -> None:
        self.new: list[msgspec.Raw] = []
        self._by_digest: dict[bytes, int] = {}
        self._known: dict[int, tuple[object, int]] = {}

    def number_value(self, value: object) -> int:
        """The number of a value that is likely to be the very same as one before."""
        known = self._known.get(id(value))
        if known is not None:
            return known[1]
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        number = self.number_row(value)
        self._known[id(value)] = value, number
        return number

    def number_row(self, value: object) -> int:
        """The number of a value, by all that it holds."""
        encoded = encode_row(value)
        digest = blake2b(encoded, digest_size=16).digest()
        number = self._by_digest.get(digest)
        if number is None:
            number = self._by_digest[digest] = len(self._by_digest)
            self.new.append(msgspec.Raw(encoded))
        return number


class _Known:
    """Objects of the last look under their numbers, by identity; what is not asked for again is let go."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[object, int]] = {}
        self._now: dict[int, tuple[object, int]] = {}

    def number_all(self, values: Iterable[T], make: Callable[[T], int]) -> list[int]:
        """The numbers of these values; `make` gives that of one that was not there at the last look."""
        last, now, found = self._last, self._now, []
        for value in values:
            key = id(value)
            known = last.get(key)
            if known is None:
                known = now.get(key) or (value, make(value))
            now[key] = known
            found.append(known[1])
        return found

    def end_look(self) -> None:
        self._last, self._now = self._now, {}


class LookEncoder:
    """Encodes the looks of one segment, the first of them whole."""

    def __init__(self) -> None:
        self._tables = {name: _Table() for name in TABLES}
        self._known = {name: _Known() for name in ("pools", "nodes", "pods", "budgets", "types")}
        self._pods_on: dict[str, dict[int, tuple[Pod, int]]] = {}
        self._same: dict[str, tuple[object, Any]] = {}
        self._lists: dict[str, Sequence[int]] = {}
        self._maps: dict[str, Mapping[str, int]] = {}
        self._catalogs: list[Sequence[int]] = []
        self._rest = b""
        # How many looks were taken over into the segment.
        self.number = 0

    def encode_look(self, situation: Situation, at: datetime, digest: str = "") -> LookLine:
        """What this look adds to those before."""
        snapshot = situation.snapshot
        catalogs = self._change_catalogs(snapshot)
        lists = {name: change for name, change in self._change_lists(snapshot) if change is not None}
        maps = {name: change for name, change in self._change_maps(snapshot) if change is not None}
        for known in self._known.values():
            known.end_look()
        rest = encode_row(strip_situation_rest(situation))
        told, self._rest = rest != self._rest, rest
        now = snapshot.options.now
        return LookLine(
            number=self.number + 1,
            at=at,
            key=self.number == 0,
            now=None if now == at else now,
            digest=digest,
            rows=self._take_rows(),
            lists=lists,
            maps=maps,
            catalogs=catalogs,
            rest=(msgspec.Raw(rest),) if told else (),
        )

    def _take_rows(self) -> dict[str, list[msgspec.Raw]]:
        """The rows that are new since the last look."""
        found = {}
        for name, table in self._tables.items():
            if table.new:
                found[name], table.new = table.new, []
        return found

    def _change_lists(self, snapshot: Snapshot) -> Iterable[tuple[str, ListChange | None]]:
        yield "pools", self._change_list("pools", snapshot.pools, self._list_pools)
        yield "nodes", self._change_list("nodes", snapshot.nodes, self._list_nodes)
        for name in ("pods", "moving", "virtual", "daemons"):
            yield name, self._change_list(name, getattr(snapshot, name), self._list_pods)
        yield "budgets", self._change_list("budgets", snapshot.budgets, self._list_budgets)
        yield "services", self._change_list("services", snapshot.services, self._list_services)
        slices = self._tables["slices"]
        listed = snapshot.devices.slices
        yield "slices", self._change_list("slices", listed, lambda all: list(map(slices.number_value, all)))

    def _change_list(
        self, name: str, values: Sequence[T], number: Callable[[Sequence[T]], list[int]]
    ) -> ListChange | None:
        before = self._lists.get(name, ())
        # The objects themselves are asked after all the same: only so are they known at the next look.
        after = self._lists[name] = number(values)
        return compare_lists(before, after)

    def _change_maps(self, snapshot: Snapshot) -> Iterable[tuple[str, MapChange | None]]:
        storage = snapshot.storage
        yield "namespaces", self._change_map("namespaces", snapshot.namespaces, "labels", None)
        yield "volumeClaims", self._change_map("volumeClaims", storage.claims, "volumeClaims", strip_object)
        yield "volumes", self._change_map("volumes", storage.volumes, "volumes", strip_object)
        yield (
            "storageClasses",
            self._change_map("storageClasses", storage.classes, "storageClasses", strip_object),
        )
        yield "workloads", self._change_map("workloads", snapshot.workloads, "selectors", None)
        claims = snapshot.devices.claims
        yield "deviceClaims", self._change_map("deviceClaims", claims, "deviceClaims", strip_object)

    def _change_map(
        self, name: str, values: Mapping[str, Any], table: str, strip: Callable[[Any], Any] | None
    ) -> MapChange | None:
        kept = self._same.get(name)
        if kept is not None and kept[0] is values:
            return None
        known: dict[int, tuple[object, int]] = kept[1] if kept is not None else {}
        now: dict[int, tuple[object, int]] = {}
        after: dict[str, int] = {}
        for key, value in values.items():
            found = known.get(id(value))
            if found is None:
                found = value, self._tables[table].number_row(strip(value) if strip else value)
            now[id(value)] = found
            after[key] = found[1]
        self._same[name] = values, now
        before, self._maps[name] = self._maps.get(name, {}), after
        return compare_maps(before, after)

    def _change_catalogs(self, snapshot: Snapshot) -> tuple[ListChange, ...] | None:
        """The catalogues, each as a change of the one that stood in its place; None when all are the same."""
        known, table = self._known["types"], self._tables["types"]
        after = [known.number_all(types, table.number_row) for types in snapshot.catalogs]
        before, self._catalogs = self._catalogs, list(after)
        if before == after:
            return None
        padded = [*before, *([()] * len(after))]
        return tuple(compare_lists(old, new) or ListChange() for old, new in zip(padded, after, strict=False))

    def _list_pools(self, pools: Sequence[SnapshotPool]) -> list[int]:
        return self._known["pools"].number_all(pools, self._number_pool)

    def _number_pool(self, pool: SnapshotPool) -> int:
        nodepool = strip_pool(pool).nodepool
        return self._tables["pools"].number_row(PoolRow(self._build_object(nodepool, "pool"), pool.catalog))

    def _list_budgets(self, budgets: Sequence[PodDisruptionBudget]) -> list[int]:
        return self._known["budgets"].number_all(budgets, self._number_budget)

    def _number_budget(self, budget: PodDisruptionBudget) -> int:
        return self._tables["budgets"].number_row(self._build_object(strip_object(budget), "budget"))

    def _list_services(self, services: Sequence[Object]) -> list[int]:
        table = self._tables["services"]
        kept = self._same.get("services")
        if kept is not None and kept[0] is services:
            numbers: list[int] = kept[1]
            return numbers
        numbers = [table.number_row(strip_object(each)) for each in services]
        self._same["services"] = services, numbers
        return numbers

    def _list_pods(self, pods: Sequence[Pod]) -> list[int]:
        return self._known["pods"].number_all(pods, self._number_pod)

    def _number_pod(self, pod: Pod) -> int:
        row = PodRecordRow(self._build_object(strip_pod(pod), "pod"), pod.node_name)
        return self._tables["pods"].number_row(row)

    def _list_nodes(self, nodes: Sequence[StateNode]) -> list[int]:
        self._forget_nodes(nodes)
        return self._known["nodes"].number_all(nodes, self._number_node)

    def _number_node(self, state: StateNode) -> int:
        pods = self._number_pods_of(state)
        node = None if state.node is None else self._build_object(strip_object(state.node), "node")
        claim = None if state.claim is None else self._build_object(strip_object(state.claim), "claim")
        bare = replace(state, node=None, claim=None, pods=())
        return self._tables["nodes"].number_row(StateNodeRow(bare, node, claim, pods))

    def _number_pods_of(self, state: StateNode) -> tuple[int, ...]:
        """The numbers of a node's pods: those that were on it at the last look are known by identity."""
        name = views.read_name(state)
        last, now = self._pods_on.get(name, {}), dict[int, tuple[Pod, int]]()
        for pod in state.pods:
            now[id(pod)] = last.get(id(pod)) or (pod, self._number_pod(pod))
        self._pods_on[name] = now
        return tuple(number for _, number in now.values())

    def _forget_nodes(self, nodes: Sequence[StateNode]) -> None:
        """Let go of the pods of nodes that are gone, when there are many such nodes."""
        if len(self._pods_on) > len(nodes) + MOST_GONE:
            here = {views.read_name(state) for state in nodes}
            self._pods_on = {name: pods for name, pods in self._pods_on.items() if name in here}

    def _build_object(self, obj: _Lively, kind: str) -> ObjectRow:
        meta, bare = obj.metadata, _BARE[kind]
        return ObjectRow(
            metadata=replace(meta, labels={}, owner_references=()),
            labels=self._tables["labels"].number_value(meta.labels),
            owners=self._tables["owners"].number_value(meta.owner_references),
            spec=AS_DEFAULT if obj.spec is bare.spec else self._tables[f"{kind}Specs"].number_value(obj.spec),
            status=AS_DEFAULT
            if obj.status is bare.status
            else self._tables[f"{kind}Statuses"].number_row(obj.status),
        )


def strip_situation_rest(situation: Situation) -> Situation:
    """The Situation without all that has a table of its own, and without the time."""
    snapshot = situation.snapshot
    bare = replace(
        snapshot,
        pools=(),
        catalogs=(),
        nodes=(),
        pods=(),
        moving=(),
        virtual=(),
        daemons=(),
        namespaces={},
        storage=Storage(),
        budgets=(),
        services=(),
        workloads={},
        devices=DeviceState(classes=snapshot.devices.classes),
        options=replace(snapshot.options, now=EPOCH),
    )
    return replace(situation, snapshot=bare)
