"""What nodes must know of their cluster, learned from the settings, from Kubernetes and from EKS."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv6Address, ip_address
from typing import Any, ClassVar, Final, Literal

from dovetail.api.meta import Kind, Object, Record
from dovetail.aws import Aws, AwsAbsent, AwsError, DryRunPassed
from dovetail.errors import DovetailError, Gone, Misconfigured
from dovetail.ports import Kube
from dovetail.settings import Settings

__all__ = ["ClusterDiscovery", "ClusterFacts", "parse_minor"]

OLDEST, NEWEST = (1, 26), (1, 36)
"""The Kubernetes versions we know; others are used all the same, and remarked on."""

IPFamily = Literal["ipv4", "ipv6"]
EKS: Final = "eks"


class DnsServiceSpec(Record, frozen=True, rename={"cluster_ip": "clusterIP"}):
    """Where a service is reached."""

    cluster_ip: str = ""


class DnsService(Object, frozen=True):
    """A service, as far as its address goes."""

    KIND: ClassVar[Kind] = Kind("", "v1", "Service", "services")

    spec: DnsServiceSpec = DnsServiceSpec()


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """One cluster. `ca_bundle` is in base64; `dns_ip` and `service_cidr` are empty while unknown."""

    name: str
    endpoint: str = ""
    ca_bundle: str = ""
    dns_ip: str = ""
    version: str = ""
    service_cidr: str = ""
    ip_family: IPFamily = "ipv4"


class ClusterDiscovery:
    """Learns the facts of the cluster once, and keeps the version current."""

    def __init__(self, settings: Settings, aws: Aws, kube: Kube, authority: str = "") -> None:
        self._settings = settings
        self._aws = aws
        self._kube = kube
        bundle = settings.cluster_ca_bundle or b64encode(authority.encode()).decode()
        self._facts = ClusterFacts(name=settings.cluster_name, ca_bundle=bundle)

    @property
    def facts(self) -> ClusterFacts:
        """The cluster as it is known now."""
        return self._facts

    @property
    def remark(self) -> str:
        """What a person should know about the cluster's version; empty when it is one we know."""
        version = self._facts.version
        if not version or OLDEST <= parse_minor(version) <= NEWEST:
            return ""
        low, high = (".".join(map(str, each)) for each in (OLDEST, NEWEST))
        return f"Kubernetes {version} is outside {low} to {high}, the versions this controller was made for"

    async def start(self) -> None:
        """Learn everything; Misconfigured when something indispensable cannot be had."""
        await self._reach_ec2()
        endpoint = self._settings.cluster_endpoint or await self._find_endpoint()
        dns = await self._dns_address()
        family: IPFamily = "ipv6" if _is_ipv6(dns) else "ipv4"
        self._facts = replace(self._facts, endpoint=endpoint, dns_ip=dns, ip_family=family)
        try:
            await self.refresh_version()
        except DovetailError as error:
            raise Misconfigured(
                f"starting the aws provider: the cluster's version cannot be read ({error}); allow "
                "GET /version, or eks:DescribeCluster where EKS_CONTROL_PLANE is on"
            ) from error

    async def refresh_version(self) -> str:
        """Read the cluster's version again, `major.minor`; what was known stays when that fails."""
        version = await (
            self._eks_version() if self._settings.eks_control_plane else self._kube.read_version()
        )
        self._facts = replace(self._facts, version=version)
        return version

    async def service_cidr(self) -> str:
        """The range of service addresses, asked of EKS once; IPv4 where there is one."""
        if not self._facts.service_cidr:
            network = (await self._eks_cluster()).get("kubernetesNetworkConfig") or {}
            found = network.get("serviceIpv4Cidr") or network.get("serviceIpv6Cidr") or ""
            if not found:
                raise Gone(f"reading the service CIDR of {self._facts.name}: EKS names none")
            self._facts = replace(self._facts, service_cidr=found)
        return self._facts.service_cidr

    async def _reach_ec2(self) -> None:
        try:
            await self._aws.call("ec2", "DescribeInstanceTypes", {"DryRun": True}, retried=False)
        except DryRunPassed:
            return
        except AwsError as error:
            raise Misconfigured(
                f"starting the aws provider: EC2 in {self._aws.region} cannot be used ({error.code}: "
                f"{error.message}); check the network, the credentials and ec2:DescribeInstanceTypes"
            ) from error

    async def _find_endpoint(self) -> str:
        try:
            return str((await self._eks_cluster())["endpoint"])
        except AwsAbsent as error:
            raise Misconfigured(
                f"starting the aws provider: EKS knows no cluster {self._facts.name} in {self._aws.region}; "
                "set CLUSTER_NAME and AWS_REGION to those of this cluster"
            ) from error
        except (DovetailError, KeyError) as error:
            raise Misconfigured(
                f"starting the aws provider: EKS does not tell the endpoint of {self._facts.name} ({error}); "
                "set CLUSTER_ENDPOINT, or allow eks:DescribeCluster"
            ) from error

    async def _dns_address(self) -> str:
        try:
            return (await self._kube.get(DnsService, "kube-dns", "kube-system")).spec.cluster_ip
        except DovetailError:
            return ""  # nodes then keep the DNS address their image came with

    async def _eks_version(self) -> str:
        return str((await self._eks_cluster()).get("version", ""))

    async def _eks_cluster(self) -> Mapping[str, Any]:
        answer = await self._aws.call(EKS, "DescribeCluster", {"name": self._facts.name})
        found: Mapping[str, Any] = answer["cluster"]
        return found


def parse_minor(version: str) -> tuple[int, int]:
    """`1.33` as numbers that can be compared; what is not a number counts as 0."""
    major, _, rest = version.partition(".")
    return _parse_number(major), _parse_number(rest.partition(".")[0])


def _parse_number(text: str) -> int:
    digits = text.strip().rstrip("+")
    return int(digits) if digits.isdecimal() else 0


def _is_ipv6(address: str) -> bool:
    try:
        return isinstance(ip_address(address), IPv6Address)
    except ValueError:
        return False
