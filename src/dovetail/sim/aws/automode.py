"""EKS Auto Mode's own pools, as EKS puts them into a cluster whose Auto Mode is switched on.

They are there to be seen, and for zonal shifts that must do without editing them. Nobody buys for them here:
that is EKS's part, which is not simulated.
"""

from __future__ import annotations

from typing import Any, Final

from dovetail.sim.aws.asking import Json
from dovetail.sim.aws.eks import EksCluster
from dovetail.sim.aws.ground import Ground
from dovetail.sim.kube.local import LocalApi

__all__ = ["follow_auto_mode"]

POOLS: Final = "nodepools.karpenter.sh"
GROUP: Final = "eks.amazonaws.com"
SYSTEM_TAINT: Final = {"key": "CriticalAddonsOnly", "effect": "NoSchedule"}
ARCHITECTURES: Final = {"general-purpose": ("amd64",), "system": ("amd64", "arm64")}


def follow_auto_mode(ground: Ground, api: LocalApi, cluster: str) -> None:
    """From now on the cluster has the pools that its Auto Mode names."""

    def changed(found: EksCluster) -> None:
        if found.name == cluster:
            for name in ARCHITECTURES:
                _set_pool(api, name, wanted=name in (found.auto_mode or ()))

    ground.listen("auto-mode", changed)


def _set_pool(api: LocalApi, name: str, *, wanted: bool) -> None:
    present = any(each["metadata"]["name"] == name for each in api.list(POOLS))
    if wanted and not present:
        api.create(POOLS, _pool(name))
    elif present and not wanted:
        api.delete(POOLS, name)


def _pool(name: str) -> Json:
    spec: dict[str, Any] = {
        "nodeClassRef": {"group": GROUP, "kind": "NodeClass", "name": "default"},
        "expireAfter": "336h",
        "terminationGracePeriod": "24h",
        "requirements": [
            _requirement("karpenter.sh/capacity-type", "In", "on-demand"),
            _requirement("eks.amazonaws.com/instance-category", "In", "c", "m", "r"),
            _requirement("eks.amazonaws.com/instance-generation", "Gt", "4"),
            _requirement("kubernetes.io/arch", "In", *ARCHITECTURES[name]),
            _requirement("kubernetes.io/os", "In", "linux"),
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


def _requirement(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, "values": list(values)}
