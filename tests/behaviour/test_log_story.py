"""Every message of the log is really said, by a whole Dovetail at work, with its level and its keys."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest

from dovetail.api import labels
from dovetail.api.meta import LabelSelector
from dovetail.api.nodepool import NodeClassReference
from dovetail.api.pod import (
    Affinity,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from dovetail.errors import InsufficientCapacity, Retry
from dovetail.logs import MESSAGES
from dovetail.ports import RepairPolicy
from dovetail.zonal.model.shifts import OWNER, STAND_ALONE
from support.builders import node, nodepool, pod, requirement, taint
from support.disruption import SIZES
from support.ec2_instances import MachineScene, spot_warning
from support.fleet import Fleet, light
from support.log_lines import log_lines
from support.policies import refuse_claims_of
from support.stage import Stage
from support.world import Scene, virtual
from support.zonal import SHIFTS, A, B, Shifted, entry

Line = dict[str, Any]
LEVELS = {logging.DEBUG: "DEBUG", logging.INFO: "INFO", logging.ERROR: "ERROR"}
CONTEXT = ("controller", "controllerGroup", "controllerKind", "namespace", "name", "reconcileID")
OPENING = ("level", "time", "logger", "caller", "message", "commit", *CONTEXT)
EVERYONE = LabelSelector()
BROKEN = NodeClassReference(group="karpenter.kwok.sh", kind="KWOKNodeClass", name="broken")
SICK = RepairPolicy(condition="BadNode", status="False", toleration=timedelta(minutes=30))


@virtual
async def a_node_is_bought_and_given_back() -> None:
    async with Scene().running() as scene:
        scene.create(pod("web", cpu="1"))
        await scene.settle(5)
        scene.apply(nodepool(consolidate_after="30s"))
        await scene.until(lambda: scene.pods()[0].node_name, within=60)
        scene.api.delete("pods", "web", "default")
        await scene.until(lambda: not scene.claims(), within=300)


@virtual
async def pools_that_offer_nothing() -> None:
    async with Scene().running() as scene:
        scene.node_class("broken", ready="False", reason="SubnetsNotFound")
        nothing = requirement("node.kubernetes.io/instance-type", "In", "no-such-type")
        scene.apply(nodepool(), nodepool("odd", requirements=[nothing]), nodepool("late", node_class=BROKEN))
        scene.create(pod("huge", cpu="10000"))
        await scene.settle(30)
        scene.cloud.types, types = (), scene.cloud.types
        await scene.settle(30)
        scene.cloud.types = types
        scene.cloud.fail("instance_types", Retry("listing types: throttled"), always=True)
        await scene.settle(30)


@virtual
async def pods_with_wishes() -> None:
    async with Scene().running() as scene:
        soft = TopologySpreadConstraint(
            max_skew=1, topology_key=labels.ZONE, when_unsatisfiable="ScheduleAnyway", label_selector=EVERYONE
        )
        term = PodAffinityTerm(topology_key=labels.ZONE, label_selector=EVERYONE)
        apart = PodAffinity(preferred=(WeightedPodAffinityTerm(weight=1, pod_affinity_term=term),))
        scene.apply(nodepool(), pod("spread", topology_spread_constraints=(soft,)))
        scene.create(pod("apart", affinity=Affinity(pod_anti_affinity=apart)))
        await scene.settle(60)


@virtual
async def decisions_on_stdout() -> None:
    async with Scene(flags=("--decision-log=log",)).running() as scene:
        scene.apply(nodepool(), pod("web"))
        await scene.settle(60)


@virtual
async def a_pool_of_two() -> None:
    async with Scene(flags=("--feature-gates=StaticCapacity=true",)).running() as scene:
        scene.apply(nodepool(replicas=2, limits={"nodes": "1"}))
        await scene.settle(60)


@virtual
async def machines_that_do_not_come() -> None:
    async with Scene().running() as scene:
        scene.cloud.fail("create", InsufficientCapacity("no m5.large in zone a"))
        scene.claim("unlucky")
        await scene.settle(5)
        scene.cloud.fail("create", Retry("asking for a machine: busy"), always=True)
        scene.claim("slow")
        await scene.settle(400)


@virtual
async def pods_for_a_node_that_is_still_coming() -> None:
    async with Scene().running() as scene:
        scene.apply(nodepool(startup_taints=[taint("wait")]), pod("web", cpu="1"))
        await scene.until(scene.nodes, within=60)
        scene.create(pod("little", cpu="100m"))
        scene.create(pod("large", cpu="3"))
        await scene.settle(20)


@virtual
async def claims_that_end_by_themselves() -> None:
    async with Scene().running() as scene:
        scene.claim("old", expire_after="2m", termination_grace_period="1m")
        await scene.settle(300)


@virtual
async def machines_that_are_lost_or_too_small() -> None:
    async with Scene().still() as scene:
        claim = await scene.initialized("small", requests={"cpu": "1"})
        scene.set_status("nodes", claim.status.node_name, {"capacity": {"cpu": "100m"}})
        await scene.look("nodeclaim.consistency", "small")
        claim = await scene.registered("lost")
        scene.node_ready(claim.status.node_name, "False")
        scene.cloud.vanish(claim.status.provider_id)
        await scene.look("nodeclaim.garbagecollection")


@virtual
async def a_machine_nobody_asks_for() -> None:
    async with Scene().still() as scene:
        claim = await scene.initialized("orphan")
        scene.api.patch("nodeclaims.karpenter.sh", "orphan", {"metadata": {"finalizers": None}})
        scene.api.delete("nodeclaims.karpenter.sh", "orphan")
        await scene.sleep(60)
        await scene.look("instance.garbagecollection")
        assert claim.status.provider_id


@virtual
async def a_sick_node() -> None:
    async with Stage(policies=(SICK,)).open() as stage:
        stage.node()
        since = stage.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        sick = {"type": "BadNode", "status": "False", "reason": "x", "lastTransitionTime": since}
        stage.api.patch("nodes", "node", {"status": {"conditions": [sick]}}, subresource="status")
        await stage.sleep(3600)
        await stage.look(stage.health, "node")


@virtual
async def a_command_that_is_taken_back() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, types=SIZES)
        fleet.node("a", light("p", "a", "15"), drifted=scene.true_clock.now(), consolidatable=False)
        await fleet.turn()
        (new,) = fleet.replacements()
        scene.api.delete("nodeclaims.karpenter.sh", new.name)
        await fleet.carry_on()


@virtual
async def a_spot_warning() -> None:
    async with MachineScene().still() as scene:
        machine = await scene.machine(known={labels.CAPACITY_TYPE: "spot"})
        scene.tell(spot_warning(machine.id, scene.clock))
        await scene.look("interruption")


@virtual
async def a_zone_is_shifted_away() -> None:
    world = Shifted()
    world.pool("default", entry("In", A, B))
    async with world.running():
        await world.shift(A)
        await world.until(lambda: world.phase() == "Active", within=60)


@virtual
async def a_shift_that_another_keeps() -> None:
    world = Shifted()
    world.pool("default", entry("In", A, B))
    world.local(A, "theirs")
    world.api.patch(SHIFTS, "theirs", {"metadata": {"annotations": {OWNER: STAND_ALONE}}})
    world.api.patch(SHIFTS, "theirs", {"status": {"phase": "Active"}}, subresource="status")
    async with world.running():
        await world.settle(5)


@virtual
async def a_claim_that_is_refused() -> None:
    async with Scene().running() as scene:
        refuse_claims_of(scene, "default")
        scene.apply(nodepool())
        scene.create(pod("stuck"))
        await scene.settle(30)


@virtual
async def a_node_that_cannot_be_read() -> None:
    async with Scene().running() as scene:
        scene.apply(node("absurd", nodepool=""))
        absurd = {"allocatable": {"cpu": "64", "memory": "9" * 400, "pods": "110"}}
        scene.set_status("nodes", "absurd", absurd)
        scene.apply(nodepool(), pod("other", cpu="2"))
        await scene.settle(40)


STORIES = (
    a_claim_that_is_refused,
    a_node_that_cannot_be_read,
    a_node_is_bought_and_given_back,
    pools_that_offer_nothing,
    pods_with_wishes,
    a_pool_of_two,
    decisions_on_stdout,
    machines_that_do_not_come,
    pods_for_a_node_that_is_still_coming,
    claims_that_end_by_themselves,
    machines_that_are_lost_or_too_small,
    a_machine_nobody_asks_for,
    a_sick_node,
    a_command_that_is_taken_back,
    a_spot_warning,
    a_zone_is_shifted_away,
    a_shift_that_another_keeps,
)


@pytest.fixture(scope="module")
def said() -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = {}
    with log_lines("debug") as lines:
        for story in STORIES:
            story()
        for line in lines():
            found.setdefault(line["message"], []).append(line)
    return found


@pytest.mark.parametrize("message", sorted(MESSAGES))
def test_a_message_of_the_table_is_said_with_its_level_and_keys(
    said: dict[str, list[Line]], message: str
) -> None:
    declared = MESSAGES[message]
    assert message in said, sorted(said)
    for line in said[message]:
        assert line["level"] == LEVELS[declared.level]
        assert set(line) - set(OPENING) - set(declared.keys) <= {line.get("controllerKind")}
    told = {key for line in said[message] for key in line}
    assert set(declared.keys) <= told


ORDER = {
    "found provisionable pod(s)": ["Pods", "duration"],
    "created nodeclaim": ["NodePool", "NodeClaim", "requests", "instance-types"],
    "launched nodeclaim": ["provider-id", "instance-type", "zone", "capacity-type", "allocatable"],
    "registered nodeclaim": ["provider-id", "Node"],
    "initialized nodeclaim": ["provider-id", "Node", "allocatable"],
    "tainted node": ["NodeClaim", "taint.Key", "taint.Value", "taint.Effect"],
    "deleted node": ["NodeClaim"],
    "deleted nodeclaim": ["provider-id", "Node"],
}


@pytest.mark.parametrize("message", ORDER)
def test_keys_come_in_the_order_in_which_karpenter_writes_them(
    said: dict[str, list[Line]], message: str
) -> None:
    """Public tools take these lines apart with regular expressions."""
    line = next(line for line in said[message] if "reconcileID" in line)
    keys = list(line)
    assert keys[keys.index("reconcileID") + 1 :] == ORDER[message]
    kind = line.get("controllerKind")
    about = ["controllerGroup", "controllerKind", kind] if kind else []
    assert keys[keys.index("message") : keys.index("reconcileID")] == [
        *("message", "commit", "controller", *about),
        *("namespace", "name"),
    ]


def test_a_command_is_told_in_the_words_of_both_generations(said: dict[str, list[Line]]) -> None:
    line = said["disrupting node(s)"][0]
    (node,) = line["disrupted-nodes"]
    assert list(node) == ["Node", "NodeClaim", "capacity-type", "instance-type"]
    name, text = line["command-id"], line["command"]
    assert text.startswith(f"Empty/{name}: delete: nodepools=[default]: [{node['Node']['name']}] (savings: $")
    assert (line["reason"], line["decision"], line["pod-count"]) == ("empty", "delete", 0)
    keys = list(line)
    assert keys.index("decision") == keys.index("reason") + 1 == keys.index("command") + 3


def test_a_pool_that_cannot_grow_says_why_and_says_it_once(said: dict[str, list[Line]]) -> None:
    (line,) = [each for each in said["ignoring nodepool, not ready"] if each["NodePool"]["name"] == "late"]
    assert line["error"] == "NodeClassReady=False, SubnetsNotFound"
    assert len(said["could not schedule pod"]) < 4, "not in every pass"


def test_what_is_written_in_a_zonal_shift_is_on_record(said: dict[str, list[Line]]) -> None:
    lines = said["zonal shift wrote"]
    assert {line["logger"] for line in lines} == {"controller.audit"}
    (pool,) = [
        line for line in lines if line["object"] == "NodePool/default" and "equirements" in line["field"]
    ]
    assert pool["before"] != pool["after"]
    assert A in str(pool["after"])
