"""RecordedDecision: what was asked about a look and what was decided, as far as it can be compared.

A plan is its new nodes, the places of pods and the pods that are unschedulable; a disruption choice is its
commands. What a node may become is told by a digest: it is long, and equal or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from math import isfinite

from dovetail.api.meta import Record
from dovetail.disruption.command import Command, Method
from dovetail.history.recording.rows import encode_row
from dovetail.scheduling.model.plan import Plan, PlannedNode

__all__ = [
    "CommandAnswer",
    "DecisionAnswer",
    "PlannedNodeAnswer",
    "RecordedDecision",
    "answer_of_commands",
    "answer_of_plan",
    "name_method",
]

PLAN = "plan"
STATIC_DRIFT = "Drifted/static"


class PlannedNodeAnswer(Record, frozen=True):
    """A node to be made: for which pods, what it is expected to be, and the digest of all it may be."""

    pool: str
    pods: tuple[str, ...] = ()
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    price: float | None = None
    digest: str = ""


class CommandAnswer(Record, frozen=True):
    """Nodes to remove, by name, and what replaces them."""

    reason: str
    kind: str = ""
    nodes: tuple[str, ...] = ()
    replacements: tuple[PlannedNodeAnswer, ...] = ()
    savings: float = 0.0


class DecisionAnswer(Record, frozen=True):
    """What was decided; a plan has nodes and places, a choice has commands."""

    nodes: tuple[PlannedNodeAnswer, ...] = ()
    places: Mapping[str, tuple[str, ...]] = {}
    unschedulable: Mapping[str, str] = {}
    deferred: Mapping[str, str] = {}
    ignored: Mapping[str, str] = {}
    commands: tuple[CommandAnswer, ...] = ()


class RecordedDecision(Record, frozen=True):
    """A question about the look of this number, and its answer.

    `question` is `plan`, or a disruption method by its reason and kind; drift of static pools is asked for
    by itself. A decision that met a time limit depends on the machine that made it, and is not counted when
    decisions are made again.
    """

    look: int
    question: str
    answer: DecisionAnswer
    timed_out: bool = False


def answer_of_plan(plan: Plan) -> DecisionAnswer:
    """A plan as the answer to the question of where pods go."""
    return DecisionAnswer(
        nodes=tuple(map(_answer_of_node, plan.new_nodes)),
        places=dict(plan.existing),
        unschedulable=dict(plan.unschedulable),
        deferred=dict(plan.deferred),
        ignored=dict(plan.ignored),
    )


def answer_of_commands(commands: Iterable[Command]) -> DecisionAnswer:
    """Commands as the answer of a disruption method."""
    return DecisionAnswer(commands=tuple(map(_answer_of_command, commands)))


def name_method(method: Method) -> str:
    """A disruption method as a question: its reason, and its kind where it has one."""
    return f"{method.reason}/{method.kind}" if method.kind else method.reason


def _answer_of_command(command: Command) -> CommandAnswer:
    return CommandAnswer(
        reason=command.method.reason,
        kind=command.method.kind,
        nodes=tuple(candidate.name for candidate in command.candidates),
        replacements=tuple(map(_answer_of_node, command.replacements)),
        savings=command.savings,
    )


def _answer_of_node(node: PlannedNode) -> PlannedNodeAnswer:
    price = node.price if isfinite(node.price) else None
    may_be = encode_row((node.requirements, node.instance_types, node.requests, node.reservations))
    return PlannedNodeAnswer(
        pool=node.pool,
        pods=node.pods,
        instance_type=node.instance_type,
        zone=node.zone,
        capacity_type=node.capacity_type,
        price=price,
        digest=sha256(may_be).hexdigest()[:16],
    )
