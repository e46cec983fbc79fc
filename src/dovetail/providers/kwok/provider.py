"""The Cloud port, spelled in Node objects."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from dovetail.api import conditions, labels
from dovetail.api.bad_items import reason_of
from dovetail.api.core import Node, NodeSpec, NodeStatus
from dovetail.api.labels import Flavour
from dovetail.api.meta import Kind, ObjectMeta
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import KWOKNodeClass
from dovetail.api.nodepool import NodePool
from dovetail.api.taints import UNREGISTERED
from dovetail.controllers.base import Cache, Controller
from dovetail.controllers.provider_port import ProviderContext
from dovetail.errors import AlreadyExists, ClassNotReady, DovetailError, Gone, InsufficientCapacity
from dovetail.ports import Clock, Instance, Kube, RegistrationHook, RepairPolicy
from dovetail.providers.kwok.catalog import read_instance_types
from dovetail.providers.pool_prices import PoolPrices
from dovetail.scheduling.model.instance_types import InstanceType, Offering, find_cheapest_offering
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.resources import convert_to_nano, fits_within
from dovetail.settings.durations import parse_duration as parse_duration

if TYPE_CHECKING:
    from dovetail.controllers.context import ControllerContext

__all__ = ["KwokCloud", "KwokProvider", "build_instance"]

PREFIX = "kwok://"
PRICE_LABEL = "eks-node-viewer/instance-price"
NAME_PARTS = (
    (
        "amber",
        "brisk",
        "calm",
        "dusty",
        "early",
        "fallow",
        "gentle",
        "hollow",
        "idle",
        "jolly",
        "keen",
        "level",
    ),
    ("ash", "beech", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine", "rowan", "willow"),
)


class KwokCloud:
    """Creates a Node for a claim and deletes it in the end; the cheapest offering that fits is taken."""

    name = "kwok"
    flavour: Flavour = labels.KWOK
    node_classes: tuple[Kind, ...] = (KWOKNodeClass.KIND,)
    hooks: Sequence[RegistrationHook] = ()

    def __init__(
        self,
        kube: Kube,
        nodes: Cache[Node],
        classes: Cache[Any],
        clock: Clock,
        types: tuple[InstanceType, ...],
        prices: PoolPrices | None = None,
    ) -> None:
        self._kube = kube
        self._nodes = nodes
        self._classes = classes
        self._clock = clock
        self._types = types
        self._prices = prices or PoolPrices()
        self._arriving: dict[str, asyncio.Task[None]] = {}

    @property
    def repair_policies(self) -> tuple[RepairPolicy, ...]:
        patience = parse_duration("10m")
        return tuple(
            RepairPolicy(condition="Ready", status=status, toleration=patience)
            for status in ("False", "Unknown")
        )

    async def create(self, claim: NodeClaim) -> Instance:
        delay = self._find_delay(claim)
        node, instance = self._build_node(claim)
        if delay > 0:
            self._arrive_later(node, delay)
            return instance
        try:
            await self._kube.create(node)
        except AlreadyExists:
            # We made it for this very claim before, and the answer was lost.
            return build_instance(await self._find_node(instance.provider_id))
        return instance

    def _find_delay(self, claim: NodeClaim) -> float:
        """The seconds until a node of the claim's class joins; ClassNotReady where there can be none."""
        kind, name = self.node_classes[0].kind, claim.spec.node_class_ref.name
        node_class = self._classes.get(name)
        if node_class is None:
            raise ClassNotReady(f"launching {claim.name}: there is no {kind} {name}")
        if why := reason_of(node_class):
            raise ClassNotReady(f"launching {claim.name}: {kind} {name} is set aside: {why}")
        ready = conditions.find_condition(node_class, conditions.READY)
        if ready is not None and ready.status == conditions.FALSE:
            raise ClassNotReady(f"launching {claim.name}: {kind} {name} is not ready")
        # Only kwok's own classes say how long their nodes take.
        delay = node_class.spec.node_registration_delay if isinstance(node_class, KWOKNodeClass) else None
        return parse_duration(delay).total_seconds() if delay else 0.0

    def _arrive_later(self, node: Node, seconds: float) -> None:
        provider_id = node.spec.provider_id
        if provider_id in self._arriving:
            return
        task = self._arriving[provider_id] = asyncio.create_task(self._appear_later(node, seconds))
        task.add_done_callback(lambda _: self._arriving.pop(provider_id, None))

    async def _appear_later(self, node: Node, seconds: float) -> None:
        await self._clock.sleep(seconds)
        try:
            await self._kube.create(node)
        except DovetailError:
            # A machine that never joins: the registration timeout of its claim deals with it.
            return

    def _build_node(self, claim: NodeClaim) -> tuple[Node, Instance]:
        chosen, offering = self._choose_cheapest(claim)
        # The same claim always gets the same name, so that asking twice does not make two.
        rng = Random(claim.uid)
        words = "-".join(rng.choice(part) for part in NAME_PARTS)
        name = f"kwok-{claim.name}-{words}-{rng.getrandbits(32)}"
        known = self._build_labels(claim, chosen, offering)
        requests = claim.spec.resources.requests
        capacity = {**requests, **chosen.capacity}
        allocatable = {**requests, **chosen.allocatable()}
        annotations = {**claim.annotations, labels.KWOK_NODE: "fake"}
        if offering.parts is not None:
            annotations[labels.NODE_PRICE] = repr(offering.price)
        node = Node(
            metadata=ObjectMeta(name=name, labels=known, annotations=annotations),
            spec=NodeSpec(provider_id=PREFIX + name, taints=(UNREGISTERED,)),
            status=NodeStatus(capacity=capacity, allocatable=allocatable),
        )
        instance = Instance(
            provider_id=PREFIX + name,
            labels=known,
            annotations={labels.KWOK_NODE: "fake"},
            capacity=capacity,
            allocatable=allocatable,
            claim=claim.name,
        )
        return node, instance

    def _choose_cheapest(self, claim: NodeClaim) -> tuple[InstanceType, Offering]:
        wanted = Requirements.from_expressions(claim.spec.requirements)
        requests = convert_to_nano(claim.spec.resources.requests)
        options = [
            (offering.price, each.name, each, offering)
            for each in self._prices.price_for_claim(claim, self._types)
            if wanted.is_compatible(each.requirements, self.flavour.well_known)
            and fits_within(
                requests, convert_to_nano({**claim.spec.resources.requests, **each.allocatable()})
            )
            and (offering := find_cheapest_offering(each, wanted, self.flavour.well_known)) is not None
        ]
        if not options:
            raise InsufficientCapacity(f"launching {claim.name}: no instance type meets its requirements")
        _, _, chosen, offering = min(options, key=lambda option: option[:2])
        return chosen, offering

    def _build_labels(self, claim: NodeClaim, chosen: InstanceType, offering: Offering) -> dict[str, str]:
        found = {
            entry.key: entry.values[0]
            for entry in claim.spec.requirements
            if entry.operator == "In" and len(entry.values) == 1
        }
        for requirements in (chosen.requirements, offering.requirements):
            found |= {key: only for key in requirements if (only := requirements[key].only) is not None}
        found |= dict(claim.labels)
        return found | {
            PRICE_LABEL: f"{offering.instance_price:f}",
            labels.HOSTNAME: claim.name,
            labels.KWOK_NODE: "fake",
            labels.KWOK_PARTITION: "a",
        }

    async def delete(self, claim: NodeClaim) -> None:
        coming = self._arriving.pop(claim.status.provider_id, None)
        if coming is not None:
            coming.cancel()
        node = await self._find_node(claim.status.provider_id)
        if not node.deleting:
            await self._kube.delete(node, guarded=True)
        if labels.TERMINATION in node.metadata.finalizers and node.deleting:
            # Upstream's own finalizer holds the Node while it drains; the machine behind it is already gone.
            raise Gone(f"deleting {node.name}: the instance has ended")

    async def get(self, provider_id: str) -> Instance:
        return build_instance(await self._find_node(provider_id))

    async def list(self) -> tuple[Instance, ...]:
        # Simulated nodes that people added by hand are none of ours.
        found = await self._kube.list(Node, labels=f"{labels.KWOK_NODE}=fake,{labels.NODEPOOL}")
        return tuple(build_instance(node) for node in found if node.spec.provider_id.startswith(PREFIX))

    async def _find_node(self, provider_id: str) -> Node:
        if not provider_id.startswith(PREFIX):
            raise Gone(f"finding {provider_id}: it is not a simulated instance")
        return await self._kube.get(Node, provider_id.removeprefix(PREFIX))

    async def list_instance_types(self, nodepool: NodePool) -> tuple[InstanceType, ...]:
        return self._prices.price_types(nodepool, self._types)

    async def find_drift_reason(self, claim: NodeClaim) -> str:
        return ""


def build_instance(node: Node) -> Instance:
    """The machine behind a node."""
    return Instance(
        provider_id=node.spec.provider_id,
        labels=node.labels,
        annotations=node.annotations,
        capacity=node.status.capacity,
        allocatable=node.status.allocatable,
        claim=node.labels.get(labels.HOSTNAME, ""),
        created=node.metadata.creation_timestamp,
        deleting=node.deleting,
    )


class KwokProvider:
    """The cloud alone: nothing has to be learned beforehand or kept current."""

    aws = None

    def __init__(
        self,
        given: ProviderContext,
        cloud: type[KwokCloud] = KwokCloud,
        node_class: type[KWOKNodeClass] = KWOKNodeClass,
    ) -> None:
        types = read_instance_types(given.settings.instance_types_file_path)
        nodes, classes = given.cache(Node), given.cache(node_class)
        prices = PoolPrices.from_settings(given.settings, given.cache(NodePool).get)
        self.cloud = cloud(given.kube, nodes, classes, given.clock, types, prices)

    async def prepare(self) -> None:
        """Everything is known."""

    async def look_around(self) -> None:
        """Everything is known."""

    def list_assumptions(self) -> tuple[str, ...]:
        return ()

    def build_controllers(self, parts: ControllerContext) -> tuple[Controller, ...]:
        return ()

    def close(self) -> None:
        """Nothing is held."""
