"""What Dovetail adds to disruption, on a real control plane: waves, pauses, rates and the plan of it all."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.controller_process import (
    BUDGETS,
    DISRUPTED,
    POOLS,
    Fleet,
    cluster_with_kinds,
    condition,
    controller,
    deleting,
    fleet,
    taints,
)
from support.two_servers import MERGE, Json

SPREAD: Json = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ]
}
FRESH: Json = {"template": {"metadata": {"labels": {"team": "new"}}}}
KNOB = "disruption.dovetail.sh/"


@pytest.fixture(scope="module")
def autoscaled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A control plane with Dovetail at work in it."""
    folder = tmp_path_factory.mktemp("disrupted")
    with cluster_with_kinds(folder / "real") as kubeconfig:
        log = folder / "controller.log"
        with controller(kubeconfig, log) as running:
            yield kubeconfig
            assert running.poll() is None, log.read_text()[-2000:]
        assert "a bug in this controller" not in log.read_text(), log.read_text()[-2000:]


@pytest.fixture
async def ours(autoscaled: Path) -> AsyncIterator[Fleet]:
    async with fleet(autoscaled) as found:
        yield found


async def annotate(ours: Fleet, **knobs: str | None) -> None:
    notes = {f"{KNOB}{name.replace('_', '-')}": value for name, value in knobs.items()}
    await ours.ask("PATCH", f"{POOLS}/{ours.pool}", {"metadata": {"annotations": notes}}, MERGE)


async def going(ours: Fleet) -> int:
    return sum(DISRUPTED in taints(node) or deleting(node) for node in await ours.nodes())


async def planned(kubeconfig: Path) -> dict[str, Any]:
    """`dovetail plan --disruption` of the live cluster."""
    command = [sys.executable, "-m", "dovetail", "plan", "--disruption", "-o", "json"]
    process = await asyncio.create_subprocess_exec(
        *command, "--kubeconfig", str(kubeconfig), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode in (0, 3), err.decode()
    found: dict[str, Any] = json.loads(out)
    return found


async def test_drift_goes_as_wide_as_its_budget_and_no_wider(ours: Fleet) -> None:
    await ours.start(disruption={"budgets": [{"nodes": "2"}]})
    await ours.deploy("web", 4, **SPREAD)
    await ours.running("web", 4)
    before = await ours.node_names()
    most = 0

    await ours.change_pool(FRESH)

    async def replaced() -> bool:
        nonlocal most
        most = max(most, await going(ours))
        return not before & await ours.node_names()

    await ours.until(replaced, 180, "replaced")
    assert (len(before), most) == (4, 2)
    await ours.running("web", 4)


async def test_a_pause_by_annotation_is_a_condition_and_holds_drift(autoscaled: Path, ours: Fleet) -> None:
    await ours.start()
    await annotate(ours, drift="paused")
    await ours.deploy("web", 1)
    await ours.running("web", 1)
    before = await ours.node_names()
    await ours.change_pool(FRESH)

    async def paused() -> bool:
        return condition(await ours.ask("GET", f"{POOLS}/{ours.pool}"), "DriftPaused") == "True"

    await ours.until(paused, 30, "paused")
    await asyncio.sleep(12)  # a turn and a bit
    assert await ours.node_names() == before
    found = await planned(autoscaled)
    assert found["drift"][ours.pool]["flow"] == "paused"
    (mine,) = [each for each in found["staying"] if each["nodepool"] == ours.pool]
    assert mine["reason"] == "paused"

    await annotate(ours, drift=None)
    await ours.until_replaced(before, 120)
    assert not await paused()


async def test_a_rate_is_kept_and_noted_on_the_pool(ours: Fleet) -> None:
    await ours.start()
    await annotate(ours, rate="1/1h")
    await ours.deploy("web", 3, **SPREAD)
    await ours.running("web", 3)
    await ours.scale("web", 0)

    await ours.until_nodes(2, 120)

    await asyncio.sleep(30)  # a turn takes ten seconds, and what it finds waits for another fifteen
    assert len(await ours.nodes()) == 2
    pool = await ours.ask("GET", f"{POOLS}/{ours.pool}")
    assert pool["metadata"]["annotations"][f"{KNOB}recent"].endswith("=1")


async def test_the_plan_of_a_live_cluster_says_what_holds_each_node(autoscaled: Path, ours: Fleet) -> None:
    await ours.start(disruption={"consolidationPolicy": "WhenEmptyOrUnderutilized"})
    await ours.deploy("big", 1, "14")
    await ours.deploy("web", 1, "100m")
    await ours.guard("web", 1)
    await ours.running("big", 1)
    await ours.running("web", 1)
    [node] = await ours.node_names()
    await ours.scale("big", 0)
    await asyncio.sleep(5)

    async def told() -> bool:
        found = await planned(autoscaled)
        mine = [each for each in found["staying"] if each["node"] == node]
        return [each["reason"] for each in mine] == ["pdb"] and "/web" in mine[0]["why"]

    await ours.until(told, 60, "told of the budget")
    assert await ours.node_names() == {node}

    await ours.ask("DELETE", f"{BUDGETS}/web")

    async def goes() -> bool:
        found = await planned(autoscaled)
        mine = [c for c in found["commands"] if [each["name"] for each in c["nodes"]] == [node]]
        return [c["decision"] for c in mine] == ["replace"] and mine[0]["savingsHourly"] > 0

    await ours.until(goes, 60, "planned to go")
