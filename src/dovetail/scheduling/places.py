"""Anywhere a pod could go: a node that runs or is coming, or one that could be made.

Places only fill up: requirements narrow, instance types drop out, room shrinks. A refusal that has to
do with those is therefore for good, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from dovetail.api.core import Taint
from dovetail.api.labels import CAPACITY_TYPE, HOSTNAME
from dovetail.api.pod import Pod
from dovetail.explain import Reason
from dovetail.scheduling import daemons, hostports, nodes, volumes
from dovetail.scheduling.catalog import MinValues
from dovetail.scheduling.groups import Group, Rule
from dovetail.scheduling.remembered import Remembered
from dovetail.scheduling.requirements import Requirements, Values
from dovetail.scheduling.reserved import Reservations
from dovetail.scheduling.resources import Nano, plus
from dovetail.scheduling.shapes import Shape
from dovetail.scheduling.snapshot import Options, StateNode, Storage
from dovetail.scheduling.taints import tolerates_all
from dovetail.scheduling.templates import Template, min_values
from dovetail.scheduling.topology import Topology
from dovetail.scheduling.typetable import bits

__all__ = ["Claim", "Fit", "Refusal", "RunningNode", "Within"]


class Refusal(NamedTuple):
    """Why a place was turned down, and whether asking again could help."""

    reason: Reason
    final: bool = False
    group: Group | None = None


class Fit(NamedTuple):
    """What a place becomes if the pod is put there."""

    requirements: Requirements
    types: int = 0
    total: Nano = {}
    reserved: frozenset[str] = frozenset()
    relaxed: bool = False


_TOPOLOGY = {
    Rule.SPREAD: Reason.SPREAD,
    Rule.AFFINITY: Reason.AFFINITY,
    Rule.ANTI_AFFINITY: Reason.ANTI_AFFINITY,
}
_TAINT = Refusal(Reason.TAINT, final=True)
_LABELS = Refusal(Reason.LABELS, final=True)
_ROOM = Refusal(Reason.RESOURCES, final=True)
_PORT = Refusal(Reason.HOST_PORT, final=True)
_VOLUMES = Refusal(Reason.VOLUME_LIMIT, final=True)
_WAY = Refusal(Reason.VOLUME_ZONE)
_TYPES = Refusal(Reason.TYPES)
_SHORT = Refusal(Reason.MIN_VALUES)
_RESERVED = Refusal(Reason.RESERVED)
_DEVICES = Refusal(Reason.DEVICES)
_NOTHING_UNDEFINED: frozenset[str] = frozenset()


class RunningNode:
    """A node that is there, or that is coming: its labels are settled and its room is known."""

    def __init__(self, index: int, state: StateNode, daemon_pods: tuple[Pod, ...], storage: Storage) -> None:
        facts = _facts_of(state, daemon_pods, storage)
        self.index = index
        self.state = state
        self.name = facts.name
        self.hostname = facts.hostname
        self.initialized = facts.initialized
        self.taints = facts.taints
        self.requirements = facts.requirements
        self.pods: list[str] = []
        self.left = dict(facts.left)
        self.overdrawn = facts.overdrawn
        self.ports = list(facts.ports)
        self.limits = state.volume_limits
        self.attached = {driver: set(names) for driver, names in facts.attached.items()}

    def offer(self, shape: Shape, topology: Topology) -> Fit | Refusal:
        """Whether the pod could run here."""
        crowded = _crowded(shape, self.hostname)
        if crowded is not None:
            return crowded
        if not tolerates_all(self.taints, shape.tolerations):
            return _TAINT
        if self.overdrawn or not _fits(shape.requests, self.left):
            return _ROOM
        if shape.ports and hostports.conflict(shape.ports, self.ports):
            return _PORT
        if self.limits and volumes.over_limit(self.limits, self.attached, shape.attachments):
            return _VOLUMES
        if not self.requirements.compatible(shape.requirements):
            return _LABELS
        narrowed = self.requirements & shape.requirements
        refusal = _WAY
        for way in shape.ways:
            if narrowed.compatible(way):
                found = _settle(shape, narrowed & way, topology, _NOTHING_UNDEFINED)
                if not isinstance(found, Refusal):
                    return Fit(found[0])
                refusal = found
        return refusal

    def take(self, shape: Shape, pod: str, fit: Fit, topology: Topology) -> None:
        self.pods.append(pod)
        for name, amount in shape.requests.items():
            self.left[name] = self.left.get(name, 0) - amount
        self.requirements = fit.requirements
        self.ports.extend(shape.ports)
        self._attach(shape.attachments)
        topology.record(shape, self.taints, fit.requirements)

    def _attach(self, more: volumes.Attachments) -> None:
        for driver, names in more.items():
            self.attached.setdefault(driver, set()).update(names)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What a node is before anybody is placed on it."""

    name: str
    hostname: str
    initialized: bool
    taints: tuple[Taint, ...]
    requirements: Requirements
    left: Nano
    overdrawn: bool
    ports: tuple[hostports.HostPort, ...]
    attached: volumes.Attachments


_FACTS: Remembered[_Facts] = Remembered()


def _facts_of(state: StateNode, daemon_pods: tuple[Pod, ...], storage: Storage) -> _Facts:
    """The facts of a node, worked out once while node, daemons and volumes stay what they are."""
    known = _FACTS.get(state, daemon_pods, storage)
    if known is None:
        known = _FACTS.put(_facts(state, daemon_pods, storage), state, daemon_pods, storage)
    return known


def _facts(state: StateNode, daemon_pods: Sequence[Pod], storage: Storage) -> _Facts:
    labels, taints = Requirements.labels(nodes.labels(state)), nodes.taints(state)
    running = tuple(nodes.running(state.pods))
    expected = daemons.on_node(daemon_pods, labels, taints)
    left = nodes.available(state)
    for name, amount in daemons.still_to_come(expected, filter(daemons.is_daemon, running)).items():
        if name in left:
            left[name] -= amount
    hostname = nodes.hostname(state)
    return _Facts(
        nodes.name(state),
        hostname,
        nodes.initialized(state),
        taints,
        labels.replacing(HOSTNAME, Values(frozenset((hostname,)))),
        left,
        any(amount < 0 for amount in left.values()),
        tuple(port for pod in running for port in hostports.host_ports(pod)),
        _attached(running, storage) if state.volume_limits else {},
    )


def _attached(running: Iterable[Pod], storage: Storage) -> volumes.Attachments:
    found: dict[str, frozenset[str]] = {}
    for pod in running:
        for driver, names in volumes.attachments(pod, storage).items():
            found[driver] = found.get(driver, frozenset()) | names
    return found


def _fits(wanted: Nano, left: Nano) -> bool:
    # Asked more often than anything else, so it is spelled out.
    for name, amount in wanted.items():  # noqa: SIM110
        if amount > left.get(name, 0):
            return False
    return True


def _crowded(shape: Shape, hostname: str) -> Refusal | None:
    """Rules about one host are quick to ask, and what they refuse stays refused: hosts only fill up."""
    for group, cap in shape.host_caps:
        if group.counts.get(hostname, 0) > cap:
            return Refusal(_TOPOLOGY[group.rule], final=True, group=group)
    return None


def _settle(
    shape: Shape, requirements: Requirements, topology: Topology, undefined: AbstractSet[str]
) -> list[Requirements] | Refusal:
    """The requirements as the pod's topology rules leave them; one for each equally good way to choose."""
    narrowed = topology.narrow(shape, requirements)
    if isinstance(narrowed, Group):
        return Refusal(_TOPOLOGY[narrowed.rule], group=narrowed)
    if not narrowed.by_key:
        return [requirements]
    ways = [requirements & more for more in narrowed.options() if requirements.compatible(more, undefined)]
    return ways or Refusal(Reason.SPREAD)


class Within(NamedTuple):
    """A further bound on what a new node may be."""

    requirements: Requirements
    types: int


class Circumstances(Protocol):
    """What all places of a run share."""

    topology: Topology
    reservations: Reservations
    options: Options

    def choose(self, fits: Sequence[Fit], price: Callable[[Fit], float]) -> Fit:
        """One of several ways to take a pod that are equally good to the rules."""


class Claim:
    """A node this run would make. Which instance type it will be is left open as long as possible."""

    def __init__(self, index: int, template: Template, types: int) -> None:
        self.index = index
        self.template = template
        self.hostname = f"hostname-placeholder-{index + 1:04d}"
        host = Values(frozenset((self.hostname,)))
        self.requirements = template.requirements.replacing(HOSTNAME, host)
        self.types = types
        self.total: Nano = {}
        self.pods: list[str] = []
        self.ports: list[hostports.HostPort] = []
        self.relaxed = False

    def offer(
        self, shape: Shape, run: Circumstances, new: bool = False, within: Within | None = None
    ) -> Fit | Refusal:
        """Whether the pod could run here, and as which instance types."""
        if run.options.most_pods and len(self.pods) >= run.options.most_pods:
            return _ROOM
        crowded = _crowded(shape, self.hostname)
        if crowded is not None:
            return crowded
        template, table = self.template, self.template.table
        tolerated = shape.tolerated.get(template.index)
        if tolerated is None:
            tolerated = tolerates_all(template.taints, shape.tolerations)
            shape.tolerated[template.index] = tolerated
        if not tolerated:
            return _TAINT
        total = plus(self.total, shape.requests)
        if not table.roomy(total, table.unfold(self.types)):
            return _ROOM
        if shape.ports and hostports.conflict(shape.ports, self.ports):
            return _PORT
        if not self.requirements.compatible(shape.requirements, table.undefined):
            return _LABELS
        narrowed = self.requirements & shape.requirements
        if not self._types(narrowed, total, shape):
            return _ROOM
        found: Fit | Refusal = _WAY
        for way in shape.ways:
            way = way if within is None else way & within.requirements
            if narrowed.compatible(way, table.undefined):
                found = self._offer_one_way(narrowed & way, total, shape, run, new)
                if within is not None and not isinstance(found, Refusal):
                    found = self._keep(found, within.types)
                if not isinstance(found, Refusal) or found.reason is Reason.RESERVED:
                    return found
        return found

    def _offer_one_way(
        self, narrowed: Requirements, total: Nano, shape: Shape, run: Circumstances, new: bool
    ) -> Fit | Refusal:
        settled = _settle(shape, narrowed, run.topology, self.template.table.undefined)
        if isinstance(settled, Refusal):
            return settled
        tried = [self._offer_settled(each, total, shape, run, new) for each in settled]
        fits = [each for each in tried if not isinstance(each, Refusal)]
        if len(fits) < 2:
            return fits[0] if fits else tried[-1]
        return run.choose(fits, self._price)

    def _offer_settled(
        self, settled: Requirements, total: Nano, shape: Shape, run: Circumstances, new: bool
    ) -> Fit | Refusal:
        fit = self._fit(settled, total, shape, run.options, new)
        return fit if isinstance(fit, Refusal) else self._reserve(fit, run.reservations, run.options)

    def _keep(self, fit: Fit, types: int) -> Fit | Refusal:
        """Only these types, if that leaves enough of them."""
        kept = fit.types & types
        if not kept:
            return _DEVICES
        if self.template.min_values and not self.short_of(kept, fit.requirements).met:
            return _SHORT
        return fit._replace(types=kept)

    def _price(self, fit: Fit) -> float:
        prices = self.template.table.prices(fit.requirements)
        return min(prices[i] for i in bits(fit.types))

    def _types(self, requirements: Requirements, total: Nano, shape: Shape) -> int:
        """The instance types still possible under narrower requirements and a larger total."""
        table = self.template.table
        types = self.types
        for key, values in requirements.by_key.items():
            if values is not self.requirements.by_key.get(key) and table.knows(key):
                types &= table.matching(key, values)
        offered = table.offered(requirements)
        found = 0
        for group in self.template.daemons:
            among = types & group.types
            if not among or (shape.ports and hostports.conflict(shape.ports, group.ports)):
                continue
            needed = plus(total, group.overhead) if group.overhead else total
            found |= table.fold(table.roomy(needed, table.unfold(among) & offered))
        return found

    def _fit(
        self, requirements: Requirements, total: Nano, shape: Shape, options: Options, new: bool
    ) -> Fit | Refusal:
        types = self._types(requirements, total, shape)
        if not types:
            return _TYPES
        if not self.template.min_values:
            return Fit(requirements, types, total)
        short = self.short_of(types, requirements)
        if short.met:
            return Fit(requirements, types, total)
        if not new or options.min_values == "Strict":
            return _SHORT
        for key, achieved in short.unsatisfied.items():
            requirements = requirements.replacing(key, requirements[key].with_min_values(achieved))
        return Fit(requirements, types, total, relaxed=True)

    def short_of(self, types: int, requirements: Requirements) -> MinValues:
        """What minValues asks for and cannot be had any more.

        A NodeClaim must list as many values as it asks for, and how its types can be bought: an order that
        lists fewer is refused, and will be refused for ever.
        """
        table = self.template.table
        short = min_values(table, types, requirements)
        if not types:
            return short
        listed = requirements.too_few
        least = requirements[CAPACITY_TYPE].min_values
        if least is not None:
            deals = table.deals_for(requirements)
            sold = len({deal.capacity_type for deal in deals if table.fold(deal.variants) & types})
            if sold < least:
                listed[CAPACITY_TYPE] = min(sold, listed.get(CAPACITY_TYPE, sold))
        for key, count in short.unsatisfied.items():
            listed[key] = min(count, listed.get(key, count))
        return MinValues(needed=short.needed, unsatisfied=listed)

    def _reserve(self, fit: Fit, reservations: Reservations, options: Options) -> Fit | Refusal:
        """Hold every reservation the node might be launched into; wait if there should be one and is not."""
        table = self.template.table
        if not table.reserved or not options.reserved_capacity:
            return fit
        wanted = {
            offering.reservation_id
            for i, offering in table.reserved
            if fit.types >> i & 1 and fit.requirements.compatible(offering.requirements, table.undefined)
        }
        free = frozenset(each for each in wanted if reservations.can_reserve(self.hostname, each))
        if not options.reserved_fallback and not free and (wanted or reservations.held(self.hostname)):
            return _RESERVED
        return fit._replace(reserved=free)

    def take(self, shape: Shape, pod: str, fit: Fit, run: Circumstances) -> None:
        self.pods.append(pod)
        self.requirements, self.types, self.total = fit.requirements, fit.types, fit.total
        self.relaxed = self.relaxed or fit.relaxed
        self.ports.extend(shape.ports)
        if self.template.table.reserved:
            run.reservations.settle(self.hostname, fit.reserved)
        run.topology.record(shape, self.template.taints, fit.requirements)
