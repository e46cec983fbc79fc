"""Budgets and costs, case by case as upstream reckons them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import codec
from dovetail.api.core import Node
from dovetail.api.labels import INITIALIZED, POD_DELETION_COST, TRUE
from dovetail.api.meta import Condition, ObjectMeta
from dovetail.api.nodeclaim import NodeClaimStatus
from dovetail.api.nodepool import Budget
from dovetail.api.pod import Pod, PodSpec
from dovetail.disruption import budgets
from dovetail.disruption.candidates import (
    compute_eviction_cost,
    compute_lifetime_remaining,
    compute_node_cost,
)
from dovetail.scheduling.model.snapshot import StateNode
from dovetail.scheduling.model.state_node import is_too_young
from dovetail.settings.durations import parse_or_never
from support.builders import nodeclaim, nodepool
from support.vectors import cases


def moment(text: str) -> datetime:
    """Vectors carry nanoseconds; Python keeps microseconds."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d*", r"\1", text))


def _active(budget: Budget, now: datetime) -> tuple[bool, bool]:
    try:
        return budgets.is_active(budget, now), False
    except budgets.BadBudget:
        return False, True


def _allowed(budget: Budget, now: datetime, nodes: int) -> tuple[int, bool]:
    try:
        return budgets.count_allowed(budget, now, nodes), False
    except budgets.BadBudget:
        return 0, True


def test_every_budget_is_active_and_allows_what_it_does_upstream() -> None:
    wrong: list[Any] = []
    for case in cases("budgets"):
        now, nodes = moment(case["now"]), case["numNodes"]
        listed = [codec.convert(Budget, each) for each in case.get("budgets") or ()]
        for budget, expected in zip(listed, case["perBudget"], strict=True):
            if _active(budget, now) != (expected.get("active", False), expected.get("activeError", False)):
                wrong.append((budget, expected))
            if _allowed(budget, now, nodes) != (
                expected.get("allowed", 0),
                expected.get("allowedError", False),
            ):
                wrong.append((budget, expected))
        for reason, expected in case["byReason"].items():
            if budgets.count_allowed_or_zero(listed, reason, now, nodes) != expected["must"]:
                wrong.append((reason, case))
    assert not wrong, wrong[0]


def _pod(facts: dict[str, Any]) -> Pod:
    notes = dict(facts.get("annotations") or {})
    if facts.get("deletionCost") is not None:
        notes[POD_DELETION_COST] = facts["deletionCost"]
    return Pod(metadata=ObjectMeta(annotations=notes), spec=PodSpec(priority=facts.get("priority")))


def _held_back(case: dict[str, Any]) -> bool:
    """Whether a node with this history is too young for its pool's consolidateAfter."""
    settled = case.get("initializedAt")
    conditions = (
        (Condition(type="Initialized", status="True", last_transition_time=moment(settled)),)
        if settled
        else ()
    )
    last = case.get("lastPodEventAt")
    status = NodeClaimStatus(conditions=conditions, last_pod_event_time=moment(last) if last else None)
    labels = {INITIALIZED: TRUE} if settled else {}
    state = StateNode(
        node=Node(metadata=ObjectMeta(name="node", labels=labels)),
        claim=replace(nodeclaim("claim", true=()), status=status),
    )
    return is_too_young(state, nodepool(consolidate_after=case["consolidateAfter"]), moment(case["now"]))


def test_costs_and_lifetimes_agree_with_upstream() -> None:
    compared = 0
    for case in cases("eviction-cost"):
        if case["kind"] == "lifetime":
            lasts = parse_or_never(case["expireAfter"]) if case.get("expireAfter") else None
            left = compute_lifetime_remaining(lasts, moment(case["created"]), moment(case["now"]))
            assert left == pytest.approx(case["lifetimeRemaining"], abs=1e-9), case
            assert _held_back(case) == case["underConsolidateAfter"], case
        elif case["cost"] == "NaN":
            # On purpose: upstream's NaN compares with nothing; ours counts the annotation as not given.
            continue
        elif case["kind"] == "pod":
            assert compute_eviction_cost(_pod(case)) == pytest.approx(case["cost"], abs=1e-12), case
        else:
            pods = [_pod(each) for each in case.get("pods") or ()]
            assert compute_node_cost(pods, 1.0) == pytest.approx(case["cost"], abs=1e-9), case
        compared += 1
    assert compared > 600
