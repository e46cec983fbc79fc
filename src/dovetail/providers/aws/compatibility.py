"""Can nodes of an EC2NodeClass be of an instance type? Facts of the type against what the class asks for."""

from __future__ import annotations

from dovetail.api.nodeclass import EC2NodeClass
from dovetail.providers.aws.catalog import NodeClassTerms
from dovetail.providers.aws.instance_type_info import InstanceTypeInfo

__all__ = ["find_class_incompatibility", "find_incompatibility"]

EFA_ONLY = "efa-only"
ENABLED = "enabled"
NESTED_VIRTUALIZATION = "nested-virtualization"
NITRO = "nitro"


def find_incompatibility(facts: InstanceTypeInfo, terms: NodeClassTerms) -> str:
    """Why nodes of this class cannot be of this type; empty when they can."""
    if terms.family.name == "AL2023" and facts.name.startswith("a1."):
        return "AL2023 does not start on the first Graviton"
    return _check_interfaces(facts, terms) if terms.interfaces else ""


def find_class_incompatibility(
    facts: InstanceTypeInfo, terms: NodeClassTerms, node_class: EC2NodeClass, strategy: str = ""
) -> str:
    """The same with what only a live class tells; `strategy` is that of its placement group, if any."""
    spec = node_class.spec
    nested = spec.cpu_options is not None and spec.cpu_options.nested_virtualization == ENABLED
    if nested and NESTED_VIRTUALIZATION not in facts.features:
        return "it has no nested virtualization"
    if strategy and strategy not in facts.placement_strategies:
        return f"it does not go into a placement group of strategy {strategy}"
    if spec.connection_tracking is not None and facts.hypervisor != NITRO:
        return "only Nitro types have timeouts of tracked connections"
    return find_incompatibility(facts, terms)


def _check_interfaces(facts: InstanceTypeInfo, terms: NodeClassTerms) -> str:
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
