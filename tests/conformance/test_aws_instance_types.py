"""Every EC2 instance type under every setting, as Karpenter's own provider computed it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from dovetail.api import codec, labels
from dovetail.api.nodeclass import BlockDeviceMapping, KubeletConfiguration, NetworkInterface, Subnet
from dovetail.api.nodeclass import CapacityReservation as Reservation
from dovetail.api.quantity import Quantity
from dovetail.providers.aws.catalog import NodeClassTerms, build_instance_type
from dovetail.providers.aws.instance_type_info import (
    FAMILIES,
    InstanceTypeInfo,
    InstanceTypeTables,
    bundled_facts,
    bundled_tables,
)
from dovetail.scheduling.model.instance_types import InstanceType
from support.vectors import cases

# Karpenter groups subnets by zone ID, so that without IDs all zones collapse into one. Here they stay apart.
APART = "subnets without zone ids"
PARTS = ("capacity", "kubeReserved", "systemReserved", "evictionThreshold", "allocatable")


def terms_of(setting: Mapping[str, Any], region: str) -> NodeClassTerms:
    reservations = [
        {**each, "reservationType": each["type"]} for each in setting.get("capacityReservations", ())
    ]
    return NodeClassTerms(
        region=region,
        family=FAMILIES[setting["amiFamily"]],
        subnets=tuple(codec.convert(Subnet, each) for each in setting["subnetZones"]),
        kubelet=codec.convert(KubeletConfiguration, setting.get("kubelet", {})),
        block_devices=tuple(
            codec.convert(BlockDeviceMapping, each) for each in setting.get("blockDeviceMappings", ())
        ),
        instance_store_policy=setting.get("instanceStorePolicy", ""),
        interfaces=tuple(
            codec.convert(NetworkInterface, each) for each in setting.get("networkInterfaces", ())
        ),
        reservations=tuple(codec.convert(Reservation, each) for each in reservations),
        reserved_enis=setting["reservedENIs"],
        memory_overhead=setting["vmMemoryOverheadPercent"],
    )


def answer_of(made: InstanceType) -> dict[str, dict[str, Any]]:
    overhead = made.overhead
    return {
        "capacity": dict(made.capacity),
        "kubeReserved": dict(overhead.kube_reserved),
        "systemReserved": dict(overhead.system_reserved),
        "evictionThreshold": dict(overhead.eviction_threshold),
        "allocatable": made.allocatable(),
        "requirements": {key: sorted(made.requirements[key].names) for key in made.requirements},
    }


def expected(base: Mapping[str, Any], delta: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    merged = {part: {**base[part], **delta.get(part, {})} for part in (*PARTS, "requirements")}
    found: dict[str, dict[str, Any]] = {
        part: {name: Quantity.parse(amount) for name, amount in merged[part].items() if amount is not None}
        for part in PARTS
    }
    found["requirements"] = {key: each for key, each in merged["requirements"].items() if each is not None}
    return found


@pytest.fixture(scope="module")
def vectors() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    head, *types = cases("aws-instance-types")
    return head, types


def differences(head: Mapping[str, Any], types: list[dict[str, Any]], name: str) -> Iterator[str]:
    setting = next(each for each in (head["base"], *head["others"]) if each["name"] == name)
    terms = terms_of(setting, head["region"])
    by_name, tables = {facts.name: facts for facts in bundled_facts()}, bundled_tables()
    for case in types:
        made = build_instance_type(by_name[case["name"]], terms, setting["offeringZones"], tables)
        ours, theirs = answer_of(made), expected(case["base"], case["delta"].get(name, {}))
        for part in theirs:
            for key in {*ours[part], *theirs[part]}:
                if ours[part].get(key) != theirs[part].get(key):
                    yield f"{case['name']} {part} {key}: {ours[part].get(key)} is not {theirs[part].get(key)}"


NAMES = [
    each["name"] for head in [next(cases("aws-instance-types"))] for each in (head["base"], *head["others"])
]


@pytest.mark.parametrize("name", [name for name in NAMES if name != APART])
def test_every_type_under_this_setting_is_as_karpenter_has_it(
    vectors: tuple[dict[str, Any], list[dict[str, Any]]], name: str
) -> None:
    head, types = vectors
    found = list(differences(head, types, name))
    assert not found, f"{len(found)} differences: " + "; ".join(found[:5])


def test_zones_without_ids_stay_apart(vectors: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    head, types = vectors
    setting = next(each for each in head["others"] if each["name"] == APART)
    made = build_instance_type(
        bundled_facts()[0], terms_of(setting, head["region"]), setting["offeringZones"], InstanceTypeTables()
    )
    assert made.requirements[labels.ZONE].names == {"us-west-2a", "us-west-2b"}
    assert labels.ZONE_ID not in made.requirements
    assert len(types) == 1395


def test_the_bundled_tables_are_those_the_original_used(
    vectors: tuple[dict[str, Any], list[dict[str, Any]]],
) -> None:
    tables = bundled_tables()
    for case in vectors[1]:
        limits = tables.limits.get(case["name"])
        theirs = case.get("vpc")
        ours = limits and {
            "branchInterfaces": limits.branch_interfaces,
            "ipv4PerInterface": limits.ipv4_per_interface,
            "trunking": limits.trunking,
        }
        assert ours == theirs, case["name"]
        assert tables.bandwidth.get(case["name"]) == case.get("networkBandwidthMegabits"), case["name"]


def test_the_bundled_facts_are_the_ones_ec2_reports(
    vectors: tuple[dict[str, Any], list[dict[str, Any]]],
) -> None:
    by_name = {facts.name: facts for facts in bundled_facts()}
    # The recording was made of EC2's answers as moto has them, without the types with AMD's GPUs.
    assert {name for name in by_name if not name.startswith("g4ad.")} == {case["name"] for case in vectors[1]}
    for case in vectors[1]:
        assert _essence(by_name[case["name"]]) == _reported(case["info"]), case["name"]


def _essence(facts: InstanceTypeInfo) -> tuple[object, ...]:
    return facts.vcpus, facts.memory_mib, facts.architectures, facts.interfaces, facts.ipv4_per_interface


def _reported(info: Mapping[str, Any]) -> tuple[object, ...]:
    cards = tuple(card["MaximumNetworkInterfaces"] for card in info["NetworkInfo"]["NetworkCards"])
    return (
        info["VCpuInfo"]["DefaultVCpus"],
        info["MemoryInfo"]["SizeInMiB"],
        tuple(info["ProcessorInfo"]["SupportedArchitectures"]),
        cards,
        info["NetworkInfo"]["Ipv4AddressesPerInterface"],
    )
