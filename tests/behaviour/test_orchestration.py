"""Commands on their way: marks, replacements first, what happens when they fail, and what is left behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dovetail.api.nodepool import Budget
from dovetail.controllers.orchestration import compute_timeout
from dovetail.sim.faults import FaultRule
from support.builders import NOW, pod
from support.disruption import LARGE, SIZES, pool
from support.fleet import Fleet, light
from support.world import CLAIMS, Scene, sample, virtual

DECISIONS = "karpenter_voluntary_disruption_decisions_total"
BY_POOL = "karpenter_voluntary_disruption_decisions_by_nodepool_total"
FAILURES = "karpenter_voluntary_disruption_queue_failures_total"


async def replacing(scene: Scene, *names: str, **about: Any) -> Fleet:
    """A fleet whose drifted nodes are each being replaced."""
    fleet = Fleet(scene, types=SIZES, **about)
    for name in names or ("a",):
        fleet.node(name, light(f"p-{name}", name, "15"), drifted=NOW, consolidatable=False)
    for _ in names or ("a",):
        await fleet.turn()
        for claim in fleet.replacements():
            await scene.live(claim.name)
    return fleet


@pytest.mark.spec("disruption-141")
@virtual
async def test_a_command_marks_its_node_and_orders_its_replacement() -> None:
    async with Scene().still() as scene:
        fleet = await replacing(scene)
        assert fleet.marked() == ["a"]
        assert scene.says("DisruptionReason", "a") == ("True", "Drifted")
        assert len(fleet.replacements()) == 1
        await fleet.carry_on()
        assert (fleet.marked(), fleet.going(), fleet.commands()) == (["a"], [], 1)


@pytest.mark.spec("disruption-142")
@virtual
async def test_the_node_goes_once_its_replacement_is_up() -> None:
    async with Scene().still() as scene:
        fleet = await replacing(scene)
        (new,) = fleet.replacements()
        await fleet.carry_on()
        assert fleet.told("DisruptionLaunching") == [
            (f"NodeClaim/{new.name}", "Launching NodeClaim: Drifted")
        ]
        waiting = "Waiting on readiness to continue disruption"
        assert fleet.told("DisruptionWaitingReadiness") == [(f"NodeClaim/{new.name}", waiting)]
        await fleet.up(new)
        await fleet.carry_on()
        assert (fleet.going(), fleet.commands()) == (["a"], 0)
        assert sorted(fleet.told("DisruptionTerminating")) == [
            ("Node/a", "Disrupting Node: Drifted"),
            ("NodeClaim/a", "Disrupting NodeClaim: Drifted"),
        ]


@pytest.mark.spec("disruption-143")
@virtual
async def test_a_node_with_two_replacements_waits_for_both() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, pool(requirements=[("node.kubernetes.io/instance-type", "NotIn", "large")]))
        fleet.node("a", light("p", "a", "3"), light("q", "a", "3"), drifted=NOW, consolidatable=False)
        await fleet.turn()
        one, two = fleet.replacements()
        await fleet.up(one)
        await fleet.carry_on()
        assert (fleet.going(), fleet.commands()) == ([], 1)
        await fleet.up(two)
        await fleet.carry_on()
        assert (fleet.going(), fleet.commands()) == (["a"], 0)


@pytest.mark.spec("disruption-144")
@virtual
async def test_a_deletion_is_over_in_one_pass() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene)
        fleet.node("a")
        await fleet.turn()
        await fleet.carry_on()
        assert (fleet.going(), fleet.commands()) == (["a"], 0)


@pytest.mark.spec("disruption-145", "disruption-151")
@virtual
async def test_commands_go_on_beside_each_other() -> None:
    async with Scene().still() as scene:
        fleet = await replacing(scene, "a", "b")
        first, second = fleet.replacements()
        assert fleet.commands() == 2
        await fleet.up(second)
        await fleet.carry_on()
        assert (len(fleet.going()), fleet.commands()) == (1, 1)
        await fleet.up(first)
        await fleet.carry_on()
        assert (fleet.going(), fleet.commands()) == (["a", "b"], 0)


@pytest.mark.spec("disruption-134")
@virtual
async def test_a_lost_replacement_leaves_the_node_as_it_was() -> None:
    async with Scene().still() as scene:
        fleet = await replacing(scene)
        (new,) = fleet.replacements()
        about = {"decision": "replace", "reason": "drifted", "consolidation_type": ""}
        before = sample(FAILURES, **about)
        fleet.forget(new.name)
        await fleet.carry_on()
        assert (fleet.marked(), fleet.going(), fleet.commands()) == ([], [], 0)
        assert scene.says("DisruptionReason", "a") is None
        assert sample(FAILURES, **about) == before + 1
        place = scene.dovetail.cluster.find_by_node("a")
        assert place is not None
        assert not place.marked


@pytest.mark.spec("disruption-146")
@virtual
async def test_a_replacement_the_watch_has_not_shown_yet_is_waited_for() -> None:
    async with Scene().still() as scene:
        fleet = await replacing(scene)
        (new,) = fleet.replacements()
        informer = fleet.queue._claims
        known = informer.get(new.name)
        assert known is not None
        scene.dovetail.cluster.update_node_claim(None, known)
        unseen = _Without(informer, new.name)
        fleet.queue._claims = unseen  # type: ignore[assignment]
        await fleet.carry_on()
        assert (fleet.marked(), fleet.commands()) == (["a"], 1)


class _Without:
    """A cache that has not heard of one claim yet."""

    def __init__(self, cache: Any, name: str) -> None:
        self._cache, self._name = cache, name

    def get(self, name: str, namespace: str = "") -> Any:
        return None if name == self._name else self._cache.get(name, namespace)


@pytest.mark.spec("disruption-147")
@virtual
async def test_a_replacement_that_takes_too_long_is_given_up() -> None:
    async with Scene().still() as scene:
        fleet = await replacing(scene)
        await scene.sleep(9 * 60)
        await fleet.carry_on()
        assert (fleet.marked(), fleet.commands()) == (["a"], 1)
        await scene.sleep(2 * 60)
        await fleet.carry_on()
        assert (fleet.marked(), fleet.commands(), len(fleet.replacements())) == ([], 0, 1)


@pytest.mark.spec("disruption-148")
@pytest.mark.parametrize(
    ("queued", "seconds"), [(100, 600), (4000, 600), (10000, 800), (40000, 3200), (80000, 3600)]
)
def test_patience_grows_with_the_queue(queued: int, seconds: int) -> None:
    assert compute_timeout(queued).total_seconds() == seconds


@pytest.mark.spec("disruption-149")
@virtual
async def test_marks_of_a_process_that_is_gone_are_taken_off() -> None:
    async with Scene().still() as scene:
        fleet = await replacing(scene)
        (new,) = fleet.replacements()
        await fleet.up(new)
        fleet.queue._running.clear()
        scene.dovetail.cluster.unmark_for_deletion(["kwok://a"])
        fleet.edit_pool(budgets=[{"nodes": "0"}])
        await fleet.turn()
        assert fleet.marked() == []
        assert scene.says("DisruptionReason", "a") is None


@pytest.mark.spec("disruption-150", "disruption-152")
@virtual
async def test_nothing_is_bought_twice_for_pods_that_move() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene)
        fleet.node("a", light("p", "a", "3"), drifted=NOW, consolidatable=False)
        scene.trouble(FaultRule(trouble="latency", verbs=("create",), resources=(CLAIMS,), amount=30.0))
        turn = asyncio.create_task(fleet.turn())
        await scene.sleep(5)
        assert (fleet.marked(), turn.done()) == (["a"], False)
        await scene.look("provisioner")
        scene.trouble()
        await turn
        assert len(fleet.replacements()) == 1
        (new,) = fleet.replacements()
        await scene.live(new.name)
        fleet.pod(pod("late", cpu="500m", memory="100Mi"))
        await scene.look("provisioner")
        assert len(fleet.replacements()) == 1


@virtual
async def test_a_node_that_cannot_be_marked_costs_nothing() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene)
        fleet.node("a", light("p", "a", "15"), drifted=NOW, consolidatable=False)
        await scene.heard()
        scene.trouble(FaultRule(trouble="conflict", verbs=("patch",), resources=("nodes",)))
        await fleet.turn()
        assert (fleet.replacements(), fleet.commands(), fleet.marked()) == ([], 0, [])
        scene.trouble()
        await fleet.turn()
        assert (len(fleet.replacements()), fleet.commands()) == (1, 1)


@virtual
async def test_a_replacement_that_cannot_be_ordered_leaves_no_mark_for_long() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene)
        fleet.node("a", light("p", "a", "15"), drifted=NOW, consolidatable=False)
        await scene.heard()
        scene.trouble(FaultRule(trouble="server-error", verbs=("create",), resources=(CLAIMS,)))
        await fleet.turn()
        assert (fleet.marked(), fleet.commands()) == (["a"], 0)
        fleet.edit_pool(budgets=[{"nodes": "0"}])
        await fleet.turn()
        assert (fleet.marked(), scene.says("DisruptionReason", "a")) == ([], None)


@pytest.mark.spec("disruption-154")
@virtual
async def test_each_command_is_counted_once_for_itself_and_once_for_its_pool() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, types=[LARGE])
        fleet.node("empty")
        counted = await _counted(fleet, "delete", "empty", "empty")
        assert counted == (1, 1)
        await fleet.carry_on()
        fleet.node("here", *(light(f"h{i}", "here") for i in range(3)), consolidatable=False)
        fleet.node("there", light("t", "there"), drifted=NOW, consolidatable=False)
        assert await _counted(fleet, "delete", "drifted", "") == (1, 1)
        await fleet.carry_on()
        fleet.node("full", light("f", "full", "15"), drifted=NOW, consolidatable=False)
        assert await _counted(fleet, "replace", "drifted", "") == (1, 1)


@pytest.mark.spec("disruption-154")
@virtual
async def test_commands_of_many_nodes_are_counted_once_too() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, types=[LARGE])
        for name in ("a", "b"):
            fleet.node(name, light(f"p-{name}", name))
        fleet.node("room", *(light(f"r{i}", "room") for i in range(3)), consolidatable=False)
        assert await _counted(fleet, "delete", "underutilized", "multi") == (1, 1)
    async with Scene().still() as scene:
        fleet = Fleet(scene)
        for name in ("a", "b", "c"):
            fleet.node(name, light(f"p-{name}", name))
        assert await _counted(fleet, "replace", "underutilized", "multi") == (1, 1)
        (new,) = fleet.replacements()
        assert new.labels["karpenter.sh/nodepool"] == "default"


async def _counted(fleet: Fleet, decision: str, reason: str, kind: str) -> tuple[float, float]:
    about = {"decision": decision, "reason": reason, "consolidation_type": kind}
    before = sample(DECISIONS, **about), sample(BY_POOL, nodepool="default", **about)
    await fleet.turn()
    now = sample(DECISIONS, **about), sample(BY_POOL, nodepool="default", **about)
    return now[0] - before[0], now[1] - before[1]


# Static pools


def static(replicas: int, nodes: str = "100%", limit: int | None = None) -> Any:
    limits = {"nodes": str(limit)} if limit is not None else None
    return pool(replicas=replicas, budgets=(Budget(nodes=nodes),), limits=limits)


async def static_fleet(scene: Scene, count: int, of: Any) -> Fleet:
    fleet = Fleet(scene, of)
    for i in range(count):
        fleet.node(f"n{i}", light(f"p{i}", f"n{i}"), drifted=NOW)
    await fleet.turn()
    return fleet


@pytest.mark.spec("disruption-136")
@virtual
async def test_a_static_pool_drifts_within_its_budget_and_keeps_its_size() -> None:
    async with Scene(flags=["--feature-gates=StaticCapacity=true"]).still() as scene:
        fleet = await static_fleet(scene, 10, static(10, "2"))
        ledger = scene.dovetail.cluster.nodepool_state
        assert (fleet.commands(), ledger.count_claims("default")) == (2, (10, 0, 2))
        for claim in fleet.replacements():
            await fleet.up(claim)
        await fleet.carry_on()
        for name in fleet.going():
            fleet.forget(name)
        await scene.heard()
        assert (ledger.count_claims("default"), len(scene.claims())) == ((10, 0, 0), 10)
        assert all(not c.spec.requirements for c in fleet.replacements())


@pytest.mark.spec("disruption-137", "disruption-138", "disruption-140")
@pytest.mark.parametrize(
    ("replicas", "limit", "nodes", "commands"),
    [(5, 5, 5, 0), (5, 7, 5, 2), (5, 6, 5, 1), (5, 5, 2, 2), (5, None, 5, 5), (0, None, 2, 0)],
)
def test_a_static_pool_drifts_as_far_as_its_limit_leaves_room(
    replicas: int, limit: int | None, nodes: int, commands: int
) -> None:
    @virtual
    async def play() -> None:
        async with Scene(flags=["--feature-gates=StaticCapacity=true"]).still() as scene:
            fleet = await static_fleet(scene, nodes, static(replicas, limit=limit))
            assert fleet.commands() == commands
            await fleet.turn()
            assert len(scene.claims()) <= (limit or 100)

    play()


@pytest.mark.spec("disruption-139")
@virtual
async def test_a_static_pool_shrinks_before_it_drifts() -> None:
    async with Scene(flags=["--feature-gates=StaticCapacity=true"]).still() as scene:
        fleet = await static_fleet(scene, 2, static(1))
        assert fleet.commands() == 0
        await scene.look("static.deprovisioning", "default")
        (gone,) = fleet.going()
        fleet.forget(gone)
        await fleet.turn()
        assert fleet.commands() == 1


@virtual
async def test_room_reserved_for_a_static_replacement_is_given_back_when_it_fails() -> None:
    async with Scene(flags=["--feature-gates=StaticCapacity=true"]).still() as scene:
        fleet = Fleet(scene, static(1, limit=2))
        fleet.node("a", light("p", "a"), drifted=NOW)
        await scene.heard()
        scene.trouble(FaultRule(trouble="conflict", verbs=("patch",), resources=("nodes",)))
        await fleet.turn()
        scene.trouble()
        assert scene.dovetail.cluster.nodepool_state.count_claims("default") == (1, 0, 0)
        await fleet.turn()
        assert (fleet.commands(), len(fleet.replacements())) == (1, 1)
        assert scene.has(CLAIMS, "a")
