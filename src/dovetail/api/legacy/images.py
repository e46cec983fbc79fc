"""Which image a node class boots: families and selectors to aliases and terms."""

from __future__ import annotations

from typing import Any

from dovetail.api.legacy.notes import Scribe
from dovetail.api.legacy.settings import ConvertOptions

_ALIASED = frozenset({"AL2", "AL2023", "Bottlerocket", "Windows2019", "Windows2022"})
FAMILIES = _ALIASED | {"Ubuntu", "Custom"}


def images(
    scribe: Scribe, family: str, terms: list[dict[str, Any]], options: ConvertOptions
) -> dict[str, Any]:
    """amiFamily and amiSelectorTerms. Ubuntu is gone: it lives on as AL2 with images of one's own."""
    if family not in FAMILIES:
        scribe.refuse("amiFamily", f'"{family}" is not a family v1 knows; choose one it does')
        return {}
    if not terms:
        return _alias(scribe, family, options)
    if family == "Custom":
        message = "user data must register nodes with the taint karpenter.sh/unregistered:NoExecute in v1"
        scribe.warn("amiFamily", message)
    if family == "Ubuntu":
        scribe.warn(
            "amiFamily", "Ubuntu is gone; the node class uses AL2 bootstrapping with the selected images"
        )
    return {"amiFamily": "AL2" if family == "Ubuntu" else family, "amiSelectorTerms": terms}


def _alias(scribe: Scribe, family: str, options: ConvertOptions) -> dict[str, Any]:
    if family not in _ALIASED:
        message = (
            f"{family} without an image selector is not convertible: v1 cannot find the images; select them"
        )
        scribe.refuse("amiFamily", message)
        return {}
    if family == "AL2" and not options.al2_has_images:
        message = "AL2 has no images for Kubernetes 1.33 and later; move to the alias al2023@latest"
        scribe.warn("amiFamily", message)
    return {"amiSelectorTerms": [{"alias": f"{family.lower()}@latest"}]}
