"""NodePools after a change, in their order of preference, and what each may buy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from dovetail.api import core, labels
from dovetail.api.conditions import READY
from dovetail.api.hashes import NODEPOOL_HASH_VERSION, hash_nodepool
from dovetail.api.meta import Condition
from dovetail.api.nodepool import NodePool
from dovetail.api.overlay import NodeOverlay
from dovetail.disruption.policy import add_default_annotations
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.node_extras import read_node_extra, set_node_extra
from dovetail.scheduling.model.node_overlays import apply_overlays
from dovetail.scheduling.model.snapshot import (
    Snapshot,
    SnapshotPool,
    build_pools_and_catalogs,
)
from dovetail.settings.node_extra import NO_EXTRA, NodeExtra
from dovetail.state.changed_pods import WorldChange

__all__ = ["KnownWorld", "assume_ready", "change_pools", "sort_pools"]

READY_NOW = Condition(type=READY, status="True")
# What controllers write on a NodePool, and nobody has in a file.
WRITTEN = frozenset((labels.RECENT, labels.LOST_REPLACEMENTS, labels.ZONE_LEDGER))


@dataclass(frozen=True, slots=True)
class KnownWorld:
    """What is known of a world beside its Snapshot.

    `offers` are the instance types each NodePool may buy after the change, where somebody can say;
    `defaults` the annotations that settings give to every NodePool; `class_hashes` the hashes of the
    EC2NodeClasses by name; `ranges` its LimitRanges; `extra` what is added to the price of nodes whose
    NodePool says nothing of it, and None where such are not counted.
    """

    offers: Mapping[str, Sequence[InstanceType]] | None = None
    defaults: Mapping[str, str] = field(default_factory=dict)
    class_hashes: Mapping[str, str] = field(default_factory=dict)
    ranges: tuple[core.LimitRange, ...] = ()
    extra: NodeExtra | None = NO_EXTRA


def sort_pools(pools: Iterable[NodePool]) -> list[NodePool]:
    """The pools in their order of preference: the heaviest first, then the last by name."""
    named = sorted(pools, key=lambda pool: pool.name, reverse=True)
    return sorted(named, key=lambda pool: pool.spec.weight or 0, reverse=True)


def assume_ready(pool: NodePool) -> NodePool:
    """The pool; one that says nothing about readiness is ready."""
    if any(condition.type == READY for condition in pool.status.conditions):
        return pool
    return replace(pool, status=replace(pool.status, conditions=(*pool.status.conditions, READY_NOW)))


def change_pools(
    snapshot: Snapshot, change: WorldChange, known: KnownWorld, remarks: list[str]
) -> tuple[tuple[SnapshotPool, ...], tuple[tuple[InstanceType, ...], ...]]:
    """The NodePools with their catalogues after a change; `remarks` gets what a person should know of it."""
    new = {pool.name: pool for pool in change.list_objects(NodePool)}
    gone = {name for _, name in change.list_deleted(NodePool)}
    overlays = change.list_objects(NodeOverlay)
    if not new and not gone and not overlays and known.offers is None:
        return snapshot.pools, snapshot.catalogs
    before = {pool.name: pool for pool in snapshot.pools}
    merged = {name: pool.nodepool for name, pool in before.items() if name not in gone}
    for name, pool in new.items():
        old = before.get(name)
        merged[name] = _merge_pool(pool, old.nodepool if old else None, known.defaults)
    pools = sort_pools(merged.values())
    if known.offers is not None:
        offered = known.offers
        return build_pools_and_catalogs((pool, offered.get(pool.name, ())) for pool in pools)
    offers = [
        (pool, _price_types(pool, before.get(pool.name), _find_types(snapshot, pool, remarks), known))
        for pool in pools
    ]
    if overlays:
        remarks.append(
            "prices and capacities of a cluster have its NodeOverlays in them already: those of the change "
            "are applied on top"
        )
        laid = apply_overlays(offers, overlays, snapshot.options.flavour)
        remarks += [
            f"NodeOverlay {each.overlay} is not in force: {each.message}"
            for each in laid.statuses
            if not each.valid
        ]
        offers = [(pool, laid.types.get(pool.name, types)) for pool, types in offers]
    return build_pools_and_catalogs(offers)


def _merge_pool(pool: NodePool, old: NodePool | None, defaults: Mapping[str, str]) -> NodePool:
    """The pool as it will be in the cluster: what controllers know of its namesake stays true."""
    if old is None:
        return add_default_annotations(assume_ready(pool), defaults)
    kept = {key: value for key, value in old.annotations.items() if key in WRITTEN}
    if labels.NODEPOOL_HASH in old.annotations:
        kept |= {
            labels.NODEPOOL_HASH: hash_nodepool(pool),
            labels.NODEPOOL_HASH_VERSION: NODEPOOL_HASH_VERSION,
        }
    own = {key: value for key, value in pool.annotations.items() if key not in kept}
    metadata = replace(old.metadata, labels=pool.labels, annotations={**own, **kept})
    # As it is written in the snapshot, so that a pool that stays the same is the same.
    merged = add_default_annotations(replace(pool, metadata=metadata, status=old.status), defaults)
    same = merged.spec == old.spec and dict(merged.annotations) == dict(old.annotations)
    return old if same else merged


def _price_types(
    pool: NodePool, before: SnapshotPool | None, types: tuple[InstanceType, ...], known: KnownWorld
) -> tuple[InstanceType, ...]:
    """The types at the prices of this pool: what an annotation adds has changed, or is another pool's."""
    same = before is not None and before.nodepool.annotations.get(labels.NODE_EXTRA) == pool.annotations.get(
        labels.NODE_EXTRA
    )
    if same or known.extra is None:
        return types
    priced = set_node_extra(types, read_node_extra(pool, known.extra))
    return types if all(a is b for a, b in zip(types, priced, strict=True)) else priced


def _find_types(snapshot: Snapshot, pool: NodePool, remarks: list[str]) -> tuple[InstanceType, ...]:
    """What the pool may buy: as before, or as another pool of its node class does."""
    wanted = pool.spec.template.spec.node_class_ref
    listed = [(each, each.nodepool.spec.template.spec.node_class_ref) for each in snapshot.pools]
    same = [each for each, ref in listed if each.name == pool.name and ref == wanted]
    alike = [each for each, ref in listed if ref == wanted]
    near = [each for each, ref in listed if (ref.group, ref.kind) == (wanted.group, wanted.kind)]
    found = next((each for each in (*same, *alike, *near) if each.catalog >= 0), None)
    if found is None:
        kind = wanted.kind or "node class"
        remarks.append(f"what NodePool {pool.name} can buy is not known: no pool here has a {kind}")
        return ()
    if not same and not alike:
        remarks.append(
            f"no pool here uses {wanted.kind} {wanted.name}: NodePool {pool.name} is taken to buy what "
            f"{found.name} does"
        )
    return snapshot.list_types(found)
