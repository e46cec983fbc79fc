"""Zonal shifts: zones that Dovetail shifts away from, how far that has come, and what lies in each zone."""

from __future__ import annotations

from collections import Counter

from dovetail.api import labels
from dovetail.api.zoneshift import ZoneShift
from dovetail.picture import Picture
from dovetail.scheduling.model import state_node as states
from dovetail.web.page import (
    Cell,
    Tone,
    WebPage,
    WebTable,
    number_cell,
    price_cell,
    share_cell,
    text_cell,
    word_cell,
)

__all__ = ["build_shifts_page", "build_zone_table"]

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


def build_shifts_page(picture: Picture) -> WebPage:
    """Shifts in force and past, and the zones."""
    told = [each for each in picture.shifts if each.spec.kind != SIGNAL]
    active = [each for each in told if each.status.phase not in ("Restored", "Refused")]
    away = ", ".join(sorted({each.status.zone_name or each.spec.zone_id for each in active}))
    return WebPage(
        "Zonal shifts",
        f"Shifted away from {away}." if active else "No zone is shifted away.",
        tables=(
            WebTable("shifts", "Shifts", SHIFTS, tuple(map(_build_row, told)), "There has been no shift."),
            build_zone_table(picture),
        ),
        remarks=() if picture.live else ("A snapshot has no shifts.",),
    )


def _build_row(shift: ZoneShift) -> tuple[Cell, ...]:
    spec, status = shift.spec, shift.status
    named = f"{status.zone_name} ({spec.zone_id})" if status.zone_name else spec.zone_id
    until = status.expiry_time or spec.expires
    return (
        Cell(spec.zone_id, named),
        text_cell(spec.kind),
        text_cell(spec.policy + (", dry run" if spec.dry_run else "")),
        word_cell(status.phase or "Pending", TONES.get(status.phase, "quiet")),
        text_cell(f"{status.steps.nodes.done} of {status.steps.nodes.desired}"),
        text_cell(f"{status.steps.node_pools.done} of {status.steps.node_pools.desired}"),
        text_cell(status.started_at.isoformat(" ", "seconds") if status.started_at else None),
        text_cell(until.isoformat(" ", "seconds") if until else None),
        text_cell(status.end_reason or None),
    )


def build_zone_table(picture: Picture) -> WebTable:
    """The zones and what lies in each."""
    return WebTable("zones", "Zones", ZONES, _build_zone_rows(picture), "No node says which zone it is in.")


def _build_zone_rows(picture: Picture) -> tuple[tuple[Cell, ...], ...]:
    counts: Counter[str] = Counter()
    pods: Counter[str] = Counter()
    spot: Counter[str] = Counter()
    price: dict[str, float] = {}
    for state in picture.nodes:
        known = states.read_labels(state)
        zone = known.get(labels.ZONE)
        if not zone:
            continue
        counts[zone] += 1
        pods[zone] += len(list(states.list_running_pods(state.pods)))
        spot[zone] += known.get(labels.CAPACITY_TYPE) == labels.SPOT
        price[zone] = price.get(zone, 0.0) + picture.prices.get(states.read_name(state), 0.0)
    total = sum(counts.values())
    return tuple(
        (
            text_cell(zone),
            number_cell(counts[zone]),
            share_cell(counts[zone] / total),
            number_cell(pods[zone]),
            price_cell(price[zone] or None),
            number_cell(spot[zone]),
        )
        for zone in sorted(counts)
    )
