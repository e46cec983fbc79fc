"""The providers by name, as the API of a cluster knows them: node class, labels, rights, first NodePool.

How the provider of a name is made stands in `dovetail.providers.factory`. A provider that is in both tables
can be named to every command.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from dovetail.api import labels
from dovetail.api.crds.definition import CrdDefinition
from dovetail.api.crds.ec2 import EC2NODECLASS
from dovetail.api.crds.other_kinds import KWOKNODECLASS
from dovetail.api.meta import Kind, Object
from dovetail.errors import Misconfigured

__all__ = ["PROVIDER_APIS", "ProviderApi", "find_provider_api"]

Json = dict[str, Any]
_CAPACITY_TYPES = {"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["spot", "on-demand"]}


@dataclass(frozen=True, slots=True)
class ProviderApi:
    """What a cluster's API has of a provider.

    `requirements` are those of the NodePool to begin with. `rights` are what its controller may do beyond
    reading node classes and writing their status: API group, resources, verbs.
    """

    definition: CrdDefinition
    labels: labels.Flavour
    requirements: tuple[Json, ...] = (_CAPACITY_TYPES,)
    rights: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = ()

    @property
    def node_class(self) -> type[Object]:
        return self.definition.record

    @property
    def kind(self) -> Kind:
        return self.definition.record.KIND


PROVIDER_APIS: dict[str, ProviderApi] = {
    "aws": ProviderApi(
        EC2NODECLASS,
        labels.AWS,
        (
            _CAPACITY_TYPES,
            {"key": f"{labels.KARPENTER_AWS}/instance-category", "operator": "In", "values": ["c", "m", "r"]},
            {"key": f"{labels.KARPENTER_AWS}/instance-generation", "operator": "Gt", "values": ["4"]},
        ),
    ),
    "kwok": ProviderApi(
        KWOKNODECLASS,
        labels.KWOK,
        ({"key": labels.OS, "operator": "In", "values": ["linux"]}, _CAPACITY_TYPES),
        (
            ("", ("nodes",), ("create",)),
            ("apiextensions.k8s.io", ("customresourcedefinitions",), ("list", "watch")),
        ),
    ),
}


def find_provider_api(name: str) -> ProviderApi:
    """The provider of this name, or Misconfigured with the names there are."""
    found = PROVIDER_APIS.get(name)
    if found is None:
        *others, last = sorted(PROVIDER_APIS)
        near = get_close_matches(name, PROVIDER_APIS, 1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise Misconfigured(f'there is no provider "{name}"; there are {", ".join(others)} and {last}{hint}')
    return found
