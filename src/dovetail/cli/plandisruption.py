"""``dovetail plan --disruption``: which nodes would go now, what that saves, and why each other stays."""

from __future__ import annotations

from difflib import get_close_matches

from msgspec.structs import replace

from dovetail.cli.disruptionview import show_node, show_survey
from dovetail.cli.output import Output, note
from dovetail.cli.progress import Progress
from dovetail.disruption.candidates import Scene
from dovetail.disruption.churn import from_settings, with_defaults
from dovetail.disruption.held import Held
from dovetail.disruption.survey import Survey, survey
from dovetail.errors import BadInput
from dovetail.scheduling.snapshot import Snapshot
from dovetail.settings import Settings

__all__ = ["plan_disruption", "scene_of"]

STEPS = 20
# Held by these, a drifted node goes by itself in a while; by anything else, a person must do something.
PASSING = frozenset(
    (
        Held.BUDGET,
        Held.RATE,
        Held.BACKED_OFF,
        Held.UNDER_WAY,
        Held.DELETING,
        Held.NOMINATED,
        Held.UNINITIALIZED,
        Held.NO_NODE,
        Held.UNSAID,
        Held.ZONAL_SHIFT,
    )
)


def plan_disruption(snapshot: Snapshot, settings: Settings, node: str, turns: int, output: Output) -> bool:
    """Look and show it; true when a drifted node cannot go without someone's help."""
    scene = scene_of(snapshot, settings)
    if not any(state.claim is not None for state in snapshot.nodes):
        note("note: there is no node with a NodeClaim, so there is nothing to disrupt")
    with Progress(STEPS) as progress:
        found = survey(scene, turns, progress.step)
    if node:
        show_node(found, _known(found, node), output)
    else:
        show_survey(found, snapshot.options.now, output)
    return any(each.drifted and each.main.held not in PASSING for each in found.standing)


def scene_of(snapshot: Snapshot, settings: Settings) -> Scene:
    """The world as the controller would see it with these settings."""
    knobs = from_settings(settings)
    pools = tuple(replace(pool, nodepool=with_defaults(pool.nodepool, knobs)) for pool in snapshot.pools)
    gates = settings.feature_gates
    return Scene(replace(snapshot, pools=pools), spot_to_spot=gates.spot_to_spot_consolidation)


def _known(found: Survey, node: str) -> str:
    names = [each.name for each in found.standing]
    names += [candidate.name for command in found.commands for candidate in command.candidates]
    if node in names:
        return node
    near = get_close_matches(node, names, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise BadInput(f"there is no node {node} here{hint}")
