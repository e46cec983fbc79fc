"""The NodePool to begin with, where nobody has written one: a document made for the pods that need it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from dovetail.api import labels
from dovetail.api.pod import Pod
from dovetail.scheduling.model.pod_requirements import build_strict_requirements
from dovetail.scheduling.model.resources import compute_requests_with_pod

__all__ = ["NODE_CLASSES", "build_default_nodepool", "build_nodepool_for"]

Json = dict[str, Any]
Cloud = Literal["aws", "kwok"]
DEFAULT = "default"
NODE_CLASSES: Mapping[Cloud, tuple[str, str]] = {
    "aws": (f"{labels.KARPENTER_AWS}/v1", "EC2NodeClass"),
    "kwok": (f"{labels.KARPENTER_KWOK}/v1alpha1", "KWOKNodeClass"),
}
CAPACITY = {"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["spot", "on-demand"]}
REQUIREMENTS: Mapping[Cloud, list[Json]] = {
    "aws": [
        CAPACITY,
        {"key": f"{labels.KARPENTER_AWS}/instance-category", "operator": "In", "values": ["c", "m", "r"]},
        {"key": f"{labels.KARPENTER_AWS}/instance-generation", "operator": "Gt", "values": ["4"]},
    ],
    "kwok": [{"key": labels.OS, "operator": "In", "values": ["linux"]}, CAPACITY],
}
PLAIN = frozenset(("cpu", "memory", "pods", "ephemeral-storage"))


def build_default_nodepool(cloud: Cloud, **more: Any) -> Json:
    """A NodePool of spot and on-demand instances, general-purpose ones on EC2; `more` goes into its spec."""
    api_version, kind = NODE_CLASSES[cloud]
    reference = {"group": api_version.partition("/")[0], "kind": kind, "name": DEFAULT}
    template = {"spec": {"nodeClassRef": reference, "requirements": REQUIREMENTS[cloud]}}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": DEFAULT},
        "spec": {"template": template, **more},
    }


def build_nodepool_for(pods: Iterable[Pod], cloud: Cloud, well_known: frozenset[str]) -> Json:
    """The NodePool that these pods need: with the labels they select, and special types if they request any.

    Of pods that select different values of one label, the first counts; one pool has one value.
    """
    pool, special = build_default_nodepool(cloud), False
    template_labels: dict[str, str] = {}
    for pod in pods:
        special = special or bool(set(compute_requests_with_pod(pod)) - PLAIN)
        for key, values in build_strict_requirements(pod.spec).by_key.items():
            if key == labels.NODEPOOL and values.only:
                pool["metadata"]["name"] = values.only
            elif key not in well_known and values.names and not values.open:
                template_labels.setdefault(key, min(values.names))
    template = pool["spec"]["template"]
    if special:
        template["spec"]["requirements"] = [CAPACITY]
    if template_labels:
        template["metadata"] = {"labels": template_labels}
    return pool
