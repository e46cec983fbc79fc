"""v1beta1 NodePool, NodeClaim and EC2NodeClass to v1."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from dovetail.api import labels
from dovetail.api.legacy.names import (
    AWS_GROUP,
    V1,
    build_metadata,
    convert_template_labels,
    rename_annotations,
)
from dovetail.api.legacy.nodetemplate import (
    ALPHA_ABSENT,
    convert_images,
    convert_metadata_options,
    convert_tags,
)
from dovetail.api.legacy.notes import Scribe
from dovetail.api.legacy.options import ConvertOptions
from dovetail.api.legacy.shared_parts import (
    UBUNTU_ROOT,
    convert_block_devices,
    convert_requirements,
    convert_taints,
)

UBUNTU_MARK = "compatibility.karpenter.k8s.aws/v1beta1-ubuntu"
_POOL = frozenset({"template", "disruption", "limits", "weight"})
_NODE_SPEC = frozenset(
    [
        "nodeClassRef",
        "requirements",
        "taints",
        "startupTaints",
        "kubelet",
        "terminationGracePeriod",
        "resources",
    ]
)
_DISRUPTION = frozenset({"consolidateAfter", "consolidationPolicy", "expireAfter", "budgets"})
_CLASS = frozenset(
    [
        "subnetSelectorTerms",
        "securityGroupSelectorTerms",
        "associatePublicIPAddress",
        "amiSelectorTerms",
        "amiFamily",
        "userData",
        "role",
        "instanceProfile",
        "tags",
        "blockDeviceMappings",
        "instanceStorePolicy",
        "detailedMonitoring",
        "metadataOptions",
        "context",
    ]
)
_COPIED = (
    "subnetSelectorTerms",
    "securityGroupSelectorTerms",
    "associatePublicIPAddress",
    "userData",
    "context",
    "detailedMonitoring",
    "instanceStorePolicy",
)


def convert_node_pool(scribe: Scribe, name: str) -> dict[str, Any]:
    """The v1 NodePool, with its nodeClassRef translated."""
    spec = scribe.keep_known(scribe.read_mapping(scribe.document.value.get("spec"), "spec"), "spec", _POOL)
    disruption = scribe.read_mapping(spec.get("disruption"), "spec.disruption")
    disruption = scribe.keep_known(disruption, "spec.disruption", _DISRUPTION)
    expiry = scribe.read_text(disruption.get("expireAfter"), "spec.disruption.expireAfter") or "720h"
    if expiry != "Never" and "expireAfter" in disruption:
        message = (
            "expiry is forceful in v1 and waits for no budget; consider terminationGracePeriod, with care"
        )
        scribe.warn("spec.disruption.expireAfter", message)
    made = {
        "template": _convert_template(scribe, spec, expiry),
        "disruption": _convert_disruption(scribe, disruption),
    }
    for field in ("limits", "weight"):
        if spec.get(field):
            made[field] = deepcopy(spec[field])
    return {"apiVersion": V1, "kind": "NodePool", "metadata": build_metadata(scribe, name), "spec": made}


def _convert_template(scribe: Scribe, spec: dict[str, Any], expiry: str) -> dict[str, Any]:
    path = "spec.template"
    template = scribe.read_mapping(spec.get("template"), path)
    head = scribe.read_mapping(template.get("metadata"), f"{path}.metadata")
    written = scribe.read_strings(head.get("labels"), f"{path}.metadata.labels")
    kept = convert_template_labels(scribe, written, f"{path}.metadata.labels")
    given = scribe.read_strings(head.get("annotations"), f"{path}.metadata.annotations")
    annotations = rename_annotations(scribe, given, f"{path}.metadata.annotations")
    marks = {k: v for k, v in (("labels", kept), ("annotations", annotations)) if v}
    body = _convert_node_spec(scribe, template.get("spec"), f"{path}.spec", frozenset())
    if body.pop("resources", None):
        scribe.warn(f"{path}.spec.resources", "is not a field that v1 knows; it is left out")
    return ({"metadata": marks} if marks else {}) | {"spec": body | {"expireAfter": expiry}}


def convert_node_claim(scribe: Scribe, name: str, expiry: str | None) -> dict[str, Any]:
    """The v1 NodeClaim. Beta kept the lifetime on the pool; v1 keeps it on the claim."""
    body = _convert_node_spec(scribe, scribe.document.value.get("spec"), "spec", frozenset({labels.NODEPOOL}))
    scribe.warn("", "claims are made by the controller; applying this one to a cluster launches a new node")
    head = build_metadata(scribe, name)
    if expiry is None:
        pooled = labels.NODEPOOL in head.get("labels", {})
        expiry = "720h" if pooled else "Never"
        if pooled:
            scribe.warn(
                "spec", "the claim's NodePool is not in the input; its nodes are taken to expire after 720h"
            )
    return {"apiVersion": V1, "kind": "NodeClaim", "metadata": head, "spec": body | {"expireAfter": expiry}}


def _convert_node_spec(scribe: Scribe, given: Any, path: str, also: frozenset[str]) -> dict[str, Any]:
    spec = scribe.keep_known(scribe.read_mapping(given, path), path, _NODE_SPEC)
    made: dict[str, Any] = {
        "nodeClassRef": convert_class_ref(scribe, spec.get("nodeClassRef"), f"{path}.nodeClassRef"),
        "requirements": convert_requirements(scribe, spec.get("requirements"), f"{path}.requirements", also),
    }
    for field in ("taints", "startupTaints"):
        found = convert_taints(scribe, spec.get(field), f"{path}.{field}")
        if found:
            made[field] = found
    for field in ("terminationGracePeriod", "resources"):
        if spec.get(field):
            made[field] = deepcopy(spec[field])
    return made


def convert_class_ref(scribe: Scribe, given: Any, path: str) -> dict[str, str]:
    """group, kind and name; beta had a whole apiVersion, or nothing."""
    ref = scribe.read_mapping(given, path)
    name = scribe.read_text(ref.get("name"), f"{path}.name")
    if not name:
        scribe.refuse(path, "names no node class, so the object cannot be converted; add one")
    version = scribe.read_text(ref.get("apiVersion"), f"{path}.apiVersion")
    group = version.partition("/")[0] if "/" in version else AWS_GROUP
    kind = scribe.read_text(ref.get("kind"), f"{path}.kind") or "EC2NodeClass"
    return {"group": group, "kind": kind, "name": name}


def _convert_disruption(scribe: Scribe, given: dict[str, Any]) -> dict[str, Any]:
    policy = given.get("consolidationPolicy") or "WhenUnderutilized"
    after = scribe.read_text(given.get("consolidateAfter"), "spec.disruption.consolidateAfter")
    if policy not in ("WhenUnderutilized", "WhenEmpty"):
        scribe.refuse(
            "spec.disruption.consolidationPolicy", f'"{policy}" is no policy of v1beta1; correct it first'
        )
    if policy == "WhenEmpty" and not after:
        message = "is missing, which v1beta1 did not allow; 0s is written, so that empty nodes go at once"
        scribe.warn("spec.disruption.consolidateAfter", message)
    if policy == "WhenUnderutilized":
        policy, after = "WhenEmptyOrUnderutilized", after if after == "Never" else "0s"
    made: dict[str, Any] = {"consolidationPolicy": policy, "consolidateAfter": after or "0s"}
    budgets = scribe.read_items(given.get("budgets"), "spec.disruption.budgets")
    return made | ({"budgets": deepcopy(budgets)} if budgets else {})


def convert_class_spec(scribe: Scribe, options: ConvertOptions) -> tuple[dict[str, Any], dict[str, str]]:
    """The v1 EC2NodeClass spec, and the annotations that go with it."""
    spec = scribe.keep_known(scribe.read_mapping(scribe.document.value.get("spec"), ""), "", _CLASS)
    family = scribe.read_text(spec.get("amiFamily"), "amiFamily")
    if not family:
        scribe.refuse("amiFamily", "is missing, and v1beta1 needs it; add it")
    chosen = deepcopy(scribe.read_items(spec.get("amiSelectorTerms"), "amiSelectorTerms"))
    made = _convert_identity(scribe, spec, options) | (
        convert_images(scribe, family, chosen, options) if family else {}
    )
    made |= {field: deepcopy(spec[field]) for field in _COPIED if spec.get(field) is not None}
    for field in ("subnetSelectorTerms", "securityGroupSelectorTerms"):
        if not made.get(field):
            scribe.refuse(field, "is empty, so nothing would be selected; add a term")
    if "associatePublicIPAddress" not in made:
        scribe.info(
            "associatePublicIPAddress", "is no longer set to false in private subnets unless you say so"
        )
    devices = convert_block_devices(scribe, spec.get("blockDeviceMappings"))
    marks = {}
    if family == "Ubuntu":
        marks[UBUNTU_MARK] = "amiFamily" if devices else "amiFamily,blockDeviceMappings"
        devices = devices or [UBUNTU_ROOT]
    if devices:
        made["blockDeviceMappings"] = devices
    made["metadataOptions"] = convert_metadata_options(scribe, spec, ALPHA_ABSENT, ALPHA_ABSENT)
    return made | convert_tags(scribe, spec, options), marks


def _convert_identity(scribe: Scribe, spec: dict[str, Any], options: ConvertOptions) -> dict[str, Any]:
    given = {field: spec[field] for field in ("role", "instanceProfile") if spec.get(field)}
    if len(given) == 1:
        return given
    if len(given) == 2:
        scribe.refuse("role", "is given together with instanceProfile, and v1 takes one; remove the other")
        return {}
    if options.role:
        return {"role": options.role}
    if options.default_instance_profile:
        return {"instanceProfile": options.default_instance_profile}
    scribe.refuse("role", "is missing; give the node role or the default instance profile")
    return {}
