"""One question put to the ground: these nodes go, where do their pods find a place?

The exact placer decides, with its own rules; only what it starts from is borrowed instead of built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import overload

from dovetail.api.pod import Pod
from dovetail.disruption.ground import Ground
from dovetail.disruption.rules import TrialTopology
from dovetail.explain import Reason
from dovetail.scheduling import nodes as views
from dovetail.scheduling import volumes
from dovetail.scheduling.defaults import with_default_spread
from dovetail.scheduling.exact import Open, Run, badness
from dovetail.scheduling.limits import Limits
from dovetail.scheduling.outcome import plan_of
from dovetail.scheduling.places import Claim, Refusal, RunningNode
from dovetail.scheduling.plan import Plan
from dovetail.scheduling.requirements import Requirements
from dovetail.scheduling.reserved import Reservations
from dovetail.scheduling.shapes import Shape, Shapes
from dovetail.scheduling.snapshot import Options, StateNode
from dovetail.scheduling.typetable import bits

__all__ = ["Question", "Trial", "answered"]


_ANY_WAY = (Requirements(),)


class Question:
    """Which states go, which pods look for a place, and under which options."""

    def __init__(self, going: Sequence[StateNode], pods: Sequence[Pod], options: Options) -> None:
        self.going = going
        self.pods = pods
        self.options = options


def answered(
    ground: Ground,
    question: Question,
    order: Sequence[str],
    seen: list[Trial] | None = None,
    most: int | None = None,
) -> Trial:
    """The better of the thrifty way and the plain one, as the exact placer has it; `seen` is given both.

    A trial that opens more new nodes than `most` goes no further: nobody has a use for it.
    """
    trials = [Trial(ground, question)]
    trials[0].place_all(order, trials[0].more_than(most))
    if trials[0].chose:
        trials.append(Trial(ground, question, thrifty=False))
        trials[1].place_all(order, trials[1].more_than(most))
    if seen is not None:
        seen += trials
    whole = [each for each in trials if not each.timed_out] or trials[:1]
    return whole[0] if len(whole) == 1 else min(whole, key=lambda each: badness(each.plan))


class Trial(Run):
    """A run of the exact placer over the ground, less the nodes that go."""

    def __init__(self, ground: Ground, question: Question, thrifty: bool = True) -> None:
        self.ground = ground
        self.thrifty = thrifty
        self.chose = False
        self.snapshot = ground.snapshot
        self.options = question.options
        self.pools = ground.pools
        self.batch, self.ignored = _batch(ground, question.pods)
        self.shapes = _SharedShapes(ground, question.options)
        self.templates, self.problems = ground.templates, ground.problems
        self.topology: TrialTopology = TrialTopology(ground.rules, question.going)
        self.reservations = Reservations(template.table for template in self.templates)
        self.limits = _limits(ground, question.going)
        self.all_nodes = ground.there(map(views.provider_id, question.going))
        self.nodes = self._nodes = _Nodes(ground, self.all_nodes)
        self.young, self.only_move = _held_back(ground, question)
        self.devices = None
        self.claims: list[Claim] = []
        self.open = Open()
        self.progress = 0
        self.failures: dict[str, Refusal] = {}
        self.homes: dict[str, tuple[Claim | RunningNode, Shape]] = {}
        self.timed_out = False
        self._keys: dict[int, tuple[object, ...]] = {}
        # Nodes without room for a pod of some size by now: places only fill up, whatever else pods ask for.
        self._full: dict[frozenset[tuple[str, int]], int] = {}
        self._sizes: dict[int, frozenset[tuple[str, int]]] = {}
        self._plan: Plan | None = None

    def more_than(self, most: int | None) -> Callable[[], bool] | None:
        """Whether more new nodes were opened than this; None where any number will do."""
        return None if most is None else lambda: len(self.claims) > most

    @property
    def plan(self) -> Plan:
        if self._plan is None:
            self._plan = plan_of(self)
        return self._plan

    @property
    def filled(self) -> Iterable[RunningNode]:
        return self._nodes.filled()

    @property
    def refusing(self) -> Iterable[RunningNode]:
        """Nobody reads what each of thousands of nodes had against a pod that stays where it is."""
        return ()

    def _on_running(self, pod: Pod, shape: Shape) -> bool:
        key = self._primed(pod, shape)
        barred, size = self.young if pod.full_name in self.only_move else 0, self._sizes[id(shape)]
        full = self._full.get(size, 0)
        left, refusing = self.all_nodes & ~shape.closed_nodes & ~full & ~barred, 0
        while left:
            here = left & -left
            left ^= here
            node = self._nodes.at(here.bit_length() - 1)
            found = node.offer(shape, self.topology)
            if not isinstance(found, Refusal):
                node.take(shape, pod.full_name, found, self.topology)
                self.homes[pod.full_name] = node, shape
                break
            if found.final:
                shape.closed_nodes |= here
                if found.reason is Reason.RESOURCES:
                    full |= here
                if found.group is None and not node.pods:
                    refusing |= here
            elif found.group is not None and shape.ways == _ANY_WAY:
                # The rules see nothing of a node but these labels, so the others need not be asked.
                left &= ~self.ground.alike(node.index, {group.key for group, _ in shape.rules})
        self._full[size] = full
        self.ground.learned(key, refusing)
        return pod.full_name in self.homes

    def _primed(self, pod: Pod, shape: Shape) -> tuple[object, ...]:
        """What is known of the shape; a shape seen for the first time in this trial is told of it."""
        key = self._keys.get(id(shape))
        if key is None:
            key = self._keys[id(shape)] = (*self.shapes._key(pod), shape.gave_up)
            self._sizes[id(shape)] = frozenset(shape.requests.items())
            shape.closed_nodes |= self.ground.closed(key, shape)
        return key


class _SharedShapes(Shapes):
    """The shapes of one trial, numbered as in every other."""

    def __init__(self, ground: Ground, options: Options) -> None:
        super().__init__(ground.snapshot.storage, options, ground.soft_taints)
        self._specs, self._labels, self._statuses = ground.specs, ground.labels, ground.statuses


class _Nodes(Sequence[RunningNode]):
    """The nodes of the ground, each made when it is first looked at; `there` are those that do not go."""

    def __init__(self, ground: Ground, there: int) -> None:
        self._ground = ground
        self._there = there
        self._made: dict[int, RunningNode] = {}

    def __len__(self) -> int:
        return self._there.bit_count()

    def __iter__(self) -> Iterator[RunningNode]:
        return map(self.at, bits(self._there))

    @overload
    def __getitem__(self, index: int) -> RunningNode: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[RunningNode]: ...
    def __getitem__(self, index: int | slice) -> RunningNode | Sequence[RunningNode]:
        return list(self)[index]

    def at(self, place: int) -> RunningNode:
        """The node at this place of the ground."""
        node = self._made.get(place)
        if node is None:
            node = self._made[place] = self._ground.node(place)
        return node

    def filled(self) -> list[RunningNode]:
        return [self._made[place] for place in sorted(self._made) if self._made[place].pods]


def _batch(ground: Ground, pods: Iterable[Pod]) -> tuple[list[Pod], dict[str, str]]:
    """Who looks for a place: those who do anyway, and the pods of the nodes that go."""
    batch, ignored, snapshot = dict(ground.batch), dict(ground.ignored), ground.snapshot
    for pod in pods:
        lost = volumes.lost_claim(pod, snapshot.storage)
        if lost is None:
            batch.setdefault(pod.full_name, with_default_spread(pod, snapshot))
        else:
            ignored[pod.full_name] = lost
    return [batch[name] for name in sorted(batch)], ignored


def _limits(ground: Ground, going: Iterable[StateNode]) -> Limits:
    """What pools may still buy once the nodes that go are no longer charged to them."""
    left = {pool: dict(amounts) for pool, amounts in ground.limits.left.items()}
    for state in going:
        mine = left.get(views.pool(state))
        if mine and not views.deleting(state):
            used = views.capacity(state)
            for name in mine:
                mine[name] += used.get(name, 0)
    return Limits.with_left(left)


def _held_back(ground: Ground, question: Question) -> tuple[int, frozenset[str]]:
    """Nodes too young to take pods that only move to save money, and those pods."""
    if not question.options.consolidating:
        return 0, frozenset()
    moving = (*ground.snapshot.moving, *question.pods)
    return ground.young, frozenset(pod.full_name for pod in moving if pod.status.phase != "Pending")
