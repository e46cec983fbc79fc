"""A zone is shifted away and comes back: what happens to pools and nodes, with a simulated ARC."""

from __future__ import annotations

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
