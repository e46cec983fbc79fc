"""Pods of one shape are decided alike: what scheduling reads of a pod, worked out once per shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from dovetail.api.pod import Pod, PodSpec
from dovetail.api.quantity import Quantity
from dovetail.scheduling import pods, volumes
from dovetail.scheduling.hostports import host_ports
from dovetail.scheduling.relax import hard, relaxed
from dovetail.scheduling.requirements import Requirements, Values
from dovetail.scheduling.resources import needs
from dovetail.scheduling.snapshot import Options, Storage

if TYPE_CHECKING:
    from dovetail.scheduling.groups import Group

__all__ = ["Numbering", "Shape", "Shapes"]


def _plain(value: Any) -> Any:
    if isinstance(value, Quantity):
        return str(value)
    raise TypeError(f"cannot tell apart values of {type(value).__name__}")


_encoder = msgspec.json.Encoder(enc_hook=_plain, order="deterministic")


class Numbering:
    """Distinct values, numbered by first use. Shared parts are usually one object: try identity first."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._by_id: dict[int, int] = {}
        self._by_text: dict[bytes, int] = {}
        self._alive: list[object] = []

    def number(self, value: object) -> int:
        known = self._by_id.get(id(value))
        if known is None:
            known = self._by_text.setdefault(_encoder.encode(value), len(self.rows))
            if known == len(self.rows):
                self.rows.append(value)
            self._by_id[id(value)] = known
            self._alive.append(value)  # or its id could be given to another
        return known


class Shape:
    """All pods that are the same to scheduling, in one state of relaxation."""

    def __init__(self, pod: Pod, spec: PodSpec, shapes: Shapes, gave_up: tuple[str, ...] = ()) -> None:
        self.pod = pod
        self.spec = spec
        self.namespace = pod.namespace
        self.labels: Mapping[str, str] = pod.labels
        self.gave_up = gave_up
        self._shapes = shapes
        self.requirements = pods.requirements(spec, shapes.preferences)
        self.strict = pods.strict(spec)
        self.at_odds = pods.at_odds(spec, shapes.preferences)
        self.tolerations = spec.tolerations
        self.requests = needs(pod)
        self.ports = host_ports(pod)
        self.attachments = volumes.attachments(pod, shapes.storage)
        self.ways: Sequence[Requirements] = volumes.alternatives(pod, shapes.storage) or (Requirements(),)
        # Places only ever fill up, so a refusal for want of room or by labels is for good.
        self.closed_nodes = 0
        self.closed_claims = 0
        self.failed_at = -1
        self.failure: object = None
        self.tolerated: dict[int, bool] = {}
        # Kept up to date by the topology tracker.
        self.owned: list[Group] | None = None
        self.constraints: list[tuple[Group, bool]] = []
        self.counted_in: list[Group] = []
        self.host_caps: list[tuple[Group, int]] = []
        self.rules: list[tuple[Group, bool]] = []
        self.narrowed: dict[tuple[Values, ...], object] = {}
        self.narrowed_at = -1
        self.seen_groups = 0
        self.seen_inverse = 0
        self.avoids: list[Group] = []
        self._next: Shape | None = None
        self._last = False
        self._hard: Shape | None = None

    def relax(self) -> Shape | None:
        """The same pods with one wish fewer; None when they have none left."""
        if self._next is None and not self._last:
            step = relaxed(self.spec, self._shapes.soft_taints)
            if step is None:
                self._last = True
            else:
                self._next = Shape(self.pod, step.spec, self._shapes, (*self.gave_up, step.gave_up))
        return self._next

    @property
    def hard(self) -> Shape:
        """The same pods with only what must hold."""
        if self._hard is None:
            spec = hard(self.spec, self._shapes.soft_taints)
            self._hard = self if spec == self.spec else Shape(self.pod, spec, self._shapes)
        return self._hard

    @property
    def most_relaxed(self) -> Shape:
        shape = self
        while (further := shape.relax()) is not None:
            shape = further
        return shape


class Shapes:
    """Every shape of a run. Pods share one when spec, labels and namespace are equal."""

    def __init__(self, storage: Storage, options: Options, soft_taints: bool) -> None:
        self.storage = storage
        self.preferences = options.preferences == "Respect"
        self.soft_taints = soft_taints
        self._specs, self._labels, self._statuses = Numbering(), Numbering(), Numbering()
        self._known: dict[tuple[object, ...], Shape] = {}
        # With the pod, or its id could be given to another.
        self._by_pod: dict[int, tuple[Pod, Shape]] = {}

    def of(self, pod: Pod) -> Shape:
        asked = self._by_pod.get(id(pod))
        if asked is not None:
            return asked[1]
        key = self._key(pod)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Shape(pod, pod.spec, self)
        self._by_pod[id(pod)] = pod, known
        return known

    def _key(self, pod: Pod) -> tuple[object, ...]:
        statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
        resized = self._statuses.number(pod.status) if any(each.resources for each in statuses) else -1
        # Ephemeral claims are named after the pod; device claims made from a template are its own.
        own = any(each.ephemeral is not None for each in pod.spec.volumes) or bool(pod.spec.resource_claims)
        return (
            self._specs.number(pod.spec),
            self._labels.number(pod.labels),
            pod.namespace,
            resized,
            pod.full_name if own else "",
        )

    def __iter__(self) -> Iterator[Shape]:
        return iter(tuple(self._known.values()))
