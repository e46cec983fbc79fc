"""What a run is held to: promises about waiting, availability and evictions, and how they were kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.settings.durations import parse as parse_duration
from dovetail.sim.scenario import Objective

__all__ = ["Kept", "Observed", "judge"]


@dataclass(frozen=True, slots=True)
class Observed:
    """What happened to one workload: its pods' waits, and how many ran of how many wanted, at each sample."""

    waits: Sequence[float] = ()
    presence: Sequence[tuple[int, int]] = ()
    evictions: int = 0


@dataclass(frozen=True, slots=True)
class Kept:
    """One promise after the run. `broken` counts pods, samples or evictions beyond what it allows."""

    promise: str
    kept: bool
    broken: int
    measured: str


def judge(
    objectives: Sequence[Objective], observed: Mapping[str, Observed], hours: float
) -> tuple[Kept, ...]:
    """Every promise, in the order they were made."""
    found: list[Kept] = []
    for objective in objectives:
        about = [seen for name, seen in observed.items() if objective.workload in ("", name)]
        if objective.pending_within:
            found.append(_waiting(objective, about))
        if objective.available is not None:
            found.append(_available(objective, objective.available, about))
        if objective.evictions_per_hour is not None:
            found.append(_undisturbed(objective, objective.evictions_per_hour, about, hours))
    return tuple(found)


def _of(objective: Objective) -> str:
    return f"pods of {objective.workload}" if objective.workload else "pods"


def _waiting(objective: Objective, about: Sequence[Observed]) -> Kept:
    limit = parse_duration(objective.pending_within).total_seconds()
    waits = [wait for seen in about for wait in seen.waits]
    late = sum(wait > limit for wait in waits)
    share = 1 - late / len(waits) if waits else 1.0
    promise = f"{objective.share:.6g} of {_of(objective)} run within {objective.pending_within}"
    return Kept(promise, share >= objective.share, late, f"{share:.4f}")


def _available(objective: Objective, least: float, about: Sequence[Observed]) -> Kept:
    shares = [min(ran / wanted, 1.0) for seen in about for ran, wanted in seen.presence if wanted]
    below = sum(share < least for share in shares)
    enough = 1 - below / len(shares) if shares else 1.0
    promise = f"{least:.6g} of the wanted {_of(objective)} run, {objective.share:.6g} of the time"
    worst = f"{enough:.4f} of the time, {min(shares, default=1.0):.4f} at worst"
    return Kept(promise, enough >= objective.share, below, worst)


def _undisturbed(objective: Objective, most: float, about: Sequence[Observed], hours: float) -> Kept:
    rate = sum(seen.evictions for seen in about) / hours if hours else 0.0
    promise = f"no more than {most:g} {_of(objective)} evicted an hour"
    return Kept(promise, rate <= most, max(0, round((rate - most) * hours)), f"{rate:.3f} an hour")
