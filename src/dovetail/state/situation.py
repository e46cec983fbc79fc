"""The Situation of a cluster that is only looked at: what its controller knows, as its objects tell it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from dovetail.api.commitment import Commitment
from dovetail.api.spend_limit import SpendLimit
from dovetail.disruption.policy import add_default_annotations, read_default_annotations
from dovetail.disruption.situation import Situation
from dovetail.scheduling.commitment_terms import build_terms
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.snapshot import Snapshot, StateNode
from dovetail.scheduling.spend_caps import build_caps
from dovetail.scheduling.sunk_prices import add_commitments
from dovetail.settings import Settings

__all__ = ["build_situation", "change_commitments", "change_spend_limits"]


def build_situation(
    snapshot: Snapshot,
    settings: Settings,
    *,
    excluded_zones: frozenset[str] = frozenset(),
    closed_zones: Mapping[str, str] | None = None,
    returned_zones: frozenset[str] = frozenset(),
    spend_limits: Iterable[SpendLimit] = (),
    commitments: Iterable[Commitment] = (),
) -> Situation:
    """The snapshot with what the controller's settings and marks add to it.

    Settings turn knobs for all NodePools; commands under way left marks on Nodes and NodeClaims. Which nodes
    the controller chose for pods in the last seconds, it alone knows.
    """
    knobs = read_default_annotations(settings)
    pools = tuple(
        replace(pool, nodepool=add_default_annotations(pool.nodepool, knobs)) for pool in snapshot.pools
    )
    if settings.commitments != "Off":
        follow = settings.commitments == "Follow"
        snapshot = replace(snapshot, options=replace(snapshot.options, follow_commitments=follow))
        snapshot = add_commitments(snapshot, build_terms(commitments, snapshot.options.now))
    return Situation(
        snapshot=replace(snapshot, pools=pools),
        queued=frozenset(views.read_provider_id(each) for each in snapshot.nodes if _is_queued(each)),
        excluded_zones=excluded_zones,
        closed_zones=closed_zones or {},
        returned_zones=returned_zones if settings.zonal_policy.rebalance == "Gradual" else frozenset(),
        spot_to_spot=settings.feature_gates.spot_to_spot_consolidation,
        spend_caps=build_caps(spend_limits, (pool.nodepool for pool in snapshot.pools), snapshot.options.now),
    )


def change_spend_limits(
    situation: Situation,
    known: Iterable[SpendLimit],
    applied: Iterable[SpendLimit],
    deleted: AbstractSet[str] = frozenset(),
) -> Situation:
    """The situation with these limits applied, each in the place of its namesake, and others deleted.

    `known` are those that the cluster has, as far as they were seen: they are read again, since NodePools may
    have other labels now, and an applied one goes on with the month of its namesake.
    """
    there = {each.name: each for each in known if each.name not in deleted}
    for each in applied:
        old = there.get(each.name)
        there[each.name] = each if old is None else replace(each, status=old.status)
    snapshot = situation.snapshot
    caps = build_caps(there.values(), (pool.nodepool for pool in snapshot.pools), snapshot.options.now)
    gone = deleted | there.keys()
    kept = (cap for cap in situation.spend_caps if cap.limit not in gone)
    return replace(situation, spend_caps=tuple(sorted((*kept, *caps), key=lambda cap: cap.limit)))


def change_commitments(
    situation: Situation, applied: Iterable[Commitment], deleted: AbstractSet[str] = frozenset()
) -> Situation:
    """The situation with these commitments, each in the place of its namesake, and without others."""
    snapshot, made = situation.snapshot, tuple(applied)
    gone = deleted | {each.name for each in made}
    kept = (terms for terms in snapshot.commitments if terms.name not in gone)
    terms = sorted((*kept, *build_terms(made, snapshot.options.now)), key=lambda each: each.name)
    plain = replace(snapshot, commitments=(), open_commitments=())
    return situation.with_snapshot(add_commitments(plain, terms))


def _is_queued(state: StateNode) -> bool:
    """Whether a command for the node is under way: it ends when the NodeClaim is deleted."""
    claim = state.claim
    return views.has_disruption_mark(state) and (claim is None or not claim.deleting)
