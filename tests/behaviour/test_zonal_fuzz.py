"""Every event of a shift lost, repeated, late or out of order: the end is always the same."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from dovetail.zonal.model.events import parse_signal
from support.stage import virtual
from support.zonal import A, B, C, Shifted, entry
from support.zonal_stores import Kept

RECORDED = ("Manual Shift Started", "Manual Shift Updated", "Manual Shift Canceled")


def _body(world: Shifted, named: str, number: int) -> str:
    return json.dumps(
        {
            "id": f"{named}-{number}",
            "detail-type": named,
            "source": "aws.arc-zonal-shift",
            "resources": [world.arn],
            "detail": {"metadata": {"awayFrom": world.ids(A)}},
        }
    )


def _story(seed: int) -> list[tuple[float, str, int]]:
    """When which message arrives, if at all: each up to three times, up to half an hour late."""
    chance = Random(seed)
    return sorted(
        (chance.uniform(0, 1800), named, number)
        for named in RECORDED
        for number in range(chance.randint(0, 2))
        for _ in range(chance.randint(1, 3))
    )


@pytest.mark.parametrize("seed", range(12))
@virtual
async def test_whatever_becomes_of_the_events_the_end_is_the_same(seed: int) -> None:
    world = Kept(("Cluster", "DynamoDB", "Mirror")[seed % 3], seed=seed)
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        before: Any = (world.wanted(), [world.marks(name) for name in ("a0", "a1", "b0")])
        story, began, active = _story(seed), world.clock.monotonic(), False
        await world.shift(A)
        cancelled = False
        for when, named, number in [*story, (2000.0, "", 0)]:
            if when > 700 and not cancelled:
                await world.settle(max(began + 700 - world.clock.monotonic(), 0))
                active, cancelled = world.phase() == "Active", True
                assert world.away() == [A]
                await world.cancel()
            await world.settle(max(began + when - world.clock.monotonic(), 0))
            if named:
                await world.zonal.signals.put_signal(parse_signal(_body(world, named, number), "sqs"))
        await world.restored()

        assert active
        assert (world.wanted(), [world.marks(name) for name in ("a0", "a1", "b0")]) == before
        assert world.protected() == []
