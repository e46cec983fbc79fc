"""AWSNodeTemplate, and the provider block inside a Provisioner, to EC2NodeClass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.api import labels
from dovetail.api.legacy.images import images
from dovetail.api.legacy.names import V1_AWS
from dovetail.api.legacy.notes import Scribe
from dovetail.api.legacy.selectors import GROUPS, IMAGES, SUBNETS, Selector, terms
from dovetail.api.legacy.settings import ConvertOptions
from dovetail.api.legacy.volumes import UBUNTU_ROOT, block_devices

_INLINE = frozenset(
    [
        "amiFamily",
        "subnetSelector",
        "securityGroupSelector",
        "instanceProfile",
        "launchTemplate",
        "metadataOptions",
        "blockDeviceMappings",
        "tags",
        "context",
        "apiVersion",
        "kind",
    ]
)
_TEMPLATE = _INLINE | {"userData", "amiSelector", "detailedMonitoring"}
_ALPHA_TAGS = frozenset(
    {"karpenter.sh/provisioner-name", "karpenter.sh/managed-by", "karpenter.k8s.aws/cluster"}
)
_V1_TAGS = frozenset({labels.EKS_CLUSTER_TAG, labels.NODEPOOL, labels.NODECLAIM_TAG, labels.EC2_NODECLASS})
# Alpha's defaults differ between an absent object and an absent member of a present one.
ALPHA_ABSENT = {
    "httpEndpoint": "enabled",
    "httpProtocolIPv6": "disabled",
    "httpPutResponseHopLimit": 2,
    "httpTokens": "required",
}
_ALPHA_MEMBERS = ALPHA_ABSENT | {"httpPutResponseHopLimit": 1, "httpTokens": "optional"}


def from_template(scribe: Scribe, options: ConvertOptions) -> dict[str, Any]:
    """The spec of the EC2NodeClass that an AWSNodeTemplate stands for."""
    spec = scribe.mapping(scribe.document.value.get("spec"), "")
    return _spec(scribe, scribe.only(spec, "", _TEMPLATE), options)


def from_provider(scribe: Scribe, provider: Any, options: ConvertOptions) -> dict[str, Any]:
    """The spec of the EC2NodeClass that an inline provider block stands for."""
    block = scribe.mapping(provider, "")
    for key in block:
        if key not in _INLINE:
            scribe.refuse(key, "is not a field of a provider block, which takes no others; correct it first")
    return _spec(scribe, block, options)


def node_class(name: str, metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """An EC2NodeClass around a spec."""
    head = metadata | {"name": name}
    return {"apiVersion": V1_AWS, "kind": "EC2NodeClass", "metadata": head, "spec": spec}


def _spec(scribe: Scribe, block: dict[str, Any], options: ConvertOptions) -> dict[str, Any]:
    if block.get("launchTemplate"):
        message = "is not convertible: v1 makes its own; describe the nodes in an EC2NodeClass instead"
        scribe.refuse("launchTemplate", message)
        return {}
    family = scribe.text(block.get("amiFamily"), "amiFamily") or "AL2"
    made = _identity(scribe, block, options) | _images(scribe, block, family, options)
    made["subnetSelectorTerms"] = _network(scribe, block, SUBNETS, options)
    made["securityGroupSelectorTerms"] = _network(scribe, block, GROUPS, options)
    for field in ("userData", "context"):
        if block.get(field):
            made[field] = scribe.text(block[field], field)
    if isinstance(block.get("detailedMonitoring"), bool):
        made["detailedMonitoring"] = block["detailedMonitoring"]
    devices = block_devices(scribe, block.get("blockDeviceMappings"))
    if family == "Ubuntu" and not devices:
        devices = [UBUNTU_ROOT]
    if devices:
        made["blockDeviceMappings"] = devices
    made["metadataOptions"] = metadata_options(scribe, block, ALPHA_ABSENT, _ALPHA_MEMBERS)
    return made | tags(scribe, block, options)


def _identity(scribe: Scribe, block: dict[str, Any], options: ConvertOptions) -> dict[str, Any]:
    profile = scribe.text(block.get("instanceProfile"), "instanceProfile")
    if options.role:
        if profile:
            scribe.info("instanceProfile", f"{profile} gives way to the role {options.role}")
        return {"role": options.role}
    if profile:
        scribe.info(
            "instanceProfile", "is kept; naming its role instead lets the controller manage the profile"
        )
        return {"instanceProfile": profile}
    if options.default_instance_profile:
        scribe.info("instanceProfile", "is the old global default")
        return {"instanceProfile": options.default_instance_profile}
    message = "is missing and no default is known; give the node role or the default instance profile"
    scribe.refuse("instanceProfile", message)
    return {}


def _images(scribe: Scribe, block: dict[str, Any], family: str, options: ConvertOptions) -> dict[str, Any]:
    given = scribe.strings(block.get("amiSelector"), "amiSelector")
    if given:
        message = (
            "requirements that were tags on the images, such as node.kubernetes.io/instance-type, are not "
            "read in v1; put them on the NodePool"
        )
        scribe.warn("amiSelector", message)
    return images(scribe, family, terms(scribe, IMAGES, given) if given else [], options)


def _network(
    scribe: Scribe, block: dict[str, Any], selector: Selector, options: ConvertOptions
) -> list[dict[str, Any]]:
    given = scribe.strings(block.get(selector.field), selector.field)
    if given:
        return terms(scribe, selector, given)
    if not options.cluster_name:
        message = "is missing, and stood for the cluster's own tag; give the cluster name"
        scribe.refuse(selector.field, message)
        return []
    tag = f"kubernetes.io/cluster/{options.cluster_name}"
    scribe.warn(selector.field, f"is missing; everything tagged {tag} is selected, as the first releases did")
    return [{"tags": {tag: "*"}}]


def metadata_options(
    scribe: Scribe, block: dict[str, Any], absent: Mapping[str, Any], members: Mapping[str, Any]
) -> dict[str, Any]:
    """All four members, spelled out: the defaults of v1 are different ones."""
    given = block.get("metadataOptions")
    if given is None:
        return dict(absent)
    present = scribe.only(scribe.mapping(given, "metadataOptions"), "metadataOptions", frozenset(absent))
    return {key: default if present.get(key) is None else present[key] for key, default in members.items()}


def tags(scribe: Scribe, block: dict[str, Any], options: ConvertOptions) -> dict[str, Any]:
    """The tags of a class: its own over the global ones, without those v1 keeps for itself."""
    own = scribe.strings(block.get("tags"), "tags")
    kept = {key: value for key, value in {**options.tags, **own}.items() if _free(key, value)}
    for key in own:
        if key not in kept:
            scribe.warn(f"tags[{key}]", "is a tag the controller sets itself; it is left out")
    lost = [key for key in options.tags if key not in kept and key not in own]
    if lost:
        scribe.warn(
            "tags", f"the global tags {', '.join(lost)} are set by the controller itself; they are left out"
        )
    return {"tags": kept} if kept else {}


def _free(key: str, value: str) -> bool:
    reserved = key in _ALPHA_TAGS or key in _V1_TAGS or key.startswith("kubernetes.io/cluster") or not key
    return not reserved and not (
        key == labels.NAME_TAG and value.startswith("karpenter.sh/provisioner-name/")
    )
