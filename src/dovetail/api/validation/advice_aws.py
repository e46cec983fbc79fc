"""Advice about EC2NodeClasses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dovetail.api.crds import Flavour
from dovetail.api.crds.ec2 import alias_family

_EXCLUSIVE = {"subnetSelectorTerms": ("id",), "securityGroupSelectorTerms": ("id", "name")}


def _ending_family(document: Mapping[str, Any], _: Flavour) -> Iterator[tuple[str, str]]:
    for index, term in enumerate(_spec(document).get("amiSelectorTerms", ())):
        if alias_family(term.get("alias", "")) == "al2":
            yield (
                f"spec.amiSelectorTerms[{index}].alias",
                "has no images for Kubernetes 1.33 and later: use al2023@latest there",
            )


def _bare_unit(document: Mapping[str, Any], _: Flavour) -> Iterator[tuple[str, str]]:
    for index, device in enumerate(_spec(document).get("blockDeviceMappings", ())):
        size = device.get("ebs", {}).get("volumeSize", "")
        if size in ("T", "Ti"):
            path = f"spec.blockDeviceMappings[{index}].ebs.volumeSize"
            yield path, f"{size} is a unit without a number; admission lets it through and EC2 will not"


def _self_registering(document: Mapping[str, Any], _: Flavour) -> Iterator[tuple[str, str]]:
    if _spec(document).get("amiFamily") == "Custom":
        yield (
            "spec.amiFamily",
            "user data of Custom nodes must register the taint karpenter.sh/unregistered:NoExecute",
        )


def _mixed_terms(document: Mapping[str, Any], _: Flavour) -> Iterator[tuple[str, str]]:
    for name, alone in _EXCLUSIVE.items():
        for index, term in enumerate(_spec(document).get(name, ())):
            if len(term) > 1 and any(field in term for field in alone):
                yield (
                    f"spec.{name}[{index}]",
                    f"selects only what matches {' and '.join(sorted(term))} together: use a term for each",
                )


def _nothing_selected(document: Mapping[str, Any], _: Flavour) -> Iterator[tuple[str, str]]:
    if "spec" not in document:
        yield "spec", "is missing: the class can be stored but never becomes ready"


def _spec(document: Mapping[str, Any]) -> Mapping[str, Any]:
    spec: Mapping[str, Any] = document.get("spec", {})
    return spec


EC2_ADVICE: Mapping[str, Callable[[Mapping[str, Any], Flavour], Iterator[tuple[str, str]]]] = {
    "ending-family": _ending_family,
    "bare-unit": _bare_unit,
    "custom-family": _self_registering,
    "mixed-term": _mixed_terms,
    "no-spec": _nothing_selected,
}
