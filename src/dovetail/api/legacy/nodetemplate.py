"""AWSNodeTemplate, and the provider block inside a Provisioner, to EC2NodeClass."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from dovetail.api import labels
from dovetail.api.legacy.names import V1_AWS
from dovetail.api.legacy.notes import Scribe
from dovetail.api.legacy.options import ConvertOptions
from dovetail.api.legacy.shared_parts import UBUNTU_ROOT, convert_block_devices

_ALIASED = frozenset({"AL2", "AL2023", "Bottlerocket", "Windows2019", "Windows2022"})
FAMILIES = _ALIASED | {"Ubuntu", "Custom"}


def convert_images(
    writer: Scribe, family: str, terms: list[dict[str, Any]], options: ConvertOptions
) -> dict[str, Any]:
    """amiFamily and amiSelectorTerms. Ubuntu is gone: it lives on as AL2 with images of one's own."""
    if family not in FAMILIES:
        writer.refuse("amiFamily", f'"{family}" is not a family v1 knows; choose one it does')
        return {}
    if not terms:
        return _build_alias(writer, family, options)
    if family == "Custom":
        message = "user data must register nodes with the taint karpenter.sh/unregistered:NoExecute in v1"
        writer.warn("amiFamily", message)
    if family == "Ubuntu":
        writer.warn(
            "amiFamily", "Ubuntu is gone; the node class uses AL2 bootstrapping with the selected images"
        )
    return {"amiFamily": "AL2" if family == "Ubuntu" else family, "amiSelectorTerms": terms}


def _build_alias(writer: Scribe, family: str, options: ConvertOptions) -> dict[str, Any]:
    if family not in _ALIASED:
        message = (
            f"{family} without an image selector is not convertible: v1 cannot find the images; select them"
        )
        writer.refuse("amiFamily", message)
        return {}
    if family == "AL2" and not options.al2_has_images:
        message = "AL2 has no images for Kubernetes 1.33 and later; move to the alias al2023@latest"
        writer.warn("amiFamily", message)
    return {"amiSelectorTerms": [{"alias": f"{family.lower()}@latest"}]}


_IDS = ("aws-ids", "aws::ids")
_NAMES, _OWNERS = "aws::name", "aws::owners"
_MOST_TERMS = 30  # v1 admits no more in one list
_MOST_TAGS = 20


@dataclass(frozen=True, slots=True)
class LegacySelector:
    """One kind of alpha selector: where it stands, and what its ids look like."""

    field: str
    ids: re.Pattern[str]
    special: frozenset[str]


SUBNETS = LegacySelector("subnetSelector", re.compile(r"subnet-[0-9a-z]+"), frozenset(_IDS))
GROUPS = LegacySelector("securityGroupSelector", re.compile(r"sg-[0-9a-z]+"), frozenset(_IDS))
IMAGES = LegacySelector("amiSelector", re.compile(r"ami-[0-9a-z]+"), frozenset({*_IDS, _NAMES, _OWNERS}))


def build_terms(writer: Scribe, selector: LegacySelector, given: Mapping[str, str]) -> list[dict[str, Any]]:
    """Every term the map stands for: owners by ids by names by tag values."""
    ids = [one for key in _IDS for one in _split_values(given.get(key, ""))]
    if ids:
        return _build_id_terms(writer, selector, given, ids)
    special = selector.special
    names = _split_values(given.get(_NAMES, "")) if _NAMES in special else []
    owners = _split_values(given.get(_OWNERS, "")) if _OWNERS in special else []
    tags = {key: value for key, value in given.items() if key not in special}
    if owners and not names and not tags:
        writer.warn(selector.field, 'names only owners, which v1 does not take alone; name "*" is added')
        names = ["*"]
    return _combine_terms(writer, selector, owners, names, _list_choices(writer, selector, tags))


def _build_id_terms(
    writer: Scribe, selector: LegacySelector, given: Mapping[str, str], ids: list[str]
) -> list[dict[str, Any]]:
    others = [key for key in given if key not in _IDS]
    if others:
        message = (
            f"gives ids together with {', '.join(others)}; an id stands alone in v1, so only the ids are kept"
        )
        writer.warn(selector.field, message)
    for one in ids:
        if not selector.ids.fullmatch(one):
            writer.refuse(selector.field, f'"{one}" is not an id that v1 takes; correct it first')
    if len(ids) > _MOST_TERMS:
        writer.refuse(
            selector.field, f"names {len(ids)} ids and v1 takes {_MOST_TERMS}; select by tag instead"
        )
    return [{"id": one} for one in ids]


def _combine_terms(
    writer: Scribe,
    selector: LegacySelector,
    owners: list[str],
    names: list[str],
    choices: dict[str, list[str]],
) -> list[dict[str, Any]]:
    count = max(1, len(owners)) * max(1, len(names)) * prod(len(values) for values in choices.values())
    if count > _MOST_TERMS:
        message = f"stands for {count} terms and v1 takes {_MOST_TERMS}; select by fewer tags instead"
        writer.refuse(selector.field, message)
        return []
    tags = [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]
    found = [
        ({"owner": owner} if owner else {})
        | ({"name": name} if name else {})
        | ({"tags": tag} if tag else {})
        for owner, name, tag in product(owners or [""], names or [""], tags)
    ]
    return [term for term in found if term]


def _list_choices(writer: Scribe, selector: LegacySelector, tags: Mapping[str, str]) -> dict[str, list[str]]:
    """The values each tag may have. An empty value meant any, which v1 spells `*`."""
    if len(tags) > _MOST_TAGS:
        writer.refuse(selector.field, f"names {len(tags)} tags and v1 takes {_MOST_TAGS}; use fewer")
    choices: dict[str, list[str]] = {}
    for key, value in tags.items():
        if not key.strip():
            writer.refuse(selector.field, "has a tag without a key; v1 does not take one")
            continue
        choices[key.strip()] = values = _split_values(value) or ["*"]
        if not _split_values(value):
            writer.info(f"{selector.field}[{key}]", 'is empty, which meant any value; "*" says so in v1')
        if len(values) > 1:
            writer.info(f"{selector.field}[{key}]", "lists several values; v1 takes one term for each")
    return choices


def _split_values(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


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


def convert_template(writer: Scribe, options: ConvertOptions) -> dict[str, Any]:
    """The spec of the EC2NodeClass that an AWSNodeTemplate stands for."""
    spec = writer.read_mapping(writer.document.value.get("spec"), "")
    return _convert_spec(writer, writer.keep_known(spec, "", _TEMPLATE), options)


def convert_provider(writer: Scribe, provider: Any, options: ConvertOptions) -> dict[str, Any]:
    """The spec of the EC2NodeClass that an inline provider block stands for."""
    block = writer.read_mapping(provider, "")
    for key in block:
        if key not in _INLINE:
            writer.refuse(key, "is not a field of a provider block, which takes no others; correct it first")
    return _convert_spec(writer, block, options)


def build_node_class(name: str, metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """An EC2NodeClass around a spec."""
    head = metadata | {"name": name}
    return {"apiVersion": V1_AWS, "kind": "EC2NodeClass", "metadata": head, "spec": spec}


def _convert_spec(writer: Scribe, block: dict[str, Any], options: ConvertOptions) -> dict[str, Any]:
    if block.get("launchTemplate"):
        message = "is not convertible: v1 makes its own; describe the nodes in an EC2NodeClass instead"
        writer.refuse("launchTemplate", message)
        return {}
    family = writer.read_text(block.get("amiFamily"), "amiFamily") or "AL2"
    made = _convert_identity(writer, block, options) | _convert_ami_selector(writer, block, family, options)
    made["subnetSelectorTerms"] = _convert_selector(writer, block, SUBNETS, options)
    made["securityGroupSelectorTerms"] = _convert_selector(writer, block, GROUPS, options)
    for field in ("userData", "context"):
        if block.get(field):
            made[field] = writer.read_text(block[field], field)
    if isinstance(block.get("detailedMonitoring"), bool):
        made["detailedMonitoring"] = block["detailedMonitoring"]
    devices = convert_block_devices(writer, block.get("blockDeviceMappings"))
    if family == "Ubuntu" and not devices:
        devices = [UBUNTU_ROOT]
    if devices:
        made["blockDeviceMappings"] = devices
    made["metadataOptions"] = convert_metadata_options(writer, block, ALPHA_ABSENT, _ALPHA_MEMBERS)
    return made | convert_tags(writer, block, options)


def _convert_identity(writer: Scribe, block: dict[str, Any], options: ConvertOptions) -> dict[str, Any]:
    profile = writer.read_text(block.get("instanceProfile"), "instanceProfile")
    if options.role:
        if profile:
            writer.info("instanceProfile", f"{profile} gives way to the role {options.role}")
        return {"role": options.role}
    if profile:
        writer.info(
            "instanceProfile", "is kept; naming its role instead lets the controller manage the profile"
        )
        return {"instanceProfile": profile}
    if options.default_instance_profile:
        writer.info("instanceProfile", "is the old global default")
        return {"instanceProfile": options.default_instance_profile}
    message = "is missing and no default is known; give the node role or the default instance profile"
    writer.refuse("instanceProfile", message)
    return {}


def _convert_ami_selector(
    writer: Scribe, block: dict[str, Any], family: str, options: ConvertOptions
) -> dict[str, Any]:
    given = writer.read_strings(block.get("amiSelector"), "amiSelector")
    if given:
        message = (
            "requirements that were tags on the images, such as node.kubernetes.io/instance-type, are not "
            "read in v1; put them on the NodePool"
        )
        writer.warn("amiSelector", message)
    return convert_images(writer, family, build_terms(writer, IMAGES, given) if given else [], options)


def _convert_selector(
    writer: Scribe, block: dict[str, Any], selector: LegacySelector, options: ConvertOptions
) -> list[dict[str, Any]]:
    given = writer.read_strings(block.get(selector.field), selector.field)
    if given:
        return build_terms(writer, selector, given)
    if not options.cluster_name:
        message = "is missing, and stood for the cluster's own tag; give the cluster name"
        writer.refuse(selector.field, message)
        return []
    tag = f"kubernetes.io/cluster/{options.cluster_name}"
    writer.warn(selector.field, f"is missing; everything tagged {tag} is selected, as the first releases did")
    return [{"tags": {tag: "*"}}]


def convert_metadata_options(
    writer: Scribe, block: dict[str, Any], absent: Mapping[str, Any], members: Mapping[str, Any]
) -> dict[str, Any]:
    """All four members, spelled out: the defaults of v1 are different ones."""
    given = block.get("metadataOptions")
    if given is None:
        return dict(absent)
    present = writer.keep_known(
        writer.read_mapping(given, "metadataOptions"), "metadataOptions", frozenset(absent)
    )
    return {key: default if present.get(key) is None else present[key] for key, default in members.items()}


def convert_tags(writer: Scribe, block: dict[str, Any], options: ConvertOptions) -> dict[str, Any]:
    """The tags of a class: its own over the global ones, without those v1 keeps for itself."""
    own = writer.read_strings(block.get("tags"), "tags")
    kept = {key: value for key, value in {**options.tags, **own}.items() if _is_allowed_tag(key, value)}
    for key in own:
        if key not in kept:
            writer.warn(f"tags[{key}]", "is a tag the controller sets itself; it is left out")
    lost = [key for key in options.tags if key not in kept and key not in own]
    if lost:
        writer.warn(
            "tags", f"the global tags {', '.join(lost)} are set by the controller itself; they are left out"
        )
    return {"tags": kept} if kept else {}


def _is_allowed_tag(key: str, value: str) -> bool:
    reserved = key in _ALPHA_TAGS or key in _V1_TAGS or key.startswith("kubernetes.io/cluster") or not key
    return not reserved and not (
        key == labels.NAME_TAG and value.startswith("karpenter.sh/provisioner-name/")
    )
