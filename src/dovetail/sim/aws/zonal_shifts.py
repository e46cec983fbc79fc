"""ARC zonal shift: which zones a cluster is moved away from, by whom, and which of several shifts applies."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dovetail.sim.aws.eks import Eks
from dovetail.sim.aws.messaging.eventbridge import EventBuses
from dovetail.sim.aws.service import Json, ServiceState

__all__ = ["ArcShift", "ArcShifts", "Autoshift", "ManagedResource"]

MANUAL, AUTO, FIS, PRACTICE = "ZONAL_SHIFT", "ZONAL_AUTOSHIFT", "FIS_EXPERIMENT", "PRACTICE_RUN"
# Who wins when several shifts are active for a resource.
PRECEDENCE = (MANUAL, AUTO, FIS, PRACTICE)
# Practice runs and experiments expire a minute from now, always.
ROLLING = timedelta(minutes=1)
PRACTICE_LASTS = timedelta(minutes=30)


@dataclass(slots=True)
class ArcShift:
    """A shift of one resource: by a person, a practice run or an experiment."""

    id: str
    resource: str
    away: str
    kind: str
    started: datetime
    expires: datetime
    comment: str = ""
    ended: str = ""
    outcome: str = ""

    def status_at(self, now: datetime) -> str:
        if self.ended:
            return self.ended
        return "EXPIRED" if self.kind == MANUAL and self.expires <= now else "ACTIVE"

    def expiry_at(self, now: datetime) -> datetime:
        return now + ROLLING if self.kind != MANUAL and not self.ended else self.expires


@dataclass(slots=True)
class Autoshift:
    """A shift AWS started, for every resource of the region that takes part."""

    away: str
    started: datetime
    ended: datetime | None = None


@dataclass(slots=True)
class ManagedResource:
    """A resource ARC knows."""

    arn: str
    name: str
    autoshift: bool = False
    practice: Json | None = None
    shifts: list[ArcShift] = field(default_factory=list)


class ArcShifts(ServiceState):
    """Zonal shifts of an account in a region. EKS clusters that enable zonal shift are registered."""

    def init_state(self) -> None:
        self.resources: dict[str, ManagedResource] = {}
        self.autoshifts: list[Autoshift] = []
        self.observer = False

    def find_resource(self, arn: str) -> ManagedResource | None:
        clusters = self.world.get_state(Eks, self.account, self.region).clusters.values()
        found = next((each for each in clusters if arn in (each.arn, each.name)), None)
        if found is not None and not found.zonal_shift:
            return None
        if found is not None:
            return self.resources.setdefault(found.arn, ManagedResource(found.arn, found.name))
        return self.resources.get(arn)

    def list_resources(self) -> list[ManagedResource]:
        for cluster in self.world.get_state(Eks, self.account, self.region).clusters.values():
            self.find_resource(cluster.arn)
        return list(self.resources.values())

    def list_active(self, resource: ManagedResource) -> list[ArcShift]:
        now = self.clock.now()
        return [each for each in resource.shifts if each.status_at(now) == "ACTIVE"]

    def list_running_autoshifts(self) -> list[Autoshift]:
        return [each for each in self.autoshifts if each.ended is None]

    def find_applied_shift(self, resource: ManagedResource) -> tuple[str, str]:
        """Kind and zone id of the one shift that applies; empty when none does."""
        found = [(each.kind, each.away) for each in self.list_active(resource)]
        if resource.autoshift:
            found += [(AUTO, each.away) for each in self.list_running_autoshifts()]
        return min(found, key=lambda one: PRECEDENCE.index(one[0]), default=("", ""))

    def start(self, resource: ManagedResource, away: str, lasts: timedelta, comment: str) -> ArcShift:
        """A person's shift; it interrupts a practice run or an experiment."""
        for each in self.list_active(resource):
            if each.kind in (PRACTICE, FIS):
                self.stop(resource, each, "CANCELED", "INTERRUPTED")
        made = self._add_shift(resource, away, MANUAL, self.clock.now() + lasts, comment)
        self.publish_event("Manual Shift Started", away, [resource.arn])
        return made

    def start_practice(self, resource: ManagedResource, away: str, comment: str = "") -> ArcShift:
        made = self._add_shift(resource, away, PRACTICE, self.clock.now() + ROLLING, comment)
        made.outcome = "PENDING"
        self.publish_event("Practice Run Started", away, [resource.arn])
        self.world.call_later(
            PRACTICE_LASTS.total_seconds(), lambda: self.stop(resource, made, "EXPIRED", "SUCCEEDED")
        )
        return made

    def start_experiment(self, resource: ManagedResource, away: str) -> ArcShift:
        """A fault injection experiment shifts the resource until `stop`."""
        made = self._add_shift(resource, away, FIS, self.clock.now() + ROLLING, "FIS experiment")
        self.publish_event("FIS Experiment Autoshift In Progress", away, [resource.arn])
        return made

    def start_autoshift(self, away: str) -> Autoshift:
        """AWS shifts away from a zone, until `end_autoshift`."""
        made = Autoshift(away, self.clock.now())
        self.autoshifts.append(made)
        self._publish_autoshift("Autoshift In Progress", away)
        return made

    def end_autoshift(self, away: str) -> None:
        for each in self.list_running_autoshifts():
            if each.away == away:
                each.ended = self.clock.now()
                self._publish_autoshift("Autoshift Completed", away)

    def stop(self, resource: ManagedResource, shift: ArcShift, status: str, outcome: str = "") -> None:
        if shift.ended:
            return
        shift.ended, shift.expires = status, self.clock.now()
        if shift.kind == PRACTICE:
            shift.outcome = outcome or "SUCCEEDED"
            self.publish_event(f"Practice Run {shift.outcome.capitalize()}", shift.away, [resource.arn])
        elif shift.kind == FIS:
            ending = "Canceled" if status == "CANCELED" else "Completed"
            self.publish_event(f"FIS Experiment Autoshift {ending}", shift.away, [resource.arn])
        elif status == "CANCELED":
            self.publish_event("Manual Shift Canceled", shift.away, [resource.arn])

    def publish_event(self, kind: str, away: str, resources: list[str]) -> None:
        detail = {"version": "0.0.1", "data": "", "metadata": {"awayFrom": away, "notes": ""}}
        buses = self.world.get_state(EventBuses, self.account, self.region)
        buses.emit_event("aws.arc-zonal-shift", kind, detail, resources)

    def _publish_autoshift(self, kind: str, away: str) -> None:
        for resource in self.list_resources():
            if resource.autoshift:
                self.publish_event(kind, away, [resource.arn])
        if self.observer:
            self.publish_event(kind, away, [])

    def _add_shift(
        self, resource: ManagedResource, away: str, kind: str, expires: datetime, comment: str
    ) -> ArcShift:
        made = ArcShift(
            self.world.random_uuid(), resource.arn, away, kind, self.clock.now(), expires, comment
        )
        resource.shifts.append(made)
        return made
