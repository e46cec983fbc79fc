"""A small world that buys on commitments: types, savings plans, and passes that launch what is planned."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.commitment import Commitment, CommitmentSpec, CommitmentStatus
from dovetail.api.meta import Condition, ObjectMeta
from dovetail.api.pod import Pod
from dovetail.disruption.situation import Situation, decide_plan
from dovetail.scheduling.bill import Bill
from dovetail.scheduling.commitment_terms import build_terms
from dovetail.scheduling.fleet_cost import bill_running_nodes
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.sunk_prices import CommitmentBook
from support.worlds import Z1, Z2, World, instance_type, offering

SPOT_PART = 0.4


def sold(name: str, cpu: int, price: float, spot: float | None = None) -> InstanceType:
    """A type that is sold on demand and as spot, in two zones."""
    cheap = price * SPOT_PART if spot is None else spot
    deals = [
        offering(zone, capacity_type, amount)
        for zone in (Z1, Z2)
        for capacity_type, amount in (("on-demand", price), ("spot", cheap))
    ]
    return instance_type(name, cpu, f"{4 * cpu}Gi", 110, offerings=deals, systems=("linux",))


TYPES = tuple(
    sold(f"{family}.{size}", cpu, cpu * each)
    for family, each in (("m6i", 0.05), ("m6g", 0.052))
    for size, cpu in (("large", 2), ("xlarge", 4), ("2xlarge", 8), ("4xlarge", 16))
)


def plan_of(name: str = "sp", **spec: Any) -> Commitment:
    return Commitment(metadata=ObjectMeta(name=name), spec=CommitmentSpec(**({"discount": "30%"} | spec)))


class CommittedWorld(World):
    """A cluster that follows commitments; whether one is full is written on it after each pass."""

    def __init__(self, *commitments: Commitment, follow: bool = True, **more: Any) -> None:
        super().__init__(**({"types": TYPES} | more), follow_commitments=follow)
        self.commitments = list(commitments)
        self.cache = DecisionCache()
        self.book = CommitmentBook()
        self.last = Snapshot()
        self.solves = 0

    def snapshot(self, *pods: Pod) -> Snapshot:
        plain = super().snapshot(*pods)
        self.last = self.book.add_commitments(plain, build_terms(self.commitments, plain.options.now))
        return self.last

    def solve(self, *pods: Pod) -> Plan:
        snapshot = self.snapshot(*pods)
        self.plan = decide_plan(Situation(snapshot=snapshot), cache=self.cache)
        self.commitments = [
            replace(each, status=self._tell_full(each, each.name not in snapshot.open_commitments))
            for each in self.commitments
        ]
        return self.plan

    def _tell_full(self, commitment: Commitment, full: bool) -> CommitmentStatus:
        told = Condition(type="Full", status=str(full), reason="Counted", message="by the last pass")
        return replace(commitment.status, conditions=(told,))

    @property
    def bill(self) -> Bill:
        return bill_running_nodes(self.snapshot())

    def count(self, capacity_type: str) -> int:
        return sum(
            each.node is not None and each.node.labels[labels.CAPACITY_TYPE] == capacity_type
            for each in self.nodes
        )
