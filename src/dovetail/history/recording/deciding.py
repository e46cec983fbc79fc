"""A recorded decision made again: the same question about the same Situation, by today's code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from dovetail.disruption.choose import DisruptionChoice
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.consolidation import choose_multi_node, choose_single_node
from dovetail.disruption.methods.drift import choose_drift, choose_static_drift
from dovetail.disruption.methods.emptiness import choose_empty_nodes
from dovetail.disruption.methods.rebalance import choose_rebalance
from dovetail.disruption.methods.split import choose_split
from dovetail.disruption.situation import Situation, decide_plan
from dovetail.history.recording.answers import (
    PLAN,
    STATIC_DRIFT,
    DecisionAnswer,
    answer_of_commands,
    answer_of_plan,
)
from dovetail.scheduling.model.decision_cache import DecisionCache

__all__ = ["decide_again"]

METHODS: Final[Mapping[str, Callable[[DisruptionInput], DisruptionChoice]]] = {
    "Empty/empty": choose_empty_nodes,
    STATIC_DRIFT: choose_static_drift,
    # As many as budgets let go, which is how the controller asks.
    "Drifted": partial(choose_drift, at_once=None),
    "Underutilized/multi": choose_multi_node,
    "Underutilized/single": choose_single_node,
    "Underutilized/many": choose_split,
    "Underutilized/rebalance": choose_rebalance,
}


def decide_again(
    situation: Situation, question: str, cache: DecisionCache | None = None
) -> DecisionAnswer | None:
    """The answer to the question in this Situation; None for a question that this version does not know."""
    if question == PLAN:
        return answer_of_plan(decide_plan(situation, cache=cache))
    choose = METHODS.get(question)
    if choose is None:
        return None
    return answer_of_commands(choose(DisruptionInput.from_situation(situation, cache)).commands)
