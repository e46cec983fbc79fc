"""Order a node: the one place that creates a NodeClaim.

The pool's limits are checked again, the claim is created, and the cluster state learns of it before the watch
does, with its capacity and the pods it is promised to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from dataclasses import replace as swap
from math import inf

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.hashes import NODEPOOL_HASH_VERSION, hash_nodepool
from dovetail.api.meta import Amounts
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.controllers.claim_messages import log_created_claim
from dovetail.controllers.claim_metrics import CLAIMS_CREATED
from dovetail.controllers.context import ControllerContext
from dovetail.errors import Refused
from dovetail.history.drafts import of_order
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.plan import NodeClaimOptions, PlannedNode

__all__ = ["REPLACEMENT", "NodeOrder", "NodeOrdering", "hash_annotations"]


REPLACEMENT = "replacement"


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """A planned node that is to be ordered, and what for."""

    node: PlannedNode
    # What it is called where it is refused: a node, or a replacement.
    what: str = "node"
    # Why, as the metric of created NodeClaims has it.
    reason: str = "provisioned"
    # The pods it is promised to; room for a capacity buffer is nobody's.
    pods: Sequence[str] = ()
    # The terminationGracePeriod where the pool does not name one.
    grace: str | None = None
    # The id of the record that it is ordered because of, if there is one.
    cause: str = ""
    # The digest of what it was decided from.
    situation: str = ""
    # The highest priority of its pods, which spend limits may let pass.
    priority: float = -inf


class NodeOrdering:
    """Creates NodeClaims for planned nodes, and tells pods which node they will get.

    `list_types` lists what a pool could buy; by default the cloud is asked, and its errors are the caller's.
    """

    def __init__(
        self,
        context: ControllerContext,
        list_types: Callable[[NodePool], Awaitable[Sequence[InstanceType]]] | None = None,
    ) -> None:
        self._kube = context.kube
        self._cluster = context.cluster
        self._pools = context.pools
        self._cloud = context.cloud
        self._recorder = context.recorder
        self._history = context.history
        self._options = context.options
        self._clock = context.clock
        self._spend = context.spend
        self._list_types = list_types or context.cloud.list_instance_types

    async def order_node(self, order: NodeOrder) -> NodeClaim:
        """Create the NodeClaim of a planned node; Refused where its pool may not grow."""
        node = order.node
        pool = self._pools.get(node.pool)
        if pool is None:
            raise Refused(f"ordering a {order.what} of {node.pool}: the pool is gone")
        self._check_limits(pool, order.what)
        order = await self._narrow_order(pool, order)
        with self._reserve_spend(order):
            claim = await self._kube.create(self._build_claim(pool, order))
            log_created_claim(claim)
            draft = of_order(node, claim, order.reason)
            self._history.note_decision(draft, parent=order.cause, situation=order.situation)
            # The next plan must see this node before the watch does, or it would order another.
            self._cluster.expect_claim(claim, await self._find_capacity(pool, node), order.pods)
        relaxed = claim.annotations.get(labels.MIN_VALUES_RELAXED, "false")
        CLAIMS_CREATED.labels(order.reason, pool.name, relaxed).inc()
        return claim

    def _check_limits(self, pool: NodePool, what: str) -> None:
        """Whether the pool is within its limits now; a static one has reserved its nodes beforehand."""
        if pool.static:
            return
        usage = self._cluster.compute_usage(pool.name)
        for name, limit in pool.spec.limits.items():
            if name in usage and usage[name] > limit:
                raise Refused(f"ordering a {what} of {pool.name}: its {name} limit of {limit} is exceeded")

    async def _narrow_order(self, pool: NodePool, order: NodeOrder) -> NodeOrder:
        """The order of a static NodePool's node within what spend limits want to pay for one."""
        if self._spend is None or not pool.static:
            return order
        self._spend.note_offers(
            ((pool, tuple(await self._list_types(pool))),), self._options(self._clock.now())
        )
        return swap(order, node=self._spend.narrow_static_node(order.node))

    def _reserve_spend(self, order: NodeOrder) -> AbstractContextManager[None]:
        """Count the node against spend limits until the cluster knows of it; Refused where one is reached."""
        if self._spend is None:
            return nullcontext()
        return self._spend.reserve_node(order.node, order.priority, ask=order.what != REPLACEMENT)

    def _build_claim(self, pool: NodePool, order: NodeOrder) -> NodeClaim:
        options = NodeClaimOptions(
            annotations=hash_annotations(pool),
            flavour=self._cloud.flavour,
            termination_grace_period=order.grace,
        )
        claim = order.node.build_claim(pool, options)
        if not pool.static:
            return claim
        # As its template has it: the provider picks the type.
        return replace(claim, spec=replace(claim.spec, requirements=order.node.requirements.list_entries()))

    async def _find_capacity(self, pool: NodePool, node: PlannedNode) -> Amounts:
        """What the machine will have, if it is the one expected: it counts against limits from now on."""
        if not node.instance_type:
            return {}
        types = await self._list_types(pool)
        return next((each.capacity for each in types if each.name == node.instance_type), {})

    def nominate_node(self, name: str, pods: Iterable[Pod]) -> None:
        """Leave a node that is there alone until these pods have come, and tell them."""
        tracked = self._cluster.find_by_node(name) or self._cluster.find_by_claim(name)
        if tracked is None:
            return
        self._cluster.nominate_node(tracked.key)
        parts = [f"nodeclaim/{tracked.claim.name}"] if tracked.claim else []
        parts += [f"node/{tracked.node.name}"] if tracked.node else []
        self._tell_nominated(pods, ", ".join(parts))

    def tell_ordered(self, pods: Iterable[Pod], claim: str) -> None:
        """Tell pods that this NodeClaim was ordered for them."""
        self._tell_nominated(pods, f"nodeclaim/{claim}")

    def _tell_nominated(self, pods: Iterable[Pod], where: str) -> None:
        for pod in pods:
            note = f"Pod should schedule on: {where}"
            self._recorder.publish_event(pod, "Nominated", note, dedupe=(pod.uid,))


def hash_annotations(pool: NodePool) -> Mapping[str, str]:
    """What a claim remembers of the pool it was ordered from."""
    return {labels.NODEPOOL_HASH: hash_nodepool(pool), labels.NODEPOOL_HASH_VERSION: NODEPOOL_HASH_VERSION}
