"""Requests to EC2 made together: when windows close, who gets what, and what is repeated alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest

from dovetail.aws import Answer, AwsAbsent, AwsError, AwsTrouble
from dovetail.metrics import REGISTRY
from dovetail.providers.aws.batcher import (
    BatchWindow,
    DescribeBatcher,
    FleetBatcher,
    RequestBatcher,
    TerminateBatcher,
)
from dovetail.providers.aws.launch_tokens import TOKEN_USED
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.clock import VirtualClock
from support.stage import virtual

CLUSTER = "test-cluster"
TEMPLATE = "karpenter.k8s.aws/1"
PACE = BatchWindow(idle=0.1, longest=1.0, most=5)
NO_ID = "i-00000000000000000"
Alter = Callable[[str, Mapping[str, Any], Answer], Answer]


class Ec2(SimulatedAws):
    """A simulated EC2 whose answers a test may alter, as the real one's sometimes are."""

    def __init__(self, alter: Alter = lambda operation, asked, answer: answer) -> None:
        super().__init__(VirtualClock(), 1, cluster=CLUSTER)
        self.alter = alter
        self.busy = self.busiest = 0

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any], /, *, retried: bool = True
    ) -> Answer:
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        try:
            answer = await super().call(service, operation, parameters, retried=retried)
        finally:
            self.busy -= 1
        return self.alter(operation, parameters, answer)

    async def ready(self) -> Ec2:
        image = self.images.add("mine").id
        request = {"LaunchTemplateName": TEMPLATE, "LaunchTemplateData": {"ImageId": image}}
        await self.call("ec2", "CreateLaunchTemplate", request)
        return self

    def asked(self, operation: str) -> list[Mapping[str, Any]]:
        return [call.parameters for call in self.calls if call.operation == operation]

    def fleet(self, *types: str, tag: str = "") -> dict[str, Any]:
        """A request for one instance of any of the types."""
        subnet = next(iter(self.network.subnets))
        overrides = [{"InstanceType": each, "SubnetId": subnet} for each in types or ("m5.large",)]
        template = {"LaunchTemplateName": TEMPLATE, "Version": "$Latest"}
        tags = [{"ResourceType": "instance", "Tags": [{"Key": "tag", "Value": tag}]}] if tag else []
        return {
            "Type": "instant",
            "TargetCapacitySpecification": {
                "DefaultTargetCapacityType": "on-demand",
                "TotalTargetCapacity": 1,
            },
            "OnDemandOptions": {"AllocationStrategy": "lowest-price"},
            "LaunchTemplateConfigs": [{"LaunchTemplateSpecification": template, "Overrides": overrides}],
            "TagSpecifications": tags,
        }

    async def launched(self, count: int) -> list[str]:
        request = self.fleet()
        request["TargetCapacitySpecification"]["TotalTargetCapacity"] = count
        answer = await SimulatedAws.call(self, "ec2", "CreateFleet", request)
        self.calls.clear()
        await self.clock.sleep(60)
        return [each for group in answer["Instances"] for each in group["InstanceIds"]]


async def together(*asking: Awaitable[Answer]) -> list[Answer | BaseException]:
    return list(await asyncio.gather(*asking, return_exceptions=True))


def ids(answers: Sequence[Answer | BaseException]) -> list[str]:
    return [
        each
        for answer in answers
        if isinstance(answer, Mapping)
        for group in answer["Instances"]
        for each in group["InstanceIds"]
    ]


def described(answer: Answer | BaseException) -> str:
    assert isinstance(answer, Mapping), answer
    ((instance,),) = [reservation["Instances"] for reservation in answer["Reservations"]]
    return str(instance["InstanceId"])


def sample(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"karpenter_cloudprovider_batcher_{name}", labels) or 0.0


@pytest.mark.spec("aws-200")
@virtual
async def test_equal_launches_are_one_fleet_and_its_instances_are_dealt_out() -> None:
    ec2 = await Ec2().ready()
    fleets = FleetBatcher(ec2, ec2.clock)
    answers = await together(*(fleets(ec2.fleet()) for _ in range(5)))
    (asked,) = ec2.asked("CreateFleet")
    assert asked["TargetCapacitySpecification"]["TotalTargetCapacity"] == 5
    assert len(set(ids(answers))) == len(ids(answers)) == 5
    assert len({answer["FleetId"] for answer in answers if isinstance(answer, Mapping)}) == 1


@pytest.mark.spec("aws-200")
@virtual
async def test_launches_that_differ_are_fleets_of_their_own() -> None:
    ec2 = await Ec2().ready()
    fleets = FleetBatcher(ec2, ec2.clock)
    answers = await together(*(fleets(ec2.fleet(tag=tag)) for tag in ("one", "two", "one")))
    targets = [
        each["TargetCapacitySpecification"]["TotalTargetCapacity"] for each in ec2.asked("CreateFleet")
    ]
    assert sorted(targets) == [1, 2]
    tags = [ec2.get_instance(instance_id).tags["tag"] for instance_id in ids(answers)]
    assert tags == ["one", "two", "one"]


@virtual
async def test_a_fleet_whose_answer_was_lost_is_asked_for_again_with_the_same_token() -> None:
    ec2 = await Ec2().ready()
    ec2.faults.lose_answers("CreateFleet")
    fleets = FleetBatcher(ec2, ec2.clock)
    (lost,) = await together(fleets(ec2.fleet(tag="x"), "one", "group"))
    assert isinstance(lost, AwsTrouble)
    (answer,) = await together(fleets(ec2.fleet(tag="x"), "one", "group"))
    assert ids([answer]) == list(ec2.instances.by_id), "the first answer, and no second instance"


@virtual
async def test_another_process_gets_the_instances_of_the_first_for_the_same_claims() -> None:
    ec2 = await Ec2().ready()
    claims = ("one", "two", "three")
    first, second = FleetBatcher(ec2, ec2.clock), FleetBatcher(ec2, ec2.clock)
    before = await together(*(first(ec2.fleet(tag="x"), each, "group") for each in claims))
    after = await together(*(second(ec2.fleet(tag="x"), each, "group") for each in reversed(claims)))
    assert ids(before) == ids(after)[::-1], "each claim the same one"
    assert len(ec2.instances.by_id) == 3


@virtual
async def test_an_answer_uses_the_token_up_and_the_next_attempt_has_another() -> None:
    ec2 = await Ec2().ready()
    ec2.exhaust("m5.large")
    fleets = FleetBatcher(ec2, ec2.clock)
    await together(fleets(ec2.fleet(tag="x"), "one", "group"))
    ec2.restock("m5.large")
    (answer,) = await together(fleets(ec2.fleet(tag="x"), "one", "group"))
    assert len(ids([answer])) == 1
    assert [asked["ClientToken"] for asked in ec2.asked("CreateFleet")] == ["group-0", "group-1"]


@virtual
async def test_a_refused_request_has_not_used_its_token_up() -> None:
    ec2 = await Ec2().ready()
    ec2.refuse("RequestLimitExceeded", "CreateFleet")
    fleets = FleetBatcher(ec2, ec2.clock)
    await together(fleets(ec2.fleet(), "one", "group"))
    await together(fleets(ec2.fleet(), "one", "group"))
    assert [asked["ClientToken"] for asked in ec2.asked("CreateFleet")] == ["group-0", "group-0"]


@virtual
async def test_a_token_another_process_used_sends_all_of_the_group_looking_before_they_launch() -> None:
    ec2 = await Ec2().ready()
    first, second = FleetBatcher(ec2, ec2.clock), FleetBatcher(ec2, ec2.clock)
    await together(*(first(ec2.fleet(tag="x"), each, "group") for each in ("one", "two")))
    # The second gathers the same claims otherwise, and knows other types by now.
    told = await together(
        second(ec2.fleet("c5.large", tag="x"), "one", "group"),
        second(ec2.fleet("r5.large", tag="x"), "two", "group"),
    )
    assert [error.code for error in told if isinstance(error, AwsError)] == [TOKEN_USED] * 2
    assert len(ec2.instances.by_id) == 2
    (answer,) = await together(second(ec2.fleet("r5.large", tag="x"), "two", "group"))
    assert len(ids([answer])) == 1, "who has looked and found nothing goes on with the next token"


@virtual
async def test_attempts_of_one_group_are_made_one_after_the_other_each_with_its_own_token() -> None:
    ec2 = await Ec2().ready()
    ec2.faults.latency = (1.0, 1.0)
    fleets = FleetBatcher(ec2, ec2.clock)
    answers = await together(
        fleets(ec2.fleet("c5.large", tag="x"), "one", "group"),
        fleets(ec2.fleet("r5.large", tag="x"), "two", "group"),
    )
    assert len(set(ids(answers))) == 2
    assert [asked["ClientToken"] for asked in ec2.asked("CreateFleet")] == ["group-0", "group-1"]


@virtual
async def test_the_order_of_lists_makes_no_other_fleet() -> None:
    ec2 = await Ec2().ready()
    fleets = FleetBatcher(ec2, ec2.clock)
    await together(fleets(ec2.fleet("m5.large", "c5.large")), fleets(ec2.fleet("c5.large", "m5.large")))
    assert len(ec2.asked("CreateFleet")) == 1


@pytest.mark.spec("aws-201")
@virtual
async def test_a_fleet_that_falls_short_serves_the_first_and_tells_everyone_why() -> None:
    ec2 = await Ec2().ready()
    ec2.restock("m5.large", count=3)
    fleets = FleetBatcher(ec2, ec2.clock)
    answers = await together(*(fleets(ec2.fleet()) for _ in range(5)))
    served = [len(answer["Instances"]) for answer in answers if isinstance(answer, Mapping)]
    codes = [
        {error["ErrorCode"] for error in answer["Errors"]}
        for answer in answers
        if isinstance(answer, Mapping)
    ]
    assert served == [1, 1, 1, 0, 0]
    assert codes == [{"InsufficientInstanceCapacity"}] * 5


@pytest.mark.spec("aws-201")
@virtual
async def test_instances_missing_without_a_word_are_an_error_all_the_same() -> None:
    ec2 = await Ec2(lambda operation, asked, answer: {**answer, "Errors": [], "Instances": []}).ready()
    (answer,) = await together(FleetBatcher(ec2, ec2.clock)(ec2.fleet()))
    assert isinstance(answer, Mapping)
    assert answer["Errors"][0]["ErrorMessage"] == "too few instances returned"


@virtual
async def test_instances_nobody_asked_for_are_remarked_on(caplog: pytest.LogCaptureFixture) -> None:
    def more(operation: str, asked: Mapping[str, Any], answer: Answer) -> Answer:
        if operation != "CreateFleet":
            return answer
        (group,) = answer["Instances"]
        return {**answer, "Instances": [{**group, "InstanceIds": [*group["InstanceIds"], "i-surplus"]}]}

    ec2 = await Ec2(more).ready()
    (answer,) = await together(FleetBatcher(ec2, ec2.clock)(ec2.fleet()))
    assert len(ids([answer])) == 1
    assert "i-surplus" in caplog.text


@virtual
async def test_a_refused_fleet_is_everyones_refusal() -> None:
    ec2 = await Ec2().ready()
    ec2.refuse("RequestLimitExceeded", "CreateFleet")
    fleets = FleetBatcher(ec2, ec2.clock)
    answers = await together(*(fleets(ec2.fleet()) for _ in range(3)))
    assert [type(answer) for answer in answers] == [AwsTrouble] * 3
    assert len(ec2.asked("CreateFleet")) == 1


@pytest.mark.spec("aws-202")
@virtual
async def test_instances_are_described_together_whoever_asks() -> None:
    ec2 = await Ec2().ready()
    one, two = await ec2.launched(2)
    describing = DescribeBatcher(ec2, ec2.clock)
    answers = await together(*(describing({"InstanceIds": [each]}) for each in (one, two, one, one)))
    (asked,) = ec2.asked("DescribeInstances")
    assert asked["InstanceIds"] == sorted((one, two))
    assert [described(answer) for answer in answers] == [one, two, one, one]


@virtual
async def test_look_ups_with_other_filters_are_not_mixed() -> None:
    ec2 = await Ec2().ready()
    (one,) = await ec2.launched(1)
    running = {"Name": "instance-state-name", "Values": ["running"]}
    describing = DescribeBatcher(ec2, ec2.clock)
    await together(
        describing({"InstanceIds": [one], "Filters": [running]}), describing({"InstanceIds": [one]})
    )
    assert len(ec2.asked("DescribeInstances")) == 2


@pytest.mark.spec("aws-202")
@virtual
async def test_one_instance_that_is_gone_spoils_nobody_elses_answer() -> None:
    ec2 = await Ec2().ready()
    one, two = await ec2.launched(2)
    describing = DescribeBatcher(ec2, ec2.clock)
    first, gone, second = await together(*(describing({"InstanceIds": [each]}) for each in (one, NO_ID, two)))
    assert (described(first), described(second)) == (one, two)
    assert isinstance(gone, AwsAbsent)
    assert [len(each["InstanceIds"]) for each in ec2.asked("DescribeInstances")] == [3, 1, 1, 1]


@pytest.mark.spec("aws-202")
@virtual
async def test_what_a_shared_answer_leaves_out_is_asked_for_alone() -> None:
    def short(operation: str, asked: Mapping[str, Any], answer: Answer) -> Answer:
        many = operation == "DescribeInstances" and len(asked["InstanceIds"]) > 1
        return {"Reservations": []} if many else answer

    ec2 = await Ec2(short).ready()
    one, two = await ec2.launched(2)
    describing = DescribeBatcher(ec2, ec2.clock)
    answers = await together(*(describing({"InstanceIds": [each]}) for each in (one, two)))
    assert [described(answer) for answer in answers] == [one, two]


@pytest.mark.spec("aws-202")
@virtual
async def test_a_page_that_fails_stops_the_paging_and_nothing_else() -> None:
    pages = 0

    def paged(operation: str, asked: Mapping[str, Any], answer: Answer) -> Answer:
        nonlocal pages
        if operation != "DescribeInstances" or len(asked["InstanceIds"]) == 1:
            return answer
        pages += 1
        ec2.refuse("InternalError", "DescribeInstances")
        first = answer["Reservations"][0]
        return {"Reservations": [{**first, "Instances": first["Instances"][:1]}], "NextToken": "more"}

    ec2 = await Ec2(paged).ready()
    started = await ec2.launched(3)
    describing = DescribeBatcher(ec2, ec2.clock)
    answers = await together(*(describing({"InstanceIds": [each]}) for each in started))
    assert [described(answer) for answer in answers] == started
    assert pages == 1
    assert len(ec2.asked("DescribeInstances")) == 4


@pytest.mark.spec("aws-203")
@virtual
async def test_instances_are_terminated_together() -> None:
    ec2 = await Ec2().ready()
    started = await ec2.launched(3)
    terminating = TerminateBatcher(ec2, ec2.clock)
    answers = await together(*(terminating({"InstanceIds": [each]}) for each in started))
    (asked,) = ec2.asked("TerminateInstances")
    assert asked["InstanceIds"] == sorted(started)
    assert [
        answer["TerminatingInstances"][0]["InstanceId"] for answer in answers if isinstance(answer, Mapping)
    ] == started
    assert not ec2.list_running()


@pytest.mark.spec("aws-203")
@virtual
async def test_only_what_was_not_ended_together_is_ended_alone() -> None:
    def partly(operation: str, asked: Mapping[str, Any], answer: Answer) -> Answer:
        if operation != "TerminateInstances" or len(asked["InstanceIds"]) == 1:
            return answer
        first, second, *_ = answer["TerminatingInstances"]
        running = {**second, "CurrentState": {"Code": 16, "Name": "running"}}
        return {"TerminatingInstances": [first, running]}

    ec2 = await Ec2(partly).ready()
    started = sorted(await ec2.launched(3))
    terminating = TerminateBatcher(ec2, ec2.clock)
    answers = await together(*(terminating({"InstanceIds": [each]}) for each in started))
    assert not [answer for answer in answers if isinstance(answer, BaseException)]
    shared, *alone = ec2.asked("TerminateInstances")
    assert shared["InstanceIds"] == started
    assert [each["InstanceIds"] for each in alone] == [[started[1]], [started[2]]]


@pytest.mark.spec("aws-203")
@virtual
async def test_an_error_that_stays_reaches_each_who_asked() -> None:
    ec2 = await Ec2().ready()
    started = await ec2.launched(2)
    ec2.refuse("UnauthorizedOperation", "TerminateInstances", times=None)
    terminating = TerminateBatcher(ec2, ec2.clock)
    answers = await together(*(terminating({"InstanceIds": [each]}) for each in started))
    assert [answer.code for answer in answers if isinstance(answer, AwsError)] == [
        "UnauthorizedOperation"
    ] * 2
    assert len(ec2.asked("TerminateInstances")) == 3
    assert len(ec2.list_running()) == 2


@pytest.mark.spec("aws-204")
@virtual
async def test_no_more_than_a_hundred_buckets_are_worked_on_at_once() -> None:
    ec2 = await Ec2().ready()
    ec2.busiest = 0
    ec2.faults.latency = (1.0, 1.0)
    fleets = FleetBatcher(ec2, ec2.clock)
    answers = await together(*(fleets(ec2.fleet(tag=str(place))) for place in range(250)))
    assert len(ids(answers)) == len(ec2.asked("CreateFleet")) == 250
    assert ec2.busiest == 100


class Windows:
    """A batcher that notes when its windows close and how much is in them."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.closed: list[tuple[float, int]] = []
        self.batcher: RequestBatcher[int, int] = RequestBatcher(
            self.clock, "trial", PACE, self.work, bucket=lambda _: None
        )

    async def work(self, requests: Sequence[int]) -> Sequence[int | Exception]:
        self.closed.append((round(self.clock.monotonic(), 3), len(requests)))
        return [each * 2 for each in requests]

    async def at(self, when: float, request: int) -> int:
        await self.clock.sleep(when)
        return await self.batcher(request)


@virtual
async def test_a_window_closes_when_nothing_new_comes() -> None:
    windows = Windows()
    answers = await asyncio.gather(
        *(windows.at(when, place) for place, when in enumerate((0.0, 0.08, 0.16, 0.4)))
    )
    assert answers == [0, 2, 4, 6]
    assert windows.closed == [(0.26, 3), (0.5, 1)]


@virtual
async def test_a_window_that_keeps_being_stirred_closes_after_a_second() -> None:
    windows = Windows()
    pace = BatchWindow(idle=0.1, longest=1.0, most=500)
    windows.batcher = RequestBatcher(windows.clock, "trial", pace, windows.work, bucket=lambda _: None)
    await asyncio.gather(*(windows.at(place * 0.09, place) for place in range(20)))
    assert windows.closed[0] == (1.0, 12)


@virtual
async def test_a_full_window_closes_at_once() -> None:
    windows = Windows()
    await asyncio.gather(*(windows.at(0.0, place) for place in range(12)))
    assert windows.closed == [(0.0, 5), (0.0, 5), (0.1, 2)]


@virtual
async def test_whoever_gives_up_waiting_spoils_it_for_nobody() -> None:
    windows = Windows()
    impatient = asyncio.create_task(windows.at(0.0, 1))
    patient = asyncio.create_task(windows.at(0.0, 2))
    await windows.clock.sleep(0.05)
    impatient.cancel()
    assert await patient == 4
    assert impatient.cancelled()


@virtual
async def test_a_fault_of_the_work_is_told_to_those_who_asked() -> None:
    async def broken(requests: Sequence[int]) -> Sequence[int | Exception]:
        raise KeyError("a bug")

    batcher: RequestBatcher[int, int] = RequestBatcher(
        VirtualClock(), "broken", PACE, broken, bucket=lambda _: None
    )
    with pytest.raises(KeyError, match="a bug"):
        await batcher(1)


@virtual
async def test_windows_and_batches_are_measured() -> None:
    before = sample("batch_size_sum", batcher="trial"), sample("batch_time_seconds_sum", batcher="trial")
    windows = Windows()
    await asyncio.gather(*(windows.at(0.0, place) for place in range(3)))
    assert sample("batch_size_sum", batcher="trial") - before[0] == 3
    assert sample("batch_time_seconds_sum", batcher="trial") - before[1] == pytest.approx(0.1)


def test_each_kind_of_request_has_its_own_patience() -> None:
    assert BatchWindow(0.035, 1.0, 1000) == FleetBatcher.PACE
    assert DescribeBatcher.PACE == TerminateBatcher.PACE == BatchWindow(0.1, 1.0, 500)
