"""Policies that a cluster's owners may set against what Dovetail orders."""

from __future__ import annotations

from support.world import Scene

__all__ = ["BINDINGS", "refuse_claims_of"]

POLICIES = "validatingadmissionpolicies.admissionregistration.k8s.io"
BINDINGS = "validatingadmissionpolicybindings.admissionregistration.k8s.io"


def refuse_claims_of(scene: Scene, pool: str) -> None:
    """A policy of the cluster's owners: no NodeClaims of this pool."""
    rule = {
        "apiGroups": ["karpenter.sh"],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["nodeclaims"],
    }
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": f"object.metadata.labels['karpenter.sh/nodepool'] != '{pool}'"}],
    }
    scene.api.create(POLICIES, {"metadata": {"name": "refusing"}, "spec": spec})
    bound = {"policyName": "refusing", "validationActions": ["Deny"]}
    scene.api.create(BINDINGS, {"metadata": {"name": "refusing"}, "spec": bound})
