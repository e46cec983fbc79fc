"""Purchase options: every way to buy every instance type of every NodePool, and which pods may use which.

Room is rounded down and requests up, so what fits in arrays fits in truth. A shape may use the options
of the heaviest pool that can take it, since that is the pool the sequential scheduler would open a node of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.api.labels import CAPACITY_TYPE, RESERVED, ZONE
from dovetail.scheduling.model.instance_type_table import convert_to_bools
from dovetail.scheduling.model.nodeclaim_template import NodeClaimTemplate
from dovetail.scheduling.model.pod_shapes import SchedulingShape
from dovetail.scheduling.model.requirements import Requirements, Values
from dovetail.scheduling.model.taints import tolerates_all
from dovetail.scheduling.packing import Bools, Floats
from dovetail.scheduling.sequential.scheduler import SequentialScheduler

__all__ = ["PurchaseOption", "PurchaseOptions", "build_requirements_key"]

_MILLI = 1_000_000
_UNIT = 1_000_000_000
_LARGEST = 1 << 32
_FREE = 1e-9  # worth is counted per dollar, so that nothing may cost none
_ABSURD = 1 << 200  # no machine has that much of anything


@dataclass(frozen=True, slots=True)
class PurchaseOption:
    """What an option of the batch stands for."""

    template: NodeClaimTemplate
    type: int
    capacity_type: str


class PurchaseOptions:
    """The options of every template, and the masks of what each shape may use of them."""

    def __init__(
        self, run: SequentialScheduler, names: Sequence[str], zones: Sequence[str], most_pods: int = 0
    ) -> None:
        self.run, self.names, self.zones = run, names, zones
        self.options: list[PurchaseOption] = []
        self.affordable: list[bool] = []
        """Whether the pool's limits leave room for one such node."""
        self.spans: list[slice] = []
        rooms, prices = [], []
        for template in run.templates:
            first = len(self.options)
            room, price = self._add_template_options(template)
            rooms.append(room)
            prices.append(price)
            self.spans.append(slice(first, len(self.options)))
        self.units = _choose_units(names, rooms)
        scaled = [np.floor(room / self.units) for room in rooms]
        self.room: Floats = np.vstack(scaled) if scaled else np.zeros((0, len(names)))
        if most_pods:
            self.room[:, -1] = np.minimum(self.room[:, -1], most_pods)
        self.price: Floats = np.vstack(prices) if prices else np.zeros((0, len(zones)))
        self._masks: dict[tuple[object, ...], int] = {}
        self._of_shapes: dict[tuple[SchedulingShape, bool], int] = {}
        self.takes: list[Bools] = []
        kinds = sorted({option.capacity_type for option in self.options})
        self._capacity_types = kinds
        self._capacity = np.array([kinds.index(option.capacity_type) for option in self.options], np.int64)
        self._of_pools: dict[tuple[object, ...], Bools | None] = {}
        self._type = np.array([option.type for option in self.options], np.int64)

    def _add_template_options(self, template: NodeClaimTemplate) -> tuple[Floats, Floats]:
        """Room and price of every way to buy a type for this pool; adds the options."""
        table = template.table
        by_capacity: dict[str, Floats] = {}
        for deal in table.list_offering_groups(template.requirements):
            zone = deal.requirements[ZONE].only
            if zone not in self.zones:
                continue
            capacity_type = deal.requirements[CAPACITY_TYPE].only or ""
            prices = by_capacity.setdefault(
                capacity_type, np.full((len(table.types), len(self.zones)), np.inf)
            )
            column = prices[:, self.zones.index(zone)]
            at = np.fromiter(deal.prices, np.int64, len(deal.prices))
            asked = np.maximum(np.fromiter(deal.prices.values(), float, len(at)), _FREE)
            column[at] = np.minimum(column[at], asked)
        by_capacity.pop(RESERVED, None)
        rooms, prices_ = [], []
        room, sound = self._compute_rooms(template, template.types & table.sound)
        affordable = convert_to_bools(
            self.run.limits.filter_types(template.pool, table, template.types), len(table.types)
        )
        for capacity_type, prices in by_capacity.items():
            sold = np.flatnonzero(np.isfinite(prices).any(axis=1) & sound)
            self.options += [PurchaseOption(template, i, capacity_type) for i in sold.tolist()]
            self.affordable += affordable[sold].tolist()
            rooms.append(room[sold])
            prices_.append(prices[sold])
        if not rooms:
            return np.zeros((0, len(self.names))), np.zeros((0, len(self.zones)))
        return np.vstack(rooms), np.vstack(prices_)

    def _compute_rooms(self, template: NodeClaimTemplate, types: int) -> tuple[Floats, Bools]:
        """What daemons leave of every type, and which types are left anything."""
        table = template.table
        room = np.array(
            [[a.get(n, 0) for n in self.names] for a in table.allocatable[: len(table.types)]], float
        )
        usable = np.zeros(len(table.types), bool)
        for group in template.daemons:
            inside = convert_to_bools(group.types & types, len(table.types))
            room[inside] -= np.array(
                [min(group.overhead.get(name, 0), _ABSURD) for name in self.names], float
            )
            usable |= inside
        return room, usable & (room >= 0).all(axis=1)

    def find_mask(self, shape: SchedulingShape, any_pool: bool = False) -> int | None:
        """The row of `takes` for a shape: options of the heaviest pool that can take it; None if none can.

        With `any_pool`, whatever the shape could ever run on, weights and limits aside.
        """
        asked = self._of_shapes.get((shape, any_pool))
        if asked is None:
            key = (
                any_pool,
                build_requirements_key(shape.requirements),
                shape.tolerations,
                tuple(sorted(shape.requests.items())),
            )
            asked = self._masks.get(key)
            if asked is None:
                asked = self._masks[key] = self._find_row(self._compute_mask(shape, any_pool))
            self._of_shapes[shape, any_pool] = asked
        return None if asked < 0 else asked

    def _find_row(self, takes: Bools | None) -> int:
        if takes is None:
            return -1
        for i, row in enumerate(self.takes):
            if np.array_equal(row, takes):
                return i
        self.takes.append(takes)
        return len(self.takes) - 1

    def _compute_mask(self, shape: SchedulingShape, any_pool: bool) -> Bools | None:
        needed = self.scale_requests([shape])
        found: Bools | None = None
        for template, span in zip(self.run.templates, self.spans, strict=True):
            key = (template.index, build_requirements_key(shape.requirements), shape.tolerations)
            if key not in self._of_pools:
                self._of_pools[key] = self._match_pool_options(shape, template, span)
            row = self._of_pools[key]
            if row is None:
                continue
            if not any_pool:
                row = row & self.affordable
            if not (row[span] & (needed <= self.room[span]).all(axis=1)).any():
                continue
            if not any_pool:
                return row
            found = row if found is None else found | row
        return found

    def _match_pool_options(
        self, shape: SchedulingShape, template: NodeClaimTemplate, span: slice
    ) -> Bools | None:
        """The pool's options with the labels the shape wants."""
        table = template.table
        if not tolerates_all(template.taints, shape.tolerations):
            return None
        if not template.requirements.is_compatible(shape.requirements, table.undefined):
            return None
        both = template.requirements & shape.requirements
        types = convert_to_bools(table.match_requirements(both), len(table.types))
        bought = np.array([name in both[CAPACITY_TYPE] for name in self._capacity_types], bool)
        row = np.zeros(len(self.options), bool)
        suits = bought[self._capacity[span]]
        sold = np.isfinite(self.price[span][:, [zone in both[ZONE] for zone in self.zones]]).any(axis=1)
        row[span] = types[self._type[span]] & suits & sold
        return row

    def scale_requests(self, shapes: Sequence[SchedulingShape]) -> Floats:
        """What shapes request in the units of the arrays, rounded up; none is beyond what a float holds."""
        asked = [[min(shape.requests.get(name, 0), _ABSURD) for name in self.names] for shape in shapes]
        return np.asarray(np.ceil(np.array(asked, float).reshape(len(shapes), len(self.names)) / self.units))


def build_requirements_key(requirements: Requirements) -> tuple[tuple[str, Values], ...]:
    return tuple(sorted(requirements.by_key.items(), key=lambda item: item[0]))


def _choose_units(names: Sequence[str], rooms: Sequence[Floats]) -> Floats:
    """A unit for each resource in which all amounts stay small enough to be exact."""
    units = []
    for k, name in enumerate(names):
        unit = _MILLI if name == "cpu" else _UNIT
        most = max((float(room[:, k].max(initial=0.0)) for room in rooms), default=0.0)
        while most / unit >= _LARGEST:
            unit *= 1024
        units.append(float(unit))
    return np.array(units)
