"""Prices: the price list, spot history, and what stands in for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from dovetail.aws import Answer
from dovetail.errors import Retry
from dovetail.providers.aws.instance_type_info import bundled_prices
from dovetail.providers.aws.pricing import PricingProvider
from dovetail.settings import read_settings
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.clock import VirtualClock
from support.stage import virtual

LISTED = ("--cluster-name=test",)


def prices(aws: Any, *flags: str) -> PricingProvider:
    return PricingProvider(aws, VirtualClock(), read_settings((*LISTED, *flags), {}, provider="aws"))


class PriceList:
    """A price list with a few types in it, for each half: shared and bare metal."""

    def __init__(
        self, region: str, shared: Mapping[str, float], metal: Mapping[str, float], currency: str = "USD"
    ) -> None:
        self.region, self.shared, self.metal, self.currency = region, shared, metal, currency
        self.asked: list[tuple[str, str, Mapping[str, Any]]] = []

    def scope_to(self, *, region: str = "", role: str = "", external_id: str = "") -> PriceList:
        other = PriceList(region or self.region, self.shared, self.metal, self.currency)
        other.asked = self.asked
        return other

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any], /, *, retried: bool = True
    ) -> Answer:
        self.asked.append((self.region, operation, parameters))
        if operation == "DescribeSpotPriceHistory":
            return {"SpotPriceHistory": []}
        wanted = {each["Field"]: each["Value"] for each in parameters["Filters"]}
        listed = self.shared if wanted["tenancy"] == "Shared" else self.metal
        return {"PriceList": [json.dumps(self._product(name, listed[name])) for name in listed]}

    def _product(self, name: str, price: float) -> dict[str, Any]:
        dimension = {"pricePerUnit": {self.currency: f"{price:.10f}"}}
        return {
            "product": {"attributes": {"instanceType": name}},
            "terms": {"OnDemand": {"sku.term": {"priceDimensions": {"sku.term.rate": dimension}}}},
        }


@pytest.mark.spec("aws-168")
@virtual
async def test_built_in_prices_hold_while_the_price_list_cannot_be_reached() -> None:
    aws = SimulatedAws(VirtualClock())
    aws.refuse("InternalError", "GetProducts", None)
    found = prices(aws)
    with pytest.raises(Retry, match="GetProducts"):
        await found.refresh()
    assert found.find_on_demand_price("c5.large") == bundled_prices()["c5.large"] > 0
    assert found.find_spot_price("c5.large", "us-west-2a") != found.find_on_demand_price("c5.large"), (
        "spot had its turn all the same"
    )


@pytest.mark.spec("aws-169")
@virtual
async def test_an_answer_is_laid_over_what_was_known() -> None:
    aws = PriceList(
        "us-west-2", {"c98.large": 1.20, "c99.large": 1.23, "free.large": 0.0}, {"c98.metal": 9.0}
    )
    found = prices(aws)
    await found.refresh_on_demand()
    assert (found.find_on_demand_price("c98.large"), found.find_on_demand_price("c99.large")) == (1.20, 1.23)
    assert (found.find_on_demand_price("c98.metal"), found.find_on_demand_price("free.large")) == (9.0, None)
    aws.shared = {"c98.large": 1.30}
    before = found.changes
    await found.refresh_on_demand()
    assert (found.find_on_demand_price("c98.large"), found.find_on_demand_price("c99.large")) == (1.30, 1.23)
    assert found.changes == before + 1


@virtual
async def test_half_a_price_list_is_an_error_and_changes_nothing() -> None:
    found = prices(PriceList("us-west-2", {"c98.large": 1.20}, {}))
    with pytest.raises(Retry, match="empty"):
        await found.refresh_on_demand()
    assert found.find_on_demand_price("c98.large") is None


@pytest.mark.spec("aws-170")
@virtual
async def test_each_partition_has_its_own_price_list_or_none() -> None:
    china = PriceList("cn-north-1", {"c98.large": 8.0}, {"c98.metal": 80.0}, "CNY")
    found = prices(china)
    await found.refresh_on_demand()
    assert found.find_on_demand_price("c98.large") == 8.0
    assert {region for region, _, _ in china.asked} == {"cn-northwest-1"}
    for region, home in (
        ("ap-south-2", "ap-south-1"),
        ("eu-west-1", "eu-central-1"),
        ("sa-east-1", "us-east-1"),
    ):
        elsewhere = PriceList(region, {"c98.large": 1.0}, {"c98.metal": 2.0})
        await prices(elsewhere).refresh_on_demand()
        assert {asked for asked, _, _ in elsewhere.asked} == {home}
    for closed, flags in (
        (PriceList("us-gov-west-1", {}, {}), ()),
        (PriceList("us-west-2", {}, {}), ISOLATED),
    ):
        found = prices(closed, *flags)
        await found.refresh_on_demand()
        assert (closed.asked, found.find_on_demand_price("c3.2xlarge")) == ([], 0.42)


ISOLATED = ("--isolated-vpc=true",)


@pytest.mark.spec("aws-171")
@virtual
async def test_spot_costs_as_much_as_on_demand_until_it_is_known_and_then_only_where_it_is() -> None:
    found = prices(SimulatedAws(VirtualClock()))
    assert (
        found.find_spot_price("m5.large", "us-west-2a")
        == found.find_spot_price("m5.large", "nowhere")
        == 0.096
    )
    await found.refresh_spot()
    known = found.find_spot_price("m5.large", "us-west-2a")
    assert known is not None
    assert 0 < known < 0.096
    assert found.find_spot_price("m5.large", "nowhere") is None
    assert found.find_spot_price("trn1.2xlarge", "us-west-2a") is None, "it is not sold there"


@virtual
async def test_no_spot_prices_at_all_is_an_error_and_old_ones_stay() -> None:
    found = prices(PriceList("us-west-2", {}, {}))
    with pytest.raises(Retry, match="there are none"):
        await found.refresh_spot()
    assert found.find_spot_price("m5.large", "us-west-2a") == 0.096


@pytest.mark.spec("aws-172")
@virtual
async def test_spot_prices_are_asked_for_both_kinds_of_linux_as_of_now() -> None:
    aws = SimulatedAws(VirtualClock())
    await prices(aws).refresh_spot()
    asked = next(call.parameters for call in aws.calls if call.operation == "DescribeSpotPriceHistory")
    assert asked["ProductDescriptions"] == ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"]
    assert asked["StartTime"] == aws.clock.now()
