"""Kill -9 between any two writes to pools of a zonal shift: a real process, and a real server over HTTPS."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.runtime.clock import SystemClock
from dovetail.runtime.kubeconfig import connect
from dovetail.sim.aws import SimulatedAws
from support.https_apiserver import secured
from support.zonal_kills import NODES, POOLS, SHIFTS, Asker, clear_after, furnish, killed_at_every_pool, pool


async def test_a_process_killed_before_each_write_to_a_pool_leaves_nothing_behind(tmp_path: Path) -> None:
    with secured(tmp_path) as server:
        kills = await killed_at_every_pool(server.kubeconfig, tmp_path, pools=2)
    # Before the first write and between any two, there and on the way back, where pools are written twice.
    assert kills >= 2 + 4


async def test_a_story_that_fails_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    with secured(tmp_path) as server:
        clock = SystemClock()
        connection = connect(clock, str(server.kubeconfig))
        asker, judge = (Asker(connection.open_transport(name)) for name in ("teller", "judge"))
        meta = {"name": "half-told", "finalizers": ["zonalshift.dovetail.sh/restore"]}
        shift = {"apiVersion": "dovetail.sh/v1alpha1", "kind": "ZoneShift", "metadata": meta}

        async def tell() -> None:
            async with clear_after(asker, "half-told", ["half"]):
                await furnish(asker, SimulatedAws(clock, 0, cluster="test"))
                await asker.made(POOLS, pool("half", []))
                await asker.made(SHIFTS, {**shift, "spec": {"zoneId": "usw2-az1", "kind": "LOCAL"}})
                raise AssertionError("half-way")

        with pytest.raises(AssertionError, match="half-way"):
            await tell()
        left = [f"{SHIFTS}/half-told", f"{POOLS}/half", f"{NODES}/zonal-a"]
        assert [(await judge.ask("GET", path)).status for path in left] == [404] * 3
        await judge.transport.close()
