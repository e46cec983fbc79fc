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


def convert_node_pool(writer: Scribe, name: str) -> dict[str, Any]:
    """The v1 NodePool, with its nodeClassRef translated."""
    spec = writer.keep_known(writer.read_mapping(writer.document.value.get("spec"), "spec"), "spec", _POOL)
    disruption = writer.read_mapping(spec.get("disruption"), "spec.disruption")
    disruption = writer.keep_known(disruption, "spec.disruption", _DISRUPTION)
    expiry = writer.read_text(disruption.get("expireAfter"), "spec.disruption.expireAfter") or "720h"
    if expiry != "Never" and "expireAfter" in disruption:
        message = (
            "expiry is forceful in v1 and waits for no budget; consider terminationGracePeriod, with care"
        )
        writer.warn("spec.disruption.expireAfter", message)
    made = {
        "template": _convert_template(writer, spec, expiry),
        "disruption": _convert_disruption(writer, disruption),
    }
    for field in ("limits", "weight"):
        if spec.get(field):
            made[field] = deepcopy(spec[field])
    return {"apiVersion": V1, "kind": "NodePool", "metadata": build_metadata(writer, name), "spec": made}


def _convert_template(writer: Scribe, spec: dict[str, Any], expiry: str) -> dict[str, Any]:
    path = "spec.template"
    template = writer.read_mapping(spec.get("template"), path)
    head = writer.read_mapping(template.get("metadata"), f"{path}.metadata")
    written = writer.read_strings(head.get("labels"), f"{path}.metadata.labels")
    kept = convert_template_labels(writer, written, f"{path}.metadata.labels")
    given = writer.read_strings(head.get("annotations"), f"{path}.metadata.annotations")
    annotations = rename_annotations(writer, given, f"{path}.metadata.annotations")
    marks = {k: v for k, v in (("labels", kept), ("annotations", annotations)) if v}
    body = _convert_node_spec(writer, template.get("spec"), f"{path}.spec", frozenset())
    if body.pop("resources", None):
        writer.warn(f"{path}.spec.resources", "is not a field that v1 knows; it is left out")
    return ({"metadata": marks} if marks else {}) | {"spec": body | {"expireAfter": expiry}}


def convert_node_claim(writer: Scribe, name: str, expiry: str | None) -> dict[str, Any]:
    """The v1 NodeClaim. Beta kept the lifetime on the pool; v1 keeps it on the claim."""
    body = _convert_node_spec(writer, writer.document.value.get("spec"), "spec", frozenset({labels.NODEPOOL}))
    writer.warn("", "claims are made by the controller; applying this one to a cluster launches a new node")
    head = build_metadata(writer, name)
    if expiry is None:
        pooled = labels.NODEPOOL in head.get("labels", {})
        expiry = "720h" if pooled else "Never"
        if pooled:
            writer.warn(
                "spec", "the claim's NodePool is not in the input; its nodes are taken to expire after 720h"
            )
    return {"apiVersion": V1, "kind": "NodeClaim", "metadata": head, "spec": body | {"expireAfter": expiry}}


def _convert_node_spec(writer: Scribe, given: Any, path: str, also: frozenset[str]) -> dict[str, Any]:
    spec = writer.keep_known(writer.read_mapping(given, path), path, _NODE_SPEC)
    made: dict[str, Any] = {
        "nodeClassRef": convert_class_ref(writer, spec.get("nodeClassRef"), f"{path}.nodeClassRef"),
        "requirements": convert_requirements(writer, spec.get("requirements"), f"{path}.requirements", also),
    }
    for field in ("taints", "startupTaints"):
        found = convert_taints(writer, spec.get(field), f"{path}.{field}")
        if found:
            made[field] = found
    for field in ("terminationGracePeriod", "resources"):
        if spec.get(field):
            made[field] = deepcopy(spec[field])
    return made


def convert_class_ref(writer: Scribe, given: Any, path: str) -> dict[str, str]:
    """group, kind and name; beta had a whole apiVersion, or nothing."""
    ref = writer.read_mapping(given, path)
    name = writer.read_text(ref.get("name"), f"{path}.name")
    if not name:
        writer.refuse(path, "names no node class, so the object cannot be converted; add one")
    version = writer.read_text(ref.get("apiVersion"), f"{path}.apiVersion")
    group = version.partition("/")[0] if "/" in version else AWS_GROUP
    kind = writer.read_text(ref.get("kind"), f"{path}.kind") or "EC2NodeClass"
    return {"group": group, "kind": kind, "name": name}


def _convert_disruption(writer: Scribe, given: dict[str, Any]) -> dict[str, Any]:
    policy = given.get("consolidationPolicy") or "WhenUnderutilized"
    after = writer.read_text(given.get("consolidateAfter"), "spec.disruption.consolidateAfter")
    if policy not in ("WhenUnderutilized", "WhenEmpty"):
        writer.refuse(
            "spec.disruption.consolidationPolicy", f'"{policy}" is no policy of v1beta1; correct it first'
        )
    if policy == "WhenEmpty" and not after:
        message = "is missing, which v1beta1 did not allow; 0s is written, so that empty nodes go at once"
        writer.warn("spec.disruption.consolidateAfter", message)
    if policy == "WhenUnderutilized":
        policy, after = "WhenEmptyOrUnderutilized", after if after == "Never" else "0s"
    made: dict[str, Any] = {"consolidationPolicy": policy, "consolidateAfter": after or "0s"}
    budgets = writer.read_items(given.get("budgets"), "spec.disruption.budgets")
    return made | ({"budgets": deepcopy(budgets)} if budgets else {})


def convert_class_spec(writer: Scribe, options: ConvertOptions) -> tuple[dict[str, Any], dict[str, str]]:
    """The v1 EC2NodeClass spec, and the annotations that go with it."""
    spec = writer.keep_known(writer.read_mapping(writer.document.value.get("spec"), ""), "", _CLASS)
    family = writer.read_text(spec.get("amiFamily"), "amiFamily")
    if not family:
        writer.refuse("amiFamily", "is missing, and v1beta1 needs it; add it")
    chosen = deepcopy(writer.read_items(spec.get("amiSelectorTerms"), "amiSelectorTerms"))
    made = _convert_identity(writer, spec, options) | (
        convert_images(writer, family, chosen, options) if family else {}
    )
    made |= {field: deepcopy(spec[field]) for field in _COPIED if spec.get(field) is not None}
    for field in ("subnetSelectorTerms", "securityGroupSelectorTerms"):
        if not made.get(field):
            writer.refuse(field, "is empty, so nothing would be selected; add a term")
    if "associatePublicIPAddress" not in made:
        writer.info(
            "associatePublicIPAddress", "is no longer set to false in private subnets unless you say so"
        )
    devices = convert_block_devices(writer, spec.get("blockDeviceMappings"))
    marks = {}
    if family == "Ubuntu":
        marks[UBUNTU_MARK] = "amiFamily" if devices else "amiFamily,blockDeviceMappings"
        devices = devices or [UBUNTU_ROOT]
    if devices:
        made["blockDeviceMappings"] = devices
    made["metadataOptions"] = convert_metadata_options(writer, spec, ALPHA_ABSENT, ALPHA_ABSENT)
    return made | convert_tags(writer, spec, options), marks


def _convert_identity(writer: Scribe, spec: dict[str, Any], options: ConvertOptions) -> dict[str, Any]:
    given = {field: spec[field] for field in ("role", "instanceProfile") if spec.get(field)}
    if len(given) == 1:
        return given
    if len(given) == 2:
        writer.refuse("role", "is given together with instanceProfile, and v1 takes one; remove the other")
        return {}
    if options.role:
        return {"role": options.role}
    if options.default_instance_profile:
        return {"instanceProfile": options.default_instance_profile}
    writer.refuse("role", "is missing; give the node role or the default instance profile")
    return {}
