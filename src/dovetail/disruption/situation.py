"""Situation: everything a decision depends on, frozen and serialisable.

The controller, `plan --live`, `plan --disruption`, `explain`, the dashboard and a recording all decide from
one of these. The same Situation gives the same plan and the same commands, wherever and whenever it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from dovetail.api.meta import Object, Record
from dovetail.api.pod import Pod
from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.scheduling.bad_objects import decide_without_bad_objects
from dovetail.scheduling.committed_plan import fill_commitments
from dovetail.scheduling.model.annotations import strip_object, strip_pod, strip_pool
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.snapshot import Snapshot, SnapshotPool, StateNode, Storage
from dovetail.scheduling.model.snapshot_codec import encode_part
from dovetail.scheduling.solve import FEW, QUICK, THOROUGH, Effort, solve, solve_in_parts
from dovetail.scheduling.spend_caps import SpendCap
from dovetail.scheduling.spend_plan import limit_plan
from dovetail.scheduling.zone_bound import add_deferred_pods, defer_zone_bound_pods

__all__ = ["DisruptionHold", "Situation", "decide_plan", "digest_situation"]


class DisruptionHold(Record, frozen=True):
    """Nodes of a NodePool are not to be disrupted now, or not more than so many; it changes no verdict.

    Without a pool it holds all of them, without a reason every reason.
    """

    blocked_reason: BlockedReason
    why: str
    pool: str = ""
    reason: str = ""
    most: int = 0

    def covers(self, pool: str, reason: str) -> bool:
        """Whether it holds nodes of the pool from being disrupted for the reason."""
        return self.pool in ("", pool) and self.reason in ("", reason)


class Situation(Record, frozen=True):
    """A cluster as it was captured, and what else is known of it.

    `queued` are the keys of nodes being disrupted already, `nominated` those of nodes that pods are to land
    on, and `buffered` the names of nodes that hold capacity for buffers. By choice no node is taken away in
    `excluded_zones` and none is bought in `closed_zones`, names by id; `returned_zones` are back and to be
    filled. `unseen` are the NodePools that the last sweep did not reach.
    """

    snapshot: Snapshot = Snapshot()
    queued: frozenset[str] = frozenset()
    buffered: frozenset[str] = frozenset()
    nominated: frozenset[str] = frozenset()
    excluded_zones: frozenset[str] = frozenset()
    closed_zones: Mapping[str, str] = {}
    returned_zones: frozenset[str] = frozenset()
    unseen: frozenset[str] = frozenset()
    spot_to_spot: bool = False
    holds: tuple[DisruptionHold, ...] = ()
    # What spend limits allow now.
    spend_caps: tuple[SpendCap, ...] = ()

    def with_snapshot(self, snapshot: Snapshot) -> Situation:
        """The same question about another snapshot."""
        return replace(self, snapshot=snapshot)


def decide_plan(
    situation: Situation,
    effort: Effort = THOROUGH,
    cache: DecisionCache | None = None,
    *,
    find_plan: Callable[[Snapshot], Plan] | None = None,
) -> Plan:
    """Where every waiting pod goes; pods that only a closed zone could take wait for it.

    What open commitments pay for is bought first. What spend limits leave no room for is held back last.

    `find_plan` solves instead of `solve`, for who shows a first plan while it looks for a better one.
    """
    snapshot, waiting = defer_zone_bound_pods(situation.snapshot, situation.closed_zones)

    def solve_snapshot(asked: Snapshot) -> Plan:
        return find_plan(asked) if find_plan is not None else solve(asked, effort, cache=cache)

    few = find_plan is not None or len(snapshot.pods) <= FEW or snapshot.options.one_by_one
    if snapshot.open_commitments:
        plan = _fill_commitments(snapshot, solve_snapshot if few else None, effort, cache)
    else:
        plan = solve_snapshot(snapshot)
    if situation.spend_caps:
        plan = _limit_spend(snapshot, plan, situation.spend_caps, cache)
    return add_deferred_pods(plan, waiting) if waiting else plan


def _fill_commitments(
    snapshot: Snapshot,
    find_plan: Callable[[Snapshot], Plan] | None,
    effort: Effort,
    cache: DecisionCache | None,
) -> Plan:
    """The plan that fills open commitments; of a large batch, with its parts verified together."""
    if find_plan is not None:
        return fill_commitments(snapshot, find_plan, cache)
    return solve_in_parts(
        snapshot,
        lambda seen, whole, part: fill_commitments(seen, whole, cache, find_part=part),
        effort,
        cache,
    )


def _limit_spend(
    snapshot: Snapshot, plan: Plan, caps: tuple[SpendCap, ...], cache: DecisionCache | None
) -> Plan:
    """The plan within these caps. Whatever the effort of the plan, tiers of it are solved with the same."""
    used = DecisionCache() if cache is None else cache
    limited, _ = decide_without_bad_objects(
        snapshot,
        lambda seen: limit_plan(seen, plan, caps, lambda asked: solve(asked, QUICK, cache=used), used),
        used,
    )
    return limited


class _PartDigests:
    """Digests of the large parts of the last snapshot, which hardly change from one to the next."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, object], tuple[object, bytes]] = {}

    def digest_parts(self, parts: Iterable[tuple[object, Callable[[Any], bytes]]]) -> bytes:
        """The digests of these parts, one after another; those of others are let go."""
        known, self._known = self._known, {}
        found = []
        for part, name in parts:
            key = id(part), name
            before = known.get(key)
            digest = sha256(name(part)).digest() if before is None else before[1]
            self._known[key] = part, digest
            found.append(digest)
        return b"".join(found)


def digest_situation(situation: Situation, cache: DecisionCache | None = None) -> str:
    """Thirty-two hexadecimal digits that tell situations apart, in every process the same.

    An object of an API server is told by its uid and resourceVersion; one without them by all that it holds.
    """
    parts = (DecisionCache() if cache is None else cache).get_part(_PartDigests)
    small = situation.with_snapshot(Snapshot(options=situation.snapshot.options))
    whole = sha256(encode_part(small))
    whole.update(parts.digest_parts(_list_parts(situation.snapshot)))
    return whole.hexdigest()[:32]


def _list_parts(snapshot: Snapshot) -> Iterator[tuple[object, Callable[[Any], bytes]]]:
    """Every part of a snapshot but its options, each with what names it."""
    yield snapshot.pools, _name_pools
    plain = (snapshot.catalogs, snapshot.namespaces, snapshot.workloads, snapshot.devices, snapshot.set_aside)
    for part in plain:
        yield part, encode_part
    if snapshot.commitments:
        yield snapshot.commitments, encode_part
        yield snapshot.open_commitments, encode_part
    for pods in (snapshot.pods, snapshot.moving, snapshot.virtual, snapshot.daemons):
        yield pods, _name_pods
    yield snapshot.budgets, _name_objects
    yield snapshot.services, _name_objects
    yield snapshot.storage, _name_storage
    for state in snapshot.nodes:
        yield state, _name_state


def _name_pools(pools: tuple[SnapshotPool, ...]) -> bytes:
    # Whole, and not by version: the controller adds what it knows of a pool to its annotations.
    return encode_part([strip_pool(pool) for pool in pools])


def _name_pods(pods: Iterable[Pod]) -> bytes:
    return b"\n".join(_find_version(pod) or encode_part(strip_pod(pod)) for pod in pods)


def _name_objects(objects: Iterable[Object]) -> bytes:
    return b"\n".join(_find_version(each) or encode_part(strip_object(each)) for each in objects)


def _find_version(each: Object) -> bytes:
    meta = each.metadata
    return f"{meta.uid}@{meta.resource_version}".encode() if meta.uid and meta.resource_version else b""


def _name_storage(storage: Storage) -> bytes:
    listed = (storage.claims, storage.volumes, storage.classes)
    return b"\n\n".join(_name_objects(each[name] for name in sorted(each)) for each in listed)


def _name_state(state: StateNode) -> bytes:
    itself = _name_objects(each for each in (state.node, state.claim) if each is not None)
    rest = encode_part(replace(state, node=None, claim=None, pods=()))
    return b"\n".join((itself, rest, _name_pods(state.pods)))
