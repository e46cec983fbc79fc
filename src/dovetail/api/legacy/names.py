"""Keys that changed their spelling on the way to v1, and keys v1 will not take.

The renames are those of Karpenter 0.32 (alpha to beta) and 1.0 (beta to v1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.api.legacy.notes import Scribe

ALPHA = "karpenter.sh/v1alpha5"
ALPHA_AWS = "karpenter.k8s.aws/v1alpha1"
BETA = "karpenter.sh/v1beta1"
BETA_AWS = "karpenter.k8s.aws/v1beta1"
V1 = "karpenter.sh/v1"
V1_AWS = "karpenter.k8s.aws/v1"
AWS_GROUP = "karpenter.k8s.aws"

POOL_LABEL = "karpenter.sh/nodepool"
LABELS: Mapping[str, str] = {"karpenter.sh/provisioner-name": POOL_LABEL}
GONE_LABELS = frozenset({f"{AWS_GROUP}/instance-pods", f"{AWS_GROUP}/instance-ami-id"})
ANNOTATIONS: Mapping[str, str] = {
    "karpenter.sh/do-not-evict": "karpenter.sh/do-not-disrupt",
    "karpenter.sh/do-not-consolidate": "karpenter.sh/do-not-disrupt",
    "karpenter.sh/provisioner-hash": "karpenter.sh/nodepool-hash",
    f"{AWS_GROUP}/nodetemplate-hash": f"{AWS_GROUP}/ec2nodeclass-hash",
    "karpenter.sh/managed-by": "eks:eks-cluster-name",
}
GONE_ANNOTATIONS = frozenset(
    {
        "karpenter.sh/emptiness-timestamp",
        "karpenter.sh/linked",
        "compatibility.karpenter.sh/provider",
        "compatibility.karpenter.sh/v1beta1-nodeclass-reference",
        "compatibility.karpenter.sh/v1beta1-kubelet-conversion",
        # It repeats the old object, and would make the next kubectl apply compare v1 with it.
        "kubectl.kubernetes.io/last-applied-configuration",
    }
)
# Old spellings of well-known labels that Karpenter has always taken for the new ones.
ALIASES: Mapping[str, str] = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}
_AWS_OPEN = frozenset(
    f"{AWS_GROUP}/{name}"
    for name in [
        "instance-tenancy",
        "capacity-reservation-type",
        "capacity-reservation-id",
        "capacity-reservation-interruptible",
        "ec2nodeclass",
        "instance-encryption-in-transit-supported",
        "instance-category",
        "instance-hypervisor",
        "instance-family",
        "instance-generation",
        "instance-local-nvme",
        "instance-size",
        "instance-cpu",
        "instance-cpu-manufacturer",
        "instance-cpu-sustained-clock-speed-mhz",
        "instance-memory",
        "instance-ebs-bandwidth",
        "instance-network-bandwidth",
        "instance-gpu-name",
        "instance-gpu-manufacturer",
        "instance-gpu-count",
        "instance-gpu-memory",
        "instance-accelerator-name",
        "instance-accelerator-manufacturer",
        "instance-accelerator-count",
        "instance-capability-flex",
        "placement-group-id",
        "placement-group-partition",
    ]
)
_OPEN = _AWS_OPEN | {"karpenter.sh/capacity-type"}


def admitted(key: str) -> bool:
    """True for a label key that v1 lets a NodePool set or require."""
    prefix = key.partition("/")[0] if "/" in key else ""
    closed = prefix.endswith(("karpenter.sh", AWS_GROUP))
    return key != "kubernetes.io/hostname" and (key in _OPEN or not closed)


def renamed_annotations(scribe: Scribe, annotations: Mapping[str, str], path: str) -> dict[str, str]:
    """Annotations under their v1 keys; where both spellings are given the new one stays."""
    kept = {k: v for k, v in annotations.items() if k not in GONE_ANNOTATIONS and k not in ANNOTATIONS}
    for old, value in annotations.items():
        if old in ANNOTATIONS:
            scribe.info(f"{path}[{old}]", f"is {ANNOTATIONS[old]} in v1")
            kept.setdefault(ANNOTATIONS[old], value)
    return kept


def renamed_labels(scribe: Scribe, labels: Mapping[str, str], path: str) -> dict[str, str]:
    """Labels of an object under their v1 keys."""
    kept = {k: v for k, v in labels.items() if k not in LABELS}
    for old in (key for key in labels if key in LABELS):
        scribe.info(f"{path}[{old}]", f"is {LABELS[old]} in v1")
        kept.setdefault(LABELS[old], labels[old])
    return kept


def template_labels(scribe: Scribe, labels: Mapping[str, str], path: str) -> dict[str, str]:
    """The labels a NodePool may put on its nodes; v1 sets or refuses the others."""
    for key in labels:
        if not admitted(key):
            scribe.warn(f"{path}[{key}]", "is a label v1 does not let a NodePool set; it is left out")
    return {key: value for key, value in labels.items() if admitted(key)}


def metadata(scribe: Scribe, name: str, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A new object's metadata: what people wrote, without what the API server added."""
    old = scribe.mapping(scribe.document.value.get("metadata"), "metadata")
    labels = renamed_labels(scribe, scribe.strings(old.get("labels"), "metadata.labels"), "metadata.labels")
    given = scribe.strings(old.get("annotations"), "metadata.annotations")
    marks = renamed_annotations(scribe, given, "metadata.annotations") | dict(annotations or {})
    return {"name": name} | _present(labels=labels, annotations=marks)


def _present(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value}


def object_name(scribe: Scribe) -> str:
    """metadata.name; a `name` that slipped out of metadata is taken, and said."""
    document = scribe.document
    if document.name:
        return document.name
    stray = document.value.get("name")
    if isinstance(stray, str) and stray:
        scribe.name = stray
        message = f'has no name; "{stray}" stands outside it and is taken for the name, so indent it'
        scribe.warn("metadata", message)
        return stray
    scribe.refuse("metadata", "has no name, so the object cannot be converted; add metadata.name")
    return ""
