"""Pictures of clusters for the dashboard: one with something to take away, one with pods that fit nowhere."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from dovetail.api.pod import Pod
from dovetail.app.dashboard_watch import build_picture
from dovetail.cli.views.file_plans import FilePlanner
from dovetail.cli.views.world_files import WorldReader
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.web import Picture
from support.seen_clusters import see

__all__ = ["busy", "disrupted", "pictured"]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "disruption.yaml"


def disrupted() -> Snapshot:
    """The cluster of the guide to disruption: three nodes would go and three stay."""
    reader = WorldReader()
    reader.read_files([str(EXAMPLE)])
    return FilePlanner(reader, "", "", quick=True).build_snapshot()


def busy(*pods: Pod) -> Snapshot:
    """The same, with pods that wait."""
    return replace(disrupted(), pods=pods)


def pictured(snapshot: Snapshot, *, live: bool = False) -> Picture:
    return build_picture(see(snapshot), "test.example", live=live)
