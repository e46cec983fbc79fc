"""How AWS is put together: every part, made once, and the controllers that keep it current."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from dovetail.api import conditions, labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.nodepool import NodePool
from dovetail.api.overlay import NodeOverlay
from dovetail.aws import Aws, FencedAws
from dovetail.controllers.base import Cache, Controller
from dovetail.controllers.provided import Surroundings
from dovetail.controllers.registry import Parts
from dovetail.errors import DovetailError, Misconfigured, Retry
from dovetail.providers.aws.batch import Describing, Fleets, Terminating
from dovetail.providers.aws.chosen import Chosen
from dovetail.providers.aws.cloud import AwsCloud
from dovetail.providers.aws.controllers.classes import class_controllers
from dovetail.providers.aws.controllers.machines import machine_controllers
from dovetail.providers.aws.controllers.upkeep import CapacityDiscovery, TemplateSweep
from dovetail.providers.aws.discovered import DiscoveredMemory
from dovetail.providers.aws.discovery import Discovery
from dovetail.providers.aws.drift import Drift
from dovetail.providers.aws.hooks import PartitionHook
from dovetail.providers.aws.images import Images
from dovetail.providers.aws.instances import Instances
from dovetail.providers.aws.launching import Launching
from dovetail.providers.aws.network import SecurityGroups, Subnets
from dovetail.providers.aws.offerings import Offerings
from dovetail.providers.aws.placement import PlacementGroups
from dovetail.providers.aws.pricing import Prices
from dovetail.providers.aws.profiles import Profiles
from dovetail.providers.aws.reservations import Reservations
from dovetail.providers.aws.templates import LaunchTemplates
from dovetail.providers.aws.types import InstanceTypes
from dovetail.providers.aws.unavailable import Unavailable
from dovetail.scheduling.overlays import adjusted_price, price_complaint

__all__ = ["AwsProvider"]

# Seconds between tries to learn what must be known at the start, while AWS is only in trouble.
PAUSES = (1.0, 2.0, 4.0, 8.0)
PATIENCE = 20.0


class AwsProvider:
    """EC2 and its friends, to be prepared before use. `shifted` says which zone IDs to stay away from."""

    def __init__(
        self, given: Surroundings, aws: Aws, *, shifted: Callable[[str], bool] | None = None
    ) -> None:
        shifted = shifted or given.shifted
        settings, clock = given.settings, given.clock
        gates = settings.feature_gates
        self.given, self.aws, self.shifted = given, aws, shifted
        # Launches, ends and tags only while this process leads; followers keep messages of zones by `aws`.
        aws = self.fenced = FencedAws(aws, given.may_write)
        self.discovery = Discovery(settings, aws, given.kube, given.authority)
        self.subnets = Subnets(aws, clock, settings)
        self.security_groups = SecurityGroups(aws, clock)
        self.images = Images(aws, clock, settings, self.discovery)
        self.profiles = Profiles(aws, clock, settings, given.chance)
        self.placement = PlacementGroups(aws, clock)
        self.reservations = Reservations(aws, clock)
        self.templates = LaunchTemplates(aws, clock, self.discovery, settings)
        self.unavailable = Unavailable(clock)
        self.prices = Prices(aws, clock, settings)
        self.memory = DiscoveredMemory(clock)
        overlays = given.cache(NodeOverlay) if gates.node_overlay else None
        self.types = InstanceTypes(
            aws,
            clock,
            settings,
            Offerings(
                self.prices,
                self.unavailable,
                self.reservations.available,
                self._shifted_now,
                gates.reserved_capacity,
                lambda: {} if overlays is None else _given_prices(overlays),
            ),
            self.memory,
            self.placement.resolved,
        )
        self.instances = Instances(
            aws,
            settings.cluster_name,
            Describing(aws, clock),
            Terminating(aws, clock),
            zone_id=self.subnets.zone_id,
            shifted=self._shifted_now,
            reserved_capacity=gates.reserved_capacity,
        )
        self.cloud = self._cloud(overlays)

    def _shifted_now(self, zone_id: str) -> bool:
        """By way of the attribute: who follows shifts may come to be known later than all this."""
        return self.shifted(zone_id)

    def _cloud(self, overlays: Cache[NodeOverlay] | None) -> AwsCloud:
        given = self.given
        launching = Launching(
            given.clock,
            given.recorder,
            Fleets(self.fenced, given.clock),
            self.subnets,
            self.templates,
            self.reservations,
            self.unavailable,
            Chosen(strict=given.settings.min_values_policy == "Strict"),
        )
        return AwsCloud(
            classes=given.cache(EC2NodeClass),
            pools=given.cache(NodePool),
            claims=given.cache(NodeClaim),
            overlays=overlays,
            recorder=given.recorder,
            discovery=self.discovery,
            types=self.types,
            group_of=self.placement.resolved,
            instances=self.instances,
            launching=launching,
            reservations=self.reservations,
            drift=Drift(self.instances, self.types.of, self.placement.resolved),
            hooks=(PartitionHook(self.instances),),
        )

    async def prepare(self) -> None:
        """Reach EC2, learn the cluster, and what EC2 sells; Misconfigured when one of them cannot be had."""
        for wait in (*PAUSES, None):
            try:
                await self._learn()
                break
            except Misconfigured as error:
                # Trouble passes by itself, and a process that ends for it comes back with nothing learned.
                if wait is None or not isinstance(error.__cause__, Retry):
                    raise
                await self.given.clock.sleep(wait)

    async def _learn(self) -> None:
        await self.discovery.start()
        try:
            await self.types.refresh()
        except DovetailError as error:
            raise Misconfigured(
                f"starting the aws provider: EC2 does not tell its instance types ({error}); allow "
                "ec2:DescribeInstanceTypes and ec2:DescribeInstanceTypeOfferings"
            ) from error
        if not self.types.all_facts:
            raise Misconfigured(
                f"starting the aws provider: EC2 sells no instance types in {self.aws.region}"
            )

    async def look_around(self) -> None:
        """Learn at once what controllers learn in time: for those who look at the cloud once and run nothing.

        What AWS does not tell within the patience of a person is left as it is without it.
        """
        about: list[Awaitable[object]] = [self.prices.refresh()]
        for each in self.given.cache(EC2NodeClass):
            about += (self.placement.find(each), self.reservations.find(each))
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*about, return_exceptions=True), PATIENCE)

    def controllers(self, parts: Parts) -> tuple[Controller, ...]:
        """Those that keep classes, prices and machines current."""
        classes = self.given.cache(EC2NodeClass)
        return (
            *class_controllers(self, parts),
            *machine_controllers(self, parts),
            CapacityDiscovery(parts.nodes, parts.claims, classes, parts.ownership, self.types, self.memory),
            TemplateSweep(self.templates),
        )

    def close(self) -> None:
        close = getattr(self.aws, "close", None)
        if close is not None:
            close()


def _given_prices(overlays: Cache[NodeOverlay]) -> Mapping[str, float]:
    """Prices of overlays that are about instance types and nothing else: the only price some types have."""
    found: dict[str, float] = {}
    for overlay in overlays:
        wanted = overlay.spec.requirements
        about_types = (
            len(wanted) == 1 and wanted[0].key == labels.INSTANCE_TYPE and wanted[0].operator == "In"
        )
        valid = conditions.is_true(overlay, conditions.VALIDATION_SUCCEEDED)
        if overlay.spec.price and about_types and valid and not price_complaint(overlay.spec.price):
            found |= {name: adjusted_price(0.0, overlay.spec.price) for name in wanted[0].values}
    return found
