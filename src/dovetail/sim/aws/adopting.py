"""Instances for nodes that are already there: a cluster that was kept, started again beside a new AWS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dovetail.api import labels
from dovetail.sim.aws.capacity import Capacity
from dovetail.sim.aws.hands import Hands
from dovetail.sim.aws.machine import Interface, Machine
from dovetail.sim.aws.network import SimSubnet
from dovetail.sim.aws.types import facts_of
from dovetail.sim.world import World

__all__ = ["adopt"]

Json = Mapping[str, Any]
PROVIDER_ID = "aws:///"
CLAIMS, CLASSES = "nodeclaims.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws"


def adopt(aws: Hands, world: World, cluster: str) -> dict[str, str]:
    """Make the machines the nodes of a world name, and the profiles of its classes; node names by id."""
    for each in world.api.list(CLASSES):
        name = (each.get("status") or {}).get("instanceProfile")
        role = (each.get("spec") or {}).get("role", "").rpartition("/")[2]
        if name and name not in aws.iam.profiles:
            path = f"/karpenter/{aws.region}/{cluster}/{each['metadata']['uid']}/"
            aws.iam.add_profile(name, path, role if role in aws.iam.roles else "", _owned(cluster, each))
    claims = {(each.get("status") or {}).get("providerID"): each for each in world.api.list(CLAIMS)}
    found = {}
    for node in world.api.list("nodes"):
        provider_id = (node.get("spec") or {}).get("providerID", "")
        if provider_id.startswith(PROVIDER_ID) and provider_id in claims:
            machine = _machine(aws, node, claims[provider_id], cluster)
            if machine is not None:
                found[machine.id] = node["metadata"]["name"]
    return found


def _machine(aws: Hands, node: Json, claim: Json, cluster: str) -> Machine | None:
    zone, _, name = node["spec"]["providerID"].removeprefix(PROVIDER_ID).partition("/")
    said = {**(claim["metadata"].get("labels") or {}), **(node["metadata"].get("labels") or {})}
    kind = said.get(labels.INSTANCE_TYPE, "")
    subnet = next((each for each in aws.network.subnets.values() if each.zone == zone), None)
    if kind not in facts_of() or subnet is None or name in aws.instances.by_id:
        return None
    spot = said.get(labels.CAPACITY_TYPE) == "spot"
    facts, now = facts_of()[kind], aws.clock.now()
    groups = tuple((each.id, each.name) for each in aws.network.groups.values() if each.tags)
    machine = Machine(
        id=name,
        type=kind,
        zone=zone,
        zone_id=subnet.zone_id,
        subnet=subnet.id,
        vpc=subnet.vpc,
        image=(claim.get("status") or {}).get("imageID", ""),
        architecture=facts.architectures[0],
        launched=now,
        visible=now,
        way="spot" if spot else "on-demand",
        lifecycle="spot" if spot else "",
        state="running",
        tags=dict(_tags(cluster, said, node, claim)),
        groups=groups,
        interfaces=[_interface(aws, subnet, node, groups)],
        reservation=f"r-0{aws.ground.hexes(16)}",
        vcpus=facts.vcpus,
        region=aws.region,
        account=aws.account,
    )
    aws.subject(Capacity).take(kind, zone, machine.way, facts.vcpus)
    aws.instances.take_over(machine)
    return machine


def _interface(aws: Hands, subnet: SimSubnet, node: Json, groups: tuple[tuple[str, str], ...]) -> Interface:
    """With the address the node has: its name is made of it."""
    listed = (node.get("status") or {}).get("addresses") or ()
    address = next((each["address"] for each in listed if each["type"] == "InternalIP"), "")
    held = subnet.keep(address) if address else ()
    return Interface(f"eni-0{aws.ground.hexes(16)}", 0, 0, "interface", address, (), groups, held)


def _owned(cluster: str, node_class: Json) -> dict[str, str]:
    return {
        f"kubernetes.io/cluster/{cluster}": "owned",
        "eks:eks-cluster-name": cluster,
        "karpenter.k8s.aws/ec2nodeclass": node_class["metadata"]["name"],
    }


def _tags(cluster: str, said: Mapping[str, str], node: Json, claim: Json) -> Iterator[tuple[str, str]]:
    yield f"kubernetes.io/cluster/{cluster}", "owned"
    yield "eks:eks-cluster-name", cluster
    yield "karpenter.sh/nodepool", said.get(labels.NODEPOOL, "")
    yield "karpenter.k8s.aws/ec2nodeclass", claim["spec"]["nodeClassRef"]["name"]
    yield "karpenter.sh/nodeclaim", claim["metadata"]["name"]
    yield "Name", node["metadata"]["name"]
