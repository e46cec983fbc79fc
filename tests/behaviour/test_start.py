"""A process that cannot see everything yet says so, and does nothing."""

from __future__ import annotations

import json

import pytest

from dovetail.runtime import logs
from dovetail.sim.faults import FaultRule
from support.builders import nodepool, pod
from support.world import POOLS, Scene, virtual


def test_a_cache_that_does_not_fill_is_named_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure_logging("info", ("stdout",))

    @virtual
    async def play() -> None:
        scene = Scene()
        scene.trouble(FaultRule(trouble="unavailable", resources=(POOLS,), end=70))
        async with scene.running():
            scene.apply(nodepool(), pod("web"))
            await scene.settle(65)
            assert scene.claims() == []
            await scene.settle(120)
            assert scene.node_of("web")

    play()
    lines = [json.loads(each) for each in capsys.readouterr().out.splitlines()]
    waits = [each["kinds"] for each in lines if each["message"] == "still waiting for a first list"]
    assert waits
    assert set(map(tuple, waits)) == {("NodePool",)}
