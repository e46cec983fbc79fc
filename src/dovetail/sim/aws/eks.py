"""EKS clusters, as DescribeCluster tells of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from dovetail.sim.aws.asking import Ask, Json, Subject, operation

__all__ = ["Eks", "EksCluster"]

CERTIFICATE = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg=="


@dataclass(slots=True)
class EksCluster:
    """A cluster's control plane."""

    name: str
    arn: str
    created: datetime
    version: str = "1.35"
    endpoint: str = ""
    certificate: str = CERTIFICATE
    service_cidr: str = "10.100.0.0/16"
    service_cidr_v6: str = ""
    vpc: str = ""
    subnets: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    zonal_shift: bool = True
    tags: dict[str, str] = field(default_factory=dict)


class Eks(Subject):
    """The clusters of an account in a region."""

    def begin(self) -> None:
        self.clusters: dict[str, EksCluster] = {}

    def add(self, name: str, **more: object) -> EksCluster:
        arn = f"arn:aws:eks:{self.region}:{self.account}:cluster/{name}"
        made = EksCluster(name, arn, self.clock.now(), **more)  # type: ignore[arg-type]
        if not made.endpoint:
            made.endpoint = f"https://{self.ground.hexes(32).upper()}.gr7.{self.region}.eks.amazonaws.com"
        self.clusters[name] = made
        return made


@operation("eks", "DescribeCluster")
def describe_cluster(ask: Ask) -> Json:
    name = ask.need("name")
    found = ask.here(Eks).clusters.get(name)
    if found is None:
        raise ask.refuse("ResourceNotFoundException", f"No cluster found for name: {name}.", 404)
    return {"cluster": _shown(found)}


@operation("eks", "ListClusters")
def list_clusters(ask: Ask) -> Json:
    return {"clusters": sorted(ask.here(Eks).clusters)}


def _shown(each: EksCluster) -> Json:
    network = {"ipFamily": "ipv6" if each.service_cidr_v6 else "ipv4"}
    if each.service_cidr:
        network["serviceIpv4Cidr"] = each.service_cidr
    if each.service_cidr_v6:
        network["serviceIpv6Cidr"] = each.service_cidr_v6
    return {
        "name": each.name,
        "arn": each.arn,
        "createdAt": each.created,
        "version": each.version,
        "platformVersion": "eks.1",
        "endpoint": each.endpoint,
        "status": "ACTIVE",
        "certificateAuthority": {"data": each.certificate},
        "kubernetesNetworkConfig": network,
        "resourcesVpcConfig": {
            "vpcId": each.vpc,
            "subnetIds": list(each.subnets),
            "securityGroupIds": list(each.groups),
            "endpointPublicAccess": True,
            "endpointPrivateAccess": True,
        },
        "zonalShiftConfig": {"enabled": each.zonal_shift},
        "tags": dict(each.tags),
    }
