"""What each namespace or label costs: nodes' prices, split by what pods request of them, idle room apart.

A node's price has a part for CPU, one for memory and one for devices, in the proportion of what those cost
elsewhere; a pod pays for its share of what the node offers, and what nobody requests is idle. It is a view
for people: nothing decides by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import fsum

from dovetail.api.meta import Record
from dovetail.api.pod import Pod
from dovetail.scheduling.bill import Bill
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.resources import Nano
from dovetail.scheduling.model.snapshot import StateNode

__all__ = ["IDLE", "CostShare", "split_bill"]

IDLE = "(idle)"
# Dollars an hour of a core, of a GiB and of a device, as open price lists have them. Only their proportion
# counts: together they are scaled to the node's own price.
_CORE, _GIB, _DEVICE = 0.031611, 0.004237, 0.95
_PARTS = ("cpu", "memory", "devices")
_NANO, _GIB_IN_NANO = 1_000_000_000, (1 << 30) * 1_000_000_000
# Extended resources that are dear parts of machines. Others, such as network interfaces, cost nothing.
_FAMILIES = ("nvidia.com/", "gpu.intel.com/")
_DEVICES = frozenset(("amd.com/gpu", "habana.ai/gaudi", "aws.amazon.com/neuron", "google.com/tpu"))


class CostShare(Record, frozen=True):
    """What one namespace, or one value of a label, costs an hour."""

    name: str
    cpu: float = 0.0
    memory: float = 0.0
    devices: float = 0.0
    pods: int = 0

    @property
    def total(self) -> float:
        return fsum((self.cpu, self.memory, self.devices))


def split_bill(
    bill: Bill, nodes: Iterable[StateNode], name_of: Callable[[Pod], str]
) -> tuple[CostShare, ...]:
    """The dearest first and idle room last; together they are what the bill's lines add up to."""
    amounts: dict[str, dict[str, list[float]]] = {}
    pods: dict[str, int] = {}
    prices = {line.node: line.effective for line in bill.lines}
    for state in nodes:
        price = prices.get(views.read_name(state))
        if price is None or not views.is_managed(state):
            continue
        running = list(views.list_running_pods(state.pods))
        for pod in running:
            pods[name_of(pod)] = pods.get(name_of(pod), 0) + 1
        for name, part, dollars in _split_node(price, views.read_allocatable(state), running, name_of):
            amounts.setdefault(name, {each: [] for each in _PARTS})[part].append(dollars)
    shares = [
        CostShare(
            name=name,
            cpu=fsum(amounts.get(name, {}).get("cpu", ())),
            memory=fsum(amounts.get(name, {}).get("memory", ())),
            devices=fsum(amounts.get(name, {}).get("devices", ())),
            pods=pods.get(name, 0),
        )
        for name in amounts.keys() | pods.keys()
    ]
    return tuple(sorted(shares, key=lambda share: (share.name == IDLE, -share.total, share.name)))


def _split_node(
    price: float, offered: Nano, pods: Iterable[Pod], name_of: Callable[[Pod], str]
) -> Iterable[tuple[str, str, float]]:
    """Name, part and dollars an hour of everything that a node's price pays for."""
    requested = [(name_of(pod), _count_parts(pod.spec.nano_requests)) for pod in pods]
    for part, dollars, most in _list_parts(price, _count_parts(offered)):
        total = sum(amounts[part] for _, amounts in requested)
        # Pods that were there before the kubelet could refuse them may request more than there is.
        most = max(most, total)
        for name, amounts in requested:
            if amounts[part]:
                yield name, part, dollars * amounts[part] / most
        yield IDLE, part, dollars * (most - total) / most


def _list_parts(price: float, offered: Mapping[str, float]) -> Iterable[tuple[str, float, float]]:
    """Each part that a node has: its dollars an hour, and how much of it there is."""
    rates = {"cpu": _CORE, "memory": _GIB, "devices": _DEVICE}
    worth = fsum(offered[part] * rates[part] for part in _PARTS)
    if not worth:
        yield "cpu", price, 1.0  # a node that says nothing of itself is idle as a whole
        return
    for part in _PARTS:
        if offered[part]:
            yield part, price * offered[part] * rates[part] / worth, offered[part]


def _count_parts(amounts: Nano) -> dict[str, float]:
    devices = [amount for name, amount in amounts.items() if name in _DEVICES or name.startswith(_FAMILIES)]
    return {
        "cpu": amounts.get("cpu", 0) / _NANO,
        "memory": amounts.get("memory", 0) / _GIB_IN_NANO,
        "devices": sum(devices) / _NANO,
    }
