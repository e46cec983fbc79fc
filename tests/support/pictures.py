"""Pictures of clusters for the dashboard: one with something to take away, one with pods that fit nowhere."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from dovetail.api.pod import Pod
from dovetail.cli.dashboardworld import picture_of
from dovetail.cli.plan import _world
from dovetail.cli.seen import Where, own_settings
from dovetail.scheduling.snapshot import Snapshot
from dovetail.web import Picture

__all__ = ["busy", "disrupted", "pictured"]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "disruption.yaml"


def disrupted() -> Snapshot:
    """The cluster of the guide to disruption: three nodes would go and three stay."""
    return _world([str(EXAMPLE)], False, "", ("", "", ""), Where()).snapshot


def busy(*pods: Pod) -> Snapshot:
    """The same, with pods that wait."""
    return replace(disrupted(), pods=pods)


def pictured(snapshot: Snapshot, *, live: bool = False) -> Picture:
    return picture_of(snapshot, "test.example", own_settings(), live=live)
