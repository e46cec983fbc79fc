"""ARC zonal shift: which zones a cluster is moved away from, by whom, and which of several shifts applies."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dovetail.sim.aws.asking import Json, Subject
from dovetail.sim.aws.bus import Buses
from dovetail.sim.aws.eks import Eks

__all__ = ["Autoshift", "Managed", "Shift", "Shifts"]

MANUAL, AUTO, FIS, PRACTICE = "ZONAL_SHIFT", "ZONAL_AUTOSHIFT", "FIS_EXPERIMENT", "PRACTICE_RUN"
# Who wins when several shifts are active for a resource.
PRECEDENCE = (MANUAL, AUTO, FIS, PRACTICE)
# Practice runs and experiments expire a minute from now, always.
ROLLING = timedelta(minutes=1)
PRACTICE_LASTS = timedelta(minutes=30)


@dataclass(slots=True)
class Shift:
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

    def status(self, now: datetime) -> str:
        if self.ended:
            return self.ended
        return "EXPIRED" if self.kind == MANUAL and self.expires <= now else "ACTIVE"

    def expiry(self, now: datetime) -> datetime:
        return now + ROLLING if self.kind != MANUAL and not self.ended else self.expires


@dataclass(slots=True)
class Autoshift:
    """A shift AWS started, for every resource of the region that takes part."""

    away: str
    started: datetime
    ended: datetime | None = None


@dataclass(slots=True)
class Managed:
    """A resource ARC knows."""

    arn: str
    name: str
    autoshift: bool = False
    practice: Json | None = None
    shifts: list[Shift] = field(default_factory=list)


class Shifts(Subject):
    """Zonal shifts of an account in a region. EKS clusters that enable zonal shift are registered."""

    def begin(self) -> None:
        self.resources: dict[str, Managed] = {}
        self.autoshifts: list[Autoshift] = []
        self.observer = False

    def managed(self, arn: str) -> Managed | None:
        clusters = self.ground.subject(Eks, self.account, self.region).clusters.values()
        found = next((each for each in clusters if arn in (each.arn, each.name)), None)
        if found is not None and not found.zonal_shift:
            return None
        if found is not None:
            return self.resources.setdefault(found.arn, Managed(found.arn, found.name))
        return self.resources.get(arn)

    def all_managed(self) -> list[Managed]:
        for cluster in self.ground.subject(Eks, self.account, self.region).clusters.values():
            self.managed(cluster.arn)
        return list(self.resources.values())

    def active(self, resource: Managed) -> list[Shift]:
        now = self.clock.now()
        return [each for each in resource.shifts if each.status(now) == "ACTIVE"]

    def running_autoshifts(self) -> list[Autoshift]:
        return [each for each in self.autoshifts if each.ended is None]

    def applied(self, resource: Managed) -> tuple[str, str]:
        """Kind and zone id of the one shift that applies; empty when none does."""
        found = [(each.kind, each.away) for each in self.active(resource)]
        if resource.autoshift:
            found += [(AUTO, each.away) for each in self.running_autoshifts()]
        return min(found, key=lambda one: PRECEDENCE.index(one[0]), default=("", ""))

    def start(self, resource: Managed, away: str, lasts: timedelta, comment: str) -> Shift:
        """A person's shift; it interrupts a practice run or an experiment."""
        for each in self.active(resource):
            if each.kind in (PRACTICE, FIS):
                self.stop(resource, each, "CANCELED", "INTERRUPTED")
        made = self._add(resource, away, MANUAL, self.clock.now() + lasts, comment)
        self.say("Manual Shift Started", away, [resource.arn])
        return made

    def practise(self, resource: Managed, away: str, comment: str = "") -> Shift:
        made = self._add(resource, away, PRACTICE, self.clock.now() + ROLLING, comment)
        made.outcome = "PENDING"
        self.say("Practice Run Started", away, [resource.arn])
        self.ground.later(
            PRACTICE_LASTS.total_seconds(), lambda: self.stop(resource, made, "EXPIRED", "SUCCEEDED")
        )
        return made

    def experiment(self, resource: Managed, away: str) -> Shift:
        """A fault injection experiment shifts the resource until `stop`."""
        made = self._add(resource, away, FIS, self.clock.now() + ROLLING, "FIS experiment")
        self.say("FIS Experiment Autoshift In Progress", away, [resource.arn])
        return made

    def autoshift(self, away: str) -> Autoshift:
        """AWS shifts away from a zone, until `end_autoshift`."""
        made = Autoshift(away, self.clock.now())
        self.autoshifts.append(made)
        self._say_autoshift("Autoshift In Progress", away)
        return made

    def end_autoshift(self, away: str) -> None:
        for each in self.running_autoshifts():
            if each.away == away:
                each.ended = self.clock.now()
                self._say_autoshift("Autoshift Completed", away)

    def stop(self, resource: Managed, shift: Shift, status: str, outcome: str = "") -> None:
        if shift.ended:
            return
        shift.ended, shift.expires = status, self.clock.now()
        if shift.kind == PRACTICE:
            shift.outcome = outcome or "SUCCEEDED"
            self.say(f"Practice Run {shift.outcome.capitalize()}", shift.away, [resource.arn])
        elif shift.kind == FIS:
            ending = "Canceled" if status == "CANCELED" else "Completed"
            self.say(f"FIS Experiment Autoshift {ending}", shift.away, [resource.arn])
        elif status == "CANCELED":
            self.say("Manual Shift Canceled", shift.away, [resource.arn])

    def say(self, kind: str, away: str, resources: list[str]) -> None:
        detail = {"version": "0.0.1", "data": "", "metadata": {"awayFrom": away, "notes": ""}}
        buses = self.ground.subject(Buses, self.account, self.region)
        buses.emit("aws.arc-zonal-shift", kind, detail, resources)

    def _say_autoshift(self, kind: str, away: str) -> None:
        for resource in self.all_managed():
            if resource.autoshift:
                self.say(kind, away, [resource.arn])
        if self.observer:
            self.say(kind, away, [])

    def _add(self, resource: Managed, away: str, kind: str, expires: datetime, comment: str) -> Shift:
        made = Shift(self.ground.uuid(), resource.arn, away, kind, self.clock.now(), expires, comment)
        resource.shifts.append(made)
        return made
