"""A zone is shifted away and comes back: what happens to pools and nodes, with a simulated ARC."""

from __future__ import annotations

import pytest

from support.stage import virtual
from support.zonal import A, B, C, Shifted, entry


@virtual
async def test_nodes_are_protected_pools_edited_and_everything_undone() -> None:
    world = Shifted()
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        before = world.wanted()
        await world.shift(A)
        took = await world.until(lambda: world.phase() == "Active", within=60)

        assert took < 40
        assert world.away() == [A]
        assert world.protected() == ["a0", "a1"]
        assert world.marks("a0") == ("true", "true", True)
        await world.settle(400)
        await world.cancel()
        await world.restored()

        assert world.wanted() == before
        assert world.protected() == []
        assert world.marks("a0") == (None, None, False)


@virtual
async def test_the_shift_says_how_many_nodes_and_pools_were_seen_to() -> None:
    world = Shifted()
    world.pool("default", entry("In", A, B, C))
    world.pool("other", entry("In", B, C))
    async with world.running():
        await world.shift(A)
        await world.until(lambda: world.phase() == "Active", within=60)
        await world.settle(60)
        steps = world.status()["steps"]
        assert steps["nodes"] == {"desired": 2, "done": 2}
        assert steps["nodePools"] == {"desired": 1, "done": 1}


@pytest.mark.spec("zonal-E19")
@pytest.mark.parametrize("mode", ["Offerings", "NodePoolEdit"])
@virtual
async def test_a_pool_whose_only_zone_is_away_says_so(mode: str) -> None:
    world = Shifted(mode=mode)
    world.pool("only", entry("In", A))
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        await world.shift(A)
        await world.until(lambda: world.phase() == "Active", within=60)
        await world.settle(60)
        told = "its only zone is impaired: it launches nothing until the shift ends"
        assert set(world.events("OnlyZoneImpaired")) == {("only", told)}
