"""What SpendLimits say of themselves: status, conditions, events, metrics, and the month over leaders."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from dovetail.sim.clock import run_virtual
from dovetail.sim.kube.faults import ApiCall, Fault, NoFaults
from support.helm import rendered
from support.rbac import grants
from support.spend import LIMITS, POOLS, SpendCluster
from support.stage import sample

# Simulated hours of the story of a month; 720 by hand.
HOURS = float(os.environ.get("DOVETAIL_SPEND_HOURS", "1.5"))
Json = dict[str, Any]


def condition(limit: Json, kind: str) -> tuple[str, str, str]:
    found = next(each for each in limit["status"]["conditions"] if each["type"] == kind)
    return found["status"], found["reason"], found["message"]


def list_events(cluster: SpendCluster, kind: str) -> set[str]:
    return {
        each["reason"]
        for each in cluster.api.list("events.events.k8s.io", "default")
        if each["regarding"]["kind"] == kind
    }


@pytest.mark.spec("SL-8", "SL-9")
def test_a_limit_says_what_is_spent_and_held_and_when_that_is_over() -> None:
    async def main() -> None:
        cluster = SpendCluster()
        async with cluster.world.running():
            cluster.create_class()
            cluster.create_pool()
            cluster.create_limit(hourly="0.50")
            cluster.create_limit("watching", hourly="0.20", mode="Warn")
            cluster.create_workload("web", 40)
            cluster.start()
            await cluster.clock.sleep(130)
            limit, warning = cluster.read_limit(), cluster.read_limit("watching")
            waiting = cluster.count_pods(bound=False)
            assert limit["status"]["heldPods"] == waiting > 0
            assert float(limit["status"]["hourly"]["spent"]) == pytest.approx(cluster.add_up(), abs=1e-4)
            assert limit["status"]["hourly"]["limit"] == "0.5000"
            assert limit["status"]["observedGeneration"] == limit["metadata"]["generation"]
            assert condition(limit, "Ready")[:2] == ("True", "Ready")
            assert condition(limit, "WithinLimit")[0] == "True"
            status, reason, message = condition(limit, "Achievable")
            assert (status, reason) == ("False", "FloorAboveLimit")
            assert message.endswith("an hour; the limit is $0.50")
            assert condition(warning, "WithinLimit")[1] == "Exceeded"
            cluster.ours._report_gauges()
            assert sample("dovetail_spend_held_pods", limit="development") == waiting
            assert sample("dovetail_spend_dollars", limit="development", of="limit") == 0.5
            assert {"SpendLimitReached", "SpendLimitUnachievable"} <= list_events(cluster, "SpendLimit")
            assert "SpendLimitReached" in list_events(cluster, "NodePool")
            cluster.api.patch("deployments.apps", "web", {"spec": {"replicas": 3}}, "default")
            await cluster.clock.sleep(900)
            limit = cluster.read_limit()
            assert limit["status"].get("heldPods", 0) == 0
            assert condition(limit, "Achievable")[0] == "True"
            assert "SpendLimitCleared" in list_events(cluster, "SpendLimit")
            await cluster.stop()

    run_virtual(main())


@pytest.mark.spec("SL-12")
def test_a_price_that_nobody_knows_is_said_and_holds_its_pool_alone() -> None:
    async def main() -> None:
        cluster = SpendCluster()
        async with cluster.world.running():
            cluster.create_class()
            cluster.create_pool()
            cluster.create_limit(hourly="5.00")
            cluster.create_workload("web", 2)
            cluster.start()
            await cluster.clock.sleep(70)
            (claim,) = cluster.list_claims()
            odd = {"metadata": {"labels": {"node.kubernetes.io/instance-type": "nobody-sells-it"}}}
            name = claim["metadata"]["name"]
            cluster.api.patch("nodeclaims.karpenter.sh", name, odd)
            cluster.api.patch("nodes", claim["status"]["nodeName"], odd)
            cluster.create_pool("other", weight=50)
            cluster.create_workload("more", 5, "3")
            await cluster.clock.sleep(130)
            status, reason, message = condition(cluster.read_limit(), "Ready")
            assert (status, reason) == ("False", "PriceUnknown")
            assert "nobody knows the price of 1 nodes" in message
            pools = {each["metadata"]["labels"]["karpenter.sh/nodepool"] for each in cluster.list_claims()}
            assert pools == {"default", "other"}
            assert cluster.count_pods(bound=True) == 7
            await cluster.stop()

    run_virtual(main())


def test_a_selector_without_pools_and_a_limit_that_cannot_be_read_say_so() -> None:
    async def main() -> None:
        cluster = SpendCluster()
        async with cluster.world.running():
            cluster.create_class()
            cluster.create_pool()
            cluster.create_limit("nobody", hourly="5.00", nodePools={"matchLabels": {"team": "gone"}})
            cluster.create_limit("bad", hourly="5.00", timeZone="Nowhere/Land")
            cluster.start()
            await cluster.clock.sleep(70)
            assert condition(cluster.read_limit("nobody"), "Ready")[:2] == ("True", "NoPools")
            assert "NoPools" in list_events(cluster, "SpendLimit")
            await cluster.clock.sleep(400)
            told = [
                each.get("deprecatedCount", 1)
                for each in cluster.api.list("events.events.k8s.io", "default")
                if each["reason"] == "NoPools" and each["regarding"]["name"] == "nobody"
            ]
            assert told == [1], "once, however long it stays so"
            status, reason, message = condition(cluster.read_limit("bad"), "Ready")
            assert (status, reason) == ("False", "Unreadable")
            assert "there is no time zone" in message
            cluster.api.delete(LIMITS, "bad")
            await cluster.clock.sleep(70)
            await cluster.stop()

    run_virtual(main())


@pytest.mark.spec("SL-6")
def test_the_month_is_what_was_paid_whoever_leads() -> None:
    async def main() -> None:
        cluster, chance = SpendCluster(start=datetime(2026, 11, 2, tzinfo=UTC)), Random(5)
        paid, killed = 0.0, 0
        async with cluster.world.running():
            cluster.create_class()
            cluster.create_pool()
            cluster.create_limit(hourly="50", monthly="90000")
            cluster.create_workload("web", 10)
            cluster.start()
            seconds, step = int(HOURS * 3600), max(1.0, HOURS / 10)
            changes = {chance.randrange(60, seconds - 60) for _ in range(int(6 + HOURS / 2))}
            kills = {chance.randrange(60, seconds - 60) for _ in range(max(4, int(HOURS / 18)))}
            passed = 0.0
            while passed < seconds:
                await cluster.clock.sleep(step)
                passed += step
                paid += cluster.add_up_paid() * step / 3600
                if {each for each in changes if passed - step <= each < passed}:
                    patch = {"spec": {"replicas": chance.choice((2, 8, 20, 40))}}
                    cluster.api.patch("deployments.apps", "web", patch, "default")
                if {each for each in kills if passed - step <= each < passed}:
                    await cluster.kill()
                    killed += 1
            await cluster.clock.sleep(301)
            paid += cluster.add_up_paid() * 301 / 3600
            month = cluster.read_limit()["status"]["month"]
            until = datetime.fromisoformat(month["until"].replace("Z", "+00:00"))
            unwritten = cluster.add_up_paid() * (cluster.clock.now() - until).total_seconds() / 3600
            assert killed >= 4
            assert month["of"] == "2026-11"
            assert float(month["spent"]) + unwritten == pytest.approx(paid, rel=0.005)
            await cluster.stop()

    run_virtual(main())


@pytest.mark.spec("SL-13")
def test_a_new_status_of_a_limit_asks_no_node_again() -> None:
    async def main() -> None:
        cluster = SpendCluster()
        async with cluster.world.running():
            cluster.create_class()
            cluster.create_pool()
            pool = cluster.api.get(POOLS, "default")
            pool["spec"]["disruption"]["consolidationPolicy"] = "WhenEmptyOrUnderutilized"
            cluster.api.update(POOLS, pool)
            cluster.create_limit(hourly="50")
            cluster.create_workload("web", 5)
            cluster.start()
            await cluster.clock.sleep(400)
            disruption = next(each for each in cluster.ours.controllers if each.name == "disruption")
            known: Any = disruption
            before = await known.build_input()
            known._rest.remember_input(before, cluster.clock.monotonic())
            status = {"status": {"heldPods": 7, "month": {"of": "2026-01", "spent": "3.00"}}}
            cluster.api.patch(LIMITS, "development", status, subresource="status")
            await cluster.clock.sleep(1)
            assert known._rest.is_unchanged(await known.build_input(), cluster.clock.monotonic())
            cluster.api.patch(LIMITS, "development", {"spec": {"hourly": "40"}})
            await cluster.clock.sleep(1)
            assert not known._rest.is_unchanged(await known.build_input(), cluster.clock.monotonic())
            await cluster.stop()

    run_virtual(main())


class NotedCalls(NoFaults):
    """Lets everything pass, and knows who was asked what about SpendLimits."""

    def __init__(self) -> None:
        self.calls: set[tuple[str, str]] = set()

    def find_fault(self, call: ApiCall) -> Fault | None:
        plural, _, group = call.resource.partition(".")
        if group == "dovetail.sh" and plural == "spendlimits":
            self.calls.add((call.verb, f"{plural}/{call.subresource}" if call.subresource else plural))
        return super().find_fault(call)


def list_granted(follow: bool) -> set[tuple[str, str]]:
    """What the chart lets the controller do with SpendLimits."""
    objects = rendered({"settings": {"clusterName": "test", "spendLimits": follow}})
    granted = grants(objects, "karpenter", "kube-system")
    return {(each.verb, each.resource) for each in granted if each.resource.startswith("spendlimits")}


def test_what_the_chart_grants_for_spend_limits_is_what_the_controller_uses() -> None:
    async def main() -> set[tuple[str, str]]:
        cluster, noted = SpendCluster(), NotedCalls()
        async with cluster.world.running():
            cluster.create_class()
            cluster.create_pool()
            cluster.create_limit(hourly="0.20", monthly="900")
            cluster.create_workload("web", 20)
            cluster.world.server.faults = noted
            cluster.start()
            await cluster.clock.sleep(400)
            assert cluster.read_limit()["status"]["heldPods"] > 0
            await cluster.stop()
        return noted.calls

    used, granted = run_virtual(main()), list_granted(True)
    assert used <= granted
    assert {resource for _, resource in used} == {resource for _, resource in granted}
    # One who may list and watch may read one of them, too, as in all of the chart's roles.
    assert granted - used <= {("get", "spendlimits"), ("list", "spendlimits")}
    assert list_granted(False) == set()
