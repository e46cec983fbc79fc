"""Instances become nodes: a machine boots, joins the cluster its user data names, and leaves with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dovetail.api import labels
from dovetail.api.nodeclass import BlockDevice, BlockDeviceMapping, KubeletConfiguration
from dovetail.providers.aws.catalog import NodeClassTerms, build_instance_type
from dovetail.providers.aws.instance_type_info import FAMILIES, AmiFamily, bundled_tables
from dovetail.sim.aws.control import AwsControl
from dovetail.sim.aws.ec2.capacity import Ec2Capacity
from dovetail.sim.aws.ec2.images import SimImages
from dovetail.sim.aws.ec2.instance_record import SimInstance, SimNetworkInterface
from dovetail.sim.aws.ec2.instances import InstanceChange
from dovetail.sim.aws.ec2.network import SimSubnet
from dovetail.sim.aws.ec2.types import load_facts
from dovetail.sim.aws.ec2.user_data import BootSettings, read_user_data
from dovetail.sim.kube.status import ApiError
from dovetail.sim.world import World

__all__ = ["NodeJoiner", "adopt_nodes"]

Manifest = Mapping[str, Any]
PROVIDER_ID = "aws:///"
CLAIMS, CLASSES = "nodeclaims.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws"


def adopt_nodes(aws: AwsControl, world: World, cluster: str) -> dict[str, str]:
    """Make the machines the nodes of a world name, and the profiles of its classes; node names by id."""
    for each in world.api.list(CLASSES):
        name = (each.get("status") or {}).get("instanceProfile")
        role = (each.get("spec") or {}).get("role", "").rpartition("/")[2]
        if name and name not in aws.iam.profiles:
            path = f"/karpenter/{aws.region}/{cluster}/{each['metadata']['uid']}/"
            aws.iam.add_profile(
                name, path, role if role in aws.iam.roles else "", _build_profile_tags(cluster, each)
            )
    claims = {(each.get("status") or {}).get("providerID"): each for each in world.api.list(CLAIMS)}
    found = {}
    for node in world.api.list("nodes"):
        provider_id = (node.get("spec") or {}).get("providerID", "")
        if provider_id.startswith(PROVIDER_ID) and provider_id in claims:
            machine = _adopt_instance(aws, node, claims[provider_id], cluster)
            if machine is not None:
                found[machine.id] = node["metadata"]["name"]
    return found


def _adopt_instance(aws: AwsControl, node: Manifest, claim: Manifest, cluster: str) -> SimInstance | None:
    zone, _, name = node["spec"]["providerID"].removeprefix(PROVIDER_ID).partition("/")
    said = {**(claim["metadata"].get("labels") or {}), **(node["metadata"].get("labels") or {})}
    kind = said.get(labels.INSTANCE_TYPE, "")
    subnet = next((each for each in aws.network.subnets.values() if each.zone == zone), None)
    if kind not in load_facts() or subnet is None or name in aws.instances.by_id:
        return None
    spot = said.get(labels.CAPACITY_TYPE) == "spot"
    facts, now = load_facts()[kind], aws.clock.now()
    groups = tuple((each.id, each.name) for each in aws.network.groups.values() if each.tags)
    machine = SimInstance(
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
        capacity_type="spot" if spot else "on-demand",
        lifecycle="spot" if spot else "",
        state="running",
        tags=dict(_list_instance_tags(cluster, said, node, claim)),
        groups=groups,
        interfaces=[_build_interface(aws, subnet, node, groups)],
        reservation=f"r-0{aws.world.random_hex(16)}",
        vcpus=facts.vcpus,
        region=aws.region,
        account=aws.account,
    )
    aws.get_state(Ec2Capacity).take(kind, zone, machine.capacity_type, facts.vcpus)
    aws.instances.take_over(machine)
    return machine


def _build_interface(
    aws: AwsControl, subnet: SimSubnet, node: Manifest, groups: tuple[tuple[str, str], ...]
) -> SimNetworkInterface:
    """With the address the node has: its name is made of it."""
    listed = (node.get("status") or {}).get("addresses") or ()
    address = next((each["address"] for each in listed if each["type"] == "InternalIP"), "")
    held = subnet.keep_address(address) if address else ()
    return SimNetworkInterface(
        f"eni-0{aws.world.random_hex(16)}", 0, 0, "interface", address, (), groups, held
    )


def _build_profile_tags(cluster: str, node_class: Manifest) -> dict[str, str]:
    return {
        f"kubernetes.io/cluster/{cluster}": "owned",
        "eks:eks-cluster-name": cluster,
        "karpenter.k8s.aws/ec2nodeclass": node_class["metadata"]["name"],
    }


def _list_instance_tags(
    cluster: str, said: Mapping[str, str], node: Manifest, claim: Manifest
) -> Iterator[tuple[str, str]]:
    yield f"kubernetes.io/cluster/{cluster}", "owned"
    yield "eks:eks-cluster-name", cluster
    yield "karpenter.sh/nodepool", said.get(labels.NODEPOOL, "")
    yield "karpenter.k8s.aws/ec2nodeclass", claim["spec"]["nodeClassRef"]["name"]
    yield "karpenter.sh/nodeclaim", claim["metadata"]["name"]
    yield "Name", node["metadata"]["name"]


Json = dict[str, Any]
# Seconds from the launch to the kubelet's first word, from and to.
BOOTS = (25.0, 45.0)
# How long the cloud controller needs to see that a machine is gone.
SEEN_GONE = (2.0, 10.0)
AGAIN = 5.0
# What the hypervisor really takes of the memory: less than Karpenter expects before it has seen a node.
TAKEN = 0.06
SILENT = {"metadata": {"annotations": {"sim.dovetail.dev/heartbeat": "stopped"}}}
# Labels the cloud controller knows, whatever the kubelet says.
REGION, ZONE_ID = "topology.kubernetes.io/region", "topology.k8s.aws/zone-id"


class NodeJoiner:
    """Brings the instances of one account and region that name this cluster into a world, as nodes."""

    def __init__(
        self, aws: AwsControl, world: World, cluster: str, *, boots: tuple[float, float] = BOOTS
    ) -> None:
        self.boots = boots
        # Machines that come up and never join: a wrong role, a broken network.
        self.lost: set[str] = set()
        self._aws, self._world, self._cluster = aws, world, cluster
        self._names: dict[str, str] = {}
        aws.world.listen("instance", self._on_change)

    def adopt_nodes(self) -> int:
        """Take over the nodes a kept cluster comes with; how many there were."""
        found = adopt_nodes(self._aws, self._world, self._cluster)
        self._names |= found
        return len(found)

    def _on_change(self, change: InstanceChange) -> None:
        machine = change.machine
        if (machine.account, machine.region) != (self._aws.account, self._aws.region):
            return
        if change.state == "running":
            # From the launch on, that is; what EC2 needed to start the machine is part of it.
            passed = (self._aws.clock.now() - machine.launched).total_seconds()
            self._join_later(max(0.0, self._aws.world.rng.uniform(*self.boots) - passed), machine)
        elif change.state == "terminated":
            wait = self._aws.world.rng.uniform(*SEEN_GONE)
            self._aws.world.call_later(wait, lambda: self._remove_node(machine))
        elif change.state in ("shutting-down", "stopping"):
            self._stop_heartbeat(machine)

    def _join_later(self, seconds: float, machine: SimInstance) -> None:
        self._aws.world.call_later(seconds, lambda: self._join_node(machine))

    def _join_node(self, machine: SimInstance) -> None:
        if machine.state != "running" or machine.id in self.lost:
            return
        said = read_user_data(machine.user_data)
        if said.cluster != self._cluster:
            return
        try:
            self._world.api.create("nodes", self._build_node(machine, said))
        except (ApiError, ConnectionError):
            # The API server is not reached, or the name is still taken: a kubelet tries again.
            self._join_later(AGAIN, machine)
            return
        self._names[machine.id] = machine.dns_name

    def _stop_heartbeat(self, machine: SimInstance) -> None:
        if (name := self._names.get(machine.id)) is None:
            return
        try:
            self._world.api.patch("nodes", name, SILENT)
        except (ApiError, ConnectionError) as error:
            if getattr(error, "code", 0) != 404:
                self._aws.world.call_later(AGAIN, lambda: self._stop_heartbeat(machine))

    def _remove_node(self, machine: SimInstance) -> None:
        """The cloud controller deletes the Node of a machine that is gone."""
        if (name := self._names.get(machine.id)) is None:
            return
        try:
            self._world.api.delete("nodes", name)
        except (ApiError, ConnectionError) as error:
            if getattr(error, "code", 0) != 404:
                self._aws.world.call_later(AGAIN, lambda: self._remove_node(machine))
                return
        del self._names[machine.id]

    def _build_node(self, machine: SimInstance, said: BootSettings) -> Json:
        facts, image = load_facts()[machine.type], self._aws.get_state(SimImages).known.get(machine.image)
        terms = NodeClassTerms(
            machine.region,
            _find_family(image.name if image else "", windows=machine.windows),
            kubelet=KubeletConfiguration(max_pods=said.max_pods),
            block_devices=_list_devices(machine),
            instance_store_policy="RAID0" if said.raid else "",
            memory_overhead=TAKEN,
        )
        made = build_instance_type(facts, terms, (machine.zone,), bundled_tables())
        capacity = {name: str(amount) for name, amount in made.capacity.items() if amount}
        allocatable = {name: str(amount) for name, amount in made.allocatable().items() if amount}
        found = {
            labels.HOSTNAME: machine.dns_name,
            labels.ARCH: facts.architecture,
            labels.OS: "windows" if machine.windows else "linux",
            labels.INSTANCE_TYPE: machine.type,
            labels.ZONE: machine.zone,
            REGION: machine.region,
            ZONE_ID: machine.zone_id,
            **said.labels,
        }
        return {
            "metadata": {
                "name": machine.dns_name,
                "labels": found,
                "annotations": {labels.KWOK_NODE: "fake"},
            },
            "spec": {
                "providerID": f"aws:///{machine.zone}/{machine.id}",
                "taints": [dict(each) for each in said.taints],
            },
            "status": {
                "capacity": capacity,
                "allocatable": allocatable,
                "addresses": [
                    {"type": "InternalIP", "address": machine.address},
                    {"type": "InternalDNS", "address": machine.dns_name},
                    {"type": "Hostname", "address": machine.dns_name},
                ],
            },
        }


def _find_family(image: str, *, windows: bool) -> AmiFamily:
    if windows:
        return next(
            (FAMILIES[f"Windows{year}"] for year in ("2019", "2022", "2025") if year in image),
            FAMILIES["Windows2022"],
        )
    return FAMILIES["Bottlerocket" if image.startswith("bottlerocket") else "AL2023"]


def _list_devices(machine: SimInstance) -> tuple[BlockDeviceMapping, ...]:
    return tuple(
        BlockDeviceMapping(
            device_name=one.get("DeviceName"), ebs=BlockDevice(volume_size=f"{one['Ebs']['VolumeSize']}Gi")
        )
        for one in machine.devices
        if one.get("Ebs", {}).get("VolumeSize")
    )
