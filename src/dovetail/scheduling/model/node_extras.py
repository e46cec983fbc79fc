"""What a person adds to the price of a NodePool's nodes, on every offering of its instance types."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.nodepool import NodePool
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.settings.node_extra import NO_EXTRA, NodeExtra, parse_node_extra

__all__ = ["find_extra_problem", "read_node_extra", "set_node_extra"]

_NANO = 1_000_000_000


def find_extra_problem(text: str) -> str:
    """Why an annotation's value is no extra; empty for one that can be read."""
    try:
        parse_node_extra(text)
    except ValueError as error:
        return f"{labels.NODE_EXTRA}: {error}"
    return ""


def read_node_extra(pool: NodePool, usual: NodeExtra = NO_EXTRA) -> NodeExtra:
    """What a NodePool adds to the price of its nodes: its annotation, or else what is usual.

    An annotation that cannot be read counts as not written; disruption says so and leaves the nodes alone.
    """
    text = pool.annotations.get(labels.NODE_EXTRA)
    if text is None or find_extra_problem(text):
        return usual
    return parse_node_extra(text)


def set_node_extra(types: Iterable[InstanceType], extra: NodeExtra) -> tuple[InstanceType, ...]:
    """The instance types with this much added to each offering, instead of what was added before."""
    return tuple(_set_extra(each, extra) for each in types)


def _set_extra(each: InstanceType, extra: NodeExtra) -> InstanceType:
    vcpus = each.capacity.get(labels.CPU)
    added = extra.add_up(vcpus.nano / _NANO if vcpus is not None else 0.0)
    if all((deal.parts.added if deal.parts is not None else 0.0) == added for deal in each.offerings):
        return each
    return replace(each, offerings=tuple(deal.change_parts(added=added) for deal in each.offerings))
