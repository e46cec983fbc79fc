"""Events: once per window, repeats counted, floods bounded, and none lost to a hiccup."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import msgspec
import pytest

from dovetail.api.core import Node
from dovetail.api.meta import ObjectMeta
from dovetail.api.pod import Pod
from dovetail.runtime.events import DROPPED, NOTE_LIMIT, EventRecorder
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.transport import ApiRequest
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.faults import FaultRule, FaultStorm
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.transport import LocalTransport
from support.log_lines import log_lines

NODE = Node(metadata=ObjectMeta(name="n1", uid="u1"))


def pod(number: int) -> Pod:
    return Pod(metadata=ObjectMeta(name=f"p{number}", namespace="default", uid=f"pod-{number}"))


class Desk:
    """A recorder at work, and the events that arrive."""

    def __init__(self, *rules: FaultRule) -> None:
        self.clock = VirtualClock()
        self.server = ApiServer(self.clock, Random(1), faults=FaultStorm(self.clock, rules))
        self.recorder = EventRecorder(
            KubeClient(LocalTransport(self.server), self.clock), self.clock, Random(2), instance="pod-1"
        )
        self.running = asyncio.create_task(self.recorder.run())

    def tell(self, note: str = "it rains", reason: str = "Weather", **more: Any) -> None:
        self.recorder.publish_event(NODE, reason, note, **more)

    async def events(self) -> list[dict[str, Any]]:
        await self.clock.sleep(1)
        return self.server.build_local_client("judge").list("events")


def told(story: Callable[[Desk], Awaitable[None]], *rules: FaultRule) -> None:
    async def main() -> None:
        await story(Desk(*rules))

    run_virtual(main())


def test_an_event_says_what_happened_to_whom() -> None:
    async def story(desk: Desk) -> None:
        desk.tell(warning=True)
        (event,) = await desk.events()
        assert event["type"] == "Warning"
        assert (event["reason"], event["message"], event["count"]) == ("Weather", "it rains", 1)
        about = {"kind": "Node", "apiVersion": "v1", "name": "n1", "uid": "u1"}
        assert event["involvedObject"] == about
        assert event["source"]["component"] == "karpenter"
        assert event["metadata"]["namespace"] == "default", "of an object without a namespace"
        assert event["firstTimestamp"] == event["lastTimestamp"]

    told(story)


def test_the_same_event_is_told_once_in_its_window_and_then_counted() -> None:
    async def story(desk: Desk) -> None:
        for _ in range(130):
            desk.tell()
            await desk.clock.sleep(1)
        (event,) = await desk.events()
        assert event["count"] == 2
        assert event["lastTimestamp"] > event["firstTimestamp"]
        await desk.clock.sleep(900)
        desk.tell()
        assert len(await desk.events()) == 2, "after so long it is a new story"

    told(story)


def test_what_counts_as_the_same_is_the_callers_to_say() -> None:
    async def story(desk: Desk) -> None:
        desk.tell("first note", dedupe=("n1",))
        desk.tell("second note", dedupe=("n1",))
        desk.tell("third note", dedupe=("n2",))
        desk.tell("third note", reason="Other", dedupe=("n2",))
        assert [e["message"] for e in await desk.events()].count("second note") == 0
        assert len(await desk.events()) == 3
        await desk.clock.sleep(20)
        desk.tell("fourth note", dedupe=("n1",), window=10)
        latest = {e["message"]: e["count"] for e in await desk.events()}
        assert latest["fourth note"] == 2

    told(story)


def test_nominations_are_thinned_out() -> None:
    async def story(desk: Desk) -> None:
        for number in range(100):
            desk.recorder.publish_event(pod(number), "Nominated", "expected on n1")
        assert len(await desk.events()) == 10
        await desk.clock.sleep(1)
        for number in range(100, 200):
            desk.recorder.publish_event(pod(number), "Nominated", "expected on n1")
        assert len(await desk.events()) == 20
        for number in range(100):
            desk.recorder.publish_event(pod(number), "Evicted", "gone")
        assert len(await desk.events()) == 120, "other reasons are not"

    told(story)


def test_what_is_said_of_every_node_takes_turns() -> None:
    async def story(desk: Desk) -> None:
        def say() -> None:
            for number in range(600):
                about = pod(number)
                desk.recorder.publish_event(
                    about, "Unconsolidatable", "it stays", dedupe=(about.uid,), window=900
                )

        say()
        assert len(await desk.events()) == 500
        await desk.clock.sleep(29)
        say()
        events = await desk.events()
        assert len(events) == 560, "those who were not heard the first time"
        assert len({event["involvedObject"]["name"] for event in events}) == 560

    told(story)


def test_lost_events_are_one_line_a_minute_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(desk: Desk) -> None:
        lines: list[dict[str, Any]] = []
        monkeypatch.setattr(
            desk.recorder._log, "warning", lambda _, **about: lines.append(about), raising=False
        )
        before = DROPPED.labels("Evicted")._value.get()
        for minute in range(2):
            for number in range(1500):
                desk.recorder.publish_event(pod(2000 * minute + number), "Evicted", "gone")
            await desk.clock.sleep(61)
        assert [line["count"] for line in lines] == [500, 500]
        assert lines[1]["reasons"] == {"Evicted": 500}
        assert DROPPED.labels("Evicted")._value.get() - before == 1000

    told(story)


def test_a_storm_of_events_that_cannot_be_published_is_a_warning_a_minute_and_never_an_error() -> None:
    async def story(desk: Desk) -> None:
        for number in range(200):
            desk.recorder.publish_event(pod(number), "Evicted", "gone")
            await desk.clock.sleep(1)

    with log_lines() as lines:
        told(story, FaultRule(trouble="server-error", resources=("events",)))
        said = lines()
    assert {line["level"] for line in said} == {"WARN"}
    assert [line["message"] for line in said] == ["could not publish events"] * 4
    assert sum(line["count"] for line in said) > 10, "each is counted"


def test_many_different_notes_of_one_reason_are_told_as_one() -> None:
    async def story(desk: Desk) -> None:
        for number in range(50):
            desk.tell(f"note {number}")
            await desk.clock.sleep(1)
        events = await desk.events()
        assert len(events) == 11
        combined = next(e for e in events if e["message"].startswith("(combined from similar events): "))
        assert combined["count"] == 40
        assert combined["message"].endswith("note 49")

    told(story)


def test_a_long_note_is_cut() -> None:
    async def story(desk: Desk) -> None:
        desk.tell("x" * 5000)
        (event,) = await desk.events()
        assert len(event["message"]) == NOTE_LIMIT
        assert event["message"].endswith("...")

    told(story)


def test_an_answer_that_was_lost_does_not_publish_twice() -> None:
    async def story(desk: Desk) -> None:
        desk.tell()
        await desk.clock.sleep(130)
        desk.tell()
        (event,) = await desk.events()
        assert event["count"] == 1, "it was there; the repeat found it so"
        await desk.clock.sleep(130)
        desk.tell()
        (event,) = await desk.events()
        assert event["count"] == 3

    told(story, FaultRule(trouble="lost-reply", count=1))


def test_an_event_the_server_has_forgotten_is_told_again_with_its_count() -> None:
    async def story(desk: Desk) -> None:
        desk.tell()
        (event,) = await desk.events()
        desk.server.build_local_client("someone").delete("events", event["metadata"]["name"], "default")
        await desk.clock.sleep(130)
        desk.tell()
        (again,) = await desk.events()
        assert again["count"] == 2

    told(story)


def test_trouble_loses_an_event_and_not_the_recorder() -> None:
    async def story(desk: Desk) -> None:
        desk.tell("lost")
        await desk.clock.sleep(5)
        desk.tell("kept")
        assert [e["message"] for e in await desk.events()] == ["kept"]

    told(story, FaultRule(trouble="server-error", count=1))


def test_the_last_words_are_still_published() -> None:
    async def story(desk: Desk) -> None:
        await desk.clock.sleep(1)
        for number in range(5):
            desk.recorder.publish_event(pod(number), "Evicted", "gone")
        desk.running.cancel()
        await asyncio.gather(desk.running, return_exceptions=True)
        assert len(await desk.events()) == 5

    told(story)


def test_more_than_can_wait_is_dropped_and_not_piled_up() -> None:
    async def story(desk: Desk) -> None:
        for number in range(5000):
            desk.recorder.publish_event(pod(number), "Evicted", "gone")
        assert len(await desk.events()) == 1000
        assert len(desk.recorder._told) <= 4096
        assert len(desk.recorder._notes) <= 4096

    told(story)


def test_the_event_can_be_read_through_the_newer_group_too() -> None:
    async def story(desk: Desk) -> None:
        desk.tell()
        await desk.clock.sleep(1)
        reply = await LocalTransport(desk.server).send(ApiRequest("GET", "/apis/events.k8s.io/v1/events"))
        (event,) = msgspec.json.decode(reply.body)["items"]
        assert event["note"] == "it rains"

    told(story)


def test_a_recorder_that_is_muted_publishes_nothing() -> None:
    """A replay plays days of a cluster in which nobody reads events."""

    async def story(desk: Desk) -> None:
        desk.tell("before")
        assert [event["message"] for event in await desk.events()] == ["before"]
        desk.recorder.mute()
        desk.tell("after")
        assert [event["message"] for event in await desk.events()] == ["before"]

    told(story)
