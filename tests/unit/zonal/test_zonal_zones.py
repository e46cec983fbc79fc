"""Which zone is which, with all that may be asked and with less."""

from __future__ import annotations

from typing import Any

from dovetail.api.core import Node
from dovetail.api.crds import build_manifests
from dovetail.runtime.informer import Informer
from dovetail.runtime.kube import KubeClient
from dovetail.sim.aws.iam.permissions import Need
from dovetail.sim.clock import VirtualClock
from dovetail.sim.transport import LocalTransport
from dovetail.sim.world import World
from dovetail.zonal.controller.zone_map import ZoneDiscovery
from support.aws import CLUSTER, simulated
from support.stage import virtual


class Without:
    """Somebody who may do everything but this."""

    arn = "arn:aws:iam::111122223333:role/dovetail"

    def __init__(self, *actions: str) -> None:
        self._actions = actions

    def evaluate_need(self, need: Need) -> Any:
        class Verdict:
            allowed = need.action not in self._actions
            why = "it is not granted"

        return Verdict


def zones_of(*denied: str) -> tuple[ZoneDiscovery, Any]:
    clock = VirtualClock()
    world, aws = World(clock, 0), simulated(clock)
    for each in build_manifests("aws"):
        world.server.build_local_client("someone").create(
            "customresourcedefinitions.apiextensions.k8s.io", each
        )
    aws.principal = Without(*denied)  # type: ignore[assignment]  # judges as a Principal does
    kube = KubeClient(LocalTransport(world.server), clock)
    return ZoneDiscovery(kube, aws, CLUSTER, Informer(Node), clock), aws


@virtual
async def test_zones_of_the_account_are_known_by_id_and_name() -> None:
    zones, _ = zones_of()
    ground = await zones.discover_zones({"usw2-az1"})
    assert ground.names["usw2-az1"] == "us-west-2a"
    assert len(ground.names) >= len(ground.cluster) > 0


@virtual
async def test_where_zones_may_not_be_described_the_clusters_subnets_tell_of_them() -> None:
    zones, aws = zones_of("ec2:DescribeAvailabilityZones")
    known, _ = zones_of()
    ground, whole = await zones.discover_zones({"usw2-az1"}), await known.discover_zones({"usw2-az1"})
    assert ground.cluster == whole.cluster != ()
    assert {zone: whole.names[zone] for zone in whole.cluster} == dict(ground.names)
    before = len(aws.calls)
    await zones.discover_zones({"usw2-az1"})
    assert len(aws.calls) == before, "what was learned is kept for a day"


@virtual
async def test_without_subnets_either_nothing_is_guessed() -> None:
    zones, _ = zones_of("ec2:DescribeAvailabilityZones", "ec2:DescribeSubnets")
    assert (await zones.discover_zones({"usw2-az1"})).names == {}
