"""Which pods are ours to place."""

from __future__ import annotations

from dovetail.api.pod import Pod
from dovetail.scheduling.snapshot import Snapshot


def batch_of(snapshot: Snapshot) -> tuple[list[Pod], dict[str, str]]:
    return [*snapshot.pods, *snapshot.virtual, *snapshot.moving], {}
