"""Whether a node class can use an instance type at all. One it cannot use is known, but never for sale."""

from __future__ import annotations

from dovetail.providers.aws.catalog import Terms
from dovetail.providers.aws.facts import Facts

__all__ = ["incompatibility"]

EFA_ONLY = "efa-only"


def incompatibility(facts: Facts, terms: Terms) -> str:
    """Why nodes of this class cannot be of this type; empty when they can."""
    if terms.family.name == "AL2023" and facts.name.startswith("a1."):
        return "AL2023 does not start on the first Graviton"
    return _interfaces(facts, terms) if terms.interfaces else ""


def _interfaces(facts: Facts, terms: Terms) -> str:
    if not facts.interfaces:
        return "it has no network cards"
    if not facts.ena:
        return "it has no enhanced networking"
    for each in terms.interfaces:
        if each.network_card_index >= len(facts.interfaces):
            return f"it has no network card {each.network_card_index}"
        if each.device_index >= facts.interfaces[each.network_card_index]:
            return f"its network card {each.network_card_index} has no interface {each.device_index}"
    wanted = sum(each.interface_type == EFA_ONLY for each in terms.interfaces)
    if wanted > facts.efa_interfaces:
        return f"it has {facts.efa_interfaces} EFA interfaces, fewer than {wanted}"
    return ""
