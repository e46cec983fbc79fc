"""The file of a snapshot, and the choice between it and the live cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from dovetail.app.cluster_source import ClusterSource, SeenCluster, read_own_settings
from dovetail.disruption.situation import Situation
from dovetail.errors import BadInput
from dovetail.scheduling.model import snapshot_codec
from dovetail.scheduling.model.annotations import strip_annotations
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.settings import examine_settings
from dovetail.state.situation import build_situation

__all__ = ["FORMAT", "encode_snapshot", "find_cluster", "read_snapshot"]

STDIN = "-"
FORMAT = "dovetail-snapshot/2"
# Files without a Situation: what else is known was read from the environment of whoever looked at them.
OLD_FORMAT = "dovetail-snapshot/1"
ADVICE = "take one with `dovetail snapshot -o FILE`"


def find_cluster(file: str, where: ClusterSource, remark: Callable[[str], None]) -> SeenCluster:
    """The cluster in the file, or the live one as it is now; `remark` is told of what could not be read."""
    if file:
        where.exclude_snapshot()
        return read_snapshot(file)
    # It takes all of Dovetail to see as Dovetail does; a file can do without.
    from dovetail.app.live_cluster import read_cluster

    return read_cluster(where, remark)


def encode_snapshot(seen: SeenCluster) -> bytes:
    """The snapshot's own bytes, beside them how to read them, the Situation and the settings behind it."""
    stripped = strip_annotations(seen.snapshot)
    parts = msgspec.json.decode(snapshot_codec.encode_snapshot(stripped), type=dict[str, msgspec.Raw])
    known = seen.situation.with_snapshot(Snapshot())
    head: dict[str, object] = {
        "format": FORMAT,
        "provider": seen.settings.provider,
        "settings": seen.settings.list_deciding(),
        "situation": msgspec.Raw(snapshot_codec.encode_part(known)),
    }
    if seen.class_hashes:
        head["nodeClasses"] = dict(sorted(seen.class_hashes.items()))
    return msgspec.json.encode(head | parts) + b"\n"


class _Head(msgspec.Struct):
    format: str
    excluded_zones: frozenset[str] = frozenset()


class _Situation(msgspec.Struct):
    """What a file of the second format holds beside the snapshot."""

    situation: Situation
    provider: str = "kwok"
    settings: dict[str, str] = {}
    node_classes: dict[str, str] = msgspec.field(default_factory=dict, name="nodeClasses")


def read_snapshot(path: str) -> SeenCluster:
    """The cluster in a file; BadInput says what is wrong with the file."""
    name = "stdin" if path == STDIN else path
    try:
        data = sys.stdin.buffer.read() if path == STDIN else Path(path).read_bytes()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadInput(f"reading the snapshot {name}: {why.lower()}; {ADVICE}") from error
    try:
        head = msgspec.json.decode(data, type=_Head)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise BadInput(f"reading the snapshot {name}: it is not one; {ADVICE}") from error
    if head.format not in (FORMAT, OLD_FORMAT):
        raise BadInput(
            f"reading the snapshot {name}: its format is {head.format!r} and this version reads {FORMAT!r} "
            f"and {OLD_FORMAT!r}; take it again with this version"
        )
    try:
        snapshot = snapshot_codec.decode_snapshot(data)
        if head.format == OLD_FORMAT:
            own = read_own_settings()
            return SeenCluster(build_situation(snapshot, own, excluded_zones=head.excluded_zones), {}, own)
        known = msgspec.json.decode(data, type=_Situation)
    except (msgspec.MsgspecError, ValueError, IndexError) as error:
        raise BadInput(f"reading the snapshot {name}: it is damaged ({error}); {ADVICE}") from error
    # The name of the cluster is nobody's business, and no decision depends on it; EC2 insists on one.
    found = examine_settings((), {"CLUSTER_NAME": "snapshot"} | known.settings, known.provider)
    if found.problems:
        raise BadInput(f"reading the snapshot {name}: it is damaged ({found.problems[0]}); {ADVICE}")
    return SeenCluster(known.situation.with_snapshot(snapshot), {}, found.settings, known.node_classes)
