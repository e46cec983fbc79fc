"""EKS clusters, as DescribeCluster tells of them, and the one change that is asked of them: zonal shift."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from dovetail.sim.aws.asking import Ask, Json, Subject, operation

__all__ = ["Eks", "EksCluster", "cluster_of"]

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

    @property
    def key(self) -> str:
        """What its issuer is known by: part of the address AWS gave it."""
        return self.endpoint.removeprefix("https://").partition(".")[0].upper()


class Eks(Subject):
    """The clusters of an account in a region."""

    def begin(self) -> None:
        self.clusters: dict[str, EksCluster] = {}
        self.updates: dict[str, Json] = {}

    def add(self, name: str, **more: object) -> EksCluster:
        arn = f"arn:aws:eks:{self.region}:{self.account}:cluster/{name}"
        made = EksCluster(name, arn, self.clock.now(), **more)  # type: ignore[arg-type]
        if not made.endpoint:
            made.endpoint = f"https://{self.ground.hexes(32).upper()}.gr7.{self.region}.eks.amazonaws.com"
        self.clusters[name] = made
        return made


def cluster_of(ask: Ask, parameter: str = "name") -> EksCluster:
    """The cluster a request is about."""
    name = ask.need(parameter)
    found = ask.here(Eks).clusters.get(name)
    if found is None:
        raise ask.refuse("ResourceNotFoundException", f"No cluster found for name: {name}.", 404)
    return found


@operation("eks", "DescribeCluster")
def describe_cluster(ask: Ask) -> Json:
    return {"cluster": _shown(cluster_of(ask))}


@operation("eks", "UpdateClusterConfig")
def update_cluster(ask: Ask) -> Json:
    found, wanted = cluster_of(ask), ask.get("zonalShiftConfig")
    if wanted is None:
        raise ask.refuse("InvalidRequestException", "Only zonalShiftConfig can be changed here.")
    if found.zonal_shift == bool(wanted["enabled"]):
        raise ask.refuse("InvalidParameterException", "No changes needed for the zonal shift config.")
    found.zonal_shift = bool(wanted["enabled"])
    made: Json = {
        "id": ask.ground.uuid(),
        "status": "Successful",
        "type": "ZonalShiftConfigUpdate",
        "params": [{"type": "ZonalShiftConfig", "value": str(found.zonal_shift).lower()}],
        "createdAt": ask.ground.clock.now(),
        "errors": [],
    }
    ask.here(Eks).updates[made["id"]] = made
    return {"update": {**made, "status": "InProgress"}}


@operation("eks", "DescribeUpdate")
def describe_update(ask: Ask) -> Json:
    cluster_of(ask)
    found = ask.here(Eks).updates.get(ask.need("updateId"))
    if found is None:
        raise ask.refuse("ResourceNotFoundException", f"No update found for ID: {ask.need('updateId')}", 404)
    return {"update": found}


@operation("eks", "ListClusters")
def list_clusters(ask: Ask) -> Json:
    return {"clusters": sorted(ask.here(Eks).clusters)}


def _shown(each: EksCluster) -> Json:
    region = each.arn.split(":")[3]
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
        "identity": {"oidc": {"issuer": f"https://oidc.eks.{region}.amazonaws.com/id/{each.key}"}},
        "zonalShiftConfig": {"enabled": each.zonal_shift},
        "tags": dict(each.tags),
    }
