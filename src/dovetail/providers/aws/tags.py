"""The tags by which everything we make in AWS is known to be ours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from dovetail.api import labels
from dovetail.api.nodeclass import EC2NodeClass

__all__ = ["launch_tags", "listed", "owned_by", "profile_tags", "restricted"]

OWNED: Final = "owned"
NODECLAIM_TAG: Final = "karpenter.sh/nodeclaim"
RESTRICTED: Final = (
    re.compile(r"^kubernetes\.io/cluster/[0-9A-Za-z][A-Za-z0-9\-_]*$"),
    *(
        re.compile(f"^{re.escape(key)}$")
        for key in (labels.NODEPOOL, labels.EKS_CLUSTER_TAG, labels.EC2_NODECLASS, NODECLAIM_TAG)
    ),
)


def owned_by(cluster: str) -> str:
    """The key that says which cluster a thing belongs to."""
    return f"kubernetes.io/cluster/{cluster}"


def launch_tags(node_class: EC2NodeClass, cluster: str, nodepool: str) -> dict[str, str]:
    """The tags of everything that is launched with a class; ours win over the class's."""
    return {
        **node_class.spec.tags,
        owned_by(cluster): OWNED,
        labels.NODEPOOL: nodepool,
        labels.EKS_CLUSTER_TAG: cluster,
        labels.EC2_NODECLASS: node_class.name,
    }


def profile_tags(node_class: EC2NodeClass, cluster: str, region: str) -> dict[str, str]:
    """The tags of an instance profile."""
    return {
        **node_class.spec.tags,
        owned_by(cluster): OWNED,
        labels.EKS_CLUSTER_TAG: cluster,
        labels.EC2_NODECLASS: node_class.name,
        labels.REGION: region,
    }


def restricted(tags: Iterable[str]) -> tuple[str, ...]:
    """Those keys that a class may not set, since they are ours."""
    return tuple(sorted(key for key in tags if any(pattern.match(key) for pattern in RESTRICTED)))


def listed(tags: Mapping[str, str]) -> list[dict[str, Any]]:
    """Tags as AWS takes them."""
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]
