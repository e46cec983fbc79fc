"""What EC2 charges by the hour: on-demand as the price list has it, spot as each zone has it.

Until AWS has answered once, built-in prices stand in, and are told apart as estimates where they are another
region's, or on-demand prices for spot. An answer is laid over what was known, so that a type missing from one
answer keeps its last price.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from datetime import UTC
from functools import partial
from math import inf
from typing import Any

from dovetail.api import labels
from dovetail.aws import Aws, AwsError, list_pages
from dovetail.errors import Retry
from dovetail.ports import Clock
from dovetail.providers.aws.instance_type_info import BUNDLED_REGION, bundled_prices
from dovetail.providers.aws.queries import read_items
from dovetail.settings import Settings

__all__ = ["PricingProvider"]

# The price list is served from few regions.
NEAREST = (("ap-", "ap-south-1"), ("cn-", "cn-northwest-1"), ("eu-", "eu-central-1"))
USUAL = "us-east-1"
SERVICE = "AmazonEC2"
EVERYWHERE = {
    "serviceCode": SERVICE,
    "preInstalledSw": "NA",
    "operatingSystem": "Linux",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}
HALVES = (
    {"tenancy": "Shared", "productFamily": "Compute Instance"},
    {"tenancy": "Dedicated", "productFamily": "Compute Instance (bare metal)"},
)
SPOT_PRODUCTS = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")


class PricingProvider:
    """Dollars an hour (yuan in China). None where there is no price."""

    def __init__(self, aws: Aws, clock: Clock, settings: Settings) -> None:
        self._aws = aws
        self._clock = clock
        self._isolated = settings.isolated_vpc
        self._on_demand = dict(bundled_prices())
        self._bundled = dict(self._on_demand)
        # On-demand prices that this region's own list has told.
        self._listed: set[str] = set()
        self._spot: dict[str, dict[str, float]] = {}
        self._spot_known = self._on_demand_known = False
        self.changes = 0

    def find_on_demand_price(self, instance_type: str) -> float | None:
        return self._on_demand.get(instance_type)

    def find_spot_price(self, instance_type: str, zone: str) -> float | None:
        if not self._spot_known:
            return self._bundled.get(instance_type)
        return self._spot.get(instance_type, {}).get(zone)

    @property
    def guesses(self) -> bool:
        """Whether AWS will never tell on-demand prices, and those of another region stand in for good."""
        return self._untold and self._aws.region != BUNDLED_REGION

    @property
    def _untold(self) -> bool:
        # No endpoint of the price list is reachable from an isolated VPC, and none knows GovCloud.
        return self._isolated or self._aws.region.startswith("us-gov")

    def list_assumptions(self) -> tuple[str, ...]:
        """Which prices AWS has never told, so that those of its on-demand price list of some day stand in."""
        told = (
            ("on-demand", self._on_demand_known, "pricing:GetProducts"),
            ("spot", self._spot_known, "ec2:DescribeSpotPriceHistory"),
        )
        return tuple(
            f"AWS does not tell {kind} prices here, so on-demand prices that Dovetail brings along stand in; "
            f"allow {action}"
            for kind, known, action in told
            if not known
        )

    def is_estimate(self, capacity_type: str, instance_type: str) -> bool:
        """Whether the price that is told of a type is not the region's own."""
        if capacity_type == labels.SPOT:
            return not self._spot_known
        return instance_type not in self._listed and self._aws.region != BUNDLED_REGION

    async def refresh(self) -> None:
        """Ask for both; what fails keeps its old prices, and is told after the other had its turn."""
        outcomes = await asyncio.gather(self.refresh_on_demand(), self.refresh_spot(), return_exceptions=True)
        failed = [each for each in outcomes if isinstance(each, BaseException)]
        for each in failed:
            if not isinstance(each, AwsError | Retry):
                raise each
        if failed:
            raise Retry("; ".join(map(str, failed))) from failed[0]

    async def refresh_on_demand(self) -> None:
        if self._untold:
            return
        door = self._aws.scope_to(region=_list_region(self._aws.region))
        halves = await asyncio.gather(*(self._read_products(door, half) for half in HALVES))
        if not all(halves):
            raise Retry("asking for on-demand prices: the price list is empty")
        self._on_demand |= {name: price for half in halves for name, price in half.items()}
        self._on_demand_known = True
        self._listed = self._listed.union(*halves)
        self.changes += 1

    async def refresh_spot(self) -> None:
        asked = {
            "ProductDescriptions": list(SPOT_PRODUCTS),
            "StartTime": self._clock.now().astimezone(UTC),
            "MaxResults": 2000,
        }
        found: dict[str, dict[str, float]] = {}
        # The newest price of a zone comes first, whichever of the products it belongs to.
        async for page in list_pages(self._aws, "ec2", "DescribeSpotPriceHistory", asked):
            listed = page.get("SpotPriceHistory", ())
            for name, zone, price in read_items("DescribeSpotPriceHistory", listed, _spot_price):
                if price is not None:
                    found.setdefault(name, {}).setdefault(zone, price)
            await asyncio.sleep(0)
        if not found:
            raise Retry("asking for spot prices: there are none")
        for name, zones in found.items():
            self._spot[name] = {**self._spot.get(name, {}), **zones}
        self._spot_known = True
        self.changes += 1

    async def _read_products(self, door: Aws, half: Mapping[str, str]) -> dict[str, float]:
        wanted = {"regionCode": self._aws.region, **EVERYWHERE, **half}
        filters = [{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in wanted.items()]
        currency = "CNY" if self._aws.region.startswith("cn-") else "USD"
        found: dict[str, float] = {}
        asked = {"ServiceCode": SERVICE, "Filters": filters, "MaxResults": 100}
        async for page in list_pages(door, "pricing", "GetProducts", asked):
            for prices in read_items(
                "GetProducts", page.get("PriceList", ()), partial(_read_prices, currency)
            ):
                found |= prices
            await asyncio.sleep(0)
        return found


def _list_region(region: str) -> str:
    return next((home for prefix, home in NEAREST if region.startswith(prefix)), USUAL)


def _spot_price(entry: Mapping[str, Any]) -> tuple[str, str, float | None]:
    price = _parse_positive(entry.get("SpotPrice")) if entry.get("Timestamp") is not None else None
    return entry["InstanceType"], entry["AvailabilityZone"], price


def _read_prices(currency: str, entry: str | Mapping[str, Any]) -> dict[str, float]:
    return dict(_prices_of(json.loads(entry) if isinstance(entry, str) else entry, currency))


def _prices_of(product: Mapping[str, Any], currency: str) -> Iterator[tuple[str, float]]:
    name = product.get("product", {}).get("attributes", {}).get("instanceType")
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term.get("priceDimensions", {}).values():
            if name and (price := _parse_positive(dimension.get("pricePerUnit", {}).get(currency))):
                yield name, price


def _parse_positive(text: str | None) -> float | None:
    """A price, unless nothing is charged: that is what the list says of types it does not really sell."""
    try:
        price = float(text or "0")
    except ValueError:
        return None
    return price if 0 < price < inf else None
