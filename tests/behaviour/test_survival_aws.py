"""On an AWS that throttles, lies, hangs and takes machines back: in the end all belongs together, or is gone.

Two hundred seeds here, as many as one likes with `python hack/survival.py --aws --seeds 10000`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dovetail.api.nodeclaim import NodeClaim
from dovetail.controllers.nodeclaim.finalization import Finalization
from dovetail.providers.aws.controllers.interruption import InterruptionController
from dovetail.providers.aws.interruption_queue import InterruptionQueueReader, QueueMessage
from support.aws_survival import SWEEP, TROUBLES, Story, tell
from support.survival import Lost

SEEDS, AT_ONCE = 200, 10


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_every_story_ends_well(first: int) -> None:
    told = [tell(seed) for seed in range(first, first + AT_ONCE)]
    assert [story.seed for story in told] == list(range(first, first + AT_ONCE))


def test_the_seeds_meet_every_trouble_and_die_at_every_write() -> None:
    stories = [Story.of(seed) for seed in range(SEEDS)]
    assert {story.trouble for story in stories} == {"killed", *TROUBLES}
    deaths = {story.death for story in stories if story.trouble == "killed"}
    assert deaths == {(write, before) for write in range(1, SWEEP + 1) for before in (True, False)}


def test_one_seed_is_one_story() -> None:
    first, second = tell(3), tell(3)
    assert (first.diary, first.revision) == (second.diary, second.revision)
    assert first.revision > 0


def test_messages_that_are_never_crossed_off_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: InterruptionQueueReader, letters: object) -> int:
        return 0

    monkeypatch.setattr(InterruptionQueueReader, "delete_messages", nothing)
    monkeypatch.setattr("support.aws_survival.CLEARING", 200.0)
    with pytest.raises(Lost, match="empty not reached") as found:
        tell(0)
    assert "replay: python hack/survival.py --aws --seed 0" in str(found.value)


def test_a_warning_that_is_crossed_off_before_it_was_acted_upon_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(self: InterruptionController, letters: Sequence[QueueMessage]) -> None:
        read = [found for letter in letters if (found := self._read_message(letter)) is not None]
        if read:
            await self._mailbox.delete_messages([each.letter for each in read])
        await self._handle_notices(read)

    assert tell(34).costs.unheard == 0
    monkeypatch.setattr(InterruptionController, "_process_messages", work)
    with pytest.raises(Lost, match="warnings unheard"):
        tell(34)


def test_a_claim_that_goes_before_its_machine_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Finalization._terminate_instance

    async def hasty(self: Finalization, claim: NodeClaim) -> tuple[NodeClaim, bool]:
        return (await ended(self, claim))[0], True

    monkeypatch.setattr(Finalization, "_terminate_instance", hasty)
    with pytest.raises(Lost, match="went before its machine"):
        tell(20)
