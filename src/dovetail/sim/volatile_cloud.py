"""Simulated clouds that change: prices move, zones run dry, machines are taken back.

`VolatileCloud` sells kwok's instance types, `CatalogueCloud` those of any provider, under its labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from dovetail.api import codec, labels
from dovetail.api.core import Node
from dovetail.api.crds import ProviderApi
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.controllers.base import Controller
from dovetail.controllers.context import ControllerContext
from dovetail.controllers.provider_port import ProviderContext
from dovetail.errors import InsufficientCapacity
from dovetail.ports import Instance
from dovetail.providers.kwok.provider import KwokCloud, build_instance
from dovetail.providers.pool_prices import PoolPrices
from dovetail.scheduling.model.instance_types import InstanceType, Offering
from dovetail.scheduling.model.requirements import Requirements
from dovetail.sim.kube.store import ObjectStore, StoreEvent

__all__ = ["CatalogueCloud", "CatalogueProvider", "VolatileCloud"]

Json = dict[str, Any]


class VolatileCloud(KwokCloud):
    """The kwok provider, where offerings can become dear, scarce or unavailable."""

    dry_zones: frozenset[str] = frozenset()
    factors: dict[str, float] = {}
    _books: dict[str, tuple[Json, Instance | None]] | None = None
    launches = 0
    refusals = 0

    def change_offers(
        self, *, dry_zones: frozenset[str] | None = None, factors: dict[str, float] | None = None
    ) -> None:
        """From now on: these zones have nothing to sell, and prices of a capacity type are multiplied so."""
        if dry_zones is not None:
            self.dry_zones = dry_zones
        if factors is not None:
            self.factors = {**self.factors, **factors}
        self._offered: tuple[InstanceType, ...] | None = None

    def _list_current_types(self) -> tuple[InstanceType, ...]:
        if not self.dry_zones and not self.factors:
            return self._types
        if getattr(self, "_offered", None) is None:
            self._offered = tuple(
                replace(each, offerings=tuple(map(self._adjust_offering, each.offerings)))
                for each in self._types
            )
        assert self._offered is not None
        return self._offered

    def _adjust_offering(self, offering: Offering) -> Offering:
        factor = self.factors.get(offering.capacity_type, 1.0)
        return replace(
            offering.change_parts(instance=offering.instance_price * factor),
            available=offering.available and offering.zone not in self.dry_zones,
        )

    def keep_books(self, store: ObjectStore) -> None:
        """Know the machines without asking the API server: a cloud has books of its own."""
        self._books = {}
        store.on_commit(self._on_event)

    def _on_event(self, event: StoreEvent) -> None:
        if event.new.info.storage != "nodes" or self._books is None:
            return
        node = event.new.obj
        if event.type == "DELETED" or not _is_ours(node):
            self._books.pop(node["metadata"]["name"], None)
        else:
            self._books[node["metadata"]["name"]] = node, None

    async def list(self) -> tuple[Instance, ...]:
        if self._books is None:
            return await super().list()
        found = []
        for name, (node, instance) in self._books.items():
            if instance is None:
                instance = build_instance(codec.convert(Node, node))
                self._books[name] = node, instance
            found.append(instance)
        return tuple(found)

    def list_offers(self, wanted: Requirements) -> Iterator[tuple[InstanceType, Offering]]:
        """Everything that can be bought now and meets these requirements."""
        undefined = self.flavour.well_known
        for each in self._list_current_types():
            if wanted.is_compatible(each.requirements, undefined):
                for offering in each.offerings:
                    if offering.available and wanted.is_compatible(offering.requirements, undefined):
                        yield each, offering

    def plan_instance(self, claim: NodeClaim) -> tuple[Node, Instance]:
        """The machine this claim would be given, which nobody has bought yet."""
        return self._build_node(claim)

    async def list_instance_types(self, nodepool: NodePool) -> tuple[InstanceType, ...]:
        return self._prices.price_types(nodepool, self._list_current_types())

    async def create(self, claim: NodeClaim) -> Instance:
        kept, self._types = self._types, self._list_current_types()
        try:
            instance = await super().create(claim)
        except InsufficientCapacity:
            self.refusals += 1
            raise
        finally:
            self._types = kept
        self.launches += 1
        return instance


class CatalogueCloud(VolatileCloud):
    """The same for any provider: its node class, its labels and its instance types, and nothing of it called.

    A node of EC2's m5.large has the labels that EC2's has, and a simulated kubelet.
    """

    def __init__(self, given: ProviderContext, name: str, api: ProviderApi, types: tuple[InstanceType, ...]):
        prices = PoolPrices.from_settings(given.settings, given.cache(NodePool).get)
        classes = given.cache(api.node_class)
        super().__init__(given.kube, given.cache(Node), classes, given.clock, types, prices)
        self.name, self.flavour, self.node_classes = name, api.labels, (api.kind,)


class CatalogueProvider:
    """A provider that is only played: its cloud is a catalogue, and nothing has to be learned."""

    aws = None

    def __init__(self, cloud: CatalogueCloud) -> None:
        self.cloud = cloud

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


def _is_ours(node: Json) -> bool:
    known = node["metadata"].get("labels") or {}
    return known.get(labels.KWOK_NODE) == "fake" and labels.NODEPOOL in known
