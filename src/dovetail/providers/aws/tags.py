"""The tags by which everything we make in AWS is known to be ours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from dovetail.api import labels
from dovetail.api.nodeclass import EC2NodeClass

__all__ = [
    "NODECLAIMS_TAG",
    "OF_GROUP",
    "build_launch_tags",
    "build_profile_tags",
    "find_restricted",
    "list_tags",
    "owned_by",
    "tag_for_claims",
]

OWNED: Final = "owned"
RESTRICTED: Final = (
    re.compile(r"^kubernetes\.io/cluster/[0-9A-Za-z][A-Za-z0-9\-_]*$"),
    *(
        re.compile(f"^{re.escape(key)}$")
        for key in (labels.NODEPOOL, labels.EKS_CLUSTER_TAG, labels.EC2_NODECLASS, labels.NODECLAIM_TAG)
    ),
)


def owned_by(cluster: str) -> str:
    """The key that says which cluster a thing belongs to."""
    return f"{labels.CLUSTER_TAG_PREFIX}{cluster}"


def build_launch_tags(node_class: EC2NodeClass, cluster: str, nodepool: str) -> dict[str, str]:
    """The tags of everything that is launched with a class; ours win over the class's."""
    return {
        **node_class.spec.tags,
        owned_by(cluster): OWNED,
        labels.NODEPOOL: nodepool,
        labels.EKS_CLUSTER_TAG: cluster,
        labels.EC2_NODECLASS: node_class.name,
    }


def build_profile_tags(node_class: EC2NodeClass, cluster: str, region: str) -> dict[str, str]:
    """The tags of an instance profile."""
    return {
        **node_class.spec.tags,
        owned_by(cluster): OWNED,
        labels.EKS_CLUSTER_TAG: cluster,
        labels.EC2_NODECLASS: node_class.name,
        labels.REGION: region,
    }


def find_restricted(tags: Iterable[str]) -> tuple[str, ...]:
    """Those keys that a class may not set, since they are ours."""
    return tuple(sorted(key for key in tags if any(pattern.match(key) for pattern in RESTRICTED)))


def list_tags(tags: Mapping[str, str]) -> list[dict[str, Any]]:
    """Tags as AWS takes them."""
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


NODECLAIMS_TAG: Final = "dovetail.sh/nodeclaims"
LONGEST: Final = 256
OF_GROUP: Final = "group:"
DIGEST: Final = 16
INSTANCE: Final = "instance"


def tag_for_claims(request: Mapping[str, Any], claims: Sequence[str], group: str = "") -> dict[str, Any]:
    """A fleet's request whose instances say whom they are for; no two sets of claims make the same one."""
    tag = _build_claim_tag(sorted(filter(None, claims)), group)
    if tag is None:
        return dict(request)
    specifications = [
        {**each, "Tags": [*each["Tags"], tag]} if each["ResourceType"] == INSTANCE else each
        for each in request.get("TagSpecifications", ())
    ]
    return {**request, "TagSpecifications": specifications}


def _build_claim_tag(claims: Sequence[str], group: str) -> dict[str, str] | None:
    if len(claims) <= 1:
        return {"Key": labels.NODECLAIM_TAG, "Value": claims[0]} if claims else None
    listed = " ".join(claims)
    if len(listed) > LONGEST:
        listed = f"{OF_GROUP}{group} {sha256(listed.encode()).hexdigest()[:DIGEST]}"
    return {"Key": NODECLAIMS_TAG, "Value": listed}
