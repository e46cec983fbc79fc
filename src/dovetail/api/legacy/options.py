"""What a conversion is told besides the manifests: options, and the old global settings."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dovetail.api.legacy.notes import Scribe
from dovetail.api.manifests import Document

_CONFIG_MAP = "karpenter-global-settings"
_USED = frozenset(
    {"aws.clusterName", "aws.tags", "aws.enableENILimitedPodDensity", "aws.defaultInstanceProfile"}
)
_NO_TARGET = {
    "aws.enablePodENI": "has no counterpart in v1, which always models pod ENIs",
    "aws.nodeNameConvention": "has no counterpart in v1, which takes node names from the instance",
}


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """Choices and facts a conversion cannot find in the manifests themselves."""

    cluster_name: str = ""
    ignore_defaults: bool = False  # leave out the requirements that alpha defaulted
    default_instance_profile: str = ""  # for templates that name none
    role: str = ""  # write this node role instead of keeping instance profiles
    kubernetes_version: str = ""  # such as 1.33; unknown means: assume nothing in our favour
    tags: Mapping[str, str] = field(default_factory=dict)  # the old global aws.tags
    eni_limited_pod_density: bool = True  # the old global aws.enableENILimitedPodDensity
    legacy_budgets: bool = False  # write the budgets that come closest to alpha's fixed parallelism
    rewrite_workloads: bool = False  # rename keys in pods and workloads too

    @property
    def al2_has_images(self) -> bool:
        """AL2 images end with Kubernetes 1.32. An unknown version is taken for a newer one."""
        found = re.match(r"v?(\d+)\.(\d+)", self.kubernetes_version)
        return found is not None and (int(found[1]), int(found[2])) < (1, 33)


def is_global_settings(document: Document) -> bool:
    """True for the ConfigMap in which alpha kept its process-wide settings."""
    return document.kind == "ConfigMap" and document.api_version == "v1" and document.name == _CONFIG_MAP


def apply_global_settings(options: ConvertOptions, writer: Scribe) -> ConvertOptions:
    """The options completed by the ConfigMap; what was given as an option wins."""
    data = writer.read_strings(writer.document.value.get("data"), "data")
    moved = [key for key in data if key not in _USED and key not in _NO_TARGET]
    for key in (key for key in data if key in _NO_TARGET):
        writer.warn(f"data[{key}]", _NO_TARGET[key])
    if moved:
        message = (
            f"{', '.join(moved)}: these are settings of the controller now; give them as flags or environment"
        )
        writer.info("data", message)
    writer.info("", "is read for the node classes and then left out, because nothing in v1 reads it")
    density = data.get("aws.enableENILimitedPodDensity", "true").strip().lower() != "false"
    profile = options.default_instance_profile or data.get("aws.defaultInstanceProfile", "")
    return replace(
        options,
        cluster_name=options.cluster_name or data.get("aws.clusterName", ""),
        default_instance_profile=profile,
        tags=_parse_tags(writer, data.get("aws.tags", "")) | dict(options.tags),
        eni_limited_pod_density=options.eni_limited_pod_density and density,
    )


def _parse_tags(writer: Scribe, text: str) -> dict[str, str]:
    """aws.tags is a JSON object in a string."""
    try:
        found: Any = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        writer.error("data[aws.tags]", "is not a JSON object, so the tags are lost; correct it first")
        return {}
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in found.items()}
