"""A change for the dashboard: objects that are applied to what it shows, or what a plan said of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from dovetail.app.changed_plan import change_cluster, plan_change
from dovetail.app.cluster_source import SeenCluster
from dovetail.app.dashboard_watch import DescribeChange
from dovetail.app.solved_plan import FEW
from dovetail.cli.views.plan_changes import build_change_document
from dovetail.cli.views.world_files import parse_object_name, read_change_files
from dovetail.errors import BadInput
from dovetail.web import ChangeDocument

__all__ = ["read_dashboard_change"]

# Members that tell what a plan printed from a manifest.
PRINTED = frozenset(("hourlyBefore", "hourlyAfter"))


def read_dashboard_change(paths: Sequence[str], deleted: Sequence[str]) -> DescribeChange:
    """How to say what a change would alter; BadInput where its files cannot be read."""
    printed = _read_printed(paths[0]) if len(paths) == 1 and not deleted else None
    if printed is not None:
        document = printed
        return lambda seen: document
    change = read_change_files(paths, deleted).build_change([parse_object_name(each) for each in deleted])

    def describe(seen: SeenCluster) -> ChangeDocument:
        quick = len(seen.snapshot.pods) > FEW
        planned = plan_change(seen, change_cluster(seen, change), quick, lambda step: None)
        return msgspec.convert(build_change_document(planned), ChangeDocument)

    return describe


def _read_printed(path: str) -> ChangeDocument | None:
    """What `dovetail plan --change` printed for programs; None where the file is something else."""
    try:
        found = msgspec.json.decode(Path(path).read_bytes())
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None  # whatever is wrong with the file is said by who reads manifests
    if not isinstance(found, dict) or "kind" in found or not found.keys() & PRINTED:
        return None
    try:
        return msgspec.convert(found, ChangeDocument)
    except msgspec.ValidationError as error:
        told = f"{path}: this is not all that `dovetail plan --change … -o json` prints: {error}"
        raise BadInput(told) from error
