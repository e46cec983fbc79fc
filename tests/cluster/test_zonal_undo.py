"""Both ways of editing pools are accepted by a real API server with its CEL rules, and undone to the byte."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dovetail.app.zonal_actions import StandAloneZonal
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.kubeconfig import connect
from dovetail.settings import read_settings
from dovetail.sim.aws import SimulatedAws
from dovetail.zonal.model.state_machine import ShiftTiming
from support.zonal_kills import NODES, POOLS, SHIFTS, Asker, clear_after, furnish, pool

Json = dict[str, Any]
ZONE, ZONE_ID = "topology.kubernetes.io/zone", "topology.k8s.aws/zone-id"
A, B, C = "us-west-2a", "us-west-2b", "us-west-2c"
SHAPES: dict[str, list[Json]] = {
    "none": [],
    "in": [{"key": ZONE, "operator": "In", "values": [A, B, C]}],
    "min-values": [{"key": ZONE, "operator": "In", "values": [A, B, C], "minValues": 3}],
    "not-in": [{"key": ZONE, "operator": "NotIn", "values": [B]}],
    "exists": [{"key": ZONE, "operator": "Exists"}],
    "only": [{"key": ZONE, "operator": "In", "values": [A]}],
    "twice": [
        {"key": ZONE, "operator": "In", "values": [A, B, C]},
        {"key": ZONE, "operator": "In", "values": [A, C]},
    ],
}
QUICK = ShiftTiming(
    debounce=timedelta(),
    min_hold=timedelta(),
    confirm=timedelta(),
    settle=timedelta(seconds=1),
    guard=timedelta(seconds=2),
)


@pytest.mark.parametrize("strategy", ["AppendNotIn", "RemoveFromIn"])
@pytest.mark.parametrize("protect", [True, False], ids=["marked", "guarded"])
async def test_edits_are_accepted_and_undone_to_the_byte(
    kubeconfig: Path, strategy: str, protect: bool
) -> None:
    clock = SystemClock()
    aws = SimulatedAws(clock, 0, cluster="test")
    transport = connect(clock, str(kubeconfig)).open_transport("test")
    real = Asker(transport)
    prefix = f"{strategy.lower()}-{'m' if protect else 'g'}"
    names = {shape: f"{prefix}-{shape}" for shape in SHAPES}
    async with clear_after(real, prefix, list(names.values())):
        await furnish(real, aws)
        for shape, name in names.items():
            await real.made(POOLS, pool(name, SHAPES[shape]))
        before = {name: await real.wanted(name) for name in names.values()}
        node = await real.read(f"{NODES}/zonal-a")

        settings = read_settings(("--cluster-name=test", "--enable-zonal-shift=true"), {}, provider="aws")
        options: Json = {"mode": "NodePoolEdit", "strategy": strategy, "protect": protect, "pace": QUICK}
        alone = StandAloneZonal(settings, transport, aws, restore_interval=0.1, **options)
        running = asyncio.create_task(alone.run(alone.wait_filled))
        zone = aws.network.zone_ids[A]
        try:
            shift = {"zoneId": zone, "kind": "LOCAL"}
            kind = {"apiVersion": "dovetail.sh/v1alpha1", "kind": "ZoneShift"}
            await real.made(SHIFTS, {**kind, "metadata": {"name": prefix}, "spec": shift})
            await real.until(f"{SHIFTS}/{prefix}", lambda o: o.get("status", {}).get("phase") == "Active")
            for name in names.values():
                assert await real.wanted(name) != before[name], name
            marked = (await real.read(f"{NODES}/zonal-a"))["spec"].get("unschedulable", False)
            assert marked is protect
            if not protect:
                budgets = (await real.read(f"{POOLS}/{prefix}-in"))["spec"]["disruption"]["budgets"]
                assert {"nodes": "0", "reasons": ["Drifted"]} in budgets
            await real.ask("DELETE", f"{SHIFTS}/{prefix}")
            await asyncio.wait_for(_gone(real, f"{SHIFTS}/{prefix}"), 90)
        finally:
            alone.stop()
            await running
        after = {name: await real.wanted(name) for name in names.values()}
        restored = await real.read(f"{NODES}/zonal-a")
        assert after == before
        for part in ("labels", "annotations"):
            assert restored["metadata"].get(part) == node["metadata"].get(part)
        assert restored["spec"].get("unschedulable", False) == node["spec"].get("unschedulable", False)


async def _gone(real: Asker, path: str) -> None:
    while True:
        if (await real.ask("GET", path)).status == 404:
            return
        await asyncio.sleep(0.3)
