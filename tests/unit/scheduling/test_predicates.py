"""What can be said of one pod, against every answer recorded from the original."""

from __future__ import annotations

from datetime import datetime

from dovetail.api.core import PodDisruptionBudget
from dovetail.scheduling import predicates
from support.manifests import read, read_pod
from support.vectors import cases


def test_pods_are_judged_as_in_the_original() -> None:
    for case in cases("pod-predicates"):
        pod, now = read_pod(case["pod"]), datetime.fromisoformat(case["now"])
        ours = {
            "active": predicates.active(pod),
            "terminal": predicates.terminal(pod),
            "terminating": pod.deleting,
            "provisionable": predicates.provisionable(pod),
            "reschedulable": predicates.reschedulable(pod),
            "disruptable": predicates.disruptable(pod, now),
            "doNotDisrupt": predicates.do_not_disrupt(pod, now),
            "evictable": predicates.evictable(pod, now),
            "ownedByDaemonSet": predicates.owned_by_daemonset(pod),
            "ownedByNode": predicates.owned_by_node(pod),
            "ownedByStatefulSet": predicates.owned_by_statefulset(pod),
            "toleratesDisrupted": predicates.tolerates_disruption(pod),
            "failedToSchedule": predicates.unschedulable(pod),
        }
        assert ours == {name: case["result"][name] for name in ours}, case["pod"]


def test_pods_move_when_no_budget_forbids_it_for_good() -> None:
    for case in cases("pdb-limits"):
        now = datetime.fromisoformat(case["now"])
        budgets = [read(PodDisruptionBudget, each) for each in case["pdbs"] or ()]
        for manifest, expected in zip(case["pods"] or (), case["perPod"] or (), strict=True):
            moves = predicates.currently_reschedulable(read_pod(manifest), budgets, now)
            assert moves == expected["currentlyReschedulable"], manifest
