"""Pods of one shape are decided alike: what scheduling reads of a pod, worked out once per shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dovetail.api.pod import Pod, PodSpec
from dovetail.api.quantity import Quantity
from dovetail.scheduling.model import pod_requirements, volumes
from dovetail.scheduling.model.host_ports import HostPort, list_host_ports
from dovetail.scheduling.model.preferences import drop_preferences, relax_spec
from dovetail.scheduling.model.requirements import Requirements, Values
from dovetail.scheduling.model.resources import compute_nano_requests
from dovetail.scheduling.model.snapshot import SchedulingOptions, Storage

if TYPE_CHECKING:
    from dovetail.scheduling.topology.group import TopologyGroup

__all__ = ["Numbering", "SchedulingShape", "SchedulingShapes"]


def _encode_quantity(value: Any) -> Any:
    if isinstance(value, Quantity):
        return f"{value.nano}{value.format}"
    raise TypeError(f"cannot tell apart values of {type(value).__name__}")


_encoder = msgspec.json.Encoder(enc_hook=_encode_quantity, order="deterministic")


class Numbering:
    """Distinct values, numbered by first use. Shared parts are usually one object: try identity first."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._by_id: dict[int, int] = {}
        self._by_text: dict[bytes, int] = {}
        self._alive: list[object] = []

    def number_value(self, value: object) -> int:
        known = self._by_id.get(id(value))
        if known is None:
            known = self._by_text.setdefault(_encoder.encode(value), len(self.rows))
            if known == len(self.rows):
                self.rows.append(value)
            self._by_id[id(value)] = known
            self._alive.append(value)  # or its id could be given to another
        return known


class _SpecFacts(NamedTuple):
    """What scheduling reads of a spec, whoever has it."""

    spec: PodSpec
    requirements: Requirements
    strict: Requirements
    at_odds: bool
    ports: tuple[HostPort, ...]


_ANYWHERE: Sequence[Requirements] = (Requirements(),)


class SchedulingShape:
    """All pods that are the same to scheduling, in one state of relaxation."""

    __slots__ = (
        "_hard",
        "_last",
        "_next",
        "_shapes",
        "at_odds",
        "attachments",
        "avoids",
        "closed_new_nodes",
        "closed_nodes",
        "constraints",
        "counted_in",
        "failed_at",
        "failure",
        "gave_up",
        "host_caps",
        "labels",
        "namespace",
        "narrowed",
        "narrowed_at",
        "owned",
        "pod",
        "ports",
        "requests",
        "requirements",
        "rules",
        "seen_groups",
        "seen_inverse",
        "spec",
        "strict",
        "tolerated",
        "tolerations",
        "volume_topologies",
    )

    def __init__(
        self, pod: Pod, spec: PodSpec, shapes: SchedulingShapes, gave_up: tuple[str, ...] = ()
    ) -> None:
        self.pod = pod
        self.spec = spec
        self.namespace = pod.namespace
        self.labels: Mapping[str, str] = pod.labels
        self.gave_up = gave_up
        self._shapes = shapes
        _, self.requirements, self.strict, self.at_odds, self.ports = shapes.read_spec(pod, spec)
        self.tolerations = spec.tolerations
        self.requests = compute_nano_requests(pod)
        self.attachments: volumes.Attachments = {}
        self.volume_topologies = _ANYWHERE
        if spec.volumes:
            self.attachments = volumes.list_attachments(pod, shapes.storage)
            self.volume_topologies = volumes.list_volume_topologies(pod, shapes.storage) or _ANYWHERE
        # Places only ever fill up, so a refusal for want of room or by labels is for good.
        self.closed_nodes = 0
        self.closed_new_nodes = 0
        self.failed_at = -1
        self.failure: object = None
        self.tolerated: dict[int, bool] = {}
        # Kept up to date by the topology tracker.
        self.owned: list[TopologyGroup] | None = None
        self.constraints: list[tuple[TopologyGroup, bool]] = []
        self.counted_in: list[TopologyGroup] = []
        self.host_caps: list[tuple[TopologyGroup, int]] = []
        self.rules: list[tuple[TopologyGroup, bool]] = []
        self.narrowed: dict[tuple[Values, ...], object] = {}
        self.narrowed_at = -1
        self.seen_groups = 0
        self.seen_inverse = 0
        self.avoids: list[TopologyGroup] = []
        self._next: SchedulingShape | None = None
        self._last = False
        self._hard: SchedulingShape | None = None

    def relax(self) -> SchedulingShape | None:
        """The same pods with one wish fewer; None when they have none left."""
        if self._next is None and not self._last:
            step = relax_spec(self.spec, self._shapes.soft_taints)
            if step is None:
                self._last = True
            else:
                self._next = SchedulingShape(self.pod, step.spec, self._shapes, (*self.gave_up, step.gave_up))
        return self._next

    @property
    def hard(self) -> SchedulingShape:
        """The same pods with only what must hold."""
        if self._hard is None:
            spec = drop_preferences(self.spec, self._shapes.soft_taints)
            self._hard = self if spec == self.spec else SchedulingShape(self.pod, spec, self._shapes)
        return self._hard

    @property
    def most_relaxed(self) -> SchedulingShape:
        shape = self
        while (further := shape.relax()) is not None:
            shape = further
        return shape


class SchedulingShapes:
    """Every shape of a run. Pods share one when spec, labels and namespace are equal."""

    def __init__(self, storage: Storage, options: SchedulingOptions, soft_taints: bool) -> None:
        self.storage = storage
        self.preferences = options.preferences == "Respect"
        self.soft_taints = soft_taints
        self._specs, self._labels, self._statuses = Numbering(), Numbering(), Numbering()
        self._known: dict[tuple[object, ...], SchedulingShape] = {}
        # With the pod, or its id could be given to another.
        self._by_pod: dict[int, tuple[Pod, SchedulingShape]] = {}
        self._facts: dict[int, _SpecFacts] = {}

    def read_spec(self, pod: Pod, spec: PodSpec) -> _SpecFacts:
        """The facts of a pod's spec, or of what relaxing left of it; pods of other labels may share them."""
        known = self._facts.get(id(spec))
        if known is None:
            known = self._facts[id(spec)] = _SpecFacts(
                spec,
                pod_requirements.build_requirements(spec, self.preferences),
                pod_requirements.build_strict_requirements(spec),
                pod_requirements.has_conflicting_preference(spec, self.preferences),
                list_host_ports(pod),
            )
        return known

    def find_shape(self, pod: Pod) -> SchedulingShape:
        asked = self._by_pod.get(id(pod))
        if asked is not None:
            return asked[1]
        key = self._build_key(pod)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = SchedulingShape(pod, pod.spec, self)
        self._by_pod[id(pod)] = pod, known
        return known

    def _build_key(self, pod: Pod) -> tuple[object, ...]:
        statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
        resized = self._statuses.number_value(pod.status) if any(each.resources for each in statuses) else -1
        # Ephemeral claims are named after the pod; device claims made from a template are its own.
        own = any(each.ephemeral is not None for each in pod.spec.volumes) or bool(pod.spec.resource_claims)
        return (
            self._specs.number_value(pod.spec),
            self._labels.number_value(pod.labels),
            pod.namespace,
            resized,
            pod.full_name if own else "",
        )

    def __iter__(self) -> Iterator[SchedulingShape]:
        return iter(tuple(self._known.values()))
