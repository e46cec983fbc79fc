"""Drift at scale: how every node of a large cluster would go, wave after wave."""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time

from msgspec.structs import replace

from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods import drift_waves
from dovetail.scheduling.model.snapshot import SnapshotPool, StateNode
from support.builders import NOW, condition
from support.disruption import pool

from .fleet import fleet
from .registry import Figure, scenario

NODES, PODS = 4_000, 40_000


def _drifted(state: StateNode) -> StateNode:
    assert state.claim is not None
    known = state.claim.status
    said = (*known.conditions, condition("Drifted", since=NOW))
    return replace(state, claim=replace(state.claim, status=replace(known, conditions=said)))


def _budgeted(each: SnapshotPool) -> SnapshotPool:
    """A tenth at a time, as is Karpenter's default."""
    spec = replace(each.nodepool.spec, disruption=pool(nodes="10%").spec.disruption)
    return replace(each, nodepool=replace(each.nodepool, spec=spec))


@scenario("drift: 4,000 nodes, 40,000 pods")
def every_wave() -> Iterator[Figure]:
    """The whole of them has drifted; budgets say how many go at a time."""
    snapshot = fleet(NODES, PODS).snapshot
    drifted = replace(
        snapshot, nodes=tuple(map(_drifted, snapshot.nodes)), pools=tuple(map(_budgeted, snapshot.pools))
    )
    begun = process_time()
    found = drift_waves.plan_waves(DisruptionInput(drifted))
    spent = process_time() - begun
    assert sum(len(wave.nodes) for wave in found.waves) == NODES
    yield Figure("plan of all waves", spent, "s", 60)
    yield Figure("waves", len(found.waves), "waves")
