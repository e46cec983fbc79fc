"""The EC2 catalogue without EC2: what is sold where, for how much, and to which classes."""

from __future__ import annotations

import re
import time
from statistics import median

import pytest

from dovetail.api import labels
from dovetail.api.nodeclass import (
    AMISelectorTerm,
    EC2NodeClass,
    EC2NodeClassSpec,
    EC2NodeClassStatus,
    KubeletConfiguration,
    NetworkInterface,
    Subnet,
)
from dovetail.errors import BadInput
from dovetail.providers.aws.catalog import NodeClassTerms
from dovetail.providers.aws.compatibility import find_incompatibility
from dovetail.providers.aws.instance_type_info import (
    BUNDLED_REGION,
    FAMILIES,
    bundled_facts,
    bundled_prices,
    bundled_regions,
)
from dovetail.providers.aws.offline_catalog import estimate_spot, list_offline_types
from dovetail.scheduling.model.instance_types import InstanceType

BY_NAME = {facts.name: facts for facts in bundled_facts()}


def bought(region: str = "us-east-1", nodeclass: EC2NodeClass | None = None) -> dict[str, InstanceType]:
    return {each.name: each for each in list_offline_types(region, nodeclass, assumed_region=BUNDLED_REGION)}


def test_a_type_is_sold_where_ec2_sells_it_and_nowhere_else() -> None:
    for region, facts in bundled_regions().items():
        for each in list_offline_types(region, assumed_region=BUNDLED_REGION):
            assert {offering.zone for offering in each.offerings} <= set(facts.zones)
    assert len(bought("us-east-1")) > 1_300
    assert "m5.large" in bought("eu-west-1")


def test_a_region_nobody_knows_is_an_error_that_names_the_others() -> None:
    with pytest.raises(BadInput, match=r"'mars-1'.*us-east-1"):
        list_offline_types("mars-1")


def test_a_region_without_prices_is_refused_in_one_sentence_unless_another_is_named() -> None:
    with pytest.raises(BadInput, match=r"no prices of eu-west-1 here.*--assume-region-prices us-east-1"):
        list_offline_types("eu-west-1")
    with pytest.raises(BadInput, match=r"no prices of eu-west-2 here to assume; write us-east-1"):
        list_offline_types("eu-west-1", assumed_region="eu-west-2")
    assumed = bought("eu-west-1")["m5.large"].offerings
    assert all(each.price_estimated for each in assumed)
    own = bought()["m5.large"].offerings
    assert {each.price for each in assumed} == {each.price for each in own}
    assert {each.price_estimated for each in own if each.capacity_type == labels.ON_DEMAND} == {False}


def test_on_demand_and_estimated_spot_cost_the_same_in_every_zone() -> None:
    offerings = bought()["m5.large"].offerings
    on_demand = {each.price for each in offerings if each.capacity_type == labels.ON_DEMAND}
    spot = [each for each in offerings if each.capacity_type == labels.SPOT]
    assert on_demand == {0.096}
    assert {each.price for each in spot} == {round(0.096 * 0.34, 4)}
    assert all(each.price_estimated for each in spot)


def test_no_estimate_of_spot_is_an_outlier_that_a_plan_could_sit_on() -> None:
    """By generation and category, within bounds: a type is as cheap as the others of its kind."""
    shares = {name: estimate_spot(name, price) / price for name, price in bundled_prices().items()}
    large = {name: share for name, share in shares.items() if bundled_prices()[name] >= 0.05}
    assert min(large.values()) >= 0.32 - 0.001
    assert max(large.values()) <= 0.48 + 0.001
    assert median(large.values()) == pytest.approx(0.37, abs=0.03)
    of_a_kind: dict[tuple[str, str], list[float]] = {}
    for name in large:
        family = name.partition(".")[0]
        kind = re.match(r"([a-z]+)(?:-\d+tb)?(\d+)", family)
        if kind is not None:
            of_a_kind.setdefault((kind[1], kind[2]), []).append(large[name])
    assert len(of_a_kind) > 40
    for found in of_a_kind.values():
        assert max(found) - min(found) <= 0.002
    assert large["m7i.large"] > large["m4.large"]
    assert large["g5.xlarge"] > large["m5.xlarge"]


def test_a_type_without_a_price_is_known_and_not_for_sale() -> None:
    unpriced = [each for each in bought().values() if each.name not in bundled_prices()]
    assert unpriced
    assert all(not each.offerings for each in unpriced)


def test_a_class_is_sold_to_only_where_it_has_subnets() -> None:
    status = EC2NodeClassStatus(subnets=(Subnet(id="s", zone="us-east-1a", zone_id="use1-az1"),))
    mine = bought(nodeclass=EC2NodeClass(status=status))["m5.large"]
    assert {each.zone for each in mine.offerings if each.available} == {"us-east-1a"}
    assert mine.requirements[labels.ZONE].names == {"us-east-1a"}
    assert mine.requirements[labels.ZONE_ID].names == {"use1-az1"}


def test_a_class_decides_how_many_pods_a_node_holds() -> None:
    spec = EC2NodeClassSpec(kubelet=KubeletConfiguration(max_pods=7))
    assert bought(nodeclass=EC2NodeClass(spec=spec))["m5.large"].capacity["pods"].value == 7
    assert bought()["m5.large"].capacity["pods"].value == 29


def test_the_family_follows_the_alias() -> None:
    spec = EC2NodeClassSpec(ami_selector_terms=(AMISelectorTerm(alias="bottlerocket@latest"),))
    assert (
        NodeClassTerms.from_node_class(EC2NodeClass(spec=spec), "us-east-1").family
        is FAMILIES["Bottlerocket"]
    )


def test_al2023_is_not_sold_the_first_graviton() -> None:
    assert find_incompatibility(BY_NAME["a1.large"], NodeClassTerms("us-east-1"))
    assert not find_incompatibility(
        BY_NAME["a1.large"], NodeClassTerms("us-east-1", family=FAMILIES["Bottlerocket"])
    )
    spec = EC2NodeClassSpec(ami_selector_terms=(AMISelectorTerm(alias="al2023@latest"),))
    mine = bought(nodeclass=EC2NodeClass(spec=spec))
    assert not any(each.available for each in mine["a1.large"].offerings)
    assert any(each.available for each in mine["m6g.large"].offerings)


@pytest.mark.parametrize(
    ("name", "interface", "why"),
    [
        ("m5.large", NetworkInterface(network_card_index=1), "no network card 1"),
        ("m5.large", NetworkInterface(device_index=3), "no interface 3"),
        ("m5.large", NetworkInterface(interface_type="efa-only"), "fewer than 1"),
        ("m1.small", NetworkInterface(), "no enhanced networking"),
        ("p5.48xlarge", NetworkInterface(network_card_index=31, interface_type="efa-only"), ""),
    ],
)
def test_interfaces_a_type_has_not_keep_it_from_sale(
    name: str, interface: NetworkInterface, why: str
) -> None:
    found = find_incompatibility(BY_NAME[name], NodeClassTerms("us-east-1", interfaces=(interface,)))
    assert why in found
    assert bool(why) == bool(found)


def test_the_catalogue_is_made_in_a_moment() -> None:
    list_offline_types("us-east-1")
    times = []
    for _ in range(3):
        started = time.process_time()
        list_offline_types("us-east-1")
        times.append(time.process_time() - started)
    assert min(times) < 0.4, "it should take a tenth of a second on a quiet machine"
