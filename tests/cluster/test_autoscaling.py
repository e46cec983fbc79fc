"""Pods get nodes and nodes go away, on a real control plane: the API is all these tests look at."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from support.controller_process import (
    BUDGETS,
    CLAIMS,
    DEPLOYMENTS,
    DISRUPTED,
    DO_NOT_DISRUPT,
    NODES,
    ON_DEMAND,
    POOLS,
    UNREGISTERED,
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
FOUR_CPUS: Json = {
    "key": "node.kubernetes.io/instance-type",
    "operator": "In",
    "values": ["c-4x-amd64-linux"],
}
BUFFERS = "/apis/autoscaling.x-k8s.io/v1beta1/namespaces/{ns}/capacitybuffers"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


@pytest.fixture(scope="module")
def autoscaled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A control plane with Dovetail at work in it, elected leader as in production."""
    folder = tmp_path_factory.mktemp("autoscaled")
    with cluster_with_kinds(folder / "real") as kubeconfig:
        gates = {"FEATURE_GATES": "StaticCapacity=true,CapacityBuffer=true"}
        log = folder / "controller.log"
        with controller(kubeconfig, log, **gates) as running:
            yield kubeconfig
            assert running.poll() is None, log.read_text()[-2000:]
        assert "a bug in this controller" not in log.read_text(), log.read_text()[-2000:]


@pytest.fixture
async def ours(autoscaled: Path) -> AsyncIterator[Fleet]:
    async with fleet(autoscaled) as found:
        yield found


@pytest.mark.parametrize("pods", [50, 500])
async def test_pods_get_nodes_and_empty_nodes_go_away(ours: Fleet, pods: int) -> None:
    await ours.start()
    await ours.deploy("web", pods)

    await ours.running("web", pods, 150)

    nodes, claims = await ours.nodes(), await ours.claims()
    assert {c["status"]["nodeName"] for c in claims} == {n["metadata"]["name"] for n in nodes}
    assert not any({UNREGISTERED, DISRUPTED} & taints(node) for node in nodes)
    await ours.scale("web", 0)
    await ours.until_nodes(0, 120)


async def test_a_deleted_claim_is_drained_first_and_its_pods_move(ours: Fleet) -> None:
    await ours.start(requirements=[ON_DEMAND, FOUR_CPUS])
    await ours.deploy("web", 2)
    await ours.running("web", 2)
    before = await ours.node_names()

    for claim in await ours.claims():
        await ours.ask("DELETE", f"{CLAIMS}/{claim['metadata']['name']}")

    await ours.until_replaced(before)
    await ours.running("web", 2)
    await ours.until_nodes(1)
    assert not before & await ours.node_names()


async def test_a_deleted_node_takes_its_claim_with_it(ours: Fleet) -> None:
    await ours.start()
    await ours.deploy("web", 1)
    await ours.running("web", 1)
    [claim] = await ours.claims()
    [node] = await ours.node_names()

    await ours.ask("DELETE", f"{NODES}/{node}")

    await ours.until_replaced({node})
    await ours.running("web", 1)
    await ours.until_nodes(1)
    assert [c["metadata"]["name"] for c in await ours.claims()] != [claim["metadata"]["name"]]


async def test_a_guarded_pod_holds_its_node_tainted_until_the_guard_is_gone(ours: Fleet) -> None:
    await ours.start()
    await ours.deploy("web", 1)
    await ours.guard("web", 1)
    await ours.running("web", 1)
    [claim] = await ours.claims()
    [node] = await ours.node_names()

    await ours.ask("DELETE", f"{CLAIMS}/{claim['metadata']['name']}")
    tainted_after = await ours.until_tainted(node, DISRUPTED, 10)
    await asyncio.sleep(5)

    assert tainted_after < 1.0
    assert node in await ours.node_names()
    await ours.running("web", 1)
    await ours.ask("DELETE", f"{BUDGETS}/web")
    await ours.until_replaced({node})
    await ours.running("web", 1)


async def test_a_pod_not_to_be_disrupted_goes_when_the_grace_period_is_over(ours: Fleet) -> None:
    await ours.start(terminationGracePeriod="12s")
    await ours.deploy("web", 1, annotations={DO_NOT_DISRUPT: "true"})
    await ours.running("web", 1)
    [claim] = await ours.claims()
    [node] = await ours.node_names()

    began = time.monotonic()
    await ours.ask("DELETE", f"{CLAIMS}/{claim['metadata']['name']}")
    await ours.until_tainted(node, DISRUPTED, 10)
    await ours.until_replaced({node}, 60)

    # Its pod asks for no grace of its own, so nothing may touch it before the twelve seconds are over.
    assert 11 < time.monotonic() - began < 45
    await ours.running("web", 1)


def _keeps_the_taint(pool: str) -> Json:
    """A policy under which nodes of the pool never lose their unregistered taint."""
    has = "{0}.spec.taints.exists(t, t.key == '" + UNREGISTERED + "')"
    label = "karpenter.sh/nodepool"
    ours = f"'{label}' in object.metadata.labels && object.metadata.labels['{label}'] == '{pool}'"
    return {
        "metadata": {"name": pool},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["UPDATE"],
                        "resources": ["nodes"],
                    }
                ]
            },
            "matchConditions": [
                {
                    "name": "ours",
                    "expression": f"'karpenter.sh/nodepool' in object.metadata.labels && {ours}",
                },
                {
                    "name": "new",
                    "expression": f"has(oldObject.spec.taints) && {has.format('oldObject')}",
                },
            ],
            "validations": [{"expression": f"has(object.spec.taints) && {has.format('object')}"}],
        },
    }


async def test_a_policy_that_forbids_registration_holds_pods_back_until_it_is_gone(ours: Fleet) -> None:
    binding = {
        "metadata": {"name": ours.pool},
        "spec": {"policyName": ours.pool, "validationActions": ["Deny"]},
    }
    await ours.ask("POST", POLICIES, _keeps_the_taint(ours.pool))
    await ours.ask("POST", BINDINGS, binding)
    try:
        await asyncio.sleep(2)  # the API server reads its policies anew about once a second
        await ours.start()
        await ours.deploy("web", 1)

        async def launched() -> bool:
            return [condition(claim, "Launched") for claim in await ours.claims()] == ["True"]

        await ours.until(launched, 20, "launched")
        await asyncio.sleep(5)
        [claim], [node] = await ours.claims(), await ours.nodes()
        assert condition(claim, "Registered") != "True"
        assert UNREGISTERED in taints(node)
    finally:
        for path in (BINDINGS, POLICIES):
            await ours.ask("DELETE", f"{path}/{ours.pool}")

    await ours.running("web", 1, 90)
    assert await ours.node_names() == {node["metadata"]["name"]}


async def test_a_static_pool_keeps_as_many_nodes_as_it_is_told(ours: Fleet) -> None:
    await ours.start(spec={"replicas": 2})
    await ours.until_nodes(2)

    for wanted in (4, 1, 0):
        await ours.ask("PATCH", f"{POOLS}/{ours.pool}/scale", {"spec": {"replicas": wanted}}, MERGE)
        await ours.until_nodes(wanted)

    assert await ours.nodes() == []


async def test_a_buffer_keeps_a_node_ready_for_pods_to_come(ours: Fleet) -> None:
    await ours.start(requirements=[ON_DEMAND, FOUR_CPUS])
    await ours.deploy("web", 0)
    wanted = {"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}, "replicas": 3}
    kind = {"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer"}
    await ours.ask("POST", BUFFERS, {**kind, "metadata": {"name": "room"}, "spec": wanted})

    await ours.until_nodes(1)

    before = await ours.node_names()
    await ours.scale("web", 3)
    await ours.running("web", 3)
    assert before <= await ours.node_names()
    await ours.ask("DELETE", f"{BUFFERS}/room")
    await ours.scale("web", 0)
    await ours.until_nodes(0, 120)


async def test_an_expired_node_is_replaced_and_its_budgeted_pods_are_asked_first(ours: Fleet) -> None:
    await ours.start(expireAfter="25s")
    await ours.deploy("web", 2, **SPREAD)
    await ours.guard("web", 1)
    await ours.running("web", 2)
    before = await ours.node_names()
    fewest = 2

    async def replaced() -> bool:
        nonlocal fewest
        web = await ours.ask("GET", f"{BUDGETS}/web")
        fewest = min(fewest, web["status"]["currentHealthy"])
        return not before & await ours.node_names()

    await ours.until(replaced, 120, "expired")

    assert fewest >= 1
    assert len(before) == 2


async def test_nodes_that_fit_together_are_merged(ours: Fleet) -> None:
    await ours.start(
        requirements=[ON_DEMAND, FOUR_CPUS], disruption={"consolidationPolicy": "WhenEmptyOrUnderutilized"}
    )
    await ours.deploy("web", 6)
    await ours.running("web", 6)
    assert len(await ours.nodes()) == 2

    await ours.scale("web", 2)

    await ours.until_nodes(1, 120)
    await ours.running("web", 2)


async def test_a_node_too_large_is_exchanged_for_a_cheaper_one(ours: Fleet) -> None:
    await ours.start(disruption={"consolidationPolicy": "WhenEmptyOrUnderutilized"})
    await ours.deploy("big", 1, "14")
    await ours.deploy("web", 1, "100m")
    await ours.running("big", 1)
    await ours.running("web", 1)
    [large] = await ours.nodes()

    await ours.scale("big", 0)

    await ours.until_replaced({large["metadata"]["name"]}, 120)
    await ours.running("web", 1)
    [small] = await ours.nodes()
    assert int(small["status"]["capacity"]["cpu"]) < int(large["status"]["capacity"]["cpu"])


async def test_a_changed_template_drifts_nodes_at_once_and_replaces_them_one_by_one(ours: Fleet) -> None:
    await ours.start(disruption={"budgets": [{"nodes": "1"}]})
    await ours.deploy("web", 3, **SPREAD)
    await ours.running("web", 3)
    before = await ours.node_names()
    most = 0

    await ours.change_pool({"template": {"metadata": {"labels": {"team": "new"}}}})

    async def drifted() -> bool:
        return all(condition(claim, "Drifted") == "True" for claim in await ours.claims())

    async def replaced() -> bool:
        nonlocal most
        nodes = await ours.nodes()
        most = max(most, sum(DISRUPTED in taints(node) or deleting(node) for node in nodes))
        return not before & {node["metadata"]["name"] for node in nodes}

    assert await ours.until(drifted, 10, "drifted") < 3.0
    await ours.until(replaced, 180, "replaced")
    assert (len(before), most) == (3, 1)
    await ours.running("web", 3)
    assert {node["metadata"]["labels"].get("team") for node in await ours.nodes()} == {"new"}


async def test_a_schedule_that_allows_nothing_keeps_even_empty_nodes(ours: Fleet) -> None:
    closed = [{"nodes": "0", "schedule": "* * * * *", "duration": "10m"}]
    await ours.start(disruption={"budgets": closed})
    await ours.deploy("web", 1)
    await ours.running("web", 1)
    before = await ours.node_names()
    await ours.ask("DELETE", f"{DEPLOYMENTS}/web")

    async def consolidatable() -> bool:
        return [condition(claim, "Consolidatable") for claim in await ours.claims()] == ["True"]

    await ours.until(consolidatable, 30, "consolidatable")
    await asyncio.sleep(20)  # a pass takes ten seconds, and what it finds is looked at again after fifteen
    assert await ours.node_names() == before
    assert not any(DISRUPTED in taints(node) for node in await ours.nodes())

    await ours.change_pool({"disruption": {"budgets": [{"nodes": "100%"}]}})
    await ours.until_nodes(0, 90)
