"""LookDecoder: the Situations of a segment again, from what each look added.

Objects that did not change between two looks are the very same in both Situations, so that whoever decides
over them again has use of what was worked out before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from msgspec.structs import replace

from dovetail.api.core import Node, PodDisruptionBudget
from dovetail.api.meta import Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.disruption.situation import Situation
from dovetail.history.recording.encoder import EPOCH
from dovetail.history.recording.rows import (
    AS_DEFAULT,
    TABLES,
    LookLine,
    ObjectRow,
    PodRecordRow,
    PoolRow,
    StateNodeRow,
    apply_list_change,
    apply_map_change,
    decode_row,
    decode_value,
)
from dovetail.scheduling.model.device_objects import DeviceState
from dovetail.scheduling.model.snapshot import SnapshotPool, StateNode, Storage

__all__ = ["LookDecoder"]

O = TypeVar("O", bound=Object)  # noqa: E741 - O for object


class LookDecoder:
    """Follows the looks of one segment, the first of which holds everything."""

    def __init__(self) -> None:
        self._tables: dict[str, list[Any]] = {name: [] for name in TABLES}
        self._lists: dict[str, Sequence[int]] = {}
        self._maps: dict[str, Mapping[str, int]] = {}
        self._catalogs: list[Sequence[int]] = []
        self._rest = Situation()
        self._now = EPOCH
        self._built: dict[str, tuple[object, Any]] = {}

    def apply_look(self, line: LookLine) -> None:
        """Take in what a look adds; ValueError or LookupError when it does not follow the one before."""
        for name in TABLES:
            build = self._builders.get(name)
            for row in line.rows.get(name, ()):
                value = decode_row(name, row)
                self._tables[name].append(build(self, value) if build is not None else value)
        for name, change in line.lists.items():
            self._lists[name] = apply_list_change(self._lists.get(name, ()), change)
        for name, put in line.maps.items():
            self._maps[name] = apply_map_change(self._maps.get(name, {}), put)
        if line.catalogs is not None:
            padded = [*self._catalogs, *([()] * len(line.catalogs))]
            pairs = zip(padded, line.catalogs, strict=False)
            self._catalogs = [apply_list_change(before, change) for before, change in pairs]
        for rest in line.rest:
            self._rest = decode_value(rest, Situation)
        self._now = _choose_time(line)

    def build_situation(self) -> Situation:
        """The Situation of the last look that was taken in."""
        rest = self._rest.snapshot
        lists = self._get_list
        snapshot = replace(
            rest,
            pools=lists("pools", "pools"),
            catalogs=self._build("catalogs", self._catalogs, self._build_catalogs),
            nodes=lists("nodes", "nodes"),
            pods=lists("pods", "pods"),
            moving=lists("moving", "pods"),
            virtual=lists("virtual", "pods"),
            daemons=lists("daemons", "pods"),
            namespaces=self._get_map("namespaces", "labels"),
            storage=self._build_storage(),
            budgets=lists("budgets", "budgets"),
            services=lists("services", "services"),
            workloads=self._get_map("workloads", "selectors"),
            devices=self._build_devices(rest.devices),
            options=replace(rest.options, now=self._now),
        )
        return replace(self._rest, snapshot=snapshot)

    def _build(self, name: str, source: object, make: Callable[[], Any]) -> Any:
        """What was made of the same source before, or is made of it now."""
        known = self._built.get(name)
        if known is None or known[0] is not source:
            known = self._built[name] = source, make()
        return known[1]

    def _get_list(self, name: str, table: str) -> Any:
        numbers, rows = self._lists.get(name, ()), self._tables[table]
        return self._build(name, numbers, lambda: tuple(rows[number] for number in numbers))

    def _get_map(self, name: str, table: str) -> Any:
        numbers, rows = self._maps.get(name, _NOTHING), self._tables[table]
        return self._build(f"{name} by name", numbers, lambda: {key: rows[n] for key, n in numbers.items()})

    def _build_catalogs(self) -> tuple[tuple[Any, ...], ...]:
        types = self._tables["types"]
        return tuple(tuple(types[number] for number in each) for each in self._catalogs)

    def _build_storage(self) -> Storage:
        claims = self._get_map("volumeClaims", "volumeClaims")
        volumes = self._get_map("volumes", "volumes")
        classes = self._get_map("storageClasses", "storageClasses")
        known = self._built.get("storage")
        if known is not None:
            made: Storage = known[1]
            if made.claims is claims and made.volumes is volumes and made.classes is classes:
                return made
        made = Storage(claims=claims, volumes=volumes, classes=classes)
        self._built["storage"] = claims, made
        return made

    def _build_devices(self, rest: DeviceState) -> DeviceState:
        slices = self._get_list("slices", "slices")
        claims = self._get_map("deviceClaims", "deviceClaims")
        known = self._built.get("devices")
        if known is not None:
            made: DeviceState = known[1]
            if made.slices is slices and made.claims is claims and made.classes is rest.classes:
                return made
        made = DeviceState(slices=slices, classes=rest.classes, claims=claims)
        self._built["devices"] = rest, made
        return made

    def _build_object(self, row: ObjectRow, make: Callable[..., O], kind: str, **more: Any) -> O:
        metadata = replace(
            row.metadata,
            labels=self._tables["labels"][row.labels],
            owner_references=self._tables["owners"][row.owners],
        )
        if row.spec != AS_DEFAULT:
            more["spec"] = self._tables[f"{kind}Specs"][row.spec]
        if row.status != AS_DEFAULT:
            more["status"] = self._tables[f"{kind}Statuses"][row.status]
        return make(metadata=metadata, **more)

    def _build_pod(self, row: PodRecordRow) -> Pod:
        return self._build_object(row.pod, Pod, "pod", node_name=row.node_name)

    def _build_node(self, row: StateNodeRow) -> StateNode:
        pods = self._tables["pods"]
        return replace(
            row.state,
            node=None if row.node is None else self._build_object(row.node, Node, "node"),
            claim=None if row.claim is None else self._build_object(row.claim, NodeClaim, "claim"),
            pods=tuple(pods[number] for number in row.pods),
        )

    def _build_pool(self, row: PoolRow) -> SnapshotPool:
        return SnapshotPool(nodepool=self._build_object(row.nodepool, NodePool, "pool"), catalog=row.catalog)

    def _build_budget(self, row: ObjectRow) -> PodDisruptionBudget:
        return self._build_object(row, PodDisruptionBudget, "budget")

    _builders: Mapping[str, Callable[[Any, Any], Any]] = {
        "pods": _build_pod,
        "nodes": _build_node,
        "pools": _build_pool,
        "budgets": _build_budget,
    }


_NOTHING: Mapping[str, int] = {}


def _choose_time(line: LookLine) -> datetime:
    """The time that the decision reckoned with."""
    return line.at if line.now is None else line.now
