"""Every filter both ways: the node it accepts, and the words for those it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from support.cluster import (
    HOST,
    REQUIRED,
    annotate,
    cluster,
    container,
    in_virtual_time,
    node_of,
    pod,
    refusal,
)

SELECTOR = "node(s) didn't match Pod's node affinity/selector"


def wanting(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {
        "matchExpressions": [
            {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
        ]
    }


@pytest.mark.parametrize(
    ("spec", "homes"),
    [
        ({"nodeSelector": {HOST: "b"}}, "b"),
        ({"nodeSelector": {HOST: "z"}}, ""),
        ({"affinity": wanting(expression(HOST, "In", "b", "z"))}, "b"),
        ({"affinity": wanting(expression(HOST, "NotIn", "a", "b"))}, "c"),
        ({"affinity": wanting(expression("disk", "Exists"))}, "c"),
        ({"affinity": wanting(expression("disk", "DoesNotExist"))}, "ab"),
        ({"affinity": wanting(expression("cores", "Gt", "6"))}, "b"),
        ({"affinity": wanting(expression("cores", "Lt", "6"))}, "a"),
        ({"affinity": wanting(expression("disk", "Gt", "6"))}, ""),
        ({"affinity": wanting(expression(HOST, "In", "z"), expression(HOST, "In", "c"))}, "c"),
        (
            {
                "affinity": wanting(
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
                )
            },
            "a",
        ),
        ({"affinity": wanting({})}, ""),
        ({"nodeSelector": {HOST: "a"}, "affinity": wanting(expression(HOST, "In", "b"))}, ""),
    ],
)
def test_labels_and_fields_choose_nodes(spec: dict[str, Any], homes: str) -> None:
    @in_virtual_time
    async def story() -> None:
        async with cluster(3) as world:
            for name, labels in (("a", {"cores": "4"}), ("b", {"cores": "8"}), ("c", {"disk": "ssd"})):
                world.api.patch("nodes", name, {"metadata": {"labels": labels}})
            world.api.create("pods", pod("web", **spec))
            await world.settle(2)
            if homes:
                assert node_of(world, "web") in tuple(homes)
            else:
                assert refusal(world, "web") == f"0/3 nodes are available: 3 {SELECTOR}."

    story()


@in_virtual_time
async def test_a_cordoned_node_takes_only_pods_that_tolerate_it() -> None:
    async with cluster(1) as world:
        world.api.patch("nodes", "a", {"spec": {"unschedulable": True}})
        await world.settle(1)
        world.api.create("pods", pod("plain"))
        bold = [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]
        world.api.create("pods", pod("bold", tolerations=bold))
        await world.settle(2)
        assert refusal(world, "plain") == "0/1 nodes are available: 1 node(s) were unschedulable."
        assert node_of(world, "bold") == "a"


@pytest.mark.parametrize(
    ("toleration", "accepted"),
    [
        (None, False),
        ({"key": "team", "operator": "Equal", "value": "blue", "effect": "NoSchedule"}, True),
        ({"key": "team", "operator": "Equal", "value": "red", "effect": "NoSchedule"}, False),
        ({"key": "team", "value": "blue"}, True),
        ({"key": "team", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "team", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_taints_keep_pods_away_that_do_not_tolerate_them(
    toleration: dict[str, Any] | None, accepted: bool
) -> None:
    @in_virtual_time
    async def story() -> None:
        async with cluster(1) as world:
            world.api.patch(
                "nodes", "a", {"spec": {"taints": [{"key": "team", "value": "blue", "effect": "NoSchedule"}]}}
            )
            world.api.create("pods", pod("web", tolerations=[toleration] if toleration else []))
            await world.settle(2)
            assert bool(node_of(world, "web")) is accepted
            if not accepted:
                words = "node(s) had untolerated taint {team: blue}"
                assert refusal(world, "web") == f"0/1 nodes are available: 1 {words}."

    story()


@in_virtual_time
async def test_a_preferred_taint_is_avoided_but_no_obstacle() -> None:
    async with cluster(2) as world:
        world.api.patch("nodes", "a", {"spec": {"taints": [{"key": "meh", "effect": "PreferNoSchedule"}]}})
        world.api.create("pods", pod("web"))
        world.api.create("pods", pod("there", nodeSelector={HOST: "a"}))
        await world.settle(2)
        assert (node_of(world, "web"), node_of(world, "there")) == ("b", "a")


@in_virtual_time
async def test_room_is_counted_in_every_resource_and_in_pods() -> None:
    async with cluster(2, cpu="2", memory="4Gi", pods="3") as world:
        for name in ("a", "b"):
            gpu = {"status": {"allocatable": {"example.com/gpu": "1"}}}
            world.api.patch("nodes", name, gpu, subresource="status")
        world.api.create("pods", pod("cpu", {"cpu": "3"}))
        world.api.create("pods", pod("both", {"cpu": "3", "memory": "5Gi"}))
        world.api.create("pods", pod("gpu", {"example.com/gpu": "2"}))
        world.api.create("pods", pod("alien", {"example.com/fpga": "1"}))
        for number in range(6):
            world.api.create("pods", pod(f"small-{number}", {"cpu": "100m"}))
        await world.settle(2)
        world.api.create("pods", pod("late"))
        await world.settle(2)
        assert refusal(world, "cpu") == "0/2 nodes are available: 2 Insufficient cpu."
        assert refusal(world, "both") == "0/2 nodes are available: 2 Insufficient cpu, 2 Insufficient memory."
        assert refusal(world, "gpu") == "0/2 nodes are available: 2 Insufficient example.com/gpu."
        assert refusal(world, "alien") == "0/2 nodes are available: 2 Insufficient example.com/fpga."
        assert refusal(world, "late") == "0/2 nodes are available: 2 Too many pods."


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({"containers": [container(cpu="600m"), {**container(cpu="500m"), "name": "b"}]}, False),
        ({"containers": [container(cpu="600m"), {**container(cpu="400m"), "name": "b"}]}, True),
        ({"initContainers": [{**container(cpu="1100m"), "name": "i"}]}, False),
        (
            {"containers": [container(cpu="900m")], "initContainers": [{**container(cpu="1"), "name": "i"}]},
            True,
        ),
        (
            {
                "containers": [container(cpu="600m")],
                "initContainers": [{**container(cpu="500m"), "name": "s", "restartPolicy": "Always"}],
            },
            False,
        ),
        (
            {
                "initContainers": [
                    {**container(cpu="500m"), "name": "s", "restartPolicy": "Always"},
                    {**container(cpu="600m"), "name": "i"},
                ]
            },
            False,
        ),
        (
            {
                "initContainers": [
                    {**container(cpu="600m"), "name": "i"},
                    {**container(cpu="500m"), "name": "s", "restartPolicy": "Always"},
                ]
            },
            True,
        ),
        ({"containers": [{"name": "c", "image": "x", "resources": {"limits": {"cpu": "1100m"}}}]}, False),
        ({"containers": [container(cpu="100m")], "resources": {"requests": {"cpu": "1100m"}}}, False),
        ({"containers": [container(cpu="900m")], "resources": {"requests": {"cpu": "950m"}}}, True),
    ],
)
def test_requests_of_all_containers_add_up_as_the_pod_lives(spec: dict[str, Any], fits: bool) -> None:
    @in_virtual_time
    async def story() -> None:
        async with cluster(1, cpu="1") as world:
            world.api.create("pods", pod("web", **spec))
            await world.settle(2)
            assert bool(node_of(world, "web")) is fits
            assert fits or "Insufficient cpu" in refusal(world, "web")

    story()


def ported(name: str, port: int, protocol: str = "TCP", address: str = "", **spec: Any) -> dict[str, Any]:
    exposed = {"containerPort": port, "hostPort": port, "protocol": protocol}
    if address:
        exposed["hostIP"] = address
    return pod(name, containers=[{**container(), "ports": [exposed]}], **spec)


@in_virtual_time
async def test_host_ports_clash_by_number_protocol_and_address() -> None:
    async with cluster(1) as world:
        world.api.create("pods", ported("first", 80, address="10.0.0.1"))
        await world.settle(2)
        for name, body in (
            ("same", ported("same", 80, address="10.0.0.1")),
            ("any", ported("any", 80)),
            ("udp", ported("udp", 80, "UDP")),
            ("other", ported("other", 80, address="10.0.0.2")),
            ("number", ported("number", 81)),
        ):
            world.api.create("pods", body)
            await world.settle(2)
            accepted = name in ("udp", "other", "number")
            assert bool(node_of(world, name)) is accepted, name
        words = "node(s) didn't have free ports for the requested pod ports"
        assert refusal(world, "same") == f"0/1 nodes are available: 1 {words}."
        world.api.delete("pods", "first", "default")
        await world.settle(15)
        assert node_of(world, "same") == "a"


@in_virtual_time
async def test_unready_is_no_filter_of_its_own_only_its_taint_is() -> None:
    async with cluster(1) as world:
        annotate(world, "nodes", "a", heartbeat="stopped")
        await world.settle(70)
        world.api.create("pods", pod("plain"))
        world.api.create("pods", pod("bold", tolerations=[{"operator": "Exists"}]))
        await world.settle(2)
        assert "untolerated taint {node.kubernetes.io/unreachable: }" in refusal(world, "plain")
        assert node_of(world, "bold") == "a"


@in_virtual_time
async def test_reasons_of_all_nodes_are_counted_together() -> None:
    async with cluster(3, cpu="1") as world:
        world.api.patch("nodes", "a", {"spec": {"unschedulable": True}})
        await world.settle(1)
        world.api.create("pods", pod("big", {"cpu": "2"}))
        await world.settle(2)
        assert refusal(world, "big") == (
            "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu."
        )


@in_virtual_time
async def test_without_any_node_the_pod_is_told_so() -> None:
    async with cluster(0) as world:
        world.api.create("pods", pod("web"))
        await world.settle(1)
        assert refusal(world, "web") == "no nodes available to schedule pods"
