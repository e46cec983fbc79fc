"""No more is delivered than a kill may repeat, and nobody waits for ever."""

from __future__ import annotations

import asyncio

import pytest

from dovetail.bus.queues import UndeletedMessages


def begun(undeleted: UndeletedMessages, *receipts: str) -> asyncio.Task[None]:
    return asyncio.ensure_future(undeleted.admit(receipts))


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_no_more_are_admitted_than_may_be_undeleted() -> None:
    undeleted = UndeletedMessages(3)
    await undeleted.admit(["a", "b"])
    late, later = begun(undeleted, "c", "d"), begun(undeleted, "e")
    await turn()
    assert (len(undeleted), late.done(), later.done()) == (2, False, False)

    undeleted.remove(["a"])
    await turn()
    assert (len(undeleted), late.done(), later.done()) == (3, True, False)
    undeleted.remove(["b", "c"])
    await turn()
    assert later.done()


async def test_what_was_not_delivered_makes_room() -> None:
    undeleted = UndeletedMessages(2)
    await undeleted.admit(["a", "b"])
    waiting = begun(undeleted, "c")
    undeleted.withdraw(["a"])
    await turn()
    assert (len(undeleted), waiting.done()) == (2, True)


async def test_a_message_is_counted_once_and_until_its_last_copy_is_withdrawn() -> None:
    undeleted = UndeletedMessages(1)
    await undeleted.admit(["a"])
    await undeleted.admit(["a"])
    undeleted.withdraw(["a"])
    assert len(undeleted) == 1
    undeleted.withdraw(["a"])
    assert len(undeleted) == 0


async def test_the_second_copy_of_a_message_waits_for_no_room() -> None:
    """Two messages of two copies each: were both second copies to wait, neither would ever be deleted."""
    undeleted = UndeletedMessages(1)
    await undeleted.admit(["x"])
    first = [begun(undeleted, "a"), begun(undeleted, "b")]
    await turn()
    second = [begun(undeleted, "b", "a"), begun(undeleted, "x", "y")]
    await turn()
    assert [each.done() for each in (*first, *second)] == [False, False, False, True]

    undeleted.remove(["x", "y"])
    await turn()
    assert all(each.done() for each in (*first, *second))


async def test_a_batch_that_is_larger_than_all_room_goes_alone() -> None:
    undeleted = UndeletedMessages(2)
    await undeleted.admit(["a"])
    large = begun(undeleted, "b", "c", "d")
    await turn()
    assert not large.done()
    undeleted.remove(["a"])
    await turn()
    assert large.done()


@pytest.mark.parametrize("admitted", [False, True])
async def test_who_is_stopped_while_it_waits_takes_no_room(admitted: bool) -> None:
    undeleted = UndeletedMessages(1)
    await undeleted.admit(["a"])
    stopped, next_one = begun(undeleted, "b"), begun(undeleted, "c")
    await turn()
    if admitted:
        undeleted.remove(["a"])
    stopped.cancel()
    await turn()
    undeleted.remove(["a"])
    await turn()
    assert next_one.done()
    assert len(undeleted) == 1
