"""Kill -9 between any two writes to pools of a zonal shift: a real process, and a real server over HTTPS."""

from __future__ import annotations

from pathlib import Path

from support.https_apiserver import secured
from support.zonal_kills import killed_at_every_pool


async def test_a_process_killed_before_each_write_to_a_pool_leaves_nothing_behind(tmp_path: Path) -> None:
    with secured(tmp_path) as server:
        kills = await killed_at_every_pool(server.kubeconfig, tmp_path, pools=2)
    # Before the first write and between any two, there and on the way back, where pools are written twice.
    assert kills >= 2 + 4
