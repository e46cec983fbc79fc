"""Clusters as commands that only look see them, from snapshots that tests build."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dovetail.api.pod import Pod
from dovetail.app.cluster_source import SeenCluster, read_own_settings
from dovetail.app.snapshot_file import encode_snapshot
from dovetail.scheduling.model import snapshot_codec
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.state.situation import build_situation

__all__ = ["encode_first_format", "encode_world", "see"]


def see(snapshot: Snapshot, pods: Mapping[str, Pod] | None = None, **zones: Any) -> SeenCluster:
    """The cluster with the settings of this environment; `zones` are those of `build_situation`."""
    settings = read_own_settings()
    return SeenCluster(build_situation(snapshot, settings, **zones), pods or {}, settings)


def encode_world(snapshot: Snapshot, **zones: Any) -> bytes:
    """The file that `dovetail snapshot` would write."""
    return encode_snapshot(see(snapshot, **zones))


def encode_first_format(snapshot: Snapshot) -> bytes:
    """The file as versions before the Situation wrote it."""
    parts = msgspec.json.decode(snapshot_codec.encode_snapshot(snapshot), type=dict[str, msgspec.Raw])
    return msgspec.json.encode({"format": "dovetail-snapshot/1"} | parts) + b"\n"
