"""Results are found again by identity, and let go when nobody asks."""

from __future__ import annotations

from dovetail.scheduling.model.decision_cache import IdentityCache


def test_a_result_lives_as_long_as_it_is_asked_for() -> None:
    memory: IdentityCache[str] = IdentityCache()
    one, other = ["same"], ["same"]
    memory.put("found", one)
    for _ in range(3):
        assert memory.get(one) == "found"
        memory.age_entries()
    assert memory.get(other) is None


def test_two_turns_without_asking_and_it_is_gone() -> None:
    memory: IdentityCache[int] = IdentityCache()
    value = object()
    memory.put(1, value, value)
    memory.age_entries()
    memory.age_entries()
    assert memory.get(value, value) is None
