"""What is remembered for a while: cached answers, refused offerings, and the memory nodes really have."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from dovetail.api.nodeclass import AMI
from dovetail.api.quantity import Quantity
from dovetail.providers.aws.instance_types import DiscoveredMemory
from dovetail.providers.aws.ttl_cache import TtlCache
from dovetail.providers.aws.unavailable_offerings import UnavailableOfferings
from dovetail.sim.clock import VirtualClock
from support.stage import virtual

MINUTE = timedelta(minutes=1)


@virtual
async def test_an_entry_lasts_from_when_it_was_last_put() -> None:
    cache: TtlCache[str, int] = TtlCache(VirtualClock(), MINUTE)
    cache.put("a", 1)
    await asyncio.sleep(40)
    cache.put("a", 2)
    cache.put("b", 3)
    await asyncio.sleep(40)
    assert (cache.get("a"), dict(cache.items()), len(cache)) == (2, {"a": 2, "b": 3}, 2)
    await asyncio.sleep(20)
    assert (cache.get("a"), "b" in cache, list(cache)) == (None, False, [])


@virtual
async def test_only_what_time_took_is_told_of() -> None:
    told: list[tuple[str, int]] = []
    cache: TtlCache[str, int] = TtlCache(VirtualClock(), MINUTE, lambda key, value: told.append((key, value)))
    for at, name in enumerate("abc"):
        cache.put(name, at)
    assert (cache.drop("b"), cache.drop("b")) == (1, None)
    await asyncio.sleep(60)
    assert (cache.items(), told) == ((), [("a", 0), ("c", 2)])


@virtual
async def test_what_is_unavailable_is_so_for_three_minutes_from_the_last_refusal() -> None:
    refused = UnavailableOfferings(VirtualClock())
    refused.mark_offering("spot", "m5.large", "a")
    await asyncio.sleep(170)
    refused.mark_offering("spot", "m5.large", "a")
    await asyncio.sleep(170)
    assert refused.is_unavailable("spot", "m5.large", "a")
    assert not refused.is_unavailable("spot", "m5.large", "b")
    assert not refused.is_unavailable("on-demand", "m5.large", "a")
    await asyncio.sleep(10)
    assert not refused.is_unavailable("spot", "m5.large", "a")


@virtual
async def test_a_refusal_in_a_placement_group_is_about_that_group_alone() -> None:
    refused = UnavailableOfferings(VirtualClock())
    refused.mark_offering("spot", "m5.large", "a", "pg-1", "2")
    assert refused.is_unavailable("spot", "m5.large", "a", placement="pg-1", partition="2")
    assert not refused.is_unavailable("spot", "m5.large", "a", placement="pg-1", partition="1")
    assert not refused.is_unavailable("spot", "m5.large", "a", placement="pg-2", partition="2")
    assert not refused.is_unavailable("spot", "m5.large", "a")
    refused.mark_offering("spot", "m5.large", "b", "pg-1")
    assert refused.is_unavailable("spot", "m5.large", "b", placement="pg-1", partition="7")
    refused.mark_offering("spot", "m5.large", "c")
    assert refused.is_unavailable("spot", "m5.large", "c", placement="pg-2", partition="1")


@virtual
async def test_a_zone_is_out_of_addresses_when_all_its_subnets_are() -> None:
    refused = UnavailableOfferings(VirtualClock())
    refused.mark_subnet("subnet-1")
    assert not refused.is_unavailable("spot", "m5.large", "a", ("subnet-1", "subnet-2"))
    assert not refused.is_unavailable("spot", "m5.large", "a", ())
    refused.mark_subnet("subnet-2")
    assert refused.is_unavailable("spot", "m5.large", "a", ("subnet-1", "subnet-2"))


@pytest.mark.spec("aws-175")
@virtual
async def test_the_number_of_a_type_moves_with_everything_that_may_change_its_answer() -> None:
    refused = UnavailableOfferings(VirtualClock())

    def numbers() -> tuple[int, int, int]:
        return refused.sequence_number("m5.large"), refused.sequence_number("m5.xlarge"), refused.changes

    refused.mark_offering("spot", "m5.large", "a")
    assert numbers() == (1, 0, 1)
    refused.mark_subnet("subnet-1")
    assert numbers() == (2, 1, 2)
    refused.mark_capacity_type("spot")
    assert numbers() == (3, 2, 3)
    refused.mark_offering("on-demand", "m5.large", "a")
    assert numbers() == (4, 2, 4)
    await asyncio.sleep(180)
    assert numbers() == (8, 4, 8)


@virtual
async def test_the_smallest_memory_seen_with_an_image_holds() -> None:
    clock = VirtualClock()
    seen, images = DiscoveredMemory(clock), (AMI(id="ami-1"), AMI(id="ami-2"))
    seen.record_memory("m5.large", images, Quantity.parse("7500Mi"))
    seen.record_memory("m5.large", reversed(images), Quantity.parse("7600Mi"))
    assert seen.by_type(images) == {"m5.large": Quantity.parse("7500Mi")}
    assert seen.by_type(images[:1]) == {}
    seen.record_memory("m5.large", images, Quantity.parse("7400Mi"))
    changes = seen.changes
    await asyncio.sleep(59 * 86400)
    seen.record_memory("m5.large", images, Quantity.parse("7400Mi"))
    await asyncio.sleep(59 * 86400)
    assert (seen.by_type(images), seen.changes) == ({"m5.large": Quantity.parse("7400Mi")}, changes)
    await asyncio.sleep(86400)
    assert (seen.by_type(images), seen.changes) == ({}, changes + 1)
