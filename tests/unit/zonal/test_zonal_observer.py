"""Observing a region: whether AWS tells observers anything is looked at, and said once."""

from __future__ import annotations

from random import Random

import pytest

from dovetail.sim.clock import VirtualClock
from dovetail.zonal.controller.arc import ArcPoller
from support.aws import CLUSTER, simulated
from support.stage import virtual

SERVICE = "arc-zonal-shift"


def asked(aws: object) -> int:
    return sum(each.operation == "GetAutoshiftObserverNotificationStatus" for each in aws.calls)  # type: ignore[attr-defined]


@virtual
async def test_a_region_that_does_not_notify_is_told_once_and_looked_at_hourly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    aws = simulated(VirtualClock())
    arc = ArcPoller(aws, CLUSTER, aws.clock, Random(1), observer=True)
    for _ in range(3):
        await arc.poll_if_due(active=False)
        await aws.clock.sleep(3700)
    assert (arc.notified, asked(aws)) == (False, 3)
    assert caplog.text.count("update-autoshift-observer-notification-status") == 1

    await aws.call(SERVICE, "UpdateAutoshiftObserverNotificationStatus", {"status": "ENABLED"})
    await arc.poll_if_due(active=False)
    assert arc.notified is True


@virtual
async def test_whoever_does_not_observe_does_not_ask() -> None:
    aws = simulated(VirtualClock())
    arc = ArcPoller(aws, CLUSTER, aws.clock, Random(1))
    assert await arc.poll_if_due(active=False)
    assert (arc.notified, asked(aws)) == (None, 0)
