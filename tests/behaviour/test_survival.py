"""Killed, cut off, lied to: in the end every pod runs, and machines, claims and nodes belong together.

Two hundred seeds here, as many as one likes with `python hack/survival.py --seeds 10000`.
"""

from __future__ import annotations

import pytest

from dovetail.controllers.base import Result, requeue_after
from dovetail.controllers.nodeclaim.garbage_collection import InstanceGarbageCollection
from dovetail.controllers.nodeclaim.launch import Launch
from dovetail.state.cluster import Cluster
from support.survival import TROUBLES, Lost, Story, tell

SEEDS, AT_ONCE = 200, 10


@pytest.mark.spec("HI-1")
@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_every_story_ends_well(first: int) -> None:
    told = [tell(seed) for seed in range(first, first + AT_ONCE)]
    assert [story.seed for story in told] == list(range(first, first + AT_ONCE))


def test_the_seeds_meet_every_trouble_and_die_at_every_write() -> None:
    stories = [Story.of(seed) for seed in range(SEEDS)]
    assert {story.trouble for story in stories} == {"killed", *TROUBLES}
    deaths = {story.death for story in stories if story.trouble == "killed"}
    assert deaths == {(write, before) for write in range(1, 51) for before in (True, False)}


def test_one_seed_is_one_story() -> None:
    first, second = tell(3), tell(3)
    assert (first.diary, first.revision) == (second.diary, second.revision)
    assert first.revision > 0


def test_a_launch_that_forgets_its_earlier_attempts_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Launch, claim: object) -> None:
        return None

    monkeypatch.setattr(Launch, "_find_earlier_instance", nothing)
    with pytest.raises(Lost, match="launched twice") as found:
        tell(26)
    assert "replay: python hack/survival.py --seed 26" in str(found.value)


def test_orders_that_are_not_remembered_are_found_out_by_what_they_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing(self: Cluster, claim: object, capacity: object = None, pods: object = ()) -> None:
        return None

    assert tell(151).costs.launches <= Story.of(151).pods, "events were late, and nothing was bought twice"
    monkeypatch.setattr(Cluster, "expect_claim", nothing)
    with pytest.raises(Lost, match="machines launched"):
        tell(151)


def test_orphans_that_nobody_collects_are_found_out_by_what_they_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def nothing(self: InstanceGarbageCollection, key: str) -> Result:
        return requeue_after(60.0)

    assert 0 < tell(35).costs.leaked < 120, "the claim was deleted between launch and status write"
    monkeypatch.setattr(InstanceGarbageCollection, "reconcile", nothing)
    with pytest.raises(Lost, match="instance-seconds leaked"):
        tell(35)
