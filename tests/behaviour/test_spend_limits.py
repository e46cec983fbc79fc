"""Spend limits in a running cluster: what is bought, what is held, and what is said of it."""

from __future__ import annotations

import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from dovetail.app.dashboard_watch import build_picture
from dovetail.app.live_cluster import build_sight, see_cluster
from dovetail.app.snapshot_file import encode_snapshot, read_snapshot
from dovetail.app.solved_plan import solve_situation
from dovetail.controllers.provisioning import Provisioner
from dovetail.disruption.situation import decide_plan
from dovetail.play.scenario_run import play_scenario
from dovetail.providers.factory import choose_provider
from dovetail.runtime.recording_folder import read_recording
from dovetail.sim.clock import run_virtual
from dovetail.sim.scenario import ReplicaCurve, Scenario, ScenarioWorkload
from dovetail.sim.transport import LocalTransport
from dovetail.web import build_document, find_page
from support.spend import LIMITS, SpendCluster

# As many in every run; more with the variable, from a first one on. A seed gives the same story every time.
SEEDS = int(os.environ.get("DOVETAIL_SPEND_SEEDS", "6"))
FIRST_SEED = int(os.environ.get("DOVETAIL_SPEND_FIRST_SEED", "0"))
DUST = 1e-6


async def watch_books(cluster: SpendCluster, hourly: float, seconds: float) -> float:
    """The most that the fleet came to until the end of this time, at any instant of it."""
    await cluster.clock.sleep(seconds)
    assert cluster.most <= hourly + DUST
    return cluster.most


async def play_burst(seed: int) -> tuple[float, float, int]:
    chance = Random(seed)
    # One in four is packed together; the others, like Karpenter, pod by pod, which takes a third of the time.
    planner = {} if seed % 4 == 0 else {"PLANNER": "one-by-one"}
    cluster = SpendCluster(seed, node_ready=chance.choice((1.0, 20.0)), **planner)
    hourly = chance.choice((0.2, 0.5, 1.0, 2.5))
    cluster.moody = True
    cluster.refusals = chance.choice((0.0, 0.3, 0.6))
    most = 0.0
    async with cluster.world.running():
        cluster.create_class()
        for number in range(chance.choice((1, 3))):
            kinds = chance.choice((("spot",), ("on-demand",), ("spot", "on-demand")))
            cluster.create_pool(f"pool-{number}", kinds=kinds)
        cluster.create_limit(hourly=f"{hourly}", overlap="0%")
        cluster.start()
        for number in range(3):
            name, replicas = f"app-{number}", chance.randrange(1, 30)
            cluster.create_workload(name, replicas, chance.choice(("200m", "900m", "3")))
            most = max(most, await watch_books(cluster, hourly, chance.choice((3.0, 11.0, 25.0))))
            if chance.random() < 0.5:
                await cluster.kill()
        most = max(most, await watch_books(cluster, hourly, 30.0))
        await cluster.stop()
    return most, hourly, cluster.refused


@pytest.mark.spec("SL-1", "SL-14")
def test_dollars_of_launched_and_ordered_nodes_never_exceed_the_limit() -> None:
    spent = refused = 0.0
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        most, hourly, turned_down = run_virtual(play_burst(seed))
        spent, refused = spent + most / hourly, refused + turned_down
    assert spent / SEEDS > 0.5, "limits that nothing comes near to prove nothing"
    assert refused > 0


@pytest.mark.spec("SL-14")
@pytest.mark.parametrize("seed", range(3))
def test_spot_that_is_refused_for_a_whole_batch_is_bought_on_demand_within_the_limit(seed: int) -> None:
    async def main() -> None:
        cluster = SpendCluster(seed)
        cluster.moody = cluster.spot_is_out = True
        async with cluster.world.running():
            cluster.create_class()
            cluster.create_pool(kinds=("spot", "on-demand"))
            cluster.create_limit(hourly="1.50", overlap="0%")
            cluster.create_workload("web", 60, "900m")
            cluster.start()
            assert await watch_books(cluster, 1.5, 40.0) > 1.0, "the limit is nearly used up"
            bought = {
                each["metadata"]["labels"]["karpenter.sh/capacity-type"]
                for each in cluster.list_claims()
                if each.get("status", {}).get("providerID")
            }
            assert bought == {"on-demand"}
            assert 0 < cluster.count_pods(bound=True) < 60
            await cluster.stop()

    run_virtual(main())


@pytest.mark.spec("SL-2")
def test_pods_of_high_priority_run_and_held_pods_are_told_by_an_event() -> None:
    async def main() -> None:
        cluster = SpendCluster()
        async with cluster.world.running():
            cluster.create_class()
            cluster.create_pool()
            cluster.create_limit(hourly="1.00")
            cluster.create_workload("low", 60, "900m")
            cluster.create_workload("high", 10, "900m", priority=1000)
            cluster.start()
            await cluster.clock.sleep(90)
            bound = cluster.list_bound()
            assert sum(name.startswith("high") for name in bound) == 10
            assert 10 < len(bound) < 70
            held = {
                each["regarding"]["name"]: each["note"]
                for each in cluster.api.list("events.events.k8s.io", "default")
                if each["reason"] == "FailedScheduling"
            }
            waiting = {each["metadata"]["name"] for each in cluster.api.list("pods", "default")} - bound
            assert waiting <= held.keys()
            assert all("SpendLimit development allows $1.00 an hour" in held[name] for name in waiting)
            assert all("too much" in held[name] for name in waiting)
            assert cluster.add_up() <= 1.0
            await cluster.stop()

    run_virtual(main())


@pytest.mark.spec("SL-4")
def test_at_the_close_of_a_window_nothing_goes_and_at_its_opening_held_pods_are_bought_for() -> None:
    async def main() -> None:
        cluster = SpendCluster(start=datetime(2026, 11, 18, 18, 55, tzinfo=UTC))
        async with cluster.world.running():
            cluster.create_class()
            cluster.create_pool()
            night = {"schedule": "0 19 * * 1-5", "duration": "15m", "hourly": "0.10"}
            cluster.create_limit(hourly="10.00", windows=[night])
            cluster.create_workload("day", 20)
            cluster.start()
            await cluster.clock.sleep(240)
            assert cluster.count_pods(bound=True) == 20
            before = cluster.add_up()
            await cluster.clock.sleep(120)  # 19:01
            cluster.create_workload("night", 20)
            await cluster.clock.sleep(300)
            assert cluster.add_up() == before, "nothing goes, and nothing is bought"
            assert cluster.count_pods(bound=True) < 40
            opens = datetime(2026, 11, 18, 19, 15, tzinfo=UTC)
            await cluster.clock.sleep((opens - cluster.clock.now()).total_seconds() - 1)
            assert cluster.count_pods(bound=True) < 40
            await cluster.clock.sleep(1 + 10 + 10 + 15)  # the next look, a batch window, and the node
            assert cluster.count_pods(bound=True) == 40
            await cluster.stop()

    run_virtual(main())


@pytest.mark.spec("SL-10")
@pytest.mark.parametrize("what", ["limit", "definition"])
def test_once_a_limit_or_its_kind_is_gone_held_pods_are_bought_for(what: str) -> None:
    async def main() -> None:
        cluster = SpendCluster()
        async with cluster.world.running():
            cluster.create_class()
            cluster.create_pool()
            cluster.create_limit(hourly="0.01")
            cluster.create_workload("web", 5)
            cluster.start()
            await cluster.clock.sleep(60)
            assert cluster.count_pods(bound=True) == 0
            if what == "limit":
                cluster.api.delete(LIMITS, "development")
            else:
                cluster.api.delete("customresourcedefinitions.apiextensions.k8s.io", LIMITS)
            await cluster.clock.sleep(60)
            assert cluster.count_pods(bound=True) == 5
            await cluster.stop()

    run_virtual(main())


async def decide_everywhere(cluster: SpendCluster) -> dict[str, frozenset[str]]:
    """Whom the controller holds, and whom everybody holds who only looks."""
    (provisioner,) = (each for each in cluster.ours.controllers if isinstance(each, Provisioner))
    plan = await provisioner.make_plan()
    assert plan is not None
    make = choose_provider("kwok")
    sight = build_sight(
        LocalTransport(cluster.world.server), cluster.ours.settings, make, clock=cluster.clock
    )
    seen = await see_cluster(sight, "here", lambda text: None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot.json"
        path.write_bytes(encode_snapshot(seen))
        kept = read_snapshot(str(path))
    guard, picture = cluster.ours.spend, build_picture(seen, "here", live=True)
    assert guard is not None
    (line,) = picture.spend.lines
    shown = find_page(picture, "spend")
    assert shown is not None
    return {
        "controller": frozenset(plan.deferred),
        "status of the limit": frozenset((guard.held_pods or {})["development"]),
        "dovetail spend": frozenset(line.held),
        "dashboard": frozenset(row["pod"] for row in build_document(shown)["held"]),
        "explain": frozenset(pod for pod, told in picture.sentences.items() if "a spend limit" in told),
        "plan --live": frozenset(decide_plan(seen.situation).deferred),
        "plan, quick": frozenset(solve_situation(seen.situation, True, lambda text: None).plan.deferred),
        "plan --snapshot": frozenset(decide_plan(kept.situation).deferred),
    }


@pytest.mark.spec("SL-11")
@pytest.mark.parametrize("seed", range(4))
def test_whoever_is_asked_holds_the_same_pods(seed: int) -> None:
    async def main() -> None:
        cluster, chance = SpendCluster(seed), Random(seed)
        async with cluster.world.running():
            cluster.create_class()
            cluster.create_pool("one")
            cluster.create_pool("two", weight=10)
            cluster.create_limit(hourly=chance.choice(("0.3", "0.7")), nodePools={"names": ["one", "two"]})
            for number in range(3):
                cpu = chance.choice(("200m", "900m", "2"))
                cluster.create_workload(f"app-{number}", chance.randrange(5, 25), cpu, priority=number * 10)
            cluster.start()
            await cluster.clock.sleep(45)
            found = await decide_everywhere(cluster)
            assert found["controller"]
            assert set(found.values()) == {found["controller"]}
            waiting = {
                f"default/{each['metadata']['name']}"
                for each in cluster.api.list("pods", "default")
                if not each["spec"].get("nodeName")
            }
            assert found["controller"] == waiting, "and these are the pods that wait"
            await cluster.stop()

    run_virtual(main())


@pytest.mark.spec("SL-11")
def test_a_simulated_story_keeps_to_the_limits_that_are_in_it(tmp_path: Path) -> None:
    limit = {
        "apiVersion": "dovetail.sh/v1alpha1",
        "kind": "SpendLimit",
        "metadata": {"name": "development"},
        "spec": {"hourly": "0.30"},
    }
    found = {}
    for name, manifests in (("limited", [limit]), ("free", [])):
        story = Scenario(
            api_version="dovetail.sh/v1alpha1",
            kind="Scenario",
            name=name,
            duration="10m",
            settings={"RECORDING": f"file:{tmp_path / name}"},
            workloads=[ScenarioWorkload(name="web", cpu="900m", replicas=ReplicaCurve(value=20))],
            manifests=manifests,
        )
        found[name] = play_scenario(story)
    # Whoever plans what the story ended with holds as many pods as it left pending.
    *_, last = read_recording(str(tmp_path / "limited")).looks()
    assert len(decide_plan(last.situation).deferred) == found["limited"].pods_waiting
    assert max(each.dollars for each in found["limited"].samples) <= 0.30 + DUST
    assert found["limited"].pods_waiting > 0 == found["free"].pods_waiting
    assert max(each.dollars for each in found["free"].samples) > 0.30
