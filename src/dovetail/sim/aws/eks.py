"""EKS clusters, as DescribeCluster tells of them; zonal shift and Auto Mode are switched on and off."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from dovetail.sim.aws.asking import Ask, Json, Subject, operation

__all__ = ["Eks", "EksCluster", "cluster_of"]

AUTO_MODE_POOLS = frozenset(("general-purpose", "system"))
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
    # Pools of EKS Auto Mode's own; None while Auto Mode is off.
    auto_mode: tuple[str, ...] | None = None
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
    found = cluster_of(ask)
    if ask.get("zonalShiftConfig") is not None:
        return _updated(ask, "ZonalShiftConfigUpdate", "ZonalShiftConfig", _set_zonal_shift(ask, found))
    if ask.get("computeConfig") is not None:
        return _updated(ask, "AutoModeUpdate", "ComputeConfig", _set_auto_mode(ask, found))
    raise ask.refuse(
        "InvalidRequestException",
        "Only zonalShiftConfig, or computeConfig with its network and storage, can be changed here.",
    )


def _set_zonal_shift(ask: Ask, found: EksCluster) -> str:
    wanted = bool(ask.need("zonalShiftConfig")["enabled"])
    if found.zonal_shift == wanted:
        raise ask.refuse("InvalidParameterException", "No changes needed for the zonal shift config.")
    found.zonal_shift = wanted
    return str(wanted).lower()


def _set_auto_mode(ask: Ask, found: EksCluster) -> str:
    """All three parts of Auto Mode are switched together, or EKS switches none."""
    compute = ask.need("computeConfig")
    network = (ask.get("kubernetesNetworkConfig") or {}).get("elasticLoadBalancing") or {}
    storage = (ask.get("storageConfig") or {}).get("blockStorage") or {}
    wanted = bool(compute.get("enabled"))
    if network.get("enabled") is not wanted or storage.get("enabled") is not wanted:
        raise ask.refuse(
            "InvalidParameterException",
            "For EKS Auto Mode, please ensure that all required configs, including computeConfig, "
            "kubernetesNetworkConfig, and blockStorage are all either fully enabled or fully disabled.",
        )
    pools = tuple(compute.get("nodePools") or ())
    if unknown := sorted(set(pools) - AUTO_MODE_POOLS):
        raise ask.refuse("InvalidParameterException", f"The node pool {unknown[0]} is not a built-in one.")
    found.auto_mode = pools if wanted else None
    ask.ground.tell("auto-mode", found)
    return str(wanted).lower()


def _updated(ask: Ask, kind: str, parameter: str, value: str) -> Json:
    made: Json = {
        "id": ask.ground.uuid(),
        "status": "Successful",
        "type": kind,
        "params": [{"type": parameter, "value": value}],
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
    network: Json = {
        "ipFamily": "ipv6" if each.service_cidr_v6 else "ipv4",
        "elasticLoadBalancing": {"enabled": each.auto_mode is not None},
    }
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
        "computeConfig": {"enabled": each.auto_mode is not None, "nodePools": list(each.auto_mode or ())},
        "storageConfig": {"blockStorage": {"enabled": each.auto_mode is not None}},
        "tags": dict(each.tags),
    }
