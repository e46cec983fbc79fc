"""A thousand that are ready at once do not keep everyone else waiting for the last of them."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from dovetail.providers.aws.launch import Turns
from support.ec2 import provided


async def test_one_begins_in_each_round_in_the_order_they_asked() -> None:
    turn, begun, seen = Turns(), list[int](), list[int]()

    async def work(number: int) -> None:
        await turn()
        begun.append(number)

    async def other() -> None:
        while len(begun) < 50:
            seen.append(len(begun))
            await asyncio.sleep(0)

    await asyncio.gather(other(), *(work(number) for number in range(50)))
    assert begun == list(range(50))
    # Whoever else is there had a turn after each.
    assert max(after - before for before, after in pairwise(seen)) == 1


async def test_a_burst_of_launches_leaves_turns_for_others() -> None:
    ec2 = await provided()
    rounds = 0

    async def others() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    watching = asyncio.create_task(others())
    claims = [ec2.claim(name=f"default-{number}", cpu="1") for number in range(30)]
    made = await asyncio.gather(*(ec2.cloud.create(claim) for claim in claims))
    watching.cancel()
    assert len({each.provider_id for each in made}) == 30
    assert rounds >= 3 * len(claims)
