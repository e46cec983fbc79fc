"""The way to the embedded server without a socket: as over HTTP, faults included."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import msgspec
import pytest

from dovetail.errors import Retry
from dovetail.runtime.transport import ApiRequest
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.faults import FaultRule, FaultStorm
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.transport import LocalTransport
from support import apiserver

PODS = "/api/v1/namespaces/default/pods"


class Desk:
    """A server and the way there."""

    def __init__(self, *rules: FaultRule) -> None:
        self.clock = VirtualClock()
        self.storm = FaultStorm(self.clock, rules)
        self.server = ApiServer(self.clock, Random(1), faults=self.storm)
        self.api = self.server.build_local_client("someone")
        self.transport = LocalTransport(self.server, "tester/1")

    async def post(self, name: str = "web", patience: float = 60) -> int:
        body = msgspec.json.encode(apiserver.pod(name))
        return (await self.transport.send(ApiRequest("POST", PODS, body=body, timeout=patience))).status

    def names(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.api.list("pods")]

    async def first_lines(self, query: dict[str, str], seconds: float = 1) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        async with self.transport.stream(ApiRequest("GET", PODS, {"watch": "true"} | query)) as lines:
            assert lines.status == 200
            try:
                async with asyncio.timeout(seconds):
                    async for batch in lines:
                        found += [msgspec.json.decode(line) for line in batch]
            except TimeoutError:
                return found
        return found


def told(story: Callable[[Desk], Awaitable[None]], *rules: FaultRule) -> None:
    async def main() -> None:
        await story(Desk(*rules))

    run_virtual(main())


def test_requests_are_answered_as_over_http() -> None:
    async def story(desk: Desk) -> None:
        assert await desk.post() == 201
        assert await desk.post() == 409
        reply = await desk.transport.send(ApiRequest("GET", f"{PODS}/web"))
        assert msgspec.json.decode(reply.body)["metadata"]["name"] == "web"
        listed = await desk.transport.send(ApiRequest("GET", "/api/v1/pods", {"limit": "1"}))
        assert msgspec.json.decode(listed.body)["kind"] == "PodList"
        assert (await desk.transport.send(ApiRequest("GET", "/apis/nowhere/v1/x"))).status == 404
        assert (await desk.transport.send(ApiRequest("GET", "/api/v1/nowhere"))).status == 404
        assert (await desk.transport.send(ApiRequest("GET", "/version"))).status == 200
        (manager,) = msgspec.json.decode(reply.body)["metadata"]["managedFields"]
        assert manager["manager"] == "tester", "the client's own name, as its agent gives it"

    told(story)


def test_a_watch_is_live_and_ends_in_its_time() -> None:
    async def story(desk: Desk) -> None:
        await desk.post("a")
        watching = asyncio.create_task(desk.first_lines({"timeoutSeconds": "30"}, seconds=100))
        await desk.clock.sleep(1)
        await desk.post("b")
        found = await watching
        assert [(event["type"], event["object"]["metadata"]["name"]) for event in found] == [
            ("ADDED", "a"),
            ("ADDED", "b"),
        ]
        assert desk.clock.monotonic() == pytest.approx(30)

    told(story)


def test_a_watch_that_is_left_is_no_longer_fed() -> None:
    async def story(desk: Desk) -> None:
        await desk.first_lines({})
        bucket = desk.server.store.get_bucket("pods")
        assert not bucket.listeners

    told(story)


def test_a_held_up_request_takes_its_time_and_is_answered() -> None:
    async def story(desk: Desk) -> None:
        assert await desk.post() == 201
        assert 1 <= desk.clock.monotonic() <= 3

    told(story, FaultRule(trouble="latency", amount=2, count=1))


def test_a_request_whose_sender_gave_up_still_arrives() -> None:
    async def story(desk: Desk) -> None:
        with pytest.raises(Retry, match="no answer in time"):
            await desk.post(patience=1)
        assert desk.names() == []
        await desk.clock.sleep(40)
        assert desk.names() == ["web"]

    told(story, FaultRule(trouble="latency", amount=20, count=1))


def test_a_watch_whose_opener_gave_up_is_closed_when_it_opens() -> None:
    async def story(desk: Desk) -> None:
        opening = asyncio.create_task(desk.first_lines({}))
        await desk.clock.sleep(1)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        await desk.clock.sleep(60)
        assert not desk.server.store.get_bucket("pods").listeners

    told(story, FaultRule(trouble="latency", amount=20, count=1))


def test_a_reset_before_the_work_leaves_nothing_and_one_after_it_leaves_all() -> None:
    async def story(desk: Desk) -> None:
        with pytest.raises(Retry, match="connection was reset"):
            await desk.post("a")
        assert desk.names() == []
        with pytest.raises(Retry, match="connection was reset"):
            await desk.post("b")
        assert desk.names() == ["b"]

    told(story, FaultRule(trouble="reset", count=1), FaultRule(trouble="lost-reply", count=1))


def test_a_late_answer_comes_after_the_work_was_done() -> None:
    async def story(desk: Desk) -> None:
        with pytest.raises(Retry, match="no answer in time"):
            await desk.post(patience=1)
        assert desk.names() == ["web"]

    told(story, FaultRule(trouble="late-reply", amount=20, count=1))


def test_streams_break_off_or_expire_when_told_to() -> None:
    async def story(desk: Desk) -> None:
        for name in "abc":
            await desk.post(name)
        with pytest.raises(Retry, match="broke off"):
            await desk.first_lines({})
        found = await desk.first_lines({})
        assert (found[-1]["type"], found[-1]["object"]["code"]) == ("ERROR", 410)

    told(
        story,
        FaultRule(trouble="watch-reset", amount=1, count=1),
        FaultRule(trouble="watch-expired", amount=1, count=1),
    )


def test_a_stream_that_is_held_back_tells_everything_late_and_in_order() -> None:
    async def story(desk: Desk) -> None:
        await desk.post("a")
        assert await desk.first_lines({}, seconds=4) == []
        late = await desk.first_lines({}, seconds=40)
        assert [each["object"]["metadata"]["name"] for each in late] == ["a"]
        prompt = await desk.first_lines({})
        assert prompt == late, "the rule was for two streams"

    told(story, FaultRule(trouble="watch-delay", amount=10, count=2))


def test_answers_of_a_fault_carry_its_headers() -> None:
    async def story(desk: Desk) -> None:
        reply = await desk.transport.send(ApiRequest("GET", PODS))
        assert (reply.status, reply.headers["Retry-After"]) == (429, "7")
        async with desk.transport.stream(ApiRequest("GET", PODS, {"watch": "true"})) as lines:
            assert lines.status == 500
            assert b"InternalError" in await lines.read()

    told(story, FaultRule(trouble="throttled", amount=7, count=1), FaultRule(trouble="server-error", count=1))


def test_a_stale_read_shows_what_was() -> None:
    async def story(desk: Desk) -> None:
        await desk.post("a")
        reply = await desk.transport.send(ApiRequest("GET", PODS))
        assert msgspec.json.decode(reply.body)["items"] == []

    told(story, FaultRule(trouble="stale", amount=1))


def test_closing_ends_what_is_on_its_way() -> None:
    async def story(desk: Desk) -> None:
        with pytest.raises(Retry):
            await desk.post(patience=1)
        await desk.transport.close()
        await desk.clock.sleep(60)
        assert desk.names() == []

    told(story, FaultRule(trouble="latency", amount=20, count=1))
