"""What a person adds to the price of every node: licences and agents that no cloud bills."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches

from dovetail.settings.value_kinds import SettingKind

__all__ = ["NODE_EXTRA", "NO_EXTRA", "NodeExtra", "parse_node_extra"]

_TERM = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(?:/(\w+))?", re.ASCII)
_UNITS = ("node", "vcpu")
# Words that people mean by a unit; get_close_matches alone does not know that a core is a vCPU.
_MEANT = {"cpu": "vcpu", "core": "vcpu", "cores": "vcpu", "instance": "node", "machine": "node"}


@dataclass(frozen=True, slots=True)
class NodeExtra:
    """Dollars an hour that a person adds to a node: so much for the node, and so much for each vCPU."""

    per_node: float = 0.0
    per_vcpu: float = 0.0

    def add_up(self, vcpus: float) -> float:
        """Dollars an hour for a node with so many vCPUs."""
        return self.per_node + self.per_vcpu * vcpus

    def __str__(self) -> str:
        amounts = zip((self.per_node, self.per_vcpu), _UNITS, strict=True)
        return ",".join(f"{_format_amount(amount)}/{unit}" for amount, unit in amounts if amount)


NO_EXTRA = NodeExtra()


def _format_amount(amount: float) -> str:
    return f"{amount:.6f}".rstrip("0").rstrip(".")


def parse_node_extra(text: str) -> NodeExtra:
    """The amounts that a text spells, such as `0.01/node,0.0005/vcpu`; a ValueError says what is wrong."""
    found: dict[str, float] = {}
    for term in filter(None, (part.strip() for part in text.split(","))):
        match = _TERM.fullmatch(term)
        if match is None:
            raise ValueError(f"{term!r} is no amount: write dollars an hour such as 0.01/node")
        amount, unit = match[1], match[2] or "node"
        if unit not in _UNITS:
            raise ValueError(f"{term!r} is for no unit there is{_suggest_unit(amount, unit)}")
        if unit in found:
            raise ValueError(f"{term!r} is a second amount for the same unit: add them up")
        found[unit] = float(amount)
    return NodeExtra(found.get("node", 0.0), found.get("vcpu", 0.0))


def _suggest_unit(amount: str, unit: str) -> str:
    lower = unit.lower()
    near = [_MEANT[lower]] if lower in _MEANT else get_close_matches(lower, _UNITS, 1)
    return f": did you mean {amount}/{near[0]}?" if near else ": write node or vcpu"


NODE_EXTRA: SettingKind[NodeExtra] = SettingKind(
    "dollars an hour per node and per vCPU such as 0.01/node,0.0005/vcpu, or empty",
    parse_node_extra,
    blank=True,
)
