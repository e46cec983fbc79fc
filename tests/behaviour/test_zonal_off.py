"""Zonal shift switched off in the middle of a shift: everything is undone, with less that is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.runtime.transport import ApiReply, ApiRequest
from dovetail.settings import read_settings
from support.aws import CLUSTER
from support.stage import virtual
from support.zonal import LEDGER, POOLS, SHIFTS, A, B, C, entry
from support.zonal_stores import Frozen, Kept

FORBIDDEN = (
    b'{"kind":"Status","status":"Failure","reason":"Forbidden","code":403,"message":"no rule grants it"}'
)


class Bare(Frozen):
    """An API server that no longer lets this process near ZoneShifts."""

    async def send(self, request: ApiRequest) -> ApiReply:
        if "/zoneshifts" in request.path and self.world.options.enabled is False:
            return ApiReply(403, FORBIDDEN, {})
        return await super().send(request)


class Stripped(Kept):
    reached = Bare


async def active(world: Kept) -> bytes:
    before = world.wanted()
    await world.shift(A)
    await world.until(lambda: world.phase() == "Active", within=90)
    assert world.away() == [A]
    return before


@pytest.mark.parametrize("protect", [True, False], ids=["nodes and pools", "pools alone"])
@pytest.mark.spec("zonal-E29")
@virtual
async def test_e29_what_was_done_is_undone_even_when_zone_shifts_may_not_be_seen(protect: bool) -> None:
    world = Stripped(protect=protect)
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        before = await active(world)
        await world.killed(enabled=False)
        await world.until(lambda: world.wanted() == before and not world.protected(), within=1800)
        world.transport.written.clear()
        await world.settle(1200)
        assert world.transport.written == []


@pytest.mark.parametrize("store", ["Cluster", "DynamoDB", "Mirror"])
@pytest.mark.spec("zonal-E29")
@virtual
async def test_e29_with_its_permissions_the_records_say_who_ended_it(store: str) -> None:
    world = Kept(store)
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        before = await active(world)
        await world.killed(enabled=False)
        await world.restored()
        assert (world.wanted(), world.protected()) == (before, [])
        assert [each["status"]["endReason"] for each in world.shifts()] == ["Operator"]


@pytest.mark.spec("zonal-E29")
@virtual
async def test_e29_switched_on_again_the_shift_is_followed_again() -> None:
    world = Kept("Cluster")
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        await active(world)
        await world.killed(enabled=False)
        await world.restored()
        await world.killed(enabled=True)
        await world.until(lambda: world.away() == [A], within=90)
        assert world.phase() in ("Applying", "Active")


@virtual
async def test_what_a_process_before_left_on_pools_alone_is_found_at_the_start() -> None:
    """Objects of shifts may be gone, and the notes of the pools are all there is."""
    world = Kept("Cluster", protect=False)
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        before = await active(world)
        await world.cancel()
        for each in world.api.list(SHIFTS):
            world.api.patch(SHIFTS, each["metadata"]["name"], {"metadata": {"finalizers": None}})
            world.api.delete(SHIFTS, each["metadata"]["name"])
        await world.killed()
        await world.until(lambda: world.wanted() == before, within=60)
        assert LEDGER not in (world.api.get(POOLS, "default")["metadata"].get("annotations") or {})


def test_the_flag_is_known_by_both_its_names() -> None:
    def told(*flags: str) -> Any:
        return read_settings((f"--cluster-name={CLUSTER}", *flags), {}, provider="aws").zonal_shift_on_disable

    assert (told(), told("--on-disable=leave"), told("--zonal-shift-on-disable=leave")) == (
        "restore",
        "leave",
        "leave",
    )
