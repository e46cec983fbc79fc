"""Commitments follow what the account has committed to: mirrored, ended, denied, observed."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import Any

import pytest

from dovetail.api.commitment import Commitment
from dovetail.api.meta import ObjectMeta
from dovetail.providers.aws.controllers.commitments import is_mirrored
from dovetail.runtime.kube import APPLY
from dovetail.runtime.transport import ApiRequest
from dovetail.sim.clock import run_virtual
from dovetail.sim.transport import LocalTransport
from support.aws import fleet, template
from support.commitments import COMMITMENTS, Killed, MirrorStage
from support.stage import virtual

Json = dict[str, Any]
HALF_AN_HOUR, DAY = 1800.0, 86400.0
PLANS, RATES, RESERVED = (
    "savingsplans:DescribeSavingsPlans",
    "savingsplans:DescribeSavingsPlanRates",
    "ec2:DescribeReservedInstances",
)


def count_calls(stage: MirrorStage, operation: str) -> int:
    return sum(each.operation == operation for each in stage.aws.calls)


def read_specs(stage: MirrorStage) -> dict[str, Json]:
    return {name: each["spec"] for name, each in stage.stored.items()}


@virtual
async def test_plans_and_reserved_instances_become_commitments() -> None:
    stage = MirrorStage()
    wide = stage.aws.savings_plans.add("25.00", rates={"m5.large": 0.0691})
    narrow = stage.aws.savings_plans.add("4.50", family="m5", region="us-west-2")
    stage.aws.savings_plans.add("4.50", family="m5", region="eu-west-1")  # covers nothing here
    reserve = stage.aws.reserved_instances.add
    regional = reserve("m5.large", 10, hourly=0.06, fixed=87.6)
    zonal = reserve("c5.large", 2, "us-west-2a", hourly=0.05)
    windows = reserve("m5.xlarge", 1, system="Windows", hourly=0.2)
    fixed_size = reserve("g4dn.xlarge", 1, hourly=0.3)
    reserve("m5.xlarge", 1, tenancy="dedicated")
    reserve("m5.xlarge", 1, system="Red Hat Enterprise Linux")
    names = [f"aws-sp-{wide.id}", f"aws-sp-{narrow.id}"]
    names += [f"aws-ri-{each.id}" for each in (regional, zonal, windows, fixed_size)]
    async with stage.open():
        result = await stage.mirror_once()
        assert result is not None
        assert result.after == timedelta(minutes=30)
        found = stage.stored
        assert set(found) == set(names)
        assert {each["metadata"]["labels"]["dovetail.sh/source"] for each in found.values()} == {"aws"}
        compute, family, flexible, placed, other, exact = (found[name]["spec"] for name in names)
        assert (compute["kind"], compute["hourly"]) == ("ComputePlan", "25.00")
        assert compute["ends"] == f"{wide.ends:%Y-%m-%dT%H:%M:%SZ}"
        assert (compute["share"], compute["observe"]) == ("100%", "Cluster")  # the schema's defaults
        assert (family["kind"], family["family"], family["region"]) == ("FamilyPlan", "m5", "us-west-2")
        assert (flexible["kind"], flexible["family"], flexible["count"]) == ("Reserved", "m5", 10)
        assert float(flexible["hourly"]) == pytest.approx(10 * (0.06 + 87.6 / 8760), abs=1e-5)
        assert (placed["kind"], placed["zone"]) == ("ReservedInZone", "us-west-2a")
        assert (other["platform"], other["instanceType"]) == ("Windows", "m5.xlarge")
        assert not any("family" in each for each in (compute, placed, other, exact))
        rates = found[names[0]]["status"]["rates"]
        assert rates["m5.large"] == "0.0691"
        assert len(rates) > 300
        assert {name.partition(".")[0] for name in found[names[1]]["status"]["rates"]} == {"m5"}


@virtual
async def test_nothing_is_written_while_nothing_changes_and_rates_are_read_once_a_day() -> None:
    stage = MirrorStage()
    plan = stage.aws.savings_plans.add("25.00", rates={"m5.large": 0.07})
    stage.aws.reserved_instances.add("m5.large", 10)
    name = f"aws-sp-{plan.id}"
    async with stage.open():
        await stage.mirror_once()
        before, writes = stage.stored, stage.transport.writes
        pages = count_calls(stage, "DescribeSavingsPlanRates")
        for _ in range(47):
            await stage.pass_time(HALF_AN_HOUR)
            await stage.mirror_once()
        assert stage.stored == before
        assert stage.transport.writes == writes
        assert count_calls(stage, "DescribeSavingsPlans") == 48
        assert count_calls(stage, "DescribeSavingsPlanRates") == pages
        plan.rates = {"m5.large": 0.06}
        await stage.pass_time(HALF_AN_HOUR)
        await stage.mirror_once()
        assert count_calls(stage, "DescribeSavingsPlanRates") == 2 * pages
        assert stage.stored[name]["status"]["rates"]["m5.large"] == "0.06"
        assert stage.transport.writes == writes + 1


@virtual
async def test_a_plan_that_ends_is_deleted_a_week_later_and_one_that_vanishes_has_ended() -> None:
    stage = MirrorStage()
    ends = stage.aws.savings_plans.add("25.00", lasts=timedelta(days=2))
    returned = stage.aws.savings_plans.add("5.00")
    sold = stage.aws.reserved_instances.add("m5.large", 10)
    names = [f"aws-sp-{ends.id}", f"aws-sp-{returned.id}", f"aws-ri-{sold.id}"]
    async with stage.open():
        await stage.mirror_once()
        returned.state, sold.state = "returned", "retired"
        await stage.mirror_once()
        whole = read_specs(stage)
        assert whole[names[1]]["ends"] == f"{returned.ends:%Y-%m-%dT%H:%M:%SZ}"  # once may be a slip
        await stage.pass_time(HALF_AN_HOUR)
        await stage.mirror_once()
        now = f"{stage.clock.now():%Y-%m-%dT%H:%M}"
        found = read_specs(stage)
        assert [found[name]["ends"][:16] for name in names[1:]] == [now, now]
        assert found[names[0]]["ends"] == whole[names[0]]["ends"]
        await stage.pass_time(6.9 * DAY)
        await stage.mirror_once()
        assert set(stage.stored) == set(names)
        await stage.pass_time(0.2 * DAY)
        await stage.mirror_once()
        assert set(stage.stored) == {names[0]}
        await stage.pass_time(2 * DAY)
        await stage.mirror_once()
        assert stage.stored == {}


@pytest.mark.spec("CM-11")
@virtual
async def test_share_and_observe_are_a_persons_and_so_are_commitments_that_people_wrote() -> None:
    stage = MirrorStage()
    plan = stage.aws.savings_plans.add("25.00", lasts=timedelta(days=2))
    own = {"kind": "ComputePlan", "hourly": "3.00", "discount": "20%", "ends": "2020-01-01T00:00:00Z"}
    taken = stage.aws.savings_plans.add("7.00")
    marked = {"name": "ours", "labels": {"dovetail.sh/source": "aws"}}
    for meta in ({"name": "mine"}, {"name": f"aws-sp-{taken.id}"}, marked):
        stage.api.create(COMMITMENTS, {"metadata": meta, "spec": own})
    written = {name: each["spec"] for name, each in stage.stored.items()}
    name = f"aws-sp-{plan.id}"
    async with stage.open():
        await stage.mirror_once()
        # As `kubectl apply --server-side` writes it: share is nobody else's, so there is no conflict.
        applied = {
            "apiVersion": "dovetail.sh/v1alpha1",
            "kind": "Commitment",
            "metadata": {"name": name},
            "spec": {"share": "40%"},
        }
        await apply_as_person(stage, applied)
        stage.api.patch(COMMITMENTS, name, {"spec": {"observe": "Account", "hourly": "9999"}})
        await stage.mirror_once()
        found = read_specs(stage)[name]
        assert (found["share"], found["observe"], found["hourly"]) == ("40%", "Account", "25.00")
        plan.hourly = "30.00"
        await stage.mirror_once()
        assert read_specs(stage)[name] == {**found, "hourly": "30.00"}
        stage.begin_term()
        await stage.mirror_once()
        assert read_specs(stage)[name]["share"] == "40%"
        await stage.pass_time(10 * DAY)
        await stage.mirror_once()
        await stage.mirror_once()
        assert {each: spec for each, spec in read_specs(stage).items() if each in written} == written
        assert name not in stage.stored


async def apply_as_person(stage: MirrorStage, document: Json) -> None:
    path = f"/apis/dovetail.sh/v1alpha1/commitments/{document['metadata']['name']}"
    request = ApiRequest(
        "PATCH",
        path,
        {"fieldManager": "kubectl", "force": "false"},
        json.dumps(document).encode(),
        APPLY,
    )
    transport = LocalTransport(stage.server)
    reply = await transport.send(request)
    assert reply.status == 200, reply


@pytest.mark.spec("CM-9")
@virtual
async def test_what_aws_denies_is_said_by_name_and_taken_back_when_it_is_granted() -> None:
    stage = MirrorStage()
    plan = stage.aws.savings_plans.add("25.00")
    reserved = stage.aws.reserved_instances.add("m5.large", 1)
    stage.deny(PLANS, RESERVED)
    async with stage.open():
        result = await stage.mirror_once()
        assert result is not None  # nothing fails
        assert set(stage.stored) == {"aws-denied"}
        status, reason, message = stage.find_condition("aws-denied", "Current")
        assert (status, reason) == ("False", "Denied")
        assert f"AWS denies {RESERVED} and {PLANS}; allow it" in message
        assert stage.stored["aws-denied"]["spec"]["hourly"] == "0.00"
        stage.deny(RATES)
        await stage.mirror_once()
        assert set(stage.stored) == {f"aws-sp-{plan.id}", f"aws-ri-{reserved.id}"}
        status, reason, message = stage.find_condition(f"aws-sp-{plan.id}", "Current")
        assert (status, reason) == ("False", "Denied")
        assert message.startswith(f"AWS denies {RATES}; allow it")
        assert stage.find_condition(f"aws-ri-{reserved.id}", "Current") == ("", "", "")
        stage.deny()
        await stage.mirror_once()
        assert stage.find_condition(f"aws-sp-{plan.id}", "Current") == ("", "", "")
        assert stage.stored[f"aws-sp-{plan.id}"]["status"]["rates"]
        stage.deny(PLANS, RESERVED)
        writes = stage.transport.writes
        await stage.mirror_once()
        for name, action in ((f"aws-sp-{plan.id}", PLANS), (f"aws-ri-{reserved.id}", RESERVED)):
            assert stage.find_condition(name, "Current")[2].startswith(f"AWS denies {action}; allow it")
        assert stage.transport.writes == writes + 2
        await stage.mirror_once()
        assert stage.transport.writes == writes + 2  # once is enough
        assert set(stage.stored) == {f"aws-sp-{plan.id}", f"aws-ri-{reserved.id}"}


@virtual
async def test_trouble_with_one_answer_keeps_nothing_from_the_other_and_nothing_ends() -> None:
    stage = MirrorStage()
    plan = stage.aws.savings_plans.add("25.00")
    reserved = stage.aws.reserved_instances.add("m5.large", 1)
    async with stage.open():
        stage.aws.refuse("InternalServerException", "DescribeSavingsPlans", times=1)
        assert await stage.mirror_once() is None  # it comes back soon
        assert set(stage.stored) == {f"aws-ri-{reserved.id}"}
        await stage.mirror_once()
        for _ in range(4):
            stage.aws.refuse("ThrottlingException", "DescribeSavingsPlans", times=1)
            stage.aws.refuse("RequestLimitExceeded", "DescribeReservedInstances", times=1)
            assert await stage.mirror_once() is None
        assert read_specs(stage)[f"aws-sp-{plan.id}"]["ends"] == f"{plan.ends:%Y-%m-%dT%H:%M:%SZ}"
        assert stage.find_condition(f"aws-sp-{plan.id}", "Current") == ("", "", "")


@virtual
async def test_a_plan_in_another_currency_is_mirrored_and_its_rates_are_not_asked_for() -> None:
    stage = MirrorStage()
    plan = stage.aws.savings_plans.add("25.00", currency="EUR")
    async with stage.open():
        await stage.mirror_once()
        assert read_specs(stage)[f"aws-sp-{plan.id}"]["currency"] == "EUR"
        assert count_calls(stage, "DescribeSavingsPlanRates") == 0


@virtual
async def test_without_the_kind_the_mirror_waits_for_it() -> None:
    stage = MirrorStage(installed=False)
    stage.aws.savings_plans.add("25.00")
    result = await stage.mirror_once()
    assert result is not None
    assert result.after == timedelta(minutes=5)
    stage.install_kind()
    async with stage.open():
        await stage.mirror_once()
        assert len(stage.stored) == 1
    await stage.kube.transport.close()


@virtual
async def test_an_answer_that_cannot_be_read_is_left_out_and_the_others_are_not() -> None:
    stage = MirrorStage()
    plan = stage.aws.savings_plans.add("25.00")
    stage.aws.savings_plans.add("a lot")
    async with stage.open():
        await stage.mirror_once()
        assert set(stage.stored) == {f"aws-sp-{plan.id}"}


@virtual
async def test_what_the_rest_of_the_account_runs_is_counted_where_it_is_asked_for() -> None:
    stage = MirrorStage()
    plan = stage.aws.savings_plans.add("0.30", rates={"m5.large": 0.07, "c5.large": 0.06})
    name = f"aws-sp-{plan.id}"
    async with stage.open():
        await stage.mirror_once()
        await template(stage.aws)
        await fleet(stage.aws, ["m5.large"], count=2)
        await fleet(stage.aws, ["c5.large"], way="spot", count=5)
        ours = {"eks:eks-cluster-name": "test", "karpenter.sh/nodepool": "default"}
        await fleet(stage.aws, ["c5.large"], count=1, tags=ours)
        await stage.pass_time(60)
        await stage.observe_once()
        assert "byOthers" not in stage.stored[name]["status"]
        assert count_calls(stage, "DescribeInstances") == 0  # nobody asked
        stage.api.patch(COMMITMENTS, name, {"spec": {"observe": "Account"}})
        await stage.observe_once()
        assert stage.stored[name]["status"]["byOthers"] == "0.1400"
        await fleet(stage.aws, ["m5.large"], count=20)
        await stage.pass_time(60)
        await stage.observe_once()
        assert stage.stored[name]["status"]["byOthers"] == "0.3000"  # no more than there is
        writes = stage.transport.writes
        await stage.observe_once()
        assert stage.transport.writes == writes


# Kills

DEATHS = int(os.environ.get("DOVETAIL_COMMITMENT_SEEDS", "1"))


async def tell_story(seed: int, death: tuple[int, bool] | None) -> tuple[dict[str, Json], int]:
    """Plans come, change, are denied and go; what is stored in the end, and how many writes there were."""
    stage = MirrorStage(seed)
    plan = stage.aws.savings_plans.add("25.00", family="c5", region="us-west-2")
    stage.aws.savings_plans.add("5.00", family="m5", region="us-west-2")
    reserved = stage.aws.reserved_instances.add("m5.large", 3)
    stage.transport.death = death
    # An earlier leader left it, and it ended long ago.
    old = {"name": "aws-sp-old", "labels": {"dovetail.sh/source": "aws"}}
    spec = {"kind": "ComputePlan", "hourly": "1.00", "ends": "2025-01-01T00:00:00Z"}
    stage.api.create(COMMITMENTS, {"metadata": old, "spec": spec})

    async def act() -> None:
        for _ in range(2):
            await run_passes(stage)
            await stage.pass_time(HALF_AN_HOUR)

    async with stage.open():
        await act()
        plan.hourly = "30.00"
        stage.api.patch(COMMITMENTS, f"aws-sp-{plan.id}", {"spec": {"share": "40%", "observe": "Account"}})
        await act()
        stage.deny(PLANS)
        await act()
        stage.deny()
        reserved.state = "retired"
        await act()
        await act()
        return stage.stored, stage.transport.writes


async def run_passes(stage: MirrorStage) -> None:
    """One pass of each; who is killed in it is followed by another, who begins anew."""
    for each in (stage.mirror_once, stage.observe_once):
        try:
            await each()
        except Killed:
            stage.transport.death = None
            stage.begin_term()
            await stage.mirror_once()
            await stage.observe_once()


def without_times(stored: dict[str, Json]) -> dict[str, Json]:
    return {
        name: {
            "labels": each["metadata"]["labels"],
            "spec": {key: value for key, value in each["spec"].items() if key not in ("starts", "ends")},
            "status": {key: value for key, value in each.get("status", {}).items() if key != "conditions"},
            "conditions": [
                (one["type"], one["status"], one["reason"])
                for one in each.get("status", {}).get("conditions", ())
            ],
        }
        for name, each in stored.items()
    }


@pytest.mark.spec("CM-11")
@pytest.mark.parametrize("seed", range(DEATHS))
def test_a_leader_killed_at_any_write_of_the_mirror_leaves_what_the_next_one_makes_right(seed: int) -> None:
    calm, writes = run_virtual(tell_story(seed, None))
    assert writes >= 10
    assert len(calm) == 3
    for number in range(1, writes + 1):
        for happens in (False, True):
            found, _ = run_virtual(tell_story(seed, (number, happens)))
            assert without_times(found) == without_times(calm), (number, happens)


def test_the_mirrors_name_is_told_by_its_label_and_its_name() -> None:
    def named(name: str, **labels: str) -> Commitment:
        return Commitment(metadata=ObjectMeta(name=name, labels=labels))

    assert is_mirrored(named("aws-sp-1", **{"dovetail.sh/source": "aws"}))
    assert is_mirrored(named("aws-ri-1", **{"dovetail.sh/source": "aws"}))
    assert not is_mirrored(named("aws-sp-1"))
    assert not is_mirrored(named("mine", **{"dovetail.sh/source": "aws"}))
    assert not is_mirrored(named("aws-ri-1", **{"dovetail.sh/source": "azure"}))
