"""What need not be decided again: the verdict on a node, and a cluster in which nothing was found.

A verdict is kept for as long as nothing it depends on has changed (node_changes.py says what that is). Where
no method found anything, none will until something changes; to see that costs a comparison of identities.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from msgspec.structs import fields, replace

from dovetail.api import conditions, labels
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.disruption import policy
from dovetail.disruption.budgets import compute_allowances
from dovetail.disruption.candidates import Candidate
from dovetail.disruption.command import DRIFTED, EMPTY, MULTI, SINGLE, ConsolidationVerdict
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods import drift_waves
from dovetail.disruption.node_changes import (
    AskedGroup,
    CachedVerdict,
    NodeChanges,
    NodePosition,
    PodSize,
    counts_the_same,
)
from dovetail.disruption.replacement_backoff import list_backoffs, read_setbacks
from dovetail.disruption.simulation.simulate import list_moving_pods
from dovetail.disruption.simulation.what_if import WhatIfScheduler
from dovetail.disruption.verdict import LEFT_OVER, compute_consolidation
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.resources import Nano, compute_nano_requests
from dovetail.scheduling.model.snapshot import Snapshot, StateNode
from dovetail.scheduling.sequential.nodes import ExistingNode
from dovetail.scheduling.topology.tracker import build_group_key

__all__ = ["UnchangedCheck", "VerdictCache", "recall_brief", "recall_verdict"]

# With more changes than one node in this many, finding out what still holds is not worth it.
FEW = 10
# Sizes of pods that are remembered as one; there are seldom more than some dozens.
SIZES = 10_000
# Budgets of pods decide which pods move, and those are compared one by one. What commitments pay for values
# a command once it is found; where that changes what can be bought, the catalogues say so.
_COMPARED = tuple(
    each.name for each in fields(Snapshot) if each.name not in ("nodes", "options", "budgets", "commitments")
)
_REASONS = tuple(dict.fromkeys(method.reason for method in (EMPTY, DRIFTED, MULTI)))


class VerdictCache:
    """The verdicts of one world after another."""

    def __init__(self) -> None:
        self._inputs: DisruptionInput | None = None
        self._states: dict[str, StateNode] = {}
        self._young: frozenset[str] = frozenset()
        self._kept: dict[str, CachedVerdict] = {}
        # Candidates of whom the same pods move for as long as budgets ask for the same.
        self._lasting: set[str] = set()
        # What many verdicts have in common, so that each has it only once.
        self._rules: dict[int, AskedGroup] = {}
        self._numbers: dict[tuple[object, ...], int] = {}
        self._next = 0
        self._sizes: dict[PodSize, PodSize] = {}
        self.asked = 0

    def find_verdict(self, inputs: DisruptionInput, candidate: Candidate) -> ConsolidationVerdict:
        """What there is to say about the candidate in this world."""
        if not inputs.snapshot.options.ignore_dra:
            return compute_consolidation(inputs, (candidate,), SINGLE)
        return self._find_entry(inputs, candidate).verdict.with_candidate(candidate)

    def find_brief(self, inputs: DisruptionInput, candidate: Candidate) -> ConsolidationVerdict:
        """The same in brief, for another process: thousands at once."""
        if not inputs.snapshot.options.ignore_dra:
            return compute_consolidation(inputs, (candidate,), SINGLE).brief
        return self._find_entry(inputs, candidate).brief

    def _find_entry(self, inputs: DisruptionInput, candidate: Candidate) -> CachedVerdict:
        if inputs is not self._inputs:
            self._move_to_input(inputs)
        key = candidate.key
        kept = self._kept.get(key)
        if kept is not None and kept.state is candidate.state and key in self._lasting:
            return kept
        pods = list_moving_pods(inputs, (candidate,))
        (self._lasting.add if _is_lasting(candidate) else self._lasting.discard)(key)
        same = kept is not None and _has_same_pods(kept.pods, pods)
        if kept is None or not same or not _is_alike(inputs, kept.state, candidate.state):
            kept = self._compute_entry(inputs, candidate, pods)
        elif kept.state is not candidate.state:
            kept = dataclasses.replace(kept, state=candidate.state, pods=pods)
        self._kept[key] = kept
        return kept

    def _compute_entry(
        self, inputs: DisruptionInput, candidate: Candidate, pods: tuple[Pod, ...]
    ) -> CachedVerdict:
        self.asked += 1
        simulations: list[WhatIfScheduler] = []
        verdict = _strip_verdict(compute_consolidation(inputs, (candidate,), SINGLE, simulations))
        if not simulations:
            # Free capacity alone decided it: pods that fit on no node still fit on none.
            unplaceable = (
                pod
                for pod in pods
                if inputs.free_capacity.sum_unplaceable((pod,), {candidate.key}) is not None
            )
            reach: dict[PodSize, NodePosition | None] = {
                self._intern_size(compute_nano_requests(pod)): None for pod in unplaceable
            }
            return CachedVerdict(candidate.state, pods, verdict, verdict.brief, {}, reach, frozenset(), ())
        asked = {build_group_key(*rule): rule for what_if in simulations for rule in what_if.topology.asked}
        rules = frozenset(self._number_rule(identity, rule) for identity, rule in asked.items())
        kinds = {(id(pod.labels), pod.namespace): pod for pod in simulations[0].batch}
        # What holds up depends on all the room there was; else only on the room that was taken.
        given = _list_offered(simulations) if _checked_robustness(verdict) else _sum_taken(simulations)
        used = {name: self._intern_size(amount) for name, amount in given.items()}
        return CachedVerdict(
            candidate.state,
            pods,
            verdict,
            verdict.brief,
            used,
            self._compute_reach(simulations),
            rules,
            tuple(kinds.values()),
        )

    def _compute_reach(self, simulations: Iterable[WhatIfScheduler]) -> dict[PodSize, NodePosition | None]:
        """How far each kind of pod looked: to the node it was given, or past all of them."""
        found: dict[PodSize, NodePosition | None] = {}
        for what_if in simulations:
            for pod in what_if.batch:
                wanted = self._intern_size(compute_nano_requests(pod))
                home = what_if.placements.get(pod.full_name, (None,))[0]
                place = (not home.initialized, home.name) if isinstance(home, ExistingNode) else None
                known = found.get(wanted, place)
                found[wanted] = None if known is None or place is None else max(known, place)
        return found

    def _number_rule(self, identity: tuple[object, ...], rule: AskedGroup) -> int:
        known = self._numbers.get(identity)
        if known is None:
            known = self._numbers[identity] = self._next
            self._rules[known] = _strip_counts(rule)
            self._next += 1
        return known

    def _forget_rules(self) -> None:
        """Let go of rules that no verdict depends on any more."""
        used = frozenset[int]().union(*(kept.rules for kept in self._kept.values()))
        if len(used) < len(self._rules):
            self._rules = {number: rule for number, rule in self._rules.items() if number in used}
            self._numbers = {name: number for name, number in self._numbers.items() if number in used}

    def _intern_size(self, wanted: Nano) -> PodSize:
        size = frozenset(wanted.items())
        return self._sizes.setdefault(size, size)

    def _move_to_input(self, inputs: DisruptionInput) -> None:
        """Another world: keep what holds there too."""
        states = {views.read_provider_id(state): state for state in inputs.snapshot.nodes}
        young = frozenset(_list_masked_ids(inputs, inputs.base_state.young))
        before = self._inputs
        if before is None or not _has_same_budgets(before.snapshot, inputs.snapshot):
            self._lasting = set()
        if (
            before is None
            or len(states) != len(inputs.snapshot.nodes)
            or not _differs_in_nodes_only(before, inputs)
        ):
            self._kept = {}
        else:
            self._drop_outdated(inputs, states, young)
        # A node that is gone does not come back: without this, its pods would be held for ever.
        self._kept = {key: kept for key, kept in self._kept.items() if key in states}
        self._lasting &= states.keys()
        self._inputs, self._states, self._young = inputs, states, young

    def _drop_outdated(
        self, inputs: DisruptionInput, states: dict[str, StateNode], young: frozenset[str]
    ) -> None:
        """Let go of what may have become wrong."""
        aged = young ^ self._young
        keys = {key for key in states.keys() | self._states.keys() if _is_changed(key, states, self._states)}
        pairs = [(self._states.get(key), states.get(key)) for key in keys | aged]
        if not pairs:
            return
        change = NodeChanges(inputs, pairs, aged)
        # What a pool may still buy depends on every node it has.
        if inputs.free_capacity.limited or change.size * FEW > len(states) + FEW:
            self._kept = {}
        else:
            self._kept = change.drop_affected(self._kept, self._rules)
        self._forget_rules()
        if len(self._sizes) > SIZES:
            self._sizes = {}


def _strip_verdict(verdict: ConsolidationVerdict) -> ConsolidationVerdict:
    """The verdict without what nobody reads of it later."""
    command = verdict.command
    if command is None or command.plan is None:
        return verdict
    plan = replace(command.plan, decisions=())
    return ConsolidationVerdict(dataclasses.replace(command, candidates=(), plan=plan), verdict.why)


def _is_lasting(candidate: Candidate) -> bool:
    return not any(labels.DO_NOT_DISRUPT in pod.annotations for pod in candidate.pods)


def _strip_counts(rule: AskedGroup) -> AskedGroup:
    group, tolerations = rule
    return dataclasses.replace(group, counts={}, total=0), tolerations


def _sum_taken(simulations: Iterable[WhatIfScheduler]) -> dict[str, Nano]:
    """How much each node was given, at most."""
    found: dict[str, Nano] = {}
    for what_if in simulations:
        for node in what_if.filled:
            before, mine = what_if.base_state.build_node(node.index).left, found.setdefault(node.name, {})
            for name, left in node.left.items():
                mine[name] = max(mine.get(name, 0), before.get(name, 0) - left)
    return found


def _list_offered(simulations: Iterable[WhatIfScheduler]) -> dict[str, Nano]:
    """How much room the nodes had that were given something."""
    return {
        node.name: {
            name: max(0, left) for name, left in what_if.base_state.build_node(node.index).left.items()
        }
        for what_if in simulations
        for node in what_if.filled
    }


def _checked_robustness(verdict: ConsolidationVerdict) -> bool:
    """Whether it was asked what the scheduler would do."""
    return verdict.why == LEFT_OVER or (verdict.command is not None and bool(verdict.command.replacements))


def _list_masked_ids(inputs: DisruptionInput, mask: int) -> Iterator[str]:
    states = inputs.base_state.states
    return (views.read_provider_id(state) for i, state in enumerate(states) if mask >> i & 1)


def _is_changed(key: str, these: dict[str, StateNode], those: dict[str, StateNode]) -> bool:
    return these.get(key) is not those.get(key)


def _has_same_pods(these: tuple[Pod, ...], those: tuple[Pod, ...]) -> bool:
    return len(these) == len(those) and all(a is b or a == b for a, b in zip(these, those, strict=True))


def _is_alike(inputs: DisruptionInput, old: StateNode, new: StateNode) -> bool:
    """Whether taking out the one is taking out the other."""
    if old is new:
        return True
    same = counts_the_same(inputs.base_state.topology.facts, old, new)
    return same and views.read_labels(old) == views.read_labels(new)


def _differs_in_nodes_only(before: DisruptionInput, now: DisruptionInput) -> bool:
    old, new = before.snapshot, now.snapshot
    if before.spot_to_spot != now.spot_to_spot or before.base_state.batch != now.base_state.batch:
        return False
    return _has_same_rest(old, new)


def _has_same_rest(old: Snapshot, new: Snapshot) -> bool:
    """Whether all but the nodes, the budgets of pods and the time is the same."""
    if replace(old.options, now=new.options.now) != new.options:
        return False
    pairs = ((getattr(old, name), getattr(new, name)) for name in _COMPARED)
    return all(a is b or a == b for a, b in pairs)


def _has_same_budgets(old: Snapshot, new: Snapshot) -> bool:
    """Which pods would move depends on what budgets ask for, not on what they allow at the moment."""
    if len(old.budgets) != len(new.budgets):
        return False
    pairs = zip(old.budgets, new.budgets, strict=True)
    return all(a is b or (a.full_name == b.full_name and a.spec == b.spec) for a, b in pairs)


def recall_verdict(inputs: DisruptionInput, candidate: Candidate) -> ConsolidationVerdict:
    """The verdict on one candidate, worked out only if it was not known or may have changed."""
    return inputs.cache.get_part(VerdictCache).find_verdict(inputs, candidate)


def recall_brief(inputs: DisruptionInput, candidate: Candidate) -> ConsolidationVerdict:
    """The same in brief."""
    return inputs.cache.get_part(VerdictCache).find_brief(inputs, candidate)


class UnchangedCheck:
    """The world in which every method found nothing, for no longer than `limit` seconds."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._inputs: DisruptionInput | None = None
        self._since = 0.0

    def remember_input(self, inputs: DisruptionInput, now: float) -> None:
        """Nothing was found in this world."""
        self._inputs, self._since = (None if _depends_on_clock(inputs) else inputs), now

    def is_unchanged(self, inputs: DisruptionInput, now: float) -> bool:
        """Whether this is still that world, with budgets that allow what they allowed then."""
        before = self._inputs
        if before is None or now - self._since >= self._limit:
            return False
        if not _is_same_input(before, inputs):
            return False
        counted = inputs.with_facts(dataclasses.replace(inputs.facts, pool_counts=before.pool_counts))
        return _list_left(before) == _list_left(counted)


def _depends_on_clock(inputs: DisruptionInput) -> bool:
    """Something goes by the clock alone: a rest between moves, or nodes that have to come up first."""
    pools = inputs.pools.values()
    if any(
        policy.read_policy(pool).rest or conditions.find_condition(pool, conditions.DRIFT_PAUSED)
        for pool in pools
    ):
        return True
    if any(_is_backing_off(pool, inputs) for pool in pools):
        return True
    return any(map(drift_waves.can_pause, pools)) and not all(
        map(views.is_initialized, inputs.snapshot.nodes)
    )


def _is_backing_off(pool: NodePool, inputs: DisruptionInput) -> bool:
    """After a loss: until the wait is over, and its condition gone."""
    waits = list_backoffs(read_setbacks(pool), inputs.snapshot.options.now)
    return bool(waits) or conditions.find_condition(pool, conditions.REPLACEMENTS_LOST) is not None


def _list_left(inputs: DisruptionInput) -> list[tuple[int, ...]]:
    found = [compute_allowances(inputs, reason) for reason in _REASONS]
    return [tuple(each.count_left(pool) for each in found) for pool in inputs.pools]


def _is_same_input(before: DisruptionInput, now: DisruptionInput) -> bool:
    old, new = before.snapshot, now.snapshot
    if len(old.nodes) != len(new.nodes) or any(a is not b for a, b in zip(old.nodes, new.nodes, strict=True)):
        return False
    if _list_marks(before) != _list_marks(now) or old.commitments != new.commitments:
        return False
    return _has_same_rest(old, new) and (old.budgets is new.budgets or old.budgets == new.budgets)


def _list_marks(inputs: DisruptionInput) -> tuple[object, ...]:
    held = inputs.holds, inputs.spend_caps
    return inputs.queued, inputs.buffered, inputs.excluded_zones, inputs.returned_zones, held
