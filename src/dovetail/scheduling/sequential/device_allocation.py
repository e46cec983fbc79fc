"""Dynamic resource allocation over a run: which claims are given which devices, and where.

Published devices are those of nodes that are up, and those that many nodes can reach; an instance type
may promise devices of its own for nodes that are yet to come. What a new node would take is kept per
instance type, since each type promises something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dovetail.api.labels import INSTANCE_TYPE
from dovetail.api.pod import Pod
from dovetail.scheduling.model.device_objects import DeviceState, ResourceClaim, ResourceSlice
from dovetail.scheduling.model.instance_type_table import iterate_bits
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.sequential.device_search import (
    AvailableDevice,
    ChosenDevice,
    DeviceInventory,
    DeviceLedger,
    DeviceSelectorCache,
    UnsupportedClaim,
    allocate_devices,
)
from dovetail.scheduling.sequential.nodes import ExistingNode, NewNode, NodeBounds

__all__ = ["DeviceAllocator", "DeviceOption"]

RUNNING = -1
"""Stands for the type of a node that is there: it will not become another."""


class DeviceOption(NamedTuple):
    """One way to give a pod its devices at a place: what that asks of the node, and what is taken."""

    within: NodeBounds
    found: Mapping[int, Sequence[ChosenDevice]]


@dataclass(frozen=True, slots=True)
class _AllocatedClaim:
    """A claim given devices earlier in this run: bound to a place, or to where its devices are."""

    hostname: str
    reach: Requirements


class DeviceAllocator:
    """All devices of a run and what becomes of them."""

    def __init__(
        self,
        snapshot: Snapshot,
        running: Sequence[ExistingNode],
        moving: Iterable[Pod],
        selectors: DeviceSelectorCache,
    ) -> None:
        self.state: DeviceState = snapshot.devices
        self._selectors = selectors
        self._running = {node.name: node for node in running}
        self._moving = {(pod.namespace, pod.name) for pod in moving if pod.node_name}
        self._local: dict[str, list[ResourceSlice]] = {}
        self._shared: list[ResourceSlice] = []
        for each in self.state.slices:
            self._add_slice(each)
        self._templates = {t.name: t.device_slices for types in snapshot.catalogs for t in types}
        self._base = self._build_base_ledger()
        self._held: dict[str, dict[int, list[ChosenDevice]]] = {}
        self._settled: dict[str, _AllocatedClaim] = {}

    def _add_slice(self, published: ResourceSlice) -> None:
        """Devices of a node count once that node is up; until then its type's promise does."""
        name = published.spec.node_name
        if not name:
            self._shared.append(published)
        elif (node := self._running.get(name)) is not None and node.initialized:
            self._local.setdefault(name, []).append(published)

    # Claims

    def list_claims(self, pod: Pod) -> list[ResourceClaim] | str:
        """The claims of a pod; or why it has to wait for them."""
        generated = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
        found: list[ResourceClaim] = []
        for each in pod.spec.resource_claims:
            name = each.resource_claim_name or generated.get(each.name)
            if name is None:
                continue
            claim = self.state.claims.get(f"{pod.namespace}/{name}")
            if claim is None:
                return f"resource claim {pod.namespace}/{name} does not exist yet"
            found.append(claim)
        return found

    def _is_released(self, claim: ResourceClaim) -> bool:
        """Whether everybody who uses what the claim was given is on the move."""
        users = {(claim.namespace, each.name) for each in claim.status.reserved_for}
        return users <= self._moving

    def _build_base_ledger(self) -> DeviceLedger:
        everything = DeviceInventory()
        everything.add((*self._shared, *(each for local in self._local.values() for each in local)))
        stock = {each.key: each for each in everything.stock}
        ledger = DeviceLedger()
        for claim in self.state.claims.values():
            allocation = claim.status.allocation
            if allocation is None or self._is_released(claim):
                continue
            for each in allocation.devices.results:
                stocked = stock.get((each.driver, each.pool, each.device))
                if stocked is not None:
                    share = {name: amount.nano for name, amount in each.consumed_capacity.items()}
                    ledger.take(ChosenDevice(claim.full_name, each.request, stocked, share))
        return ledger

    # Places

    def find_option_on_node(self, node: ExistingNode, wanted: Sequence[ResourceClaim]) -> DeviceOption | None:
        """Devices for the claims on a node that is there."""
        fixed = self._find_fixed_reach(wanted, node.hostname, node.name)
        if fixed is None:
            return None
        reach, missing = fixed
        if not node.requirements.is_compatible(reach):
            return None
        inventory = self._build_inventory(
            self._local.get(node.name, ()), self._list_template_slices(node), node.requirements
        )
        found = self._search_devices(missing, inventory, node.hostname, RUNNING)
        return None if found is None else DeviceOption(NodeBounds(reach, 0), {RUNNING: found})

    def list_options(self, claim: NewNode, wanted: Sequence[ResourceClaim]) -> Iterator[DeviceOption]:
        """Devices for the claims on a new node: for each place they can be reached from, as which types."""
        fixed = self._find_fixed_reach(wanted, claim.hostname, "")
        if fixed is None:
            return
        reach, missing = fixed
        by_reach: dict[str, tuple[Requirements, dict[int, Sequence[ChosenDevice]]]] = {}
        for i in iterate_bits(claim.types):
            promised = claim.template.table.types[i].device_slices
            inventory = self._build_inventory((), promised, claim.requirements)
            found = self._search_devices(missing, inventory, claim.hostname, i)
            if found is not None:
                total = _combine_reach(found, reach)
                by_reach.setdefault(str(total), (total, {}))[1][i] = found
        for total, per_type in by_reach.values():
            yield DeviceOption(NodeBounds(total, sum(1 << i for i in per_type)), per_type)

    def _list_template_slices(self, node: ExistingNode) -> Sequence[ResourceSlice]:
        if node.initialized:
            return ()
        return self._templates.get(node.requirements[INSTANCE_TYPE].only or "", ())

    def _find_fixed_reach(
        self, wanted: Sequence[ResourceClaim], hostname: str, node: str
    ) -> tuple[Requirements, list[ResourceClaim]] | None:
        """What claims that have their devices ask of the place, and the claims that have none yet."""
        reach, missing = Requirements(), []
        for claim in wanted:
            settled = self._settled.get(claim.full_name)
            allocation = claim.status.allocation
            if settled is not None:
                if settled.hostname and settled.hostname != hostname:
                    return None
                reach = reach & settled.reach
            elif allocation is None or self._is_released(claim):
                missing.append(claim)
            elif allocation.node_selector is not None and allocation.node_selector.node_selector_terms:
                term = allocation.node_selector.node_selector_terms[0]
                if any(node not in each.values for each in term.match_fields):
                    return None
                reach = reach & Requirements.from_expressions(term.match_expressions)
        return reach, missing

    def _build_inventory(
        self, local: Sequence[ResourceSlice], promised: Sequence[ResourceSlice], labels: Requirements
    ) -> DeviceInventory:
        inventory = DeviceInventory()
        inventory.add((*local, *self._shared))
        inventory.add(promised, template=True)
        inventory.stock = [each for each in inventory.stock if labels.intersects(each.reach)]
        return inventory

    def _search_devices(
        self, missing: Sequence[ResourceClaim], inventory: DeviceInventory, hostname: str, kind: int
    ) -> list[ChosenDevice] | None:
        try:
            taken = self._build_ledger(hostname, kind)
            return allocate_devices(missing, self.state.classes, inventory, taken, self._selectors)
        except UnsupportedClaim:
            return None

    def _build_ledger(self, hostname: str, kind: int) -> DeviceLedger:
        """What is taken, as one type at one place sees it: what is published by all, promises by itself."""
        ledger = self._base.copy()
        for host, by_type in self._held.items():
            if host == hostname:
                for found in by_type.get(kind, ()):
                    ledger.take(found)
                continue
            once = {
                (found.claim, found.request, found.stocked.key): found
                for listed in by_type.values()
                for found in listed
                if not found.stocked.template
            }
            for found in once.values():
                ledger.take(found)
        return ledger

    # Keeping

    def take_devices(self, hostname: str, types: int, option: DeviceOption) -> None:
        """Hold what the way takes; types that are no longer possible give theirs back."""
        held = self._held.setdefault(hostname, {})
        for kind, listed in option.found.items():
            if kind == RUNNING or types >> kind & 1:
                held.setdefault(kind, []).extend(listed)
        for kind in [each for each in held if each != RUNNING and not types >> each & 1]:
            del held[kind]
        for found in (each for listed in option.found.values() for each in listed):
            bound = found.stocked.template or self._is_local(found.stocked)
            known = self._settled.get(found.claim)
            place = hostname if bound or (known is not None and known.hostname) else ""
            reach = known.reach & found.stocked.reach if known is not None else found.stocked.reach
            self._settled[found.claim] = _AllocatedClaim(place, reach)

    def _is_local(self, stocked: AvailableDevice) -> bool:
        return any(
            each.spec.driver == stocked.driver and each.spec.pool.name == stocked.pool
            for slices in self._local.values()
            for each in slices
        )

    def list_drivers(self, hostname: str) -> tuple[str, ...]:
        """The drivers a new node must run before its pods can."""
        held = self._held.get(hostname, {})
        return tuple(sorted({each.stocked.driver for found in held.values() for each in found}))


def _combine_reach(found: Sequence[ChosenDevice], start: Requirements) -> Requirements:
    total = start
    for each in found:
        total = total & each.stocked.reach
    return total
