"""Instances become nodes: a machine boots, joins the cluster its user data names, and leaves with it."""

from __future__ import annotations

from typing import Any

from dovetail.api import labels
from dovetail.api.nodeclass import BlockDevice, BlockDeviceMapping, KubeletConfiguration
from dovetail.providers.aws.catalog import Terms, instance_type
from dovetail.providers.aws.facts import bundled_tables
from dovetail.providers.aws.families import FAMILIES, Family
from dovetail.sim.aws.adopting import adopt
from dovetail.sim.aws.booting import Booted, booted
from dovetail.sim.aws.hands import Hands
from dovetail.sim.aws.images import Images
from dovetail.sim.aws.instances import Changed
from dovetail.sim.aws.machine import Machine
from dovetail.sim.aws.types import facts_of
from dovetail.sim.kube.status import ApiError
from dovetail.sim.world import World

__all__ = ["Joining"]

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


class Joining:
    """Brings the instances of one account and region that name this cluster into a world, as nodes."""

    def __init__(self, aws: Hands, world: World, cluster: str, *, boots: tuple[float, float] = BOOTS) -> None:
        self.boots = boots
        # Machines that come up and never join: a wrong role, a broken network.
        self.lost: set[str] = set()
        self._aws, self._world, self._cluster = aws, world, cluster
        self._names: dict[str, str] = {}
        aws.ground.listen("instance", self._changed)

    def adopt(self) -> int:
        """Take over the nodes a kept cluster comes with; how many there were."""
        found = adopt(self._aws, self._world, self._cluster)
        self._names |= found
        return len(found)

    def _changed(self, change: Changed) -> None:
        machine = change.machine
        if (machine.account, machine.region) != (self._aws.account, self._aws.region):
            return
        if change.state == "running":
            # From the launch on, that is; what EC2 needed to start the machine is part of it.
            passed = (self._aws.clock.now() - machine.launched).total_seconds()
            self._later(max(0.0, self._aws.ground.rng.uniform(*self.boots) - passed), machine)
        elif change.state == "terminated":
            wait = self._aws.ground.rng.uniform(*SEEN_GONE)
            self._aws.ground.later(wait, lambda: self._leaves(machine))
        elif change.state in ("shutting-down", "stopping"):
            self._falls_silent(machine)

    def _later(self, seconds: float, machine: Machine) -> None:
        self._aws.ground.later(seconds, lambda: self._joins(machine))

    def _joins(self, machine: Machine) -> None:
        if machine.state != "running" or machine.id in self.lost:
            return
        said = booted(machine.user_data)
        if said.cluster != self._cluster:
            return
        try:
            self._world.api.create("nodes", self._node(machine, said))
        except (ApiError, ConnectionError):
            # The API server is not reached, or the name is still taken: a kubelet tries again.
            self._later(AGAIN, machine)
            return
        self._names[machine.id] = machine.dns_name

    def _falls_silent(self, machine: Machine) -> None:
        if (name := self._names.get(machine.id)) is None:
            return
        try:
            self._world.api.patch("nodes", name, SILENT)
        except (ApiError, ConnectionError) as error:
            if getattr(error, "code", 0) != 404:
                self._aws.ground.later(AGAIN, lambda: self._falls_silent(machine))

    def _leaves(self, machine: Machine) -> None:
        """The cloud controller deletes the Node of a machine that is gone."""
        if (name := self._names.get(machine.id)) is None:
            return
        try:
            self._world.api.delete("nodes", name)
        except (ApiError, ConnectionError) as error:
            if getattr(error, "code", 0) != 404:
                self._aws.ground.later(AGAIN, lambda: self._leaves(machine))
                return
        del self._names[machine.id]

    def _node(self, machine: Machine, said: Booted) -> Json:
        facts, image = facts_of()[machine.type], self._aws.subject(Images).known.get(machine.image)
        terms = Terms(
            machine.region,
            _family(image.name if image else "", windows=machine.windows),
            kubelet=KubeletConfiguration(max_pods=said.max_pods),
            block_devices=_devices(machine),
            instance_store_policy="RAID0" if said.raid else "",
            memory_overhead=TAKEN,
        )
        made = instance_type(facts, terms, (machine.zone,), bundled_tables())
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


def _family(image: str, *, windows: bool) -> Family:
    if windows:
        return next(
            (FAMILIES[f"Windows{year}"] for year in ("2019", "2022", "2025") if year in image),
            FAMILIES["Windows2022"],
        )
    return FAMILIES["Bottlerocket" if image.startswith("bottlerocket") else "AL2023"]


def _devices(machine: Machine) -> tuple[BlockDeviceMapping, ...]:
    return tuple(
        BlockDeviceMapping(
            device_name=one.get("DeviceName"), ebs=BlockDevice(volume_size=f"{one['Ebs']['VolumeSize']}Gi")
        )
        for one in machine.devices
        if one.get("Ebs", {}).get("VolumeSize")
    )
