"""The world with commands under way: nodes marked, replacements ordered, their pods spoken for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.disruption.candidates import Candidate, Scene
from dovetail.disruption.churn import knobs, noted, recent
from dovetail.disruption.command import Command
from dovetail.scheduling import nodes as views
from dovetail.scheduling.plan import ClaimOptions, PlannedNode
from dovetail.scheduling.snapshot import Pool, StateNode

__all__ = ["under_way"]


def under_way(scene: Scene, commands: Sequence[Command]) -> Scene:
    """What the loop sees in its next turn, before anything has come up or gone."""
    going = [candidate for command in commands for candidate in command.candidates]
    keys = {candidate.key for candidate in going}
    wanted = {name for c in commands if c.plan for name, pods in c.plan.existing.items() if pods}
    nodes = tuple(
        replace(
            state, marked=state.marked or views.provider_id(state) in keys, nominated=_told(state, wanted)
        )
        for state in scene.snapshot.nodes
    )
    snapshot = replace(
        scene.snapshot,
        pools=tuple(_with_moves(scene, pool, going) for pool in scene.snapshot.pools),
        nodes=(*nodes, *_ordered(scene, commands)),
        moving=(*scene.snapshot.moving, *_moving(scene, going)),
    )
    return Scene(snapshot, scene.queued | keys, scene.buffered, scene.spot_to_spot)


def _told(state: StateNode, wanted: set[str]) -> bool:
    return state.nominated or views.name(state) in wanted


def _moving(scene: Scene, going: Iterable[Candidate]) -> Iterable[Pod]:
    now = scene.snapshot.options.now
    return (p for c in going for p in c.pods if scene.limits.currently_reschedulable(p, now))


def _with_moves(scene: Scene, pool: Pool, going: Iterable[Candidate]) -> Pool:
    """The pool as it is noted that these went, if it has a rate to keep."""
    nodepool = pool.nodepool
    rate, now = knobs(nodepool).rate, scene.snapshot.options.now
    count = Counter(candidate.pool.name for candidate in going)[pool.name]
    if rate is None or not count:
        return pool
    moves = recent(nodepool)
    moves[now] = moves.get(now, 0) + count
    annotations = {**nodepool.annotations, labels.RECENT: noted(moves, now, rate.per)}
    metadata = replace(nodepool.metadata, annotations=annotations)
    return replace(pool, nodepool=replace(nodepool, metadata=metadata))


def _ordered(scene: Scene, commands: Sequence[Command]) -> Iterable[StateNode]:
    begun = len(scene.snapshot.nodes)
    new = [node for command in commands for node in command.replacements]
    for number, node in enumerate(new):
        yield StateNode(
            claim=_claim(scene, scene.pools[node.pool], node, f"{node.pool}-new-{begun + number}")
        )


def _claim(scene: Scene, pool: NodePool, node: PlannedNode, name: str) -> NodeClaim:
    """The order as it is once the machine was found, and before it has joined."""
    claim = node.claim(pool, ClaimOptions(flavour=scene.snapshot.options.flavour))
    of = scene.types[pool.name].get(node.instance_type)
    known = {
        labels.INSTANCE_TYPE: node.instance_type,
        labels.ZONE: node.zone,
        labels.CAPACITY_TYPE: node.capacity_type,
    }
    known = {key: value for key, value in known.items() if value}
    metadata = replace(
        claim.metadata,
        name=name,
        uid=name,
        labels={**claim.labels, **known},
        creation_timestamp=scene.snapshot.options.now,
    )
    status = replace(
        claim.status,
        provider_id=f"planned://{name}",
        capacity=of.capacity if of else {},
        allocatable=of.allocatable() if of else {},
    )
    return replace(claim, metadata=metadata, status=status)
