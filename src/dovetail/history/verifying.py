"""Every decision of a recording made again: which come out equal, and of those that do not, why.

`dovetail replay --verify` is this. Run with a new release it rehearses an upgrade: nothing is simulated, each
question is asked again in the very Situation in which it was asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from dovetail.api.meta import Record
from dovetail.api.nodepool import Disruption, NodePool
from dovetail.disruption.situation import Situation
from dovetail.history.recording.answers import (
    CommandAnswer,
    DecisionAnswer,
    PlannedNodeAnswer,
    RecordedDecision,
)
from dovetail.history.recording.deciding import decide_again
from dovetail.history.recording.reader import RecordedLook
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.snapshot import SchedulingOptions, Snapshot, Storage

__all__ = ["DifferingDecision", "VerifiedDecisions", "describe_answer", "verify_decisions"]

# Finding out which inputs matter asks a question again some twenty times: not for more than these.
MOST_EXAMINED = 20
# Told as looks are read: the time of a look. True ends the work early.
OnLook = Callable[[datetime], bool]


class DifferingDecision(Record, frozen=True):
    """A recorded decision that this version makes otherwise.

    `inputs` are the parts of the Situation without which this version's answer would be another; one of
    `deciding_inputs` makes all the difference: without it, the answer is the recorded one.
    """

    at: datetime
    segment: int
    look: int
    question: str
    recorded: DecisionAnswer
    again: DecisionAnswer | None = None
    inputs: tuple[str, ...] = ()
    deciding_inputs: tuple[str, ...] = ()


@dataclass(slots=True)
class VerifiedDecisions:
    """What came of making decisions again; those that met a time limit are not counted."""

    equal: int = 0
    timed_out: int = 0
    looks: int = 0
    first: datetime | None = None
    last: datetime | None = None
    stopped: bool = False
    questions: Counter[str] = field(default_factory=Counter)
    differing: list[DifferingDecision] = field(default_factory=list)

    @property
    def decisions(self) -> int:
        """The decisions that were made again."""
        return self.equal + len(self.differing)


def verify_decisions(looks: Iterable[RecordedLook], told: OnLook | None = None) -> VerifiedDecisions:
    """Ask every question of these looks again, and compare."""
    found, cache = VerifiedDecisions(), DecisionCache()
    for look in looks:
        if told is not None and told(look.at):
            found.stopped = True
            return found
        found.first, found.last, found.looks = found.first or look.at, look.at, found.looks + 1
        for decision in look.decisions:
            if decision.timed_out:
                found.timed_out += 1
                continue
            found.questions[decision.question] += 1
            again = decide_again(look.situation, decision.question, cache)
            if again == decision.answer:
                found.equal += 1
                continue
            examined = len(found.differing) < MOST_EXAMINED
            found.differing.append(_describe_difference(look, decision, again, examined))
    return found


def _describe_difference(
    look: RecordedLook, decision: RecordedDecision, again: DecisionAnswer | None, examined: bool
) -> DifferingDecision:
    inputs, deciding = [], []
    if examined and again is not None:
        for name, without in _list_without_inputs(look.situation):
            answer = decide_again(without, decision.question)
            if answer == decision.answer:
                deciding.append(name)
            if answer != again:
                inputs.append(name)
    return DifferingDecision(
        at=look.at,
        segment=look.segment,
        look=look.number,
        question=decision.question,
        recorded=decision.answer,
        again=again,
        inputs=tuple(inputs),
        deciding_inputs=tuple(deciding),
    )


def _list_without_inputs(situation: Situation) -> Iterator[tuple[str, Situation]]:
    """The Situation once without each of the inputs that it has, by what a person calls the input."""
    plain = Situation()
    for name, told in _FACTS.items():
        if getattr(situation, name) != getattr(plain, name):
            yield told, replace(situation, **{name: getattr(plain, name)})
    snapshot, empty = situation.snapshot, Snapshot()
    for name, told in _PARTS.items():
        if getattr(snapshot, name) != getattr(empty, name):
            yield told, situation.with_snapshot(replace(snapshot, **{name: getattr(empty, name)}))
    if snapshot.storage != Storage():
        yield "volumes", situation.with_snapshot(replace(snapshot, storage=Storage()))
    for name in sorted(_OPTIONS):
        if getattr(snapshot.options, name) != getattr(_DEFAULTS, name):
            options = replace(snapshot.options, **{name: getattr(_DEFAULTS, name)})
            yield f"the option {name}", situation.with_snapshot(replace(snapshot, options=options))
    for number, pool in enumerate(snapshot.pools):
        for told, other in _list_plainer_pools(pool.nodepool):
            pools = (
                *snapshot.pools[:number],
                replace(pool, nodepool=other),
                *snapshot.pools[number + 1 :],
            )
            yield (
                f"{told} of NodePool {pool.name}",
                situation.with_snapshot(replace(snapshot, pools=pools)),
            )


_FACTS = {
    "queued": "commands under way",
    "buffered": "nodes that hold capacity for buffers",
    "nominated": "nodes that pods are to land on",
    "excluded_zones": "zones that are shifted away",
    "closed_zones": "zones in which nothing is bought",
    "returned_zones": "zones that are back",
    "unseen": "NodePools that the last sweep did not reach",
    "spot_to_spot": "spot-to-spot consolidation",
    "holds": "holds",
    "spend_caps": "spend limits",
}
_PARTS = {
    "pods": "pods that wait",
    "moving": "pods of nodes that go",
    "virtual": "capacity buffers",
    "daemons": "DaemonSets",
    "budgets": "PodDisruptionBudgets",
    "services": "Services",
    "workloads": "default topology spread of workloads",
    "set_aside": "objects that could not be read",
}
_DEFAULTS = SchedulingOptions()
# All but what names a moment, a provider or a chance.
_OPTIONS = frozenset(SchedulingOptions.__struct_fields__) - {
    "now",
    "seed",
    "flavour",
    "reservation_label",
    "most_types",
    "unsupported_provisioners",
    "unsupported_volume_keys",
}


def _list_plainer_pools(pool: NodePool) -> Iterator[tuple[str, NodePool]]:
    """The NodePool once without each of the fields that it sets."""
    spec, plain = pool.spec, Disruption()
    if pool.metadata.annotations:
        yield "annotations", replace(pool, metadata=replace(pool.metadata, annotations={}))
    for name in ("limits", "weight"):
        changed: dict[str, Any] = {name: getattr(type(spec)(), name)}
        if getattr(spec, name) != changed[name]:
            yield name, replace(pool, spec=replace(spec, **changed))
    for name in plain.__struct_fields__:
        if getattr(spec.disruption, name) != getattr(plain, name):
            disruption = replace(spec.disruption, **{name: getattr(plain, name)})
            yield f"disruption.{name}", replace(pool, spec=replace(spec, disruption=disruption))


def describe_answer(answer: DecisionAnswer | None, beside: DecisionAnswer | None = None) -> str:
    """What was decided, in a sentence; of the places of pods, only those that differ from `beside`."""
    if answer is None:
        return "a question this version does not ask"
    told = [_describe_command(each) for each in answer.commands]
    told += [f"a new node: {_describe_node(each)}" for each in answer.nodes]
    other = beside if beside is not None else DecisionAnswer()
    for name, pods in answer.places.items():
        if other.places.get(name) != pods:
            told.append(f"{_count(len(pods))} to {name}")
    for words, refused in (
        ("without a place", answer.unschedulable),
        ("deferred", answer.deferred),
        ("ignored", answer.ignored),
    ):
        if refused:
            told.append(f"{_count(len(refused))} {words}: {_list_some(refused)}")
    return "; ".join(told) or "nothing"


def _describe_command(command: CommandAnswer) -> str:
    told = f"remove {_list_some(command.nodes)} ({'/'.join(filter(None, (command.reason, command.kind)))})"
    if command.replacements:
        told += f" for {', '.join(map(_describe_node, command.replacements))}"
    return f"{told}, saving ${command.savings:.4f} an hour"


def _describe_node(node: PlannedNodeAnswer) -> str:
    what = " ".join(filter(None, (node.instance_type, node.capacity_type, node.zone))) or "any"
    price = f", ${node.price:.4f} an hour" if node.price is not None else ""
    return f"{what} of {node.pool} for {_count(len(node.pods))}{price}, may be {node.digest}"


def _list_some(names: Iterable[str], most: int = 5) -> str:
    listed = list(names)
    more = f" and {len(listed) - most:,} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def _count(pods: int) -> str:
    return f"{pods:,} pod{'' if pods == 1 else 's'}"
