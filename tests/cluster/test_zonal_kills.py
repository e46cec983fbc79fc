"""Kill -9 between any two writes to pools of a zonal shift, with a real process and a real control plane."""

from __future__ import annotations

from pathlib import Path

from support.zonal_kills import killed_at_every_pool


async def test_a_process_killed_before_each_write_to_a_pool_leaves_nothing_behind(
    kubeconfig: Path, tmp_path: Path
) -> None:
    # Before the first write and between any two, there and on the way back, where pools are written twice.
    assert await killed_at_every_pool(kubeconfig, tmp_path) >= 3 + 6
