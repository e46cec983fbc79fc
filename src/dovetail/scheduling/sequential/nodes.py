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
from dovetail.scheduling.model import daemonsets, host_ports, state_node, volumes
from dovetail.scheduling.model.decision_cache import IdentityCache
from dovetail.scheduling.model.instance_type_table import iterate_bits
from dovetail.scheduling.model.instance_types import MinValues
from dovetail.scheduling.model.nodeclaim_template import NodeClaimTemplate, check_min_values_of_types
from dovetail.scheduling.model.pod_shapes import SchedulingShape
from dovetail.scheduling.model.reasons import Reason
from dovetail.scheduling.model.requirements import Requirements, Values
from dovetail.scheduling.model.resources import Nano, add_resources
from dovetail.scheduling.model.snapshot import SchedulingOptions, StateNode, Storage
from dovetail.scheduling.model.taints import tolerates_all
from dovetail.scheduling.sequential.reservations import ReservationManager
from dovetail.scheduling.topology.group import TopologyGroup, TopologyType
from dovetail.scheduling.topology.tracker import Topology

__all__ = ["ExistingNode", "Fit", "NewNode", "NoFit", "NodeBounds", "NodeFactsCache"]


class NoFit(NamedTuple):
    """Why a place was turned down, and whether asking again could help."""

    reason: Reason
    final: bool = False
    group: TopologyGroup | None = None


class Fit(NamedTuple):
    """What a place becomes if the pod is put there."""

    requirements: Requirements
    types: int = 0
    total: Nano = {}
    reserved: frozenset[str] = frozenset()
    relaxed: bool = False


_TOPOLOGY = {
    TopologyType.SPREAD: Reason.SPREAD,
    TopologyType.AFFINITY: Reason.AFFINITY,
    TopologyType.ANTI_AFFINITY: Reason.ANTI_AFFINITY,
}
_TAINT = NoFit(Reason.TAINT, final=True)
_LABELS = NoFit(Reason.LABELS, final=True)
_ROOM = NoFit(Reason.RESOURCES, final=True)
_PORT = NoFit(Reason.HOST_PORT, final=True)
_VOLUMES = NoFit(Reason.VOLUME_LIMIT, final=True)
_WAY = NoFit(Reason.VOLUME_ZONE)
_TYPES = NoFit(Reason.TYPES)
_SHORT = NoFit(Reason.MIN_VALUES)
_RESERVED = NoFit(Reason.RESERVED)
_DEVICES = NoFit(Reason.DEVICES)
_NOTHING_UNDEFINED: frozenset[str] = frozenset()


class ExistingNode:
    """A node that is there, or that is coming: its labels are settled and its room is known."""

    def __init__(self, index: int, state: StateNode, facts: _NodeFacts) -> None:
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

    def check_fit(self, shape: SchedulingShape, topology: Topology) -> Fit | NoFit:
        """Whether the pod could run here."""
        crowded = _check_host_caps(shape, self.hostname)
        if crowded is not None:
            return crowded
        if not tolerates_all(self.taints, shape.tolerations):
            return _TAINT
        if self.overdrawn or not _has_room(shape.requests, self.left):
            return _ROOM
        if shape.ports and host_ports.find_conflict(shape.ports, self.ports):
            return _PORT
        if self.limits and volumes.find_exceeded_driver(self.limits, self.attached, shape.attachments):
            return _VOLUMES
        if not self.requirements.is_compatible(shape.requirements):
            return _LABELS
        narrowed = self.requirements & shape.requirements
        refusal = _WAY
        for volume_topology in shape.volume_topologies:
            if narrowed.is_compatible(volume_topology):
                found = _settle_topology(shape, narrowed & volume_topology, topology, _NOTHING_UNDEFINED)
                if not isinstance(found, NoFit):
                    return Fit(found[0])
                refusal = found
        return refusal

    def add_pod(self, shape: SchedulingShape, pod: str, fit: Fit, topology: Topology) -> None:
        self.pods.append(pod)
        for name, amount in shape.requests.items():
            self.left[name] = self.left.get(name, 0) - amount
        self.requirements = fit.requirements
        self.ports.extend(shape.ports)
        self._attach_volumes(shape.attachments)
        topology.record_pods(shape, self.taints, fit.requirements)

    def _attach_volumes(self, more: volumes.Attachments) -> None:
        for driver, names in more.items():
            self.attached.setdefault(driver, set()).update(names)


@dataclass(frozen=True, slots=True)
class _NodeFacts:
    """What a node is before anybody is placed on it."""

    name: str
    hostname: str
    initialized: bool
    taints: tuple[Taint, ...]
    requirements: Requirements
    left: Nano
    overdrawn: bool
    ports: tuple[host_ports.HostPort, ...]
    attached: volumes.Attachments


class NodeFactsCache(IdentityCache[_NodeFacts]):
    """The facts of every node that was looked at."""

    def find_facts(self, state: StateNode, daemon_pods: tuple[Pod, ...], storage: Storage) -> _NodeFacts:
        """The facts of a node, worked out once while node, daemons and volumes stay what they are."""
        known = self.get(state, daemon_pods, storage)
        if known is None:
            known = self.put(_compute_facts(state, daemon_pods, storage), state, daemon_pods, storage)
        return known


def _compute_facts(state: StateNode, daemon_pods: Sequence[Pod], storage: Storage) -> _NodeFacts:
    labels, taints = Requirements.from_labels(state_node.read_labels(state)), state_node.read_taints(state)
    running = tuple(state_node.list_running_pods(state.pods))
    expected = daemonsets.list_daemons_on_node(daemon_pods, labels, taints)
    left = state_node.compute_available(state)
    for name, amount in daemonsets.compute_missing_daemon_requests(
        expected, filter(daemonsets.is_daemon_pod, running)
    ).items():
        if name in left:
            left[name] -= amount
    hostname = state_node.read_hostname(state)
    return _NodeFacts(
        state_node.read_name(state),
        hostname,
        state_node.is_initialized(state),
        taints,
        labels.replace_key(HOSTNAME, Values(frozenset((hostname,)))),
        left,
        any(amount < 0 for amount in left.values()),
        tuple(port for pod in running for port in host_ports.list_host_ports(pod)),
        _list_attached(running, storage) if state.volume_limits else {},
    )


def _list_attached(running: Iterable[Pod], storage: Storage) -> volumes.Attachments:
    found: dict[str, frozenset[str]] = {}
    for pod in running:
        for driver, names in volumes.list_attachments(pod, storage).items():
            found[driver] = found.get(driver, frozenset()) | names
    return found


def _has_room(wanted: Nano, left: Nano) -> bool:
    # Asked more often than anything else, so it is spelled out.
    for name, amount in wanted.items():  # noqa: SIM110
        if amount > left.get(name, 0):
            return False
    return True


def _check_host_caps(shape: SchedulingShape, hostname: str) -> NoFit | None:
    """Rules about one host are quick to ask, and what they refuse stays refused: hosts only fill up."""
    for group, cap in shape.host_caps:
        if group.counts.get(hostname, 0) > cap:
            return NoFit(_TOPOLOGY[group.rule], final=True, group=group)
    return None


def _settle_topology(
    shape: SchedulingShape, requirements: Requirements, topology: Topology, undefined: AbstractSet[str]
) -> list[Requirements] | NoFit:
    """The requirements as the pod's topology rules leave them; one for each equally good way to choose."""
    narrowed = topology.narrow_domains(shape, requirements)
    if isinstance(narrowed, TopologyGroup):
        return NoFit(_TOPOLOGY[narrowed.rule], group=narrowed)
    if not narrowed.by_key:
        return [requirements]
    ways = [
        requirements & more for more in narrowed.list_options() if requirements.is_compatible(more, undefined)
    ]
    return ways or NoFit(Reason.SPREAD)


class NodeBounds(NamedTuple):
    """A further bound on what a new node may be."""

    requirements: Requirements
    types: int


class SchedulerState(Protocol):
    """What all places of a run share."""

    topology: Topology
    reservations: ReservationManager
    options: SchedulingOptions

    def choose_fit(self, fits: Sequence[Fit], price: Callable[[Fit], float]) -> Fit:
        """One of several ways to take a pod that are equally good to the rules."""


class NewNode:
    """A node this run would make. Which instance type it will be is left open as long as possible."""

    def __init__(self, index: int, template: NodeClaimTemplate, types: int) -> None:
        self.index = index
        self.template = template
        self.hostname = f"hostname-placeholder-{index + 1:04d}"
        host = Values(frozenset((self.hostname,)))
        self.requirements = template.requirements.replace_key(HOSTNAME, host)
        self.types = types
        self.total: Nano = {}
        self.pods: list[str] = []
        self.ports: list[host_ports.HostPort] = []
        self.relaxed = False

    def check_fit(
        self, shape: SchedulingShape, run: SchedulerState, new: bool = False, within: NodeBounds | None = None
    ) -> Fit | NoFit:
        """Whether the pod could run here, and as which instance types."""
        if run.options.most_pods and len(self.pods) >= run.options.most_pods:
            return _ROOM
        crowded = _check_host_caps(shape, self.hostname)
        if crowded is not None:
            return crowded
        template, table = self.template, self.template.table
        tolerated = shape.tolerated.get(template.index)
        if tolerated is None:
            tolerated = tolerates_all(template.taints, shape.tolerations)
            shape.tolerated[template.index] = tolerated
        if not tolerated:
            return _TAINT
        total = add_resources(self.total, shape.requests)
        if not table.find_roomy(total, table.unfold_types(self.types)):
            return _ROOM
        if shape.ports and host_ports.find_conflict(shape.ports, self.ports):
            return _PORT
        if not self.requirements.is_compatible(shape.requirements, table.undefined):
            return _LABELS
        narrowed = self.requirements & shape.requirements
        if not self._filter_types(narrowed, total, shape):
            return _ROOM
        found: Fit | NoFit = _WAY
        for volume_topology in shape.volume_topologies:
            volume_topology = volume_topology if within is None else volume_topology & within.requirements
            if narrowed.is_compatible(volume_topology, table.undefined):
                found = self._check_volume_topology(narrowed & volume_topology, total, shape, run, new)
                if within is not None and not isinstance(found, NoFit):
                    found = self._keep_types(found, within.types)
                if not isinstance(found, NoFit) or found.reason is Reason.RESERVED:
                    return found
        return found

    def _check_volume_topology(
        self, narrowed: Requirements, total: Nano, shape: SchedulingShape, run: SchedulerState, new: bool
    ) -> Fit | NoFit:
        settled = _settle_topology(shape, narrowed, run.topology, self.template.table.undefined)
        if isinstance(settled, NoFit):
            return settled
        tried = [self._check_settled(each, total, shape, run, new) for each in settled]
        fits = [each for each in tried if not isinstance(each, NoFit)]
        if len(fits) < 2:
            return fits[0] if fits else tried[-1]
        return run.choose_fit(fits, self._find_price)

    def _check_settled(
        self, settled: Requirements, total: Nano, shape: SchedulingShape, run: SchedulerState, new: bool
    ) -> Fit | NoFit:
        fit = self._build_fit(settled, total, shape, run.options, new)
        return fit if isinstance(fit, NoFit) else self._reserve_offerings(fit, run.reservations, run.options)

    def _keep_types(self, fit: Fit, types: int) -> Fit | NoFit:
        """Only these types, if that leaves enough of them."""
        kept = fit.types & types
        if not kept:
            return _DEVICES
        if self.template.min_values and not self.find_min_values_shortfall(kept, fit.requirements).met:
            return _SHORT
        return fit._replace(types=kept)

    def _find_price(self, fit: Fit) -> float:
        prices = self.template.table.list_prices(fit.requirements)
        return min(prices[i] for i in iterate_bits(fit.types))

    def _filter_types(self, requirements: Requirements, total: Nano, shape: SchedulingShape) -> int:
        """The instance types still possible under narrower requirements and a larger total."""
        table = self.template.table
        types = self.types
        for key, values in requirements.by_key.items():
            if values is not self.requirements.by_key.get(key) and table.knows_label(key):
                types &= table.match_label(key, values)
        offered = table.find_offered(requirements)
        found = 0
        for group in self.template.daemons:
            among = types & group.types
            if not among or (shape.ports and host_ports.find_conflict(shape.ports, group.ports)):
                continue
            needed = add_resources(total, group.overhead) if group.overhead else total
            found |= table.fold_variants(table.find_roomy(needed, table.unfold_types(among) & offered))
        return found

    def _build_fit(
        self,
        requirements: Requirements,
        total: Nano,
        shape: SchedulingShape,
        options: SchedulingOptions,
        new: bool,
    ) -> Fit | NoFit:
        types = self._filter_types(requirements, total, shape)
        if not types:
            return _TYPES
        if not self.template.min_values:
            return Fit(requirements, types, total)
        short = self.find_min_values_shortfall(types, requirements)
        if short.met:
            return Fit(requirements, types, total)
        if not new or options.min_values == "Strict":
            return _SHORT
        for key, achieved in short.unsatisfied.items():
            requirements = requirements.replace_key(key, requirements[key].with_min_values(achieved))
        return Fit(requirements, types, total, relaxed=True)

    def find_min_values_shortfall(self, types: int, requirements: Requirements) -> MinValues:
        """What minValues asks for and cannot be had any more.

        A NodeClaim must list as many values as it asks for, and how its types can be bought: an order that
        lists fewer is refused, and will be refused for ever.
        """
        table = self.template.table
        short = check_min_values_of_types(table, types, requirements)
        if not types:
            return short
        listed = requirements.too_few
        least = requirements[CAPACITY_TYPE].min_values
        if least is not None:
            deals = table.list_offering_groups(requirements)
            sold = len({deal.capacity_type for deal in deals if table.fold_variants(deal.variants) & types})
            if sold < least:
                listed[CAPACITY_TYPE] = min(sold, listed.get(CAPACITY_TYPE, sold))
        for key, count in short.unsatisfied.items():
            listed[key] = min(count, listed.get(key, count))
        return MinValues(needed=short.needed, unsatisfied=listed)

    def _reserve_offerings(
        self, fit: Fit, reservations: ReservationManager, options: SchedulingOptions
    ) -> Fit | NoFit:
        """Hold every reservation the node might be launched into; wait if there should be one and is not."""
        table = self.template.table
        if not table.reserved or not options.reserved_capacity:
            return fit
        wanted = {
            offering.reservation_id
            for i, offering in table.reserved
            if fit.types >> i & 1 and fit.requirements.is_compatible(offering.requirements, table.undefined)
        }
        free = frozenset(each for each in wanted if reservations.can_reserve(self.hostname, each))
        if not options.reserved_fallback and not free and (wanted or reservations.list_held(self.hostname)):
            return _RESERVED
        return fit._replace(reserved=free)

    def add_pod(self, shape: SchedulingShape, pod: str, fit: Fit, run: SchedulerState) -> None:
        self.pods.append(pod)
        self.requirements, self.types, self.total = fit.requirements, fit.types, fit.total
        self.relaxed = self.relaxed or fit.relaxed
        self.ports.extend(shape.ports)
        if self.template.table.reserved:
            run.reservations.hold_exactly(self.hostname, fit.reserved)
        run.topology.record_pods(shape, self.template.taints, fit.requirements)
