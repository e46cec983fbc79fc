"""The controller says from time to time what rules cost: a metric by kind, and events on dear budgets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace as swap
from random import Random
from typing import Any

import pytest

from dovetail.api import crds
from dovetail.app.controller import Dovetail, ProcessOptions
from dovetail.settings import read_settings
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.transport import LocalTransport
from dovetail.sim.world import World
from support.apiserver import deployment
from support.https_apiserver import DEFINITIONS
from support.stage import sample

Json = dict[str, Any]
# How long prices take to be worked out here.
SLOW = 900.0


class SlowCompute:
    """Work that takes a simulated quarter of an hour, as on a machine that has better things to do."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.asked = 0

    async def __call__(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        self.asked += 1
        await self.clock.sleep(SLOW)
        return work(*args, **kwargs)

    async def map_items(self, work: Callable[..., Any], shared: Any, items: Any) -> list[Any]:
        return list(work(shared, items))


class PricedWorld:
    """A node too large for the pod that a budget holds on it, and a controller that prices rules."""

    def __init__(self, **settings: str) -> None:
        self.clock = VirtualClock()
        self.world = World(self.clock, 1)
        self.api = self.world.api
        for definition in crds.build_manifests("kwok"):
            self.api.create(DEFINITIONS, definition)
        self.compute = SlowCompute(self.clock)
        self.ours = Dovetail(
            read_settings((), settings, provider="kwok"),
            LocalTransport(self.world.server),
            clock=self.clock,
            chance=Random(1),
            provider="kwok",
            process=swap(ProcessOptions(), aside=self.compute),
        )

    def create_objects(self) -> None:
        self.api.create("kwoknodeclasses.karpenter.kwok.sh", {"metadata": {"name": "default"}, "spec": {}})
        reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
        labels = {"kubernetes.io/os": "linux", "karpenter.sh/capacity-type": "on-demand"}
        wanted = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
        template = {"spec": {"nodeClassRef": reference, "requirements": wanted, "expireAfter": "Never"}}
        disruption = {"consolidateAfter": "10s", "budgets": [{"nodes": "100%"}]}
        pool = {"metadata": {"name": "general"}, "spec": {"template": template, "disruption": disruption}}
        self.api.create("nodepools.karpenter.sh", pool)
        spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "held"}}}
        budget = {"metadata": {"name": "held"}, "spec": spec}
        self.api.create("poddisruptionbudgets.policy", budget, "default")
        self.create_app("held", "300m")
        self.create_app("busy", "28")

    def create_app(self, name: str, cpu: str) -> None:
        made: Json = deployment(name, replicas=1)
        size = {"requests": {"cpu": cpu, "memory": "200Mi"}}
        made["spec"]["template"]["spec"]["containers"][0]["resources"] = size
        self.api.create("deployments.apps", made, "default")

    def list_notes(self) -> list[str]:
        return [
            each["note"]
            for each in self.api.list("events.events.k8s.io", "default")
            if each["reason"] == "RuleIsDear" and each["regarding"]["kind"] == "PodDisruptionBudget"
        ]

    def count_nodes(self) -> int:
        return len(self.api.list("nodes"))

    def read_metric(self) -> float:
        self.ours._report_gauges()
        return sample("dovetail_rule_price_dollars", kind="held")


async def play(world: PricedWorld, story: Callable[[PricedWorld], Any]) -> None:
    async with world.world.running():
        running = asyncio.create_task(world.ours.run())
        world.create_objects()
        await world.clock.sleep(300)
        world.api.delete("deployments.apps", "busy", "default")
        await world.clock.sleep(600)
        await story(world)
        world.ours.stop()
        await running


def seconds_to_next_hour(clock: VirtualClock) -> float:
    now = clock.now()
    return 3600.0 - (now.minute * 60 + now.second + now.microsecond / 1e6)


def test_a_dear_budget_is_told_what_it_costs_once_an_hour_and_decisions_go_on_meanwhile() -> None:
    async def story(world: PricedWorld) -> None:
        assert (world.read_metric(), world.list_notes()) == (0.0, [])
        await world.clock.sleep(seconds_to_next_hour(world.clock) + 60)
        assert world.compute.asked == 1
        assert world.read_metric() == 0.0, "it is being worked out"
        nodes = world.count_nodes()
        world.create_app("urgent", "60")
        await world.clock.sleep(120)
        assert world.count_nodes() == nodes + 1, "a node is bought while prices are worked out"
        world.api.delete("deployments.apps", "urgent", "default")
        await world.clock.sleep(SLOW)
        found = world.read_metric()
        assert found > 0.1
        (note,) = world.list_notes()
        assert note.startswith(f"It costs ${found:.2f} an hour (")
        assert "one node stays that one cheaper would replace; 1 pod would move" in note
        await world.clock.sleep(seconds_to_next_hour(world.clock) - 60)
        assert world.compute.asked == 1
        await world.clock.sleep(120)
        assert world.compute.asked == 2

    run_virtual(play(PricedWorld(RULE_PRICES="@hourly", RULE_PRICES_FROM="0.10"), story))


@pytest.mark.parametrize("settings", [{}, {"RULE_PRICES": "@hourly", "RULE_PRICES_FROM": "100"}])
def test_nothing_is_told_of_what_is_not_asked_for_or_not_dear(settings: dict[str, str]) -> None:
    async def story(world: PricedWorld) -> None:
        await world.clock.sleep(seconds_to_next_hour(world.clock) + SLOW + 60)
        assert world.compute.asked == (1 if settings else 0)
        assert world.list_notes() == []

    run_virtual(play(PricedWorld(**settings), story))
