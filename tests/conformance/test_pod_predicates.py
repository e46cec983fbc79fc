"""What is said of pods, and what budgets allow, case by case as upstream says it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from dovetail.api import codec, predicates
from dovetail.api.core import PodDisruptionBudget
from dovetail.api.pdb import PdbLimits
from dovetail.api.pod import Pod
from dovetail.scheduling.model.label_selectors import matches_selector
from dovetail.scheduling.model.nodeclaim_template import uses_devices
from dovetail.scheduling.sequential.scheduler import SequentialScheduler
from dovetail.scheduling.topology.group import TopologyType
from support.vectors import cases
from support.worlds import World


def _said(pod: Pod, now: datetime, deadline: datetime | None) -> dict[str, bool]:
    return {
        "active": predicates.is_active(pod),
        "antiAffinity": _stays_apart(pod),
        "disruptable": predicates.is_disruptable(pod, now),
        "doNotDisrupt": predicates.do_not_disrupt(pod, now).active,
        "dra": uses_devices(pod),
        "drainable": predicates.is_drainable(pod, now),
        "evictable": predicates.is_evictable(pod, now),
        "failedToSchedule": predicates.failed_to_schedule(pod),
        "forcedEviction": predicates.must_delete_now(pod, deadline, now),
        "ownedByDaemonSet": predicates.owned_by_daemonset(pod),
        "ownedByNode": predicates.owned_by_node(pod),
        "ownedByStatefulSet": predicates.owned_by_statefulset(pod),
        "provisionable": predicates.is_provisionable(pod),
        "requiredAntiAffinity": predicates.required_anti_affinity(pod),
        "reschedulable": predicates.is_reschedulable(pod),
        "stuckTerminating": predicates.is_stuck_terminating(pod, now),
        "terminal": predicates.is_terminal(pod),
        "terminating": predicates.is_terminating(pod),
        "toleratesDisrupted": predicates.tolerates_disruption(pod),
        "waitingEviction": predicates.waiting_eviction(pod, now),
    }


def _stays_apart(pod: Pod) -> bool:
    """Whether the scheduler's topology has a rule of the pod, hard or soft, about pods to stay away from."""
    run = SequentialScheduler(World().snapshot(pod))
    run.topology.find_constraints(shape := run.shapes.find_shape(pod))
    return any(group.rule is TopologyType.ANTI_AFFINITY for group in shape.owned or ())


def _told(pod: Pod, now: datetime) -> list[dict[str, str]]:
    verdict = predicates.do_not_disrupt(pod, now)
    kind = "Warning" if verdict.warning else "Normal"
    return [{"reason": verdict.reason, "message": verdict.note, "type": kind}] if verdict.reason else []


def test_every_predicate_agrees_with_upstream() -> None:
    wrong: list[Any] = []
    for case in cases("pod-predicates"):
        pod, now = codec.convert(Pod, case["pod"]), datetime.fromisoformat(case["now"])
        deadline = datetime.fromisoformat(case["nodeDeadline"]) if case.get("nodeDeadline") else None
        said = _said(pod, now, deadline)
        if said != case["result"]:
            wrong.append((said, case))
        if _told(pod, now) != (case.get("doNotDisruptEvents") or []):
            wrong.append((_told(pod, now), case))
    assert not wrong, wrong[0]


def test_budgets_block_what_they_block_upstream() -> None:
    wrong: list[Any] = []
    for case in cases("pdb-limits"):
        now = datetime.fromisoformat(case["now"])
        budgets = [codec.convert(PodDisruptionBudget, each) for each in case.get("pdbs") or ()]
        limits, pods = (
            PdbLimits(budgets, matches_selector),
            [codec.convert(Pod, each) for each in case["pods"]],
        )
        for pod, expected in zip(pods, case["perPod"], strict=True):
            blocking = limits.find_blocking_now(pod, now)
            reschedulable = limits.currently_reschedulable(pod, now)
            if (
                sorted(blocking) != sorted(expected.get("blockedBy") or ())
                or reschedulable != (expected["currentlyReschedulable"])
            ):
                wrong.append((blocking, reschedulable, expected, case))
        blocked = next(filter(None, (limits.find_blocking_now(pod, now) for pod in pods)), ())
        if sorted(blocked) != sorted(case["all"].get("blockedBy") or ()):
            wrong.append(case)
    assert not wrong, wrong[0]
