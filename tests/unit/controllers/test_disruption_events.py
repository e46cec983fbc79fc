"""What people hear of disruption: how often, of whom, and under which name."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dovetail.api.meta import Object
from dovetail.api.nodepool import NodePool
from dovetail.controllers.disruption_events import DisruptionEvents
from dovetail.disruption.budgets import Allowance
from dovetail.disruption.choose import DisruptionChoice
from dovetail.disruption.command import MULTI, Command
from dovetail.disruption.policy import BalanceResult, BalanceScore
from dovetail.disruption.validate import BUDGET, CHURN, SCHEDULING, InvalidCommand
from dovetail.metrics import REGISTRY
from support.builders import pod
from support.disruption import going, pool, scene, state

GOOD, BAD = BalanceScore(0.5, 0.5, 1.0), BalanceScore(0.1, 0.9, 0.11)


class Heard:
    """A recorder that keeps every word, repeated ones as well."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def publish_event(
        self,
        obj: Object,
        reason: str,
        note: str,
        *,
        warning: bool = False,
        dedupe: tuple[str, ...] = (),
        window: float = 120.0,
    ) -> None:
        self.events.append((f"{obj.KIND.kind}/{obj.name}", reason, note))


def judged(scores: dict[str, BalanceScore], *pools: NodePool) -> list[str]:
    """Who hears of a multi-node move with these scores."""
    states = [
        state(f"{each.name}-{i}", pod(f"p-{each.name}{i}", cpu="1", node="x"), pool=each.name)
        for each in pools
        for i in range(2)
    ]
    command = Command(MULTI, tuple(going(scene(*states, pools=pools))), savings=1.0)
    assert len(command.candidates) == 2 * len(pools)
    heard = Heard()
    approved = all(score.approved for score in scores.values())
    choice = DisruptionChoice(Allowance({}, {}, {}), judged=[BalanceResult(command, approved, scores)])
    DisruptionEvents(heard, {each.name: each for each in pools}.get).report_choice(MULTI, choice, 0.0)
    return [of for of, reason, _ in heard.events if reason == "ConsolidationApproved"]


def balanced(names: Sequence[str]) -> list[NodePool]:
    return [pool(name, consolidation_policy="Balanced") for name in names]


@pytest.mark.spec("disruption-123")
def test_a_move_of_many_nodes_that_is_approved_is_told_of_its_pool_alone() -> None:
    assert judged({"even": GOOD}, *balanced(["even"])) == ["NodePool/even"]
    assert judged({"even": GOOD, "odd": GOOD}, *balanced(["even", "odd"])) == [
        "NodePool/even",
        "NodePool/odd",
    ]


@pytest.mark.spec("disruption-123")
def test_a_pool_that_turns_a_move_down_hears_nothing_of_it() -> None:
    assert judged({"even": BAD}, *balanced(["even"])) == []
    assert judged({"even": GOOD, "odd": BAD}, *balanced(["even", "odd"])) == []


@pytest.mark.parametrize("first", [{"first": BAD}, {}], ids=["turned down", "not asked"])
def test_the_score_of_every_pool_of_a_move_is_counted_whatever_the_first_one_says(
    first: dict[str, BalanceScore],
) -> None:
    def counted() -> float:
        about = {"decision": "approved", "nodepool": "second", "policy": "Balanced"}
        return REGISTRY.get_sample_value("karpenter_consolidation_score_count", about) or 0.0

    before = counted()
    judged({**first, "second": GOOD}, *balanced(["first", "second"]))
    assert counted() == before + 1


@pytest.mark.spec("disruption-123")
def test_a_pool_that_was_not_asked_is_passed_over() -> None:
    pools = [*balanced(["even"]), pool("plain")]
    assert judged({"even": GOOD}, *pools) == ["NodePool/even"]
    assert judged({"even": GOOD}, *reversed(pools)) == ["NodePool/even"]
    assert judged({}, pool("plain")) == []


@pytest.mark.spec("disruption-99")
@pytest.mark.parametrize(
    ("kind", "word"),
    [(BUDGET, "budget"), (SCHEDULING, "scheduling"), (CHURN, "churn"), ("", "unknown"), ("else", "unknown")],
)
def test_what_was_wrong_with_a_command_has_one_of_four_names(kind: str, word: str) -> None:
    (candidate,) = going(scene(state("n", pod("p", cpu="1", node="n"))))
    heard = Heard()
    command = Command(MULTI, (candidate,), savings=2.5)
    DisruptionEvents(heard, lambda name: None).report_rejected(command, InvalidCommand(kind, 1).told)
    note = f"Consolidation rejected: delete: [n], reason: {word} (savings: $2.50)"
    assert heard.events == [
        ("Node/n", "ConsolidationRejected", note),
        ("NodeClaim/n", "ConsolidationRejected", note),
    ]
