"""How AWS is put together: every part, made once, and the controllers that keep it current."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta

from msgspec.structs import replace

from dovetail.api import conditions, labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.nodepool import NodePool
from dovetail.api.overlay import NodeOverlay
from dovetail.aws import Aws, FencedAws
from dovetail.controllers.base import Cache, Controller
from dovetail.controllers.context import ControllerContext
from dovetail.controllers.provider_port import ProviderContext
from dovetail.errors import DovetailError, Misconfigured, Retry
from dovetail.logs import get_logger
from dovetail.providers.aws.batcher import DescribeBatcher, FleetBatcher, TerminateBatcher
from dovetail.providers.aws.capacity_reservations import CapacityReservationProvider
from dovetail.providers.aws.cloud import AwsCloud
from dovetail.providers.aws.cluster_discovery import ClusterDiscovery
from dovetail.providers.aws.controllers.maintenance import CapacityDiscovery, TemplateSweep
from dovetail.providers.aws.controllers.registry import (
    build_class_controllers,
    build_commitment_controllers,
    build_instance_controllers,
)
from dovetail.providers.aws.drift import DriftDetector
from dovetail.providers.aws.images import ImageProvider
from dovetail.providers.aws.instance_profiles import InstanceProfileProvider
from dovetail.providers.aws.instance_type_info import BUNDLED_REGION
from dovetail.providers.aws.instance_types import DiscoveredMemory, InstanceTypeProvider
from dovetail.providers.aws.instances import InstanceProvider, instance_id
from dovetail.providers.aws.launch import InstanceLauncher
from dovetail.providers.aws.launch_templates import LaunchTemplateProvider
from dovetail.providers.aws.network import SecurityGroupProvider, SubnetProvider
from dovetail.providers.aws.node_extras import bundled_extras
from dovetail.providers.aws.offerings import OfferingProvider
from dovetail.providers.aws.placement_groups import PlacementGroupProvider
from dovetail.providers.aws.pricing import PricingProvider
from dovetail.providers.aws.type_filters import TypeChoices
from dovetail.providers.aws.unavailable_offerings import UnavailableOfferings
from dovetail.providers.pool_prices import PoolPrices
from dovetail.scheduling.model.node_overlays import adjust_price, price_complaint

__all__ = ["AwsProvider", "PartitionHook"]

AGAIN = timedelta(seconds=1)
log = get_logger()


class PartitionHook:
    """Fills in the partition label of a claim that left the choice of partition to EC2."""

    name = "placement-group-partition"

    def __init__(self, instances: InstanceProvider) -> None:
        self._instances = instances

    async def settle_claim(self, claim: NodeClaim) -> tuple[NodeClaim, timedelta | None]:
        if claim.labels.get(labels.PLACEMENT_GROUP_PARTITION, "none"):
            return claim, None
        if not claim.status.provider_id:
            return claim, AGAIN
        instance = await self._instances.get(instance_id(claim.status.provider_id), fresh=True)
        if not instance.partition:
            return claim, AGAIN
        known = {**claim.labels, labels.PLACEMENT_GROUP_PARTITION: instance.partition}
        return replace(claim, metadata=replace(claim.metadata, labels=known)), None


# Seconds between tries to learn what must be known at the start, while AWS is only in trouble.
PAUSES = (1.0, 2.0, 4.0, 8.0)
PATIENCE = 20.0


class AwsProvider:
    """EC2 and its friends, to be prepared before use.

    `shifted` says which zone IDs to stay away from; `on_close` lets go of what `aws` holds, if it is ours.
    """

    def __init__(
        self,
        given: ProviderContext,
        aws: Aws,
        *,
        shifted: Callable[[str], bool] | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        shifted = shifted or given.is_excluded_zone
        settings, clock = given.settings, given.clock
        gates = settings.feature_gates
        self.given, self.aws, self.shifted = given, aws, shifted
        self._on_close = on_close
        # Launches, ends and tags only while this process leads; followers keep messages of zones by `aws`.
        aws = self.fenced = FencedAws(aws, given.may_write)
        self.discovery = ClusterDiscovery(settings, aws, given.kube, given.authority)
        self.subnets = SubnetProvider(aws, clock, settings)
        self.security_groups = SecurityGroupProvider(aws, clock)
        self.images = ImageProvider(aws, clock, settings, self.discovery)
        self.profiles = InstanceProfileProvider(aws, clock, settings, given.chance)
        self.placement = PlacementGroupProvider(aws, clock)
        self.reservations = CapacityReservationProvider(aws, clock)
        self.templates = LaunchTemplateProvider(aws, clock, self.discovery, settings)
        self.unavailable = UnavailableOfferings(clock)
        self.prices = PricingProvider(aws, clock, settings)
        self.memory = DiscoveredMemory(clock)
        overlays = given.cache(NodeOverlay) if gates.node_overlay else None
        self.types = InstanceTypeProvider(
            aws,
            clock,
            settings,
            OfferingProvider(
                self.prices,
                self.unavailable,
                self.reservations.count_available,
                self._is_excluded_zone,
                gates.reserved_capacity,
                lambda: {} if overlays is None else _given_prices(overlays),
            ),
            self.memory,
            self.placement.find_known_group,
            self.subnets.gives_address,
        )
        self.instances = InstanceProvider(
            aws,
            settings.cluster_name,
            DescribeBatcher(aws, clock),
            TerminateBatcher(aws, clock),
            zone_id=self.subnets.zone_id,
            shifted=self._is_excluded_zone,
            reserved_capacity=gates.reserved_capacity,
        )
        self.cloud = self._build_cloud(overlays)

    def _is_excluded_zone(self, zone_id: str) -> bool:
        """By way of the attribute: who follows shifts may come to be known later than all this."""
        return self.shifted(zone_id)

    def _build_cloud(self, overlays: Cache[NodeOverlay] | None) -> AwsCloud:
        given = self.given
        launching = InstanceLauncher(
            given.clock,
            given.recorder,
            FleetBatcher(self.fenced, given.clock),
            self.subnets,
            self.templates,
            self.reservations,
            self.unavailable,
            TypeChoices(strict=given.settings.min_values_policy == "Strict"),
        )
        pools = given.cache(NodePool)
        return AwsCloud(
            classes=given.cache(EC2NodeClass),
            pools=pools,
            prices=PoolPrices.from_settings(given.settings, pools.get),
            claims=given.cache(NodeClaim),
            overlays=overlays,
            recorder=given.recorder,
            discovery=self.discovery,
            types=self.types,
            group_of=self.placement.find_known_group,
            instances=self.instances,
            launching=launching,
            reservations=self.reservations,
            drift=DriftDetector(self.instances, self.types.list_types, self.placement.find_known_group),
            hooks=(PartitionHook(self.instances),),
        )

    async def prepare(self) -> None:
        """Reach EC2, learn the cluster, and what EC2 sells; Misconfigured when one of them cannot be had."""
        for wait in (*PAUSES, None):
            try:
                await self._learn_cluster()
                break
            except Misconfigured as error:
                # Trouble passes by itself, and a process that ends for it comes back with nothing learned.
                if wait is None or not isinstance(error.__cause__, Retry):
                    raise
                await self.given.clock.sleep(wait)

    async def _learn_cluster(self) -> None:
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
        if self.prices.guesses and not self.given.settings.assume_region_prices:
            log.warning(
                "prices of another region stand in, as AWS cannot be asked; set ASSUME_REGION_PRICES to it",
                region=self.aws.region,
                assumed=BUNDLED_REGION,
            )

    async def look_around(self) -> None:
        """Learn at once what controllers learn in time: for those who look at the cloud once and run nothing.

        What AWS does not tell within the patience of a person is left as it is without it.
        """
        about: list[Awaitable[object]] = [self.prices.refresh()]
        for each in self.given.cache(EC2NodeClass):
            about += (self.placement.find_group(each), self.reservations.list_reservations(each))
            about.append(self.subnets.list_subnets(each))  # which of them give public addresses
        with suppress(TimeoutError):
            # Not `wait_for`: cancelled, it leaves the error of `gather` for the event loop to complain about.
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*about, return_exceptions=True)

    def list_assumptions(self) -> tuple[str, ...]:
        """Prices that AWS has not told, and what is not counted for want of them."""
        found = self.prices.list_assumptions()
        if self.given.settings.find_node_extra() is None or self.aws.region in bundled_extras().regions:
            return found
        return (
            *found,
            f"prices of volumes in {self.aws.region} are not known, so volumes and addresses are not "
            "counted; add them with NODE_EXTRA_HOURLY",
        )

    def build_controllers(self, parts: ControllerContext) -> tuple[Controller, ...]:
        """Those that keep classes, prices and machines current."""
        classes = self.given.cache(EC2NodeClass)
        return (
            *build_class_controllers(self, parts),
            *build_instance_controllers(self, parts),
            *build_commitment_controllers(self, parts),
            CapacityDiscovery(parts.nodes, parts.claims, classes, parts.ownership, self.types, self.memory),
            TemplateSweep(self.templates),
        )

    def close(self) -> None:
        if self._on_close is not None:
            self._on_close()


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
            found |= {name: adjust_price(0.0, overlay.spec.price) for name in wanted[0].values}
    return found
