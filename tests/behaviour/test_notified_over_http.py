"""Messages over real HTTP to a receiver on loopback: digests, rules and quiet hours, failures and waits.

The clock of the Notifier is set by the test; what it waits for in virtual hours is there in milliseconds.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from aiohttp import web

from dovetail.app.notifications import SinkSenders
from dovetail.history.chain import DecisionChain
from dovetail.history.record import DecisionRecord, RecordDraft, RecordIds, RecordKind, stamp_record
from dovetail.runtime import notifier as notifiers
from dovetail.runtime import senders
from dovetail.runtime.notifier import NOTIFICATIONS, Notifier, NotifierContext
from dovetail.runtime.notify_file import NotifyFile
from support.commands import dovetail
from support.log_lines import log_lines
from support.webhooks import SECRET, Receiver, answer, receive

HEAD = "apiVersion: dovetail.sh/v1alpha1\nkind: Notify\ndashboard: https://dovetail.example.test\nsinks:\n"
GONE, INTERRUPTED = RecordKind.NODE_GONE, RecordKind.INTERRUPTED
START = datetime(2026, 11, 2, tzinfo=UTC)


class SetClock:
    """A clock that a test sets. Whoever sleeps sleeps for a moment, and the time of day passes meanwhile."""

    def __init__(self, start: datetime) -> None:
        self.time = start
        self.slept: list[float] = []

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return (self.time - START).total_seconds()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0.005)


class Desk:
    """A Notifier that posts to a receiver, and hears of records when the test says."""

    def __init__(self, receiver: Receiver, clock: SetClock, notifier: Notifier) -> None:
        self.receiver, self.clock, self.notifier = receiver, clock, notifier
        self.records: list[DecisionRecord] = []
        self._ids = RecordIds("desk")

    def note(self, kind: RecordKind, subject: str, **about: Any) -> DecisionRecord:
        now = self.clock.now()
        made = stamp_record(RecordDraft(kind=kind, subject=subject, **about), self._ids.make_id(now), now)
        self.records.append(made)
        self.notifier.note_record(made)
        return made

    async def pass_time(self, length: timedelta) -> None:
        """Let that much time pass, and every worker look at the clock."""
        self.clock.time += length
        await asyncio.sleep(0.15)

    async def until(self, true: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not true():  # noqa: ASYNC110 (nobody tells when it is so)
                await asyncio.sleep(0.01)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [post.json() for post in self.receiver.posts]


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifiers, "LOOK_SECONDS", 0.01)


@asynccontextmanager
async def desk_with(
    folder: Path, sinks: str, start: datetime = START, manners: Callable[..., Awaitable[Any]] | None = None
) -> AsyncIterator[Desk]:
    async with receive() as receiver:
        receiver.manners = manners
        path = folder / "notify.yaml"
        await asyncio.to_thread(path.write_text, HEAD + sinks.replace("URL", receiver.url))
        clock, file = SetClock(start), NotifyFile(str(path))
        ways = SinkSenders(clock, "prod")
        context = NotifierContext(clock, ways.make_sender, "prod", close=ways.close)
        notifier = Notifier(file, file.load(), context)
        running = asyncio.create_task(notifier.run())
        await asyncio.sleep(0)
        try:
            yield Desk(receiver, clock, notifier)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def count(sink: str, result: str) -> float:
    return float(NOTIFICATIONS.labels(sink, result)._value.get())


@pytest.mark.spec("NO-5")
async def test_a_reclaim_of_200_nodes_is_one_post_though_the_receiver_fails_at_first(tmp_path: Path) -> None:
    failing = [answer(500), answer(503, {"Retry-After": "7"}), answer(500)]

    async def manners(request: web.Request) -> web.StreamResponse:
        return await (failing.pop(0) if failing else answer(204))(request)

    async with desk_with(tmp_path, "- {name: five, to: URL, digest: 5m}\n", manners=manners) as desk:
        before = count("five", "sent")
        for number in range(200):
            desk.note(INTERRUPTED, f"node/n-{number}", message="spot interruption")
        await desk.pass_time(timedelta(minutes=4))
        assert desk.receiver.posts == [], "nothing is sent before the five minutes are over"
        await desk.pass_time(timedelta(minutes=1, seconds=1))
        await desk.until(lambda: count("five", "sent") > before)
        await desk.pass_time(timedelta(hours=1))
        assert len({post.body for post in desk.receiver.posts}) == 1, "each try has the same message"
        assert len(desk.receiver.posts) == 4
        event = desk.events[-1]
        data = event["data"]
        assert event["type"] == "sh.dovetail.decision.Digest.v1"
        assert (data["count"], len(data["records"])) == (200, 10)
        assert data["link"].startswith("https://dovetail.example.test/history?since=2026-11-02T00:00:00Z")
        waits = [each for each in desk.clock.slept if each != notifiers.WATCH_SECONDS]
        assert waits == [1.0, 7.0, 4.0], "doubled each time, and as long as the receiver asks"
        assert desk.notifier.list_sinks_told(desk.records[0].id) == ("five",)


@pytest.mark.spec("NO-5")
async def test_a_receiver_that_does_not_answer_is_left_after_its_time_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(senders, "SECONDS", 0.3)
    hanging = [True]

    async def manners(request: web.Request) -> web.StreamResponse:
        if hanging:
            hanging.pop()
            await asyncio.sleep(60)
        return web.Response(status=204)

    headers = f"{{Authorization: {{file: {tmp_path}/token}}, X-Team: blue}}"
    await asyncio.to_thread((tmp_path / "token").write_text, "Bearer xoxb-token-777\n")
    with log_lines() as lines:
        async with desk_with(
            tmp_path, f"- {{name: slow, to: URL, headers: {headers}}}\n", manners=manners
        ) as desk:
            record = desk.note(GONE, "node/a", reason="Underutilized", pool="prod-a")
            await desk.receiver.wait_for(2, 60)
            await desk.until(lambda: desk.notifier.list_sinks_told(record.id))
            first, second = desk.receiver.posts
        told = "\n".join(map(str, lines()))
    assert first.body == second.body
    assert second.headers["Content-Type"] == "application/cloudevents+json"
    assert (second.headers["Authorization"], second.headers["X-Team"]) == ("Bearer xoxb-token-777", "blue")
    assert second.json()["id"] == record.id
    assert second.json()["source"] == "/dovetail/prod"
    assert "no answer within" in told
    assert all(secret not in told for secret in (SECRET, "xoxb-token-777", "127.0.0.1"))


def write_log(folder: Path, records: list[DecisionRecord]) -> str:
    """The records as a leader's log has them."""
    chain = DecisionChain()
    began = stamp_record(RecordDraft(RecordKind.TERM_BEGAN, "log/a"), RecordIds("a").make_id(START), START)
    lines = [chain.begin_term(began, None), *(chain.link_record(each) for each in records)]
    folder.mkdir()
    (folder / f"decisions-{START:%Y%m%d-%H}.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    return str(folder)


@pytest.mark.spec("NO-6")
async def test_what_is_posted_is_what_notify_show_says_of_the_log(tmp_path: Path) -> None:
    sinks = (
        "- name: savings\n"
        "  to: URL\n"
        "  when:\n"
        '  - {kinds: [NodeGone], reasons: [Underutilized], pools: [prod-*], minSaving: "0.10"}\n'
        "  - {severity: warning, pools: [team-?]}\n"
    )
    async with desk_with(tmp_path, sinks) as desk:
        for number in range(120):
            kind = (GONE, INTERRUPTED, RecordKind.NODE_READY)[number % 3]
            desk.note(
                kind,
                f"node/{number}",
                reason=("Underutilized", "Empty")[number % 2],
                pool=("prod-a", "test", "team-x", "team-xy", "prod-")[number % 5],
                price_before=0.3,
                price_after=0.05 * (number % 7),
            )
            desk.clock.time += timedelta(seconds=1)
        log = await asyncio.to_thread(write_log, tmp_path / "log", desk.records)
        file = str(tmp_path / "notify.yaml")
        arguments = ("notify", "show", "--file", file, "--from", log, "--since", "2026-11-01")
        ended = await asyncio.to_thread(dovetail, *arguments, "-o", "json")
        assert ended.code == 0, ended.err
        shown = [each["records"] for each in json.loads(ended.out)["messages"]]
        assert 5 < len(shown) < 60
        await desk.receiver.wait_for(len(shown), 60)
        await desk.pass_time(timedelta(minutes=1))
        assert [[event["id"]] for event in desk.events] == shown


@pytest.mark.spec("NO-10")
@pytest.mark.parametrize("day", ["2026-03-28", "2026-10-24"])
async def test_a_night_in_which_clocks_change_is_quiet_to_its_end(tmp_path: Path, day: str) -> None:
    """Ten hours from 20:00 in Berlin are ten hours, whatever its clocks say at their end."""
    quiet = "{schedule: '0 20 * * *', duration: 10h, timeZone: Europe/Berlin, except: [Interrupted]}"
    evening = datetime.fromisoformat(f"{day}T19:30").replace(tzinfo=ZoneInfo("Europe/Berlin"))
    async with desk_with(
        tmp_path, f"- {{name: night, to: URL, quiet: [{quiet}]}}\n", evening.astimezone(UTC)
    ) as desk:
        early = desk.note(GONE, "node/early")
        await desk.receiver.wait_for(1, 60)
        await desk.pass_time(timedelta(minutes=31))
        night = []
        for hour in range(10):
            night.append(desk.note(GONE, f"node/night-{hour}").id)
            if hour == 6:
                urgent = desk.note(INTERRUPTED, "node/urgent")
                await desk.receiver.wait_for(2, 60)
            if hour < 9:
                await desk.pass_time(timedelta(hours=1))
        await desk.pass_time(timedelta(minutes=58))
        assert [each["id"] for each in desk.events] == [early.id, urgent.id], (
            "ten hours less a minute are over"
        )
        await desk.pass_time(timedelta(minutes=2))
        await desk.receiver.wait_for(12, 60)
        assert [each["id"] for each in desk.events] == [early.id, urgent.id, *night]
