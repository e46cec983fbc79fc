"""The NodePool to begin with, where nobody has written one: a document made for the pods that need it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dovetail.api import labels
from dovetail.api.crds import find_provider_api
from dovetail.api.pod import Pod
from dovetail.scheduling.model.pod_requirements import build_strict_requirements
from dovetail.scheduling.model.resources import compute_requests_with_pod

__all__ = ["build_default_nodepool", "build_nodepool_for"]

Json = dict[str, Any]
DEFAULT = "default"
CAPACITY = {"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["spot", "on-demand"]}
PLAIN = frozenset(("cpu", "memory", "pods", "ephemeral-storage"))


def build_default_nodepool(provider: str, **more: Any) -> Json:
    """A NodePool of spot and on-demand instances, general-purpose ones on EC2; `more` goes into its spec."""
    api = find_provider_api(provider)
    reference = {"group": api.kind.group, "kind": api.kind.kind, "name": DEFAULT}
    requirements = [dict(each) for each in api.requirements]
    template = {"spec": {"nodeClassRef": reference, "requirements": requirements}}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": DEFAULT},
        "spec": {"template": template, **more},
    }


def build_nodepool_for(pods: Iterable[Pod], provider: str, well_known: frozenset[str]) -> Json:
    """The NodePool that these pods need: with the labels they select, and special types if they request any.

    Of pods that select different values of one label, the first counts; one pool has one value.
    """
    pool, special = build_default_nodepool(provider), False
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
