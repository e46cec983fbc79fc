"""What an image alias stands for: the public parameters that name its images, and which nodes each suits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dovetail.api import labels
from dovetail.api.hashes import FAMILIES
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.pod import NodeSelectorRequirement
from dovetail.errors import Refused
from dovetail.providers.aws.cluster_discovery import parse_minor
from dovetail.providers.aws.instance_type_info import FAMILIES as SIZES

__all__ = ["Alias", "ImageParameter", "UnsupportedAlias", "find_alias", "list_image_parameters"]

LATEST: Final = "latest"
AL2_ENDS: Final = (1, 33)
WINDOWS_2025_BEGINS: Final = (1, 35)
EKS_IMAGES: Final = "/aws/service/eks/optimized-ami"

Requirements = tuple[NodeSelectorRequirement, ...]


class UnsupportedAlias(Refused):
    """There is no such image for this version of Kubernetes, and there will be none."""


def _require_absent(key: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator="DoesNotExist")


def _require_present(key: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator="Exists")


STANDARD: Final[Requirements] = (
    _require_absent(labels.INSTANCE_ACCELERATOR_COUNT),
    _require_absent(labels.INSTANCE_GPU_COUNT),
)
NVIDIA: Final[Requirements] = (_require_present(labels.INSTANCE_GPU_COUNT),)
NEURON: Final[Requirements] = (_require_present(labels.INSTANCE_ACCELERATOR_COUNT),)
VARIANTS: Final = {"standard": STANDARD, "nvidia": NVIDIA, "neuron": NEURON}


@dataclass(frozen=True, slots=True)
class Alias:
    """`family@version`, the family as it is spelled elsewhere."""

    family: str
    version: str

    @property
    def latest(self) -> bool:
        return self.version == LATEST

    def __str__(self) -> str:
        return f"{self.family.lower()}@{self.version}"


@dataclass(frozen=True, slots=True)
class ImageParameter:
    """A parameter that names an image, the sorts of node it suits, and whether its value may change."""

    name: str
    suits: tuple[Requirements, ...]
    mutable: bool


def find_alias(node_class: EC2NodeClass) -> Alias | None:
    """The alias a class names, if it names one. Whatever its amiFamily, the alias decides on images."""
    terms = node_class.spec.ami_selector_terms
    found = [term.alias for term in terms if term.alias]
    if not found:
        return None
    if len(terms) > 1:
        raise UnsupportedAlias(
            f"alias {found[0]} stands beside other terms, so that nobody can tell which images are meant; "
            "leave it alone in amiSelectorTerms, or take it out"
        )
    family, _, version = found[0].partition("@")
    return Alias(FAMILIES.get(family.lower(), family), version)


def list_image_parameters(alias: Alias, kubernetes: str) -> tuple[ImageParameter, ...]:
    """The parameters of an alias for a version of Kubernetes; UnsupportedAlias where there are none."""
    version = parse_minor(kubernetes)
    if alias.family == "AL2" and version >= AL2_ENDS:
        raise UnsupportedAlias(
            f"alias {alias} cannot be used with Kubernetes {kubernetes}: AL2 images end with 1.32; "
            "use al2023 or bottlerocket"
        )
    if alias.family == "Windows2025" and version < WINDOWS_2025_BEGINS:
        raise UnsupportedAlias(
            f"alias {alias} cannot be used with Kubernetes {kubernetes}: Windows 2025 images begin with "
            "1.35; use windows2022"
        )
    if alias.family.startswith("Windows"):
        return _list_windows_parameters(alias, kubernetes)
    makers = {
        "AL2": _list_al2_parameters,
        "AL2023": _list_al2023_parameters,
        "Bottlerocket": _list_bottlerocket_parameters,
    }
    if alias.family not in makers:
        raise UnsupportedAlias(f"alias {alias} is none we know; use al2023@latest or bottlerocket@latest")
    return makers[alias.family](alias, kubernetes)


def _list_al2_parameters(alias: Alias, kubernetes: str) -> tuple[ImageParameter, ...]:
    trees = (
        ("amazon-linux-2", "amazon-eks-node", (STANDARD,)),
        ("amazon-linux-2-arm64", "amazon-eks-arm64-node", (STANDARD,)),
        ("amazon-linux-2-gpu", "amazon-eks-gpu-node", (NEURON, NVIDIA)),
    )
    return tuple(
        ImageParameter(
            f"{EKS_IMAGES}/{kubernetes}/{tree}/{_name_release(alias, f'{name}-{kubernetes}')}/image_id",
            suits,
            alias.latest,
        )
        for tree, name, suits in trees
    )


def _list_al2023_parameters(alias: Alias, kubernetes: str) -> tuple[ImageParameter, ...]:
    sorts = {"x86_64": ("standard", "nvidia", "neuron"), "arm64": ("standard", "nvidia")}
    found = []
    for arch, variants in sorts.items():
        for variant in variants:
            release = _name_release(alias, f"amazon-eks-node-al2023-{arch}-{variant}-{kubernetes}")
            name = f"{EKS_IMAGES}/{kubernetes}/amazon-linux-2023/{arch}/{variant}/{release}/image_id"
            found.append(ImageParameter(name, (VARIANTS[variant],), alias.latest))
    return tuple(found)


def _name_release(alias: Alias, prefix: str) -> str:
    return "recommended" if alias.latest else f"{prefix}-{alias.version}"


def _list_bottlerocket_parameters(alias: Alias, kubernetes: str) -> tuple[ImageParameter, ...]:
    version = alias.version.removeprefix("v")
    sorts: tuple[tuple[str, tuple[Requirements, ...]], ...] = (
        (f"aws-k8s-{kubernetes}/x86_64", (STANDARD, NEURON)),
        (f"aws-k8s-{kubernetes}/arm64", (STANDARD,)),
        (f"aws-k8s-{kubernetes}-nvidia/x86_64", (NVIDIA,)),
        (f"aws-k8s-{kubernetes}-nvidia/arm64", (NVIDIA,)),
    )
    return tuple(
        ImageParameter(f"/aws/service/bottlerocket/{tree}/{version}/image_id", suits, alias.latest)
        for tree, suits in sorts
    )


def _list_windows_parameters(alias: Alias, kubernetes: str) -> tuple[ImageParameter, ...]:
    year = alias.family.removeprefix("Windows")
    name = f"Windows_Server-{year}-English-Core-EKS_Optimized-{kubernetes}"
    suits = (
        NodeSelectorRequirement(key=labels.OS, operator="In", values=("windows",)),
        NodeSelectorRequirement(
            key=labels.WINDOWS_BUILD, operator="In", values=(SIZES[alias.family].windows_build,)
        ),
    )
    return (ImageParameter(f"/aws/service/ami-windows-latest/{name}/image_id", (suits,), alias.latest),)
