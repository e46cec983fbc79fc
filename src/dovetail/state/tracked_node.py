"""A Node, its NodeClaim and its pods, held together while they come and go."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from dovetail.api import predicates
from dovetail.api.core import Node
from dovetail.api.meta import Amounts
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.pod import Pod
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.resources import Nano, add_resources, compute_nano_requests, convert_to_nano
from dovetail.scheduling.model.snapshot import StateNode

__all__ = ["TrackedNode"]


class TrackedNode:
    """One entry of the cluster's belief. Its frozen face, `state`, is made anew only after a change."""

    __slots__ = (
        "_company",
        "_deleting",
        "_state",
        "awaited",
        "awaited_until",
        "charged",
        "claim",
        "key",
        "marked",
        "node",
        "nominated_until",
        "ordered_capacity",
        "pods",
        "volume_limits",
    )

    def __init__(self, key: str) -> None:
        self.key = key
        self.node: Node | None = None
        self.claim: NodeClaim | None = None
        self.pods: dict[tuple[str, str], Pod] = {}
        self.marked = False
        self.nominated_until: datetime | None = None
        # The pods it was ordered for that are still on their way, and until when they are waited for; no
        # such end is set before the node can take them.
        self.awaited: set[str] = set()
        self.awaited_until: datetime | None = None
        self.volume_limits: Mapping[str, int] = {}
        # What the plan expected of the machine; counts against limits until the cloud says what came.
        self.ordered_capacity: Amounts = {}
        # What this place adds to which pool's usage: (pool, amounts).
        self.charged: tuple[str, Nano] | None = None
        self._state: StateNode | None = None
        self._company: int | None = None
        self._deleting: bool | None = None

    @property
    def empty(self) -> bool:
        """Neither a Node nor a NodeClaim is left."""
        return self.node is None and self.claim is None

    @property
    def state(self) -> StateNode:
        if self._state is None:
            self._state = StateNode(
                node=self.node,
                claim=self.claim,
                pods=tuple(self.pods.values()),
                marked=self.marked,
                volume_limits=self.volume_limits,
            )
        return self._state

    @property
    def company(self) -> int:
        """A number that changes when a pod comes or goes."""
        if self._company is None:
            self._company = hash(frozenset(pod.uid for pod in self.pods.values()))
        return self._company

    def clear_cache(self) -> None:
        self._state = None
        self._company = None
        self._deleting = None

    @property
    def name(self) -> str:
        return views.read_name(self.state)

    @property
    def deleting(self) -> bool:
        if self._deleting is None or self._state is None:
            self._deleting = views.is_deleting(self.state)
        return self._deleting

    @property
    def capacity(self) -> Nano:
        """What it has or, while it is only ordered, what was ordered."""
        known = views.read_capacity(self.state)
        if self.claim is not None and not self.claim.status.capacity and self.node is None:
            return convert_to_nano(self.ordered_capacity) | known
        return known

    @property
    def daemon_requests(self) -> Nano:
        """What DaemonSets' pods ask for here; it is part of what all pods ask for."""
        used: Nano = {}
        for pod in self.pods.values():
            if predicates.owned_by_daemonset(pod):
                used = add_resources(used, compute_nano_requests(pod))
        return used

    def is_nominated(self, now: datetime) -> bool:
        """Whether pods are to land here: it was chosen for them lately, or ordered for them."""
        if self.awaited and (self.awaited_until is None or now < self.awaited_until):
            return True
        return self.nominated_until is not None and now < self.nominated_until

    @property
    def nomination_ends(self) -> datetime | None:
        """When pods will no longer be waited for; None when that is not known, or none are."""
        ends = [self.nominated_until, self.awaited_until if self.awaited else None]
        return max((end for end in ends if end is not None), default=None)

    def inherit_from(self, other: TrackedNode) -> None:
        """This is the same machine, known by another name until now."""
        self.marked = self.marked or other.marked
        self.ordered_capacity = self.ordered_capacity or other.ordered_capacity
        self.nominated_until = self.nominated_until or other.nominated_until
        self.awaited_until = self.awaited_until or other.awaited_until
        self.awaited |= other.awaited
