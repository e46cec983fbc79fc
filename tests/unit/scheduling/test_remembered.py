"""Results are found again by identity, and let go when nobody asks."""

from __future__ import annotations

from dovetail.scheduling.remembered import Remembered


def test_a_result_lives_as_long_as_it_is_asked_for() -> None:
    memory: Remembered[str] = Remembered()
    one, other = ["same"], ["same"]
    memory.put("found", one)
    for _ in range(3):
        assert memory.get(one) == "found"
        memory.turn()
    assert memory.get(other) is None


def test_two_turns_without_asking_and_it_is_gone() -> None:
    memory: Remembered[int] = Remembered()
    value = object()
    memory.put(1, value, value)
    memory.turn()
    memory.turn()
    assert memory.get(value, value) is None
