"""EKS clusters, as DescribeCluster tells of them; zonal shift and Auto Mode are switched on and off."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from dovetail.sim.aws.service import AwsRequest, AwsWorld, Json, ServiceState, operation
from dovetail.sim.kube.local import LocalApi

__all__ = ["Eks", "EksCluster", "find_cluster", "follow_auto_mode"]

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


class Eks(ServiceState):
    """The clusters of an account in a region."""

    def init_state(self) -> None:
        self.clusters: dict[str, EksCluster] = {}
        self.updates: dict[str, Json] = {}

    def add(self, name: str, **more: object) -> EksCluster:
        arn = f"arn:aws:eks:{self.region}:{self.account}:cluster/{name}"
        made = EksCluster(name, arn, self.clock.now(), **more)  # type: ignore[arg-type]
        if not made.endpoint:
            made.endpoint = f"https://{self.world.random_hex(32).upper()}.gr7.{self.region}.eks.amazonaws.com"
        self.clusters[name] = made
        return made


def find_cluster(request: AwsRequest, parameter: str = "name") -> EksCluster:
    """The cluster a request is about."""
    name = request.get_required(parameter)
    found = request.regional_state(Eks).clusters.get(name)
    if found is None:
        raise request.refuse("ResourceNotFoundException", f"No cluster found for name: {name}.", 404)
    return found


@operation("eks", "DescribeCluster")
def describe_cluster(request: AwsRequest) -> Json:
    return {"cluster": _render_cluster(find_cluster(request))}


@operation("eks", "UpdateClusterConfig")
def update_cluster(request: AwsRequest) -> Json:
    found = find_cluster(request)
    if request.get("zonalShiftConfig") is not None:
        return _record_update(
            request, "ZonalShiftConfigUpdate", "ZonalShiftConfig", _set_zonal_shift(request, found)
        )
    if request.get("computeConfig") is not None:
        return _record_update(request, "AutoModeUpdate", "ComputeConfig", _set_auto_mode(request, found))
    raise request.refuse(
        "InvalidRequestException",
        "Only zonalShiftConfig, or computeConfig with its network and storage, can be changed here.",
    )


def _set_zonal_shift(request: AwsRequest, found: EksCluster) -> str:
    wanted = bool(request.get_required("zonalShiftConfig")["enabled"])
    if found.zonal_shift == wanted:
        raise request.refuse("InvalidParameterException", "No changes needed for the zonal shift config.")
    found.zonal_shift = wanted
    return str(wanted).lower()


def _set_auto_mode(request: AwsRequest, found: EksCluster) -> str:
    """All three parts of Auto Mode are switched together, or EKS switches none."""
    compute = request.get_required("computeConfig")
    network = (request.get("kubernetesNetworkConfig") or {}).get("elasticLoadBalancing") or {}
    storage = (request.get("storageConfig") or {}).get("blockStorage") or {}
    wanted = bool(compute.get("enabled"))
    if network.get("enabled") is not wanted or storage.get("enabled") is not wanted:
        raise request.refuse(
            "InvalidParameterException",
            "For EKS Auto Mode, please ensure that all required configs, including computeConfig, "
            "kubernetesNetworkConfig, and blockStorage are all either fully enabled or fully disabled.",
        )
    pools = tuple(compute.get("nodePools") or ())
    if unknown := sorted(set(pools) - AUTO_MODE_POOLS):
        raise request.refuse(
            "InvalidParameterException", f"The node pool {unknown[0]} is not a built-in one."
        )
    found.auto_mode = pools if wanted else None
    request.world.notify_listeners("auto-mode", found)
    return str(wanted).lower()


def _record_update(request: AwsRequest, kind: str, parameter: str, value: str) -> Json:
    made: Json = {
        "id": request.world.random_uuid(),
        "status": "Successful",
        "type": kind,
        "params": [{"type": parameter, "value": value}],
        "createdAt": request.world.clock.now(),
        "errors": [],
    }
    request.regional_state(Eks).updates[made["id"]] = made
    return {"update": {**made, "status": "InProgress"}}


@operation("eks", "DescribeUpdate")
def describe_update(request: AwsRequest) -> Json:
    find_cluster(request)
    found = request.regional_state(Eks).updates.get(request.get_required("updateId"))
    if found is None:
        raise request.refuse(
            "ResourceNotFoundException", f"No update found for ID: {request.get_required('updateId')}", 404
        )
    return {"update": found}


@operation("eks", "ListClusters")
def list_clusters(request: AwsRequest) -> Json:
    return {"clusters": sorted(request.regional_state(Eks).clusters)}


def _render_cluster(each: EksCluster) -> Json:
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


POOLS: Final = "nodepools.karpenter.sh"
GROUP: Final = "eks.amazonaws.com"
SYSTEM_TAINT: Final = {"key": "CriticalAddonsOnly", "effect": "NoSchedule"}
ARCHITECTURES: Final = {"general-purpose": ("amd64",), "system": ("amd64", "arm64")}


def follow_auto_mode(world: AwsWorld, api: LocalApi, cluster: str) -> None:
    """From now on the cluster has the pools that its Auto Mode names."""

    def changed(found: EksCluster) -> None:
        if found.name == cluster:
            for name in ARCHITECTURES:
                _set_pool(api, name, wanted=name in (found.auto_mode or ()))

    world.listen("auto-mode", changed)


def _set_pool(api: LocalApi, name: str, *, wanted: bool) -> None:
    present = any(each["metadata"]["name"] == name for each in api.list(POOLS))
    if wanted and not present:
        api.create(POOLS, _build_pool(name))
    elif present and not wanted:
        api.delete(POOLS, name)


def _build_pool(name: str) -> Json:
    spec: dict[str, Any] = {
        "nodeClassRef": {"group": GROUP, "kind": "NodeClass", "name": "default"},
        "expireAfter": "336h",
        "terminationGracePeriod": "24h",
        "requirements": [
            _build_requirement("karpenter.sh/capacity-type", "In", "on-demand"),
            _build_requirement("eks.amazonaws.com/instance-category", "In", "c", "m", "r"),
            _build_requirement("eks.amazonaws.com/instance-generation", "Gt", "4"),
            _build_requirement("kubernetes.io/arch", "In", *ARCHITECTURES[name]),
            _build_requirement("kubernetes.io/os", "In", "linux"),
        ],
    }
    if name == "system":
        spec["taints"] = [SYSTEM_TAINT]
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "eks"}},
        "spec": {
            "template": {"spec": spec},
            "disruption": {
                "budgets": [{"nodes": "10%"}],
                "consolidateAfter": "30s",
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
            },
        },
    }


def _build_requirement(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, "values": list(values)}
