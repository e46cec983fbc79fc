"""Zonal shifts: zones that Dovetail steps out of, how far that has come, and what lies in each zone."""

from __future__ import annotations

from collections import Counter

from dovetail.api import labels
from dovetail.api.zoneshift import ZoneShift
from dovetail.scheduling import nodes as states
from dovetail.web.page import Cell, Page, Table, Tone, dollars, number, share, text, word
from dovetail.web.picture import Picture

__all__ = ["shifts", "zones"]

# Messages about shifts are kept as objects of the same kind.
SIGNAL = "SIGNAL"
SHIFTS = (
    ("zone", "Zone"),
    ("kind", "Kind"),
    ("policy", "Policy"),
    ("phase", "Phase"),
    ("nodes", "Nodes done"),
    ("pools", "Pools done"),
    ("started", "Since"),
    ("until", "Until"),
    ("ended", "Ended by"),
)
ZONES = (
    ("zone", "Zone"),
    ("nodes", "Nodes"),
    ("share", "Share of nodes"),
    ("pods", "Pods"),
    ("price", "$/h"),
    ("spot", "Spot nodes"),
)
TONES: dict[str, Tone] = {"Active": "bad", "Applying": "warn", "Restoring": "warn", "Restored": "good"}


def shifts(picture: Picture) -> Page:
    """Shifts in force and past, and the zones."""
    told = [each for each in picture.shifts if each.spec.kind != SIGNAL]
    active = [each for each in told if each.status.phase not in ("Restored", "Refused")]
    away = ", ".join(sorted({each.status.zone_name or each.spec.zone_id for each in active}))
    return Page(
        "Zonal shifts",
        f"Dovetail steps out of {away}." if active else "No zone is stepped out of.",
        tables=(
            Table("shifts", "Shifts", SHIFTS, tuple(map(_row, told)), "There has been no shift."),
            zones(picture),
        ),
        remarks=() if picture.live else ("A snapshot holds no shifts.",),
    )


def _row(shift: ZoneShift) -> tuple[Cell, ...]:
    spec, status = shift.spec, shift.status
    named = f"{status.zone_name} ({spec.zone_id})" if status.zone_name else spec.zone_id
    until = status.expiry_time or spec.expires
    return (
        Cell(spec.zone_id, named),
        text(spec.kind),
        text(spec.policy + (", dry run" if spec.dry_run else "")),
        word(status.phase or "Pending", TONES.get(status.phase, "quiet")),
        text(f"{status.steps.nodes.done} of {status.steps.nodes.desired}"),
        text(f"{status.steps.node_pools.done} of {status.steps.node_pools.desired}"),
        text(status.started_at.isoformat(" ", "seconds") if status.started_at else None),
        text(until.isoformat(" ", "seconds") if until else None),
        text(status.end_reason or None),
    )


def zones(picture: Picture) -> Table:
    """The zones and what lies in each."""
    return Table("zones", "Zones", ZONES, _zones(picture), "No node says which zone it is in.")


def _zones(picture: Picture) -> tuple[tuple[Cell, ...], ...]:
    counts: Counter[str] = Counter()
    pods: Counter[str] = Counter()
    spot: Counter[str] = Counter()
    price: dict[str, float] = {}
    for state in picture.nodes:
        known = states.labels(state)
        zone = known.get(labels.ZONE)
        if not zone:
            continue
        counts[zone] += 1
        pods[zone] += len(list(states.running(state.pods)))
        spot[zone] += known.get(labels.CAPACITY_TYPE) == labels.SPOT
        price[zone] = price.get(zone, 0.0) + picture.prices.get(states.name(state), 0.0)
    total = sum(counts.values())
    return tuple(
        (
            text(zone),
            number(counts[zone]),
            share(counts[zone] / total),
            number(pods[zone]),
            dollars(price[zone] or None),
            number(spot[zone]),
        )
        for zone in sorted(counts)
    )
