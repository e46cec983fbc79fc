"""Machines that fail their checks are given up; those with an appointment are drained in good time."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from dovetail.aws import Answer
from dovetail.controllers.base import DONE
from dovetail.providers.aws.controllers.instance_status import InstanceStatusController
from support.ec2_instances import MachineScene, disrupted
from support.stage import sample, virtual

POLLER = "interruption.instancestatus"
UNHEALTHY = "karpenter_interruption_instance_status_unhealthy_total"


class Saying:
    """An EC2 that says one thing about instances."""

    region = "us-west-2"

    def __init__(self, status: dict[str, Any]) -> None:
        self._status = status

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any], /, *, retried: bool = True
    ) -> Answer:
        assert operation == "DescribeInstanceStatus"
        return {"InstanceStatuses": [self._status]}

    def scope_to(self, *, region: str = "", role: str = "", external_id: str = "") -> Saying:
        return self


@pytest.mark.spec("aws-227")
@pytest.mark.parametrize(("check", "reason"), [("instance", "instance_status"), ("system", "system_status")])
def test_a_check_that_keeps_failing_ends_the_claim_at_once_and_without_asking(
    check: str, reason: str
) -> None:
    @virtual
    async def story() -> None:
        async with MachineScene(queue=False).still() as scene:
            machine, well = await scene.machine(), await scene.machine()
            scene.aws.impair(machine.id, check)
            await scene.pass_(60)
            result = await scene.look(POLLER)
            assert result.after == timedelta(minutes=1)
            assert not scene.deleting(machine)
            assert scene.deadline(machine) is None
            await scene.pass_(3600)
            counted = disrupted(reason=reason, capacity_type="spot")
            now = scene.clock.now()
            await scene.look(POLLER)
            assert scene.deleting(machine)
            deadline = scene.deadline(machine)
            assert deadline == f"{now:%Y-%m-%dT%H:%M:%SZ}"
            assert disrupted(reason=reason, capacity_type="spot") == counted + 1
            both = {"Warning NodeClaim", "Warning Node"}
            assert scene.told(machine) == {"InstanceUnhealthy": both, "TerminatingOnInterruption": both}
            await scene.pass_(300)
            await scene.look(POLLER)
            assert scene.deadline(machine) == deadline
            assert disrupted(reason=reason, capacity_type="spot") == counted + 1
            assert not scene.deleting(well)

    story()


@pytest.mark.spec("aws-228")
@virtual
async def test_an_appointment_ends_the_claim_with_its_pods_asked_unless_the_machine_fails_as_well() -> None:
    async with MachineScene(queue=False).still() as scene:
        retired, failing = await scene.machine(), await scene.machine()
        scene.aws.retire(retired.id, failing.id)
        scene.aws.impair(failing.id, "system")
        await scene.pass_(121)
        await scene.look(POLLER)
        assert scene.deleting(retired)
        assert scene.deleting(failing)
        assert scene.deadline(retired) is None
        assert scene.deadline(failing) is not None


@virtual
async def test_an_appointment_that_is_over_means_nothing() -> None:
    async with MachineScene(queue=False).still() as scene:
        machine = await scene.machine()
        scene.aws.retire(machine.id, code="system-reboot")
        (event,) = scene.aws.get_instance(machine.id).scheduled
        event["Description"] = f"[Completed] {event['Description']}"
        await scene.look(POLLER)
        assert not scene.deleting(machine)


@pytest.mark.spec("aws-229")
@virtual
async def test_an_unhealthy_instance_is_counted_once_for_each_spell() -> None:
    async with MachineScene(queue=False).still() as scene:
        machine = await scene.machine()
        counted = sample(UNHEALTHY, category="InstanceStatus")
        for spell in (1, 2):
            scene.aws.impair(machine.id)
            await scene.pass_(130)
            for _ in range(3):
                await scene.look(POLLER)
                await scene.pass_(60)
            assert sample(UNHEALTHY, category="InstanceStatus") == counted + spell
            scene.aws.recover(machine.id)
            await scene.look(POLLER)


@pytest.mark.spec("aws-229")
@virtual
async def test_dry_it_counts_and_does_nothing() -> None:
    async with MachineScene(queue=False).still() as scene:
        machine = await scene.machine()
        real = scene.controller(POLLER)
        assert isinstance(real, InstanceStatusController)
        dry = InstanceStatusController(scene.aws, real._interruptions, scene.clock, dry=True)
        counted = sample(UNHEALTHY, category="SystemStatus")
        scene.aws.impair(machine.id, "system")
        await scene.pass_(130)
        await dry.reconcile("")
        assert sample(UNHEALTHY, category="SystemStatus") == counted + 1
        assert not scene.deleting(machine)
        assert scene.deadline(machine) is None


@pytest.mark.spec("aws-230")
@virtual
async def test_checks_without_a_verdict_and_those_of_volumes_mean_nothing() -> None:
    async with MachineScene(queue=False).still() as scene:
        machine, young = await scene.machine(), await scene.machine()
        scene.aws.impair(machine.id, "ebs")
        await scene.pass_(3600)
        await scene.look(POLLER)
        assert not scene.deleting(machine)
        real = scene.controller(POLLER)
        assert isinstance(real, InstanceStatusController)
        for verdict in ("initializing", "insufficient-data"):
            details = [{"Name": "reachability", "Status": verdict}]
            undecided = {"InstanceId": young.id, "InstanceStatus": {"Status": verdict, "Details": details}}
            await InstanceStatusController(Saying(undecided), real._interruptions, scene.clock).reconcile("")
            assert not scene.deleting(young)
        since = scene.clock.now() - timedelta(hours=1)
        failed = [{"Name": "reachability", "Status": "failed", "ImpairedSince": since}]
        failing = {"InstanceId": young.id, "InstanceStatus": {"Status": "impaired", "Details": failed}}
        await InstanceStatusController(Saying(failing), real._interruptions, scene.clock).reconcile("")
        assert scene.deleting(young)


@pytest.mark.spec("aws-230")
def test_without_permission_nobody_looks_again_until_the_next_start(caplog: pytest.LogCaptureFixture) -> None:
    @virtual
    async def story() -> None:
        async with MachineScene(queue=False).still() as scene:
            scene.aws.refuse("UnauthorizedOperation", "DescribeInstanceStatus")
            assert await scene.look(POLLER) == DONE

    with caplog.at_level(logging.ERROR):
        story()
    assert any("until the next start" in each.getMessage() for each in caplog.records)


@virtual
async def test_machines_of_others_are_left_alone() -> None:
    async with MachineScene(queue=False).still() as scene:
        machine = await scene.machine()
        stranger = await scene.machine()
        scene.api.patch("nodeclaims.karpenter.sh", stranger.claim, {"metadata": {"finalizers": []}})
        scene.api.delete("nodeclaims.karpenter.sh", stranger.claim)
        scene.aws.impair(stranger.id)
        await scene.pass_(300)
        counted = sample(UNHEALTHY, category="InstanceStatus")
        await scene.look(POLLER)
        assert sample(UNHEALTHY, category="InstanceStatus") == counted
        assert not scene.deleting(machine)
