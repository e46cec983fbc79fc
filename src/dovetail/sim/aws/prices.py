"""What EC2 costs: on-demand from the bundled table, spot by a model that moves with time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from zlib import crc32

from dovetail.providers.aws.estimate import estimated_spot
from dovetail.providers.aws.facts import Facts, bundled_prices
from dovetail.sim.aws.asking import Ask, Json, Subject, operation
from dovetail.sim.aws.selecting import filtered, page
from dovetail.sim.aws.types import facts_of, sold

__all__ = ["SPOT", "Prices"]

SPOT = "spot"
# Spot prices follow slow shifts of supply and demand: a new one now and then, never by much.
STEP = timedelta(hours=6)
MOVES_BY = 0.06
# Other regions are dearer than Virginia, Ohio and Oregon.
CHEAP = ("us-east-1", "us-east-2", "us-west-2")
DEARER_BY = 0.25
PRODUCTS = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Prices(Subject):
    """The prices of a region."""

    def begin(self) -> None:
        # (type, zone or "", "spot" or "on-demand") → factor, by the hand of a test.
        self.factors: dict[tuple[str, str, str], float] = {}

    def on_demand(self, name: str) -> float | None:
        base = bundled_prices().get(name)
        if base is None:
            return None
        return round(base * _dearer(self.region) * self.factors.get((name, "", "on-demand"), 1.0), 6)

    def spot(self, name: str, zone: str, when: datetime | None = None) -> float | None:
        base = self.on_demand(name)
        if base is None:
            return None
        step = int(((when or self.clock.now()) - EPOCH) / STEP)
        moved = 1 + MOVES_BY * (2 * _draw(f"{name}/{zone}/{step}") - 1)
        factor = self.factors.get((name, zone, SPOT), self.factors.get((name, "", SPOT), 1.0))
        return max(0.0001, round(estimated_spot(name, zone, base) * moved * factor, 4))


def _draw(text: str) -> float:
    return crc32(text.encode()) / (1 << 32)


@cache
def _dearer(region: str) -> float:
    return 1.0 if region in CHEAP else 1 + DEARER_BY * _draw(region)


@operation("ec2", "DescribeSpotPriceHistory")
def describe_history(ask: Ask) -> Json:
    prices, here, known = ask.here(Prices), sold(ask.region), facts_of()
    names = ask.get("InstanceTypes") or here
    zones, products = ask.get("AvailabilityZone"), ask.get("ProductDescriptions") or PRODUCTS
    found = [
        (name, zone, product, when)
        for name in names
        if name in here and SPOT in known[name].usage_classes and prices.on_demand(name) is not None
        for zone in here[name]
        if zones in (None, zone)
        for when in _changes(ask)
        for product in products
        if product in PRODUCTS
    ]
    chosen = filtered(
        ask,
        found,
        lambda each: {
            "instance-type": (each[0],),
            "availability-zone": (each[1],),
            "product-description": (each[2],),
        },
        lambda each: {},
    )
    shown, more = page(ask, chosen, most=1000)
    history = [
        {
            "InstanceType": name,
            "AvailabilityZone": zone,
            "ProductDescription": product,
            "SpotPrice": f"{prices.spot(name, zone, when):.6f}",
            "Timestamp": when,
        }
        for name, zone, product, when in shown
    ]
    return {"SpotPriceHistory": history, "NextToken": more.get("NextToken", "")}


def _changes(ask: Ask) -> Iterator[datetime]:
    """When prices changed, latest first: the price that held at the start is part of the answer."""
    end = ask.get("EndTime") or ask.ground.clock.now()
    start = min(ask.get("StartTime") or end - timedelta(days=90), end)
    step = int((end - EPOCH) / STEP)
    while True:
        yield EPOCH + step * STEP
        if EPOCH + step * STEP <= start:
            return
        step -= 1


@operation("pricing", "GetProducts")
def get_products(ask: Ask) -> Json:
    wanted = {each["Field"]: each["Value"] for each in ask.get("Filters", ())}
    region = wanted.get("regionCode", ask.region)
    prices = ask.ground.subject(Prices, ask.account, region)
    found = [
        facts
        for name in sold(region)
        if _sells(facts := facts_of()[name], wanted) and prices.on_demand(name) is not None
    ]
    shown, more = page(ask, found, most=100) if ask.get("MaxResults") else page(_hundred(ask), found)
    return {
        "FormatVersion": "aws_v1",
        "PriceList": [json.dumps(_product(each, region, prices)) for each in shown],
        **more,
    }


def _hundred(ask: Ask) -> Ask:
    return Ask(
        ask.ground, ask.account, ask.region, ask.service, ask.operation, {**ask.given, "MaxResults": 100}
    )


def _sells(facts: Facts, wanted: dict[str, str]) -> bool:
    """Bare metal is sold under its own product family, and only as dedicated."""
    attributes = _attributes(facts, wanted.get("regionCode", ""))
    family = attributes.pop("productFamily")
    given = attributes | {"productFamily": family, "serviceCode": "AmazonEC2", "ServiceCode": "AmazonEC2"}
    return all(given.get(field) == value for field, value in wanted.items())


def _attributes(facts: Facts, region: str) -> dict[str, str]:
    metal = not facts.hypervisor
    return {
        "productFamily": "Compute Instance (bare metal)" if metal else "Compute Instance",
        "instanceType": facts.name,
        "regionCode": region,
        "tenancy": "Dedicated" if metal else "Shared",
        "preInstalledSw": "NA",
        "operatingSystem": "Linux",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "vcpu": str(facts.vcpus),
        "memory": f"{facts.memory_mib / 1024:g} GiB",
        "servicecode": "AmazonEC2",
    }


def _product(facts: Facts, region: str, prices: Prices) -> Json:
    sku = f"{crc32(f'{region}/{facts.name}'.encode()):08X}"
    attributes = _attributes(facts, region)
    family = attributes.pop("productFamily")
    currency = "CNY" if region.startswith("cn-") else "USD"
    rate = f"{sku}.JRTCKXETXF.6YS6EN2CT7"
    dimension = {
        "unit": "Hrs",
        "rateCode": rate,
        "beginRange": "0",
        "endRange": "Inf",
        "description": f"on demand Linux {facts.name} instance hour",
        "appliesTo": [],
        "pricePerUnit": {currency: f"{prices.on_demand(facts.name):.10f}"},
    }
    term = {
        "sku": sku,
        "offerTermCode": "JRTCKXETXF",
        "effectiveDate": "2026-07-01T00:00:00Z",
        "termAttributes": {},
        "priceDimensions": {rate: dimension},
    }
    return {
        "serviceCode": "AmazonEC2",
        "product": {"productFamily": family, "sku": sku, "attributes": attributes},
        "terms": {"OnDemand": {f"{sku}.JRTCKXETXF": term}},
        "version": "20260720000000",
        "publicationDate": "2026-07-20T00:00:00Z",
    }
