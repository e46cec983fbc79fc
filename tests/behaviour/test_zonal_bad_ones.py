"""One node, pool, shift or message that nobody can make sense of is set aside; all others are seen to."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.errors import BadInput
from dovetail.zonal.controller import shift_status, shift_tracker
from dovetail.zonal.ingest import signals
from dovetail.zonal.model.events import ShiftSignal, parse_signal
from support.log_lines import log_lines
from support.stage import virtual
from support.zonal import LEDGER, POOLS, RULE, SHIFTS, A, B, C, Shifted, entry

DEEP = "[" * 100_000
NODE_LEDGERS = {
    "a field nobody knows": {"v": 2, "shifts": ["x/y"], "set": {"evil": 1}},
    "no list of shifts": {"v": 2, "shifts": 5, "set": {}},
    "a number without end": '{"v": 2, "shifts": [], "set": {"label": ' + "9" * 5000 + "}}",
    "no JSON": "{",
    "nested without end": DEEP,
    "a later version": {"v": 10**30, "shifts": [], "set": {}},
}
POOL_LEDGERS = {
    "a number for a list": {"v": 1, "base": 5, "ours": 7},
    "requirements without a key": {"v": 1, "base": [{}], "ours": [{"a": 1}]},
    "a delta without a key": {"v": 2, "uid": "u", "base": [], "ours": [], "deltas": [{"after": {}}]},
    "an operator that is a list": {
        "v": 2,
        "uid": "u",
        "base": [],
        "ours": [],
        "deltas": [{"after": {"key": [], "operator": []}}],
    },
    "nested without end": DEEP,
}


def text(note: Any) -> str:
    return note if isinstance(note, str) else json.dumps(note)


async def others_are_served(world: Shifted) -> None:
    """The zone is shifted away by everyone else, and everyone else comes back."""
    await world.shift(A)
    await world.until(lambda: world.away("default") == [A] and "a1" in world.protected(), within=90)
    await world.settle(400)
    assert world.away("default") == [A]
    await world.cancel()
    await world.until(lambda: world.away("default") == [] and "a1" not in world.protected(), within=1800)


@pytest.mark.parametrize("note", NODE_LEDGERS.values(), ids=NODE_LEDGERS)
@virtual
async def test_a_node_with_a_hostile_note_holds_up_no_other(note: Any) -> None:
    """A kubelet may write its own Node's annotations: a node that is taken over can write anything there."""
    world = Shifted()
    world.pool("default", entry("In", A, B, C))
    world.api.patch("nodes", "a0", {"metadata": {"annotations": {LEDGER: text(note)}}})
    async with world.running():
        await others_are_served(world)
        assert world.away("default") == []
        assert "a1" not in world.protected()


@pytest.mark.parametrize("note", POOL_LEDGERS.values(), ids=POOL_LEDGERS)
@virtual
async def test_a_pool_with_a_hostile_note_holds_up_no_other(note: Any) -> None:
    world = Shifted()
    world.pool("default", entry("In", A, B, C))
    world.pool("bad", entry("In", A, B, C))
    world.api.patch(POOLS, "bad", {"metadata": {"annotations": {LEDGER: text(note)}}})
    async with world.running():
        await others_are_served(world)
        assert world.away("default") == []
        assert "a1" not in world.protected()


@virtual
async def test_a_shift_that_ends_beyond_all_time_holds_up_no_other() -> None:
    world = Shifted()
    world.pool("default", entry("In", A, B, C))
    world.local(B, expires="9999-12-31T23:59:59-12:00")
    async with world.running():
        await others_are_served(world)
        assert world.events("ZonalShiftRefused") == [
            (f"local-{world.ids(B)}", "it cannot be followed: OverflowError: date value out of range")
        ]


HOSTILE: dict[str, dict[str, Any]] = {
    "half a character in the zone": {"detail": {"metadata": {"awayFrom": "\ud800"}}},
    "half a character in the id": {"id": "\udfff"},
    "half a character in the cluster": {"resources": ["\ud800"]},
    "a zone of a megabyte": {"detail": {"metadata": {"awayFrom": "a" * 1_000_000}}},
    "a zone with a newline": {"detail": {"metadata": {"awayFrom": "use1-az1\nx"}}},
}


def event(**changes: Any) -> str:
    told = {
        "id": "1",
        "source": "aws.arc-zonal-shift",
        "detail-type": "Autoshift In Progress",
        "resources": ["arn:aws:eks:us-west-2:123456789012:cluster/x"],
        "detail": {"metadata": {"awayFrom": "usw2-az1"}},
    }
    return json.dumps({**told, **changes})


@pytest.mark.parametrize("changes", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_message_is_refused_where_it_is_read(changes: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="reading a message"):
        parse_signal(event(**changes), "sqs")


def test_half_a_character_in_the_body_itself_is_refused_too() -> None:
    with pytest.raises(BadInput, match="half a character"):
        parse_signal('{"source": "\ud800"}', "sqs")


@virtual
async def test_hostile_messages_in_a_queue_stop_no_other() -> None:
    world = Shifted(queue=True)
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        with log_lines() as lines:
            bad = [event(**each) for each in HOSTILE.values()]
            good = event(id="good", resources=[world.arn], detail={"metadata": {"awayFrom": world.ids(A)}})
            for body in (*bad, good):
                await world.aws.call(
                    "sqs", "SendMessage", {"QueueUrl": await url(world), "MessageBody": body}
                )
            await world.until(
                lambda: any(each["spec"]["kind"] == "SIGNAL" for each in world.api.list(SHIFTS)), within=5
            )
            said = lines()
    assert not [line for line in said if "a service failed" in line["message"]]
    assert sum("makes no sense" in line["message"] for line in said) >= len(HOSTILE)


@virtual
async def test_a_message_that_meets_a_bug_holds_up_no_other() -> None:
    world = Shifted(queue=True)
    world.pool("default", entry("In", A, B, C))

    def fail_on_bad(body: str, source: Any) -> ShiftSignal:
        if "bad" in body:
            raise RuntimeError("a bug nobody knows of yet")
        return parse_signal(body, source)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(signals, "parse_signal", fail_on_bad)
        async with world.running():
            good = event(id="good", resources=[world.arn], detail={"metadata": {"awayFrom": world.ids(A)}})
            for body in (event(id="bad"), good):
                asked = {"QueueUrl": await url(world), "MessageBody": body}
                await world.aws.call("sqs", "SendMessage", asked)
            await world.until(lambda: world.api.list(SHIFTS), within=5)
            assert [each["spec"]["kind"] for each in world.api.list(SHIFTS)] == ["SIGNAL"]


@pytest.mark.parametrize("part", ["advance_record", "_build_known_state", "_build_status"])
@virtual
async def test_a_shift_that_meets_a_bug_holds_up_no_other(part: str) -> None:
    """Whether it cannot be read, cannot move on or cannot be written down: it alone stays where it is."""
    world = Shifted()
    world.pool("default", entry("In", A, B, C))
    places: dict[str, Any] = {
        "advance_record": shift_tracker,
        "_build_known_state": shift_tracker.ShiftTracker,
        "_build_status": shift_status.ShiftStatusWriter,
    }
    where = places[part]
    works = getattr(where, part)
    zone_of: dict[str, Callable[[Any], str]] = {
        "advance_record": lambda given: given[0].shift.zone_id,
        "_build_known_state": lambda given: given[1].spec.zone_id,
        "_build_status": lambda given: given[1].record.shift.zone_id,
    }

    def fail_in_zone_b(*given: Any, **named: Any) -> Any:
        if zone_of[part](given) == world.ids(B):
            raise RuntimeError("a bug nobody knows of yet")
        return works(*given, **named)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(where, part, fail_in_zone_b)
        world.local(B)
        async with world.running():
            await others_are_served(world)
            assert world.events("ZonalShiftRefused") == [
                (f"local-{world.ids(B)}", "it cannot be followed: RuntimeError: a bug nobody knows of yet")
            ]


async def url(world: Shifted) -> str:
    return str((await world.aws.call("sqs", "GetQueueUrl", {"QueueName": RULE}))["QueueUrl"])
