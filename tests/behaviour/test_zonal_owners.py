"""Two processes that could shift away from zones in one cluster: each acts upon its own objects only."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from dovetail.zonal.model.shifts import OWNER, STAND_ALONE
from support.log_lines import log_lines
from support.stage import virtual
from support.zonal import LEDGER, POOLS, SHIFTS, A, B, C, Shifted, entry


class Neighbour(Shifted):
    """A second process in the world of a first one: the same cluster, the same ARC."""

    def __init__(self, first: Shifted, **options: Any) -> None:
        self.first = first
        self.clock, self.world, self.aws, self.api = first.clock, first.world, first.aws, first.api
        self.settings, self._neighbours = first.settings, False
        self.options = replace(first.options, **options)
        self._seed, self._lives, self._qps = 7, 0, 0.0
        self._running = None
        self._make()


@asynccontextmanager
async def stand_alone(**options: Any) -> AsyncIterator[Shifted]:
    """`dovetail zonal-shift run`, in whose cluster another process may be started."""
    world = Shifted(owner=STAND_ALONE, **options)
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        yield world


async def shifted(world: Shifted) -> bytes:
    before = world.wanted()
    await world.shift(A)
    await world.until(lambda: world.phase() == "Active", within=90)
    assert (world.away(), world.protected()) == ([A], ["a0", "a1"])
    return before


@pytest.mark.parametrize("protect", [True, False], ids=["nodes and pools", "pools alone"])
@virtual
async def test_a_controller_with_zonal_shift_off_leaves_a_stand_alone_runs_shift_alone(protect: bool) -> None:
    async with stand_alone(protect=protect) as world:
        before = world.wanted()
        await world.shift(A)
        await world.until(lambda: world.phase() == "Active", within=90)
        async with Neighbour(world, enabled=False, owner="controller").running() as off:
            await world.settle(900)
            assert off.transport.written == []
            assert world.away() == [A]
            assert world.phase() == "Active"
            assert world.protected() == (["a0", "a1"] if protect else [])
            await world.cancel()
            await world.restored()
            assert (world.wanted(), world.protected(), off.transport.written) == (before, [], [])


@virtual
async def test_an_operators_wish_is_not_taken_from_whoever_will_follow_it() -> None:
    """A LOCAL shift that nobody has begun is not ended by a controller that follows none."""
    world = Shifted(owner=STAND_ALONE)
    world.pool("default", entry("In", A, B, C))
    async with Neighbour(world, enabled=False, owner="controller").running():
        world.local(A)
        await world.settle(700)
        assert world.phase() == ""
        async with world.running():
            await world.until(lambda: world.phase() == "Active", within=90)
            assert world.away() == [A]
            (shift,) = world.shifts()
            assert shift["metadata"]["annotations"][OWNER] == STAND_ALONE


@virtual
async def test_a_second_owner_is_refused_in_one_sentence_and_buys_nothing_there_either() -> None:
    with log_lines() as lines:
        async with stand_alone() as world:
            before = await shifted(world)
            second = Neighbour(world, mode="Both", owner="controller")
            async with second.running():
                await world.settle(300)
                assert second.transport.written == []
                assert second.gates.is_launch_closed(world.ids(A))
                assert len(world.shifts()) == 1
                ((name, note),) = set(world.events("ZonalShiftRefused"))
                assert name == world.shifts()[0]["metadata"]["name"]
                assert note == (
                    f"shifting away from {world.ids(A)} is left to `dovetail zonal-shift run` or its "
                    "function, which has begun it: two would undo each other's work; switch off one of them, "
                    "that or the controller (ENABLE_ZONAL_SHIFT)"
                )
                await world.cancel()
                await world.restored()
                await world.until(lambda: not second.gates.is_launch_closed(world.ids(A)), within=60)
                assert (world.wanted(), second.transport.written) == (before, [])
        told = [line for line in lines() if line["message"] == "zonal shift is another's"]
    assert [(line["level"], line["error"]) for line in told] == [("ERROR", note)]


@virtual
async def test_the_next_shift_goes_to_whoever_is_left() -> None:
    async with stand_alone() as world:
        await shifted(world)
        await world.settle(400)
        await world.cancel()
        await world.restored()
        await world.stop()
        async with Neighbour(world, owner="controller").running() as second:
            await world.shift(A)
            await second.until(lambda: second.phase() == "Active", within=90)
            notes = json.loads(world.api.get(POOLS, "default")["metadata"]["annotations"][LEDGER])
            assert "owner" not in notes, "the controller's notes read as they always did"
            owners = {each["metadata"]["annotations"][OWNER] for each in world.api.list(SHIFTS)}
            assert owners == {STAND_ALONE, "controller"}
