"""What nodes must know of their cluster: learned at the start, or the start fails with a sentence."""

from __future__ import annotations

from base64 import b64encode
from random import Random
from typing import Any

import pytest

from dovetail.aws import AwsError
from dovetail.controllers.base import Result
from dovetail.errors import Misconfigured
from dovetail.providers.aws.cluster_discovery import ClusterDiscovery, parse_minor
from dovetail.providers.aws.controllers.maintenance import VersionRefresh
from dovetail.runtime.kube import KubeClient
from dovetail.settings import read_settings
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.clock import VirtualClock
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.transport import LocalTransport
from support.aws import CLUSTER, simulated
from support.stage import virtual


class Place:
    """A cluster, its AWS, and what is discovered of them."""

    def __init__(self, *flags: str, authority: str = "") -> None:
        clock = VirtualClock()
        self.aws: SimulatedAws = simulated(clock)
        self.server = ApiServer(clock, Random(0))
        self.api = self.server.build_local_client("someone")
        settings = read_settings((f"--cluster-name={CLUSTER}", *flags), {}, provider="aws")
        kube = KubeClient(LocalTransport(self.server), clock)
        self.discovery = ClusterDiscovery(settings, self.aws, kube, authority)

    def dns(self, address: str) -> None:
        if not any(each["metadata"]["name"] == "kube-system" for each in self.api.list("namespaces")):
            self.api.create("namespaces", {"metadata": {"name": "kube-system"}})
        service: dict[str, Any] = {
            "metadata": {"name": "kube-dns", "namespace": "kube-system"},
            "spec": {"clusterIP": address, "ports": [{"port": 53}]},
        }
        self.api.create("services", service, "kube-system")


@virtual
async def test_everything_is_learned_at_the_start() -> None:
    place = Place(authority="-----BEGIN CERTIFICATE-----")
    place.dns("10.0.100.10")
    await place.discovery.start()
    facts = place.discovery.facts
    assert facts.name == CLUSTER
    assert facts.endpoint == place.aws.eks.clusters[CLUSTER].endpoint
    assert facts.ca_bundle == b64encode(b"-----BEGIN CERTIFICATE-----").decode()
    assert (facts.dns_ip, facts.ip_family) == ("10.0.100.10", "ipv4")
    assert parse_minor(facts.version) >= (1, 26)
    assert facts.service_cidr == ""  # only AL2023 needs it
    assert await place.discovery.service_cidr() == "10.100.0.0/16"
    asked = [call.operation for call in place.aws.calls]
    await place.discovery.service_cidr()
    assert [call.operation for call in place.aws.calls] == asked


@virtual
async def test_what_the_settings_say_is_not_asked_for() -> None:
    place = Place("--cluster-endpoint=https://here", "--cluster-ca-bundle=Y2E=")
    await place.discovery.start()
    facts = place.discovery.facts
    assert (facts.endpoint, facts.ca_bundle) == ("https://here", "Y2E=")
    assert not any(call.operation == "DescribeCluster" for call in place.aws.calls)
    assert (facts.dns_ip, facts.ip_family) == ("", "ipv4")  # no DNS service to be found


@virtual
async def test_a_cluster_whose_dns_speaks_ipv6_is_an_ipv6_cluster() -> None:
    place = Place()
    place.dns("fd00::10")
    await place.discovery.start()
    assert place.discovery.facts.ip_family == "ipv6"


@virtual
async def test_eks_tells_the_version_where_it_keeps_the_control_plane() -> None:
    place = Place("--eks-control-plane=true")
    place.aws.eks.clusters[CLUSTER].version = "1.31"
    await place.discovery.start()
    assert place.discovery.facts.version == "1.31"
    place.aws.eks.clusters[CLUSTER].version = "1.32"
    controller = VersionRefresh(place.discovery)
    assert (await controller.reconcile("")).after is not None
    assert place.discovery.facts.version == "1.32"
    place.aws.refuse("InternalError", "DescribeCluster")
    with pytest.raises(AwsError):
        await controller.reconcile("")
    assert place.discovery.facts.version == "1.32"


@virtual
async def test_a_version_we_do_not_know_is_remarked_on_once(caplog: pytest.LogCaptureFixture) -> None:
    place = Place("--eks-control-plane=true")
    place.aws.eks.clusters[CLUSTER].version = "1.99"
    await place.discovery.start()
    controller = VersionRefresh(place.discovery)
    for _ in range(2):
        assert isinstance(await controller.reconcile(""), Result)
    assert [record.getMessage() for record in caplog.records] == [place.discovery.remark]
    assert "1.99 is outside 1.26 to 1.36" in place.discovery.remark


@pytest.mark.parametrize(
    ("code", "operation", "flags", "told"),
    [
        ("UnauthorizedOperation", "DescribeInstanceTypes", (), "ec2:DescribeInstanceTypes"),
        ("AccessDeniedException", "DescribeCluster", (), "CLUSTER_ENDPOINT"),
        (
            "AccessDeniedException",
            "DescribeCluster",
            ("--eks-control-plane=true", "--cluster-endpoint=https://here"),
            "eks:DescribeCluster",
        ),
    ],
)
def test_what_cannot_be_learned_ends_the_start_with_what_to_do(
    code: str, operation: str, flags: tuple[str, ...], told: str
) -> None:
    @virtual
    async def started() -> None:
        place = Place(*flags)
        place.aws.refuse(code, operation, times=None)
        with pytest.raises(Misconfigured, match=told):
            await place.discovery.start()

    started()


@pytest.mark.parametrize(
    ("text", "number"), [("1.33", (1, 33)), ("1.33+", (1, 33)), ("1.9.2", (1, 9)), ("", (0, 0))]
)
def test_versions_are_compared_as_numbers(text: str, number: tuple[int, int]) -> None:
    assert parse_minor(text) == number
