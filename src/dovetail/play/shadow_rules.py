"""What a shadow tries in its one-step differences: the same Situation under the rules of `--with`.

The twin tries all of it. A decision in the situation that there was can only be made under other rules: other
settings and other NodePools. Other workloads would be another situation; that is told in a note.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from dovetail.api import codec, labels
from dovetail.api.nodepool import NodePool
from dovetail.disruption.policy import add_default_annotations, read_default_annotations
from dovetail.disruption.situation import Situation
from dovetail.errors import BadInput
from dovetail.history.recording.segment import SegmentHead
from dovetail.scheduling.model.snapshot import SchedulingOptions, Snapshot, SnapshotPool
from dovetail.settings import Settings, read_settings
from dovetail.state.changed_pools import WRITTEN, assume_ready, sort_pools

__all__ = ["THEIRS", "TriedRules"]

Json = dict[str, Any]
# What another autoscaler's settings must not decide for ours.
THEIRS = ("PLANNER",)
POOL = "NodePool"


class TriedRules:
    """Makes every Situation of a recording one that is decided under the rules that are tried."""

    def __init__(
        self,
        settings: tuple[tuple[str, str], ...] = (),
        manifests: tuple[Json, ...] = (),
        *,
        as_karpenter: bool = False,
    ) -> None:
        self._tried = dict(settings)
        self._as_karpenter = as_karpenter
        self._pools = {pool.name: pool for pool in map(_read_pool, manifests) if pool is not None}
        self._others = sorted({str(each.get("kind")) for each in manifests} - {POOL})
        self._settings: Settings | None = None
        self._defaults: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})
        self._changed: tuple[object, tuple[SnapshotPool, ...]] = ((), ())

    @property
    def notes(self) -> tuple[str, ...]:
        """What is tried in the twin alone."""
        if not self._others:
            return ()
        return (
            f"--with {', '.join(self._others)}: tried in the twin; the decisions one by one are about the "
            "workloads that there were",
        )

    def read_head(self, head: SegmentHead) -> None:
        """From now on these are the settings of the cluster; what is tried replaces them."""
        recorded = dict(head.settings)
        provider = recorded.pop("PROVIDER", "kwok")
        ours = {key: value for key, value in recorded.items() if key not in THEIRS} | self._tried
        # No decision depends on the cluster's name, and EC2 insists on one.
        name = {"CLUSTER_NAME": "shadow"}
        self._settings = read_settings((), {**ours, **name}, provider=provider)
        before = read_settings((), {**recorded, **name}, provider=provider)
        self._defaults = read_default_annotations(before), read_default_annotations(self._settings)
        self._changed = ((), ())

    def decide_as(self, situation: Situation) -> Situation:
        """The Situation under the rules that are tried."""
        snapshot = situation.snapshot
        options = self._build_options(snapshot.options)
        pools = self._change_pools(snapshot)
        if options is not snapshot.options or pools is not snapshot.pools:
            situation = situation.with_snapshot(replace(snapshot, options=options, pools=pools))
        if self._settings is None or not self._tried:
            return situation
        return replace(situation, spot_to_spot=self._settings.feature_gates.spot_to_spot_consolidation)

    def _build_options(self, options: SchedulingOptions) -> SchedulingOptions:
        one_by_one = self._as_karpenter or self._tried.get("PLANNER") == "one-by-one"
        settings = self._settings
        if settings is None or not self._tried:
            return options if options.one_by_one is one_by_one else replace(options, one_by_one=one_by_one)
        return replace(
            options,
            preferences="Ignore" if settings.preference_policy == "Ignore" else "Respect",
            min_values="BestEffort" if settings.min_values_policy == "BestEffort" else "Strict",
            reserved_capacity=settings.feature_gates.reserved_capacity,
            one_by_one=one_by_one,
            most_pods=settings.planned_node_max_pods,
            ignore_dra=settings.ignore_dra_requests,
        )

    def _change_pools(self, snapshot: Snapshot) -> tuple[SnapshotPool, ...]:
        before, after = self._defaults
        if not self._pools and before == after and not self._as_karpenter:
            return snapshot.pools
        if (
            self._changed[0] is not snapshot.pools
        ):  # mostly the very same pools, which decisions are cached by
            self._changed = snapshot.pools, self._build_pools(snapshot, before, after)
        return self._changed[1]

    def _build_pools(
        self, snapshot: Snapshot, before: Mapping[str, str], after: Mapping[str, str]
    ) -> tuple[SnapshotPool, ...]:
        found = {pool.name: pool for pool in snapshot.pools}
        made: dict[str, SnapshotPool] = {}
        for name, pool in found.items():
            own = {key: each for key, each in pool.nodepool.annotations.items() if before.get(key) != each}
            if self._as_karpenter:
                own = {key: each for key, each in own.items() if not _is_knob(key)}
            about = replace(pool.nodepool.metadata, annotations=own)
            made[name] = replace(pool, nodepool=replace(pool.nodepool, metadata=about))
        for name, tried in self._pools.items():
            made[name] = _place_pool(tried, found.get(name), snapshot)
        if not self._as_karpenter:
            made = {
                name: replace(pool, nodepool=add_default_annotations(pool.nodepool, after))
                for name, pool in made.items()
            }
        order = [pool.name for pool in sort_pools(pool.nodepool for pool in made.values())]
        return tuple(made[name] for name in order)


def _place_pool(tried: NodePool, old: SnapshotPool | None, snapshot: Snapshot) -> SnapshotPool:
    """The pool that is tried, with what controllers know of its namesake, buying what its class sells."""
    if old is not None:
        hashes = (labels.NODEPOOL_HASH, labels.NODEPOOL_HASH_VERSION)
        known = old.nodepool.annotations
        kept = {key: each for key, each in known.items() if key in WRITTEN or key in hashes}
        about = replace(old.nodepool.metadata, annotations={**tried.annotations, **kept}, labels=tried.labels)
        return replace(old, nodepool=replace(tried, metadata=about, status=old.nodepool.status))
    wanted = tried.spec.template.spec.node_class_ref
    alike = [
        pool
        for pool in snapshot.pools
        if (pool.nodepool.spec.template.spec.node_class_ref.kind or wanted.kind) == wanted.kind
    ]
    same = [each for each in alike if each.nodepool.spec.template.spec.node_class_ref == wanted]
    catalog = next((each.catalog for each in (*same, *alike)), -1)
    return SnapshotPool(nodepool=assume_ready(tried), catalog=catalog)


def _is_knob(key: str) -> bool:
    return labels.DOVETAIL in key.partition("/")[0]


def _read_pool(manifest: Json) -> NodePool | None:
    if manifest.get("kind") != POOL:
        return None
    try:
        return codec.convert(NodePool, manifest)
    except (BadInput, ValueError, TypeError) as error:
        name = (manifest.get("metadata") or {}).get("name", "")
        raise BadInput(f"--with NodePool {name}: it cannot be read ({error})") from error
