"""One drain step, case by case as upstream takes it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from dovetail.api import codec
from dovetail.api.pod import Pod
from dovetail.controllers.node.drain import plan_drain_step
from support.vectors import cases


def test_every_drain_step_is_the_one_upstream_takes() -> None:
    wrong: list[Any] = []
    count = 0
    for case in cases("drain"):
        count += 1
        pods = [codec.convert(Pod, each) for each in case["pods"] or ()]
        deadline = datetime.fromisoformat(case["nodeDeadline"]) if case.get("nodeDeadline") else None
        step = plan_drain_step(pods, deadline, datetime.fromisoformat(case["now"]))
        taken = {
            "deleted": {pod.name: grace for pod, grace in step.delete},
            "queued": sorted(pod.name for pod in step.evict),
            "drained": step.drained,
            "error": f"{step.waiting} pods are waiting to be evicted" if step.waiting else "",
        }
        told = {
            "deleted": case["deleted"] or {},
            "queued": sorted(case["queued"] or ()),
            "drained": case["drained"],
            "error": case.get("error") or "",
        }
        if taken != told:
            wrong.append((taken, told, case))
    assert not wrong, (len(wrong), wrong[0])
    assert count == 300
