"""What an EC2 node costs beside its instance: volumes, an address, and what a person adds.

The oracle is written from EC2's price definitions and reads the bundled numbers by itself.
"""

from __future__ import annotations

import json
import os
from fractions import Fraction
from importlib import resources
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.meta import ObjectMeta
from dovetail.api.nodeclass import (
    BlockDevice,
    BlockDeviceMapping,
    EC2NodeClass,
    EC2NodeClassSpec,
    EC2NodeClassStatus,
    NetworkInterface,
    Subnet,
)
from dovetail.api.nodepool import NodePool
from dovetail.api.overlay import NodeOverlay, NodeOverlaySpec
from dovetail.api.pod import NodeSelectorRequirement
from dovetail.providers.aws.controllers.offering_metrics import _list_offers
from dovetail.providers.aws.node_extras import find_class_extras, knows_volumes, price_volume
from dovetail.providers.aws.offline_catalog import list_offline_types
from dovetail.scheduling.model.instance_types import InstanceType, PriceParts
from dovetail.scheduling.model.node_overlays import apply_overlays
from support.builders import nodepool
from support.ec2 import Ec2, provided
from support.stage import virtual

VOLUMES = int(os.environ.get("DOVETAIL_PRICED_VOLUMES", "300"))
BUNDLED = json.loads(
    resources.files("dovetail.providers.aws").joinpath("data", "node-extras.json").read_text("utf-8")
)
ROOT = 20 * 0.08 / 730
ADDRESS = 0.005
ON_DEMAND = (labels.CAPACITY_TYPE, "In", "on-demand")


def _owed(region: str, kind: str, gib: int, iops: int, mibps: int) -> Fraction | None:
    """Dollars a month by EC2's own words, one operation and one MiB/s at a time where prices have steps."""
    told = BUNDLED["regions"][region].get(kind)
    if told is None:
        return None
    cents = {name: told[name] for name in told}
    owed = Fraction(str(cents["gib"])) * gib
    if kind == "gp3":  # 3,000 operations a second and 125 MiB/s are free
        owed += Fraction(str(cents["iops"][0])) * (iops - 3000 if iops > 3000 else 0)
        if mibps > 125:
            if "mibps" not in cents:
                return None
            owed += Fraction(str(cents["mibps"])) * (mibps - 125)
    if kind == "io1":
        owed += Fraction(str(cents["iops"][0])) * iops
    if kind == "io2":  # up to 32,000, from there to 64,000, and above
        for start, end, rate in zip(
            (0, 32_000, 64_000), (32_000, 64_000, 256_000), cents["iops"], strict=True
        ):
            owed += Fraction(str(rate)) * len(range(start, min(end, iops)))
    return owed


@pytest.mark.parametrize("seed", range(VOLUMES // 50))
def test_a_volume_costs_what_ec2s_price_definitions_say(seed: int) -> None:
    chance, unknown = Random(seed), 0
    for _ in range(50):
        region = chance.choice(sorted(BUNDLED["regions"]))
        kind = chance.choice(("gp3", "gp2", "io1", "io2", "st1", "sc1", "standard"))
        gib, iops = (
            chance.randint(1, 16_384),
            chance.choice((0, 100, 3000, 3001, 16_000, 32_000, 32_001, 64_001)),
        )
        mibps = chance.choice((0, 125, 126, 1000))
        volume = BlockDevice(volume_size=f"{gib}Gi", volume_type=kind, iops=iops, throughput=mibps)
        owed, ours = _owed(region, kind, gib, iops, mibps), price_volume(volume, region)
        unknown += owed is None
        assert (owed is None) == (ours is None), (region, kind)
        if owed is not None:
            assert ours == pytest.approx(float(owed / 730), rel=1e-12), (region, kind, gib, iops, mibps)
    assert unknown < 50


@pytest.mark.parametrize(
    ("volume", "monthly"),
    [
        # As EC2's own examples for us-east-1 have them.
        ({"volume_type": "gp3", "volume_size": "2000Gi", "iops": 10_000, "throughput": 500}, 160 + 35 + 15),
        ({"volume_type": "gp2", "volume_size": "2000Gi"}, 200),
        ({"volume_type": "io1", "volume_size": "2000Gi", "iops": 1000}, 250 + 65),
        ({"volume_type": "st1", "volume_size": "500Gi"}, 22.5),
        ({"volume_size": "10Gi"}, 1),  # where no type is named, EC2 makes gp2
        ({"volume_type": "gp3", "volume_size": "10500Mi"}, 0.88),  # EC2 has whole GiB alone
    ],
)
def test_worked_examples(volume: dict[str, Any], monthly: float) -> None:
    assert price_volume(BlockDevice(**volume), "us-east-1") == pytest.approx(monthly / 730, rel=1e-12)


@pytest.mark.parametrize(
    "volume",
    [
        {"volume_type": "gp3", "snapshot_id": "snap-1"},  # as large as the snapshot, which nobody told us
        {"volume_type": "gp9", "volume_size": "20Gi"},
    ],
)
def test_what_is_not_known_is_not_guessed(volume: dict[str, Any]) -> None:
    assert price_volume(BlockDevice(**volume), "us-east-1") is None
    known = BlockDeviceMapping(ebs=BlockDevice(volume_type="gp3", volume_size="20Gi"))
    spec = EC2NodeClassSpec(
        ami_family="AL2023", block_device_mappings=(known, BlockDeviceMapping(ebs=BlockDevice(**volume)))
    )
    given = EC2NodeClass(spec=spec)
    assert not knows_volumes(given, "us-east-1")
    assert find_class_extras(given, "us-east-1", ()).volumes == 0.0


@pytest.mark.parametrize(
    ("family", "gib"),
    [("AL2", 20), ("AL2023", 20), ("Bottlerocket", 24), ("Windows2022", 50), ("Custom", 0)],
)
def test_each_family_brings_the_volumes_that_a_launch_asks_for(family: str, gib: int) -> None:
    given = EC2NodeClass(spec=EC2NodeClassSpec(ami_family=family))
    assert find_class_extras(given, "us-east-1", ()).volumes == pytest.approx(gib * 0.08 / 730)
    assert knows_volumes(given, "us-east-1") == bool(gib)


def test_a_region_whose_volumes_have_no_price_counts_nothing() -> None:
    assert find_class_extras(None, "us-gov-west-1", ("us-gov-west-1a",)).volumes == 0.0
    assert find_class_extras(None, "cn-north-1", ("cn-north-1a",)).addressed == frozenset()


@pytest.mark.parametrize(
    ("public", "interfaces", "expected"),
    [
        (None, 0, {"us-east-1b"}),
        (None, 1, {"us-east-1b"}),
        (None, 2, set()),  # a subnet gives none to several interfaces
        (True, 0, {"us-east-1a", "us-east-1b"}),
        (False, 0, set()),
    ],
)
def test_an_address_is_paid_where_the_class_or_else_the_subnet_gives_one(
    public: bool | None, interfaces: int, expected: set[str]
) -> None:
    subnets = (Subnet(id="private", zone="us-east-1a"), Subnet(id="public", zone="us-east-1b"))
    given = EC2NodeClass(
        spec=EC2NodeClassSpec(
            ami_family="AL2023",
            associate_public_ip_address=public,
            network_interfaces=tuple(NetworkInterface(device_index=at) for at in range(interfaces)),
        ),
        status=EC2NodeClassStatus(subnets=subnets),
    )
    found = find_class_extras(given, "us-east-1", ("us-east-1a", "us-east-1b"), "public".__eq__)
    assert found.addressed == expected
    assert found.address == (ADDRESS if expected else 0.0)


def test_every_price_of_a_catalogue_has_its_extras_and_keeps_its_instance_visible() -> None:
    alone = {each.name: each for each in list_offline_types("us-east-1")}
    whole = {each.name: each for each in list_offline_types("us-east-1", extras=True)}
    assert alone.keys() == whole.keys()
    for name, each in whole.items():
        for ours, plain in zip(each.offerings, alone[name].offerings, strict=True):
            assert ours.parts == PriceParts(instance=plain.price, volumes=ROOT)
            assert ours.instance_price == plain.price == plain.instance_price
            assert ours.price == pytest.approx(plain.price + ROOT, abs=1e-12)
            assert plain.parts is None


def _annotate(pool: NodePool, text: str) -> NodePool:
    return replace(pool, metadata=replace(pool.metadata, annotations={labels.NODE_EXTRA: text}))


async def _parts(ec2: Ec2, name: str) -> dict[tuple[str, str], PriceParts | None]:
    return {(each.capacity_type, each.zone): each.parts for each in await ec2.offerings(name)}


@virtual
async def test_spot_and_on_demand_pay_for_volumes_alike_and_a_public_subnet_adds_an_address() -> None:
    ec2 = await provided(prices=True)
    found = await _parts(ec2, "m5.large")
    assert {kind for kind, _ in found} == {"spot", "on-demand"}
    assert {each.volumes for each in found.values() if each is not None} == {ROOT}
    assert {each.address for each in found.values() if each is not None} == {0.0}
    before = await ec2.cloud.list_instance_types(ec2.pool)
    assert await ec2.cloud.list_instance_types(ec2.pool) is before
    public = ec2.node_class.status.subnets[0]
    ec2.provider.subnets._public.add(public.id)
    found = await _parts(ec2, "m5.large")
    assert {zone for (_, zone), each in found.items() if each is not None and each.address} == {public.zone}
    assert {each.address for each in found.values() if each is not None} == {0.0, ADDRESS}


@virtual
async def test_ec2_itself_tells_which_subnets_give_addresses() -> None:
    ec2 = await provided()
    asked = ec2.node_class.status.subnets
    told = await ec2.aws.call("ec2", "DescribeSubnets", {"SubnetIds": [each.id for each in asked]})
    public = {each["SubnetId"] for each in told["Subnets"] if each["MapPublicIpOnLaunch"]}
    assert {each.id for each in asked if ec2.provider.subnets.gives_address(each.id)} == public


@virtual
async def test_switched_off_the_catalogue_is_the_very_same_as_before() -> None:
    """Byte for byte: no part, no total, whatever the class, the setting and the annotation say."""
    off = await provided(("--node-extras=off", "--node-extra-hourly=0.5/node"))
    off.pools.put(_annotate(off.pool, "0.7/node"))
    alone = await provided()
    for on, without in zip(
        await alone.cloud.list_instance_types(alone.pool),
        await off.cloud.list_instance_types(off.pool),
        strict=True,
    ):
        assert [each.price for each in without.offerings] == [each.instance_price for each in on.offerings]
        assert all(each.parts is None for each in without.offerings)


@virtual
async def test_what_a_person_adds_counts_for_the_pool_and_for_the_launch() -> None:
    ec2 = await provided(("--node-extra-hourly=0.01/node,0.002/vcpu",), types=("m5.large", "m5.xlarge"))
    for name, vcpus in (("m5.large", 2), ("m5.xlarge", 4)):
        assert {each.parts.added for each in await ec2.offerings(name) if each.parts} == {
            0.01 + 0.002 * vcpus
        }
    ec2.pools.put(_annotate(ec2.pool, "0.5/vcpu"))
    assert {each.parts.added for each in await ec2.offerings("m5.large") if each.parts} == {1.0}
    first = await ec2.cloud.list_instance_types(ec2.pool)
    assert await ec2.cloud.list_instance_types(ec2.pool) is first, "the same answer while nothing changed"
    await ec2.launched(ON_DEMAND)
    offered = {each["InstanceType"]: each["Priority"] for each in ec2.overrides()}
    assert offered["m5.xlarge"] - offered["m5.large"] == pytest.approx(0.096 + 2 * 0.5, abs=1e-9)


def _overlay(**spec: Any) -> NodeOverlay:
    wanted = (NodeSelectorRequirement(key=labels.ARCH, operator="Exists"),)
    return NodeOverlay(metadata=ObjectMeta(name="cheap"), spec=NodeOverlaySpec(requirements=wanted, **spec))


@pytest.mark.parametrize(
    ("spec", "instance"), [({"price": "0.5"}, 0.5), ({"price_adjustment": "-50%"}, 0.048)]
)
def test_an_overlay_corrects_the_instance_and_extras_come_on_top(
    spec: dict[str, str], instance: float
) -> None:
    (sold,) = (each for each in list_offline_types("us-east-1", extras=True) if each.name == "m5.large")
    found = apply_overlays([(nodepool(), (sold,))], [_overlay(**spec)], labels.AWS).types["default"][0]
    deals = [each for each in found.offerings if each.capacity_type == labels.ON_DEMAND]
    assert deals
    for each in deals:
        assert each.parts == PriceParts(instance=pytest.approx(instance), volumes=ROOT)  # type: ignore[arg-type]
        assert each.price == pytest.approx(instance + ROOT)
        assert each.price_overlaid


def test_karpenters_own_metric_tells_the_price_of_the_instance() -> None:
    (sold,) = (each for each in list_offline_types("us-east-1", extras=True) if each.name == "m5.large")
    told = {offer: price for offer, _, price in _list_offers(sold)}
    assert {price for (_, kind, _), price in told.items() if kind == labels.ON_DEMAND} == {0.096}


def _estimated(types: tuple[InstanceType, ...]) -> dict[str, set[bool]]:
    found: dict[str, set[bool]] = {}
    for each in types:
        for offering in each.offerings:
            if offering.available:
                found.setdefault(offering.capacity_type, set()).add(offering.price_estimated)
    return found


@virtual
async def test_prices_that_aws_has_not_told_are_marked_as_estimates() -> None:
    ec2 = await provided()  # us-west-2, with the prices of us-east-1 until its own are known
    assert _estimated(await ec2.cloud.list_instance_types(ec2.pool)) == {"on-demand": {True}, "spot": {True}}
    await ec2.provider.prices.refresh_on_demand()
    assert _estimated(await ec2.cloud.list_instance_types(ec2.pool)) == {"on-demand": {False}, "spot": {True}}
    await ec2.provider.prices.refresh_spot()
    assert _estimated(await ec2.cloud.list_instance_types(ec2.pool)) == {
        "on-demand": {False},
        "spot": {False},
    }
