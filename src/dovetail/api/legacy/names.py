"""Keys that changed their spelling on the way to v1, and keys v1 will not take.

The renames are those of Karpenter 0.32 (alpha to beta) and 1.0 (beta to v1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.api import labels
from dovetail.api.legacy.notes import Scribe

ALPHA = "karpenter.sh/v1alpha5"
ALPHA_AWS = "karpenter.k8s.aws/v1alpha1"
BETA = "karpenter.sh/v1beta1"
BETA_AWS = "karpenter.k8s.aws/v1beta1"
V1 = "karpenter.sh/v1"
V1_AWS = "karpenter.k8s.aws/v1"
AWS_GROUP = labels.KARPENTER_AWS

LABELS: Mapping[str, str] = {"karpenter.sh/provisioner-name": labels.NODEPOOL}
GONE_LABELS = frozenset({"karpenter.k8s.aws/instance-pods", "karpenter.k8s.aws/instance-ami-id"})
ANNOTATIONS: Mapping[str, str] = {
    "karpenter.sh/do-not-evict": labels.DO_NOT_DISRUPT,
    "karpenter.sh/do-not-consolidate": labels.DO_NOT_DISRUPT,
    "karpenter.sh/provisioner-hash": labels.NODEPOOL_HASH,
    "karpenter.k8s.aws/nodetemplate-hash": labels.EC2_NODECLASS_HASH,
    "karpenter.sh/managed-by": labels.EKS_CLUSTER_TAG,
}
GONE_ANNOTATIONS = frozenset(
    {
        "karpenter.sh/emptiness-timestamp",
        "karpenter.sh/linked",
        labels.LEGACY_PROVIDER,
        "compatibility.karpenter.sh/v1beta1-nodeclass-reference",
        "compatibility.karpenter.sh/v1beta1-kubelet-conversion",
        # It repeats the old object, and would make the next kubectl apply compare v1 with it.
        "kubectl.kubernetes.io/last-applied-configuration",
    }
)


def is_admitted(key: str) -> bool:
    """True for a label key that v1 lets a NodePool set or require."""
    # Admission looks at the mere end of the domain, so that it turns mykarpenter.sh away as well.
    closed = labels.find_domain(key).endswith((labels.KARPENTER, labels.KARPENTER_AWS))
    open_inside = key == labels.CAPACITY_TYPE or key in labels.ADMITTED_AWS
    return key != labels.HOSTNAME and (open_inside or not closed)


def rename_annotations(writer: Scribe, annotations: Mapping[str, str], path: str) -> dict[str, str]:
    """Annotations under their v1 keys; where both spellings are given the new one stays."""
    kept = {k: v for k, v in annotations.items() if k not in GONE_ANNOTATIONS and k not in ANNOTATIONS}
    for old, value in annotations.items():
        if old in ANNOTATIONS:
            writer.info(f"{path}[{old}]", f"is {ANNOTATIONS[old]} in v1")
            kept.setdefault(ANNOTATIONS[old], value)
    return kept


def rename_labels(writer: Scribe, given: Mapping[str, str], path: str) -> dict[str, str]:
    """Labels of an object under their v1 keys."""
    kept = {k: v for k, v in given.items() if k not in LABELS}
    for old in (key for key in given if key in LABELS):
        writer.info(f"{path}[{old}]", f"is {LABELS[old]} in v1")
        kept.setdefault(LABELS[old], given[old])
    return kept


def convert_template_labels(writer: Scribe, given: Mapping[str, str], path: str) -> dict[str, str]:
    """The labels a NodePool may put on its nodes; v1 sets or refuses the others."""
    for key in given:
        if not is_admitted(key):
            writer.warn(f"{path}[{key}]", "is a label v1 does not let a NodePool set; it is left out")
    return {key: value for key, value in given.items() if is_admitted(key)}


def build_metadata(writer: Scribe, name: str, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A new object's metadata: what people wrote, without what the API server added."""
    old = writer.read_mapping(writer.document.value.get("metadata"), "metadata")
    words = rename_labels(
        writer, writer.read_strings(old.get("labels"), "metadata.labels"), "metadata.labels"
    )
    given = writer.read_strings(old.get("annotations"), "metadata.annotations")
    marks = rename_annotations(writer, given, "metadata.annotations") | dict(annotations or {})
    return {"name": name} | _drop_empty(labels=words, annotations=marks)


def _drop_empty(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value}


def read_object_name(writer: Scribe) -> str:
    """metadata.name; a `name` that slipped out of metadata is taken, and said."""
    document = writer.document
    if document.name:
        return document.name
    stray = document.value.get("name")
    if isinstance(stray, str) and stray:
        writer.name = stray
        message = f'has no name; "{stray}" stands outside it and is taken for the name, so indent it'
        writer.warn("metadata", message)
        return stray
    writer.refuse("metadata", "has no name, so the object cannot be converted; add metadata.name")
    return ""
