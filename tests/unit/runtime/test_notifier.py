"""The Notifier in virtual time: patience, limits, and rules that change while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from dovetail.errors import DovetailError, Misconfigured, Refused, Retry, Throttled
from dovetail.history.filters import DueBatch, plan_messages
from dovetail.history.messages import NotifyMessage
from dovetail.history.notify import NotifySink
from dovetail.history.record import DecisionRecord, RecordDraft, RecordIds, RecordKind, stamp_record
from dovetail.runtime.notifier import NOTIFICATIONS, Notifier, NotifierContext
from dovetail.runtime.notify_file import INVALID, NotifyFile
from dovetail.sim.clock import VirtualClock, run_virtual
from support.log_lines import log_lines

GONE, INTERRUPTED = RecordKind.NODE_GONE, RecordKind.INTERRUPTED
HEAD = "apiVersion: dovetail.sh/v1alpha1\nkind: Notify\nsinks:\n"


class Desk:
    """A Notifier at work on a file, and what its sinks were sent."""

    def __init__(self, path: Path, sinks: str, start: datetime | None = None) -> None:
        self.path = path
        self.write(sinks)
        self.clock = VirtualClock(start) if start is not None else VirtualClock()
        self.sent: list[tuple[float, str, DueBatch]] = []
        self.texts: list[str] = []
        self.tries: list[float] = []
        self.fails: Callable[[str, float], DovetailError | None] = lambda sink, second: None
        self.slow = 0.0
        self.leads = True
        self._ids = RecordIds("desk")
        file = NotifyFile(str(path))
        context = NotifierContext(self.clock, self.make_sender, "prod", lambda: self.leads)
        self.notifier = Notifier(file, file.load(), context)
        self.running = asyncio.create_task(self.notifier.run())

    def write(self, sinks: str) -> None:
        self.path.write_text(HEAD + sinks)

    def make_sender(self, sink: NotifySink) -> Any:
        desk = self

        class Sending:
            async def send_message(self, message: NotifyMessage, batch: DueBatch) -> None:
                desk.tries.append(desk.second)
                await asyncio.sleep(desk.slow)
                error = desk.fails(sink.name, desk.second)
                if error is not None:
                    raise error
                desk.sent.append((desk.second, sink.name, batch))
                desk.texts.append(message.body.decode())

        return Sending()

    @property
    def second(self) -> float:
        return round(self.clock.monotonic(), 3)

    def note(self, kind: RecordKind = GONE, subject: str = "node/a", **about: Any) -> DecisionRecord:
        now = self.clock.now()
        record = stamp_record(RecordDraft(kind=kind, subject=subject, **about), self._ids.make_id(now), now)
        self.notifier.note_record(record)
        return record

    def times(self) -> list[float]:
        return [second for second, _, _ in self.sent]

    async def stop(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)


def play(
    path: Path, sinks: str, story: Callable[[Desk], Awaitable[None]], start: datetime | None = None
) -> None:
    async def main() -> None:
        desk = Desk(path / "notify.yaml", sinks, start)
        await desk.clock.sleep(0)
        await story(desk)
        await desk.stop()

    run_virtual(main())


def count(sink: str, result: str) -> float:
    return float(NOTIFICATIONS.labels(sink, result)._value.get())


PLAIN = "- {name: plain, to: stdout, format: text}\n"


def test_a_record_is_told_at_once_and_known_to_be(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        record = desk.note(message="lived 2h")
        assert desk.notifier.list_sinks_told(record.id) == ()
        await desk.clock.sleep(0.1)
        assert desk.texts == ["prod: 00:00:00 node a is gone: lived 2h\n"]
        assert desk.notifier.list_sinks_told(record.id) == ("plain",)

    play(tmp_path, PLAIN, story)


def test_failures_back_off_to_five_minutes_and_end_after_an_hour(tmp_path: Path) -> None:
    given_up, failed = count("plain", "given_up"), count("plain", "failed")

    async def story(desk: Desk) -> None:
        desk.fails = lambda sink, second: Retry("it is away")
        desk.note()
        await desk.clock.sleep(3 * 3600)
        gaps = [after - before for before, after in zip(desk.tries, desk.tries[1:], strict=False)]
        assert gaps[:10] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
        assert set(gaps[9:]) == {300}
        assert 3600 <= desk.tries[-1] < 3900
        assert count("plain", "given_up") == given_up + 1
        assert count("plain", "failed") == failed + len(desk.tries)

    with log_lines() as lines:
        play(tmp_path, PLAIN, story)
        said = lines()
    away = "a sink does not take notifications; they are kept for an hour"
    assert [line["message"] for line in said if line["level"] == "WARN"] == [
        away,  # and again, as it fails for an hour
        away,
        "gave up notifications",
    ]


def test_what_waits_behind_a_sink_that_is_away_is_given_up_an_hour_after_it_was_due(tmp_path: Path) -> None:
    before = count("plain", "given_up")

    async def story(desk: Desk) -> None:
        desk.fails = lambda sink, second: Retry("it is away") if second < 7200 else None
        for number in range(180):  # one a minute, for three hours
            desk.note(subject=f"node/{number}")
            await desk.clock.sleep(60)
        told = [batch.records[0].subject for _, _, batch in desk.sent]
        assert told == [f"node/{number}" for number in range(180 - len(told), 180)]
        assert 115 <= len(told) <= 125
        assert count("plain", "given_up") - before == 180 - len(told)

    play(tmp_path, PLAIN, story)


def test_a_sink_that_fails_holds_up_no_other(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.fails = lambda sink, second: Retry("away") if sink == "bad" else None
        for _ in range(5):
            desk.note()
            await desk.clock.sleep(10)
        assert desk.times() == [0, 10, 20, 30, 40]

    play(tmp_path, "- {name: bad, to: stdout}\n- {name: good, to: stdout}\n", story)


def test_who_asks_for_patience_is_left_alone(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.fails = lambda sink, second: Throttled("429", 1234.0) if second == 0 else None
        desk.note()
        await desk.clock.sleep(2000)
        assert desk.tries == [0, 1234]
        assert desk.times() == [1234]

    play(tmp_path, PLAIN, story)


def test_a_refused_message_is_not_sent_again_and_the_next_one_is(tmp_path: Path) -> None:
    before = count("plain", "refused")

    async def story(desk: Desk) -> None:
        desk.fails = lambda sink, second: Refused("it answered 400") if second == 0 else None
        desk.note()
        await desk.clock.sleep(1)
        desk.note()
        await desk.clock.sleep(1)
        assert desk.tries == [0, 1]
        assert desk.times() == [1]

    play(tmp_path, PLAIN, story)
    assert count("plain", "refused") == before + 1


@pytest.mark.contains_bugs
def test_a_bug_in_a_sender_is_survived_and_its_words_are_not_told(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        def fails(sink: str, second: float) -> None:
            if second < 3:
                raise KeyError("https://hooks.example.test/secret")

        desk.fails = fails
        desk.note()
        await desk.clock.sleep(10)
        assert desk.times() == [3]

    with log_lines() as lines:
        play(tmp_path, PLAIN, story)
        said = str(lines())
    assert "KeyError" in said
    assert "secret" not in said


def test_a_queue_holds_a_thousand_and_counts_what_it_drops(tmp_path: Path) -> None:
    before = count("plain", "dropped")

    async def story(desk: Desk) -> None:
        desk.fails = lambda sink, second: Retry("away") if second < 100 else None
        for number in range(1500):
            desk.note(subject=f"node/{number}")
        await desk.clock.sleep(200)
        assert len(desk.sent) == 1000
        assert desk.sent[-1][2].records[0].subject == "node/1499"
        assert count("plain", "dropped") - before == 500

    play(tmp_path, PLAIN, story)


def test_only_the_leader_sends(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.leads = False
        desk.note()
        await desk.clock.sleep(60)
        assert desk.tries == []
        desk.leads = True
        await desk.clock.sleep(2)
        assert len(desk.sent) == 1
        desk.leads = False
        desk.note()
        await desk.stop()
        assert len(desk.sent) == 1

    play(tmp_path, PLAIN, story)


def test_the_last_words_of_a_process_are_a_digest_before_its_time(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        for number in range(3):
            desk.note(subject=f"node/{number}")
        await desk.clock.sleep(10)
        assert desk.sent == []
        await desk.stop()
        assert [(second, len(batch.records)) for second, _, batch in desk.sent] == [(10, 3)]

    play(tmp_path, "- {name: plain, to: stdout, digest: 5m}\n", story)


def test_a_process_that_ends_waits_three_seconds_for_a_sink_that_hangs(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.slow = 1000
        desk.note()
        await desk.clock.sleep(1)
        await desk.stop()
        assert desk.second == 4

    play(tmp_path, PLAIN, story)


@pytest.mark.spec("NO-5")
def test_a_reclaim_of_200_nodes_is_one_message(tmp_path: Path) -> None:
    sinks = "- {name: five, to: stdout, format: text, digest: 5m}\n"

    async def story(desk: Desk) -> None:
        for number in range(200):
            desk.note(INTERRUPTED, f"node/n-{number}", message="spot interruption")
            await desk.clock.sleep(0.5)
        await desk.clock.sleep(600)
        ((second, _, batch),) = desk.sent
        assert second == 300
        assert len(batch.records) == 200
        (text,) = desk.texts
        lines = text.splitlines()
        assert lines[0] == "prod: 200 decisions: 200 × Interrupted"
        assert len(lines) == 1 + 10 + 1 + 1
        assert lines[-2] == "and 190 more"
        assert lines[-1].startswith(
            "dovetail history --since 2026-01-01T00:00:00Z --until 2026-01-01T00:01:4"
        )

    play(tmp_path, sinks, story)


@pytest.mark.spec("NO-5")
def test_a_digest_links_to_the_dashboard_that_is_named(tmp_path: Path) -> None:
    sinks = "- {name: five, to: stdout, digest: 5m}\ndashboard: https://dovetail.example.test/\n"

    async def story(desk: Desk) -> None:
        desk.note(INTERRUPTED)
        await desk.clock.sleep(400)
        link = "https://dovetail.example.test/history?since=2026-01-01T00:00:00Z&until=2026-01-01T00:00:01Z"
        assert f'"link":"{link}"' in desk.texts[0]

    play(tmp_path, sinks, story)


@pytest.mark.spec("NO-10")
@pytest.mark.parametrize("day", ["2026-03-28", "2026-10-24", "2026-07-01"])
def test_nothing_is_sent_in_quiet_hours_but_exceptions_and_all_of_it_after(tmp_path: Path, day: str) -> None:
    """Also in the nights in which the clocks of the zone are changed."""
    berlin = ZoneInfo("Europe/Berlin")
    evening = datetime.fromisoformat(f"{day}T19:00").replace(tzinfo=berlin).astimezone(UTC)
    begins = 3600
    sinks = (
        "- {name: night, to: stdout, quiet: [{schedule: '0 20 * * *', duration: 10h, "
        "timeZone: Europe/Berlin, except: [Interrupted]}]}\n"
    )

    async def story(desk: Desk) -> None:
        noted, reclaimed = [], []
        for number in range(13 * 6):  # every ten minutes, for thirteen hours
            noted.append((desk.second, desk.note(subject=f"node/{number}").id))
            if number % 12 == 0:
                reclaimed.append((desk.second, desk.note(INTERRUPTED, f"node/{number}").id))
            await desk.clock.sleep(600)
        told = {batch.records[0].id: second for second, _, batch in desk.sent}
        assert set(told) == {each for _, each in noted + reclaimed}
        assert all(told[each] == second for second, each in reclaimed)
        ends = begins + 10 * 3600
        for second, each in noted:
            quiet = begins <= second < ends
            assert told[each] == (ends if quiet else second)

    play(tmp_path, sinks, story, evening)


@pytest.mark.spec("NO-6")
def test_exactly_what_was_planned_from_the_records_is_sent(tmp_path: Path) -> None:
    sinks = """
- name: savings
  to: stdout
  when:
  - {kinds: [NodeGone], reasons: [Underutilized], pools: [prod-*], minSaving: "0.10"}
- {name: warnings, to: stdout, when: [{severity: warning}], digest: 5m}
- {name: night, to: stdout, quiet: [{schedule: "0 2 * * *", duration: 4h, except: [Interrupted]}]}
"""

    async def story(desk: Desk) -> None:
        records = []
        for number in range(400):
            kind = list(RecordKind)[number * 7 % len(RecordKind)]
            about = {
                "reason": ("Underutilized", "Empty", "Drifted")[number % 3],
                "pool": ("prod-a", "prod-b", "test")[number * 5 % 3 if number % 2 else 0],
                "price_before": 0.3,
                "price_after": 0.05 * (number % 6),
            }
            records.append(desk.note(kind, f"node/{number}", **about))
            records.append(desk.note(GONE, f"node/gone-{number}", **about))
            await desk.clock.sleep(97)
        await desk.clock.sleep(86_400)
        notify = NotifyFile(str(desk.path)).load()
        planned = plan_messages(notify.sinks, records, desk.clock.now())
        start = desk.clock.now() - timedelta(seconds=desk.second)
        expected = {
            (round((each.time - start).total_seconds(), 3), each.sink.name, each.batch.records)
            for each in planned
        }
        sent = {(second, sink, batch.records) for second, sink, batch in desk.sent}
        assert sent == expected
        assert len(sent) == len(desk.sent) == len(planned)
        assert {sink for _, sink, _ in sent} == {"savings", "warnings", "night"}

    play(tmp_path, sinks, story)


@pytest.mark.spec("NO-7")
@pytest.mark.parametrize(
    "wrong",
    [
        "- {name: plain, to: slack}\n",
        "- {name: plain, to: stdout, when: [{kinds: [NodeTerminated]}]}\n",
        "- {name: plain\n",
        "- {name: plain, to: stdout, colour: red}\n",
        "\0\0\0",
        None,
    ],
)
def test_a_wrong_edit_leaves_the_rules_and_a_right_one_is_taken(tmp_path: Path, wrong: str | None) -> None:
    async def story(desk: Desk) -> None:
        if wrong is None:
            desk.path.unlink()
        else:
            desk.write(wrong)
        await desk.clock.sleep(60)
        assert INVALID._value.get() == 1
        desk.note()
        await desk.clock.sleep(1)
        assert [sink for _, sink, _ in desk.sent] == ["plain"]
        desk.write("- {name: other, to: stdout}\n")
        await desk.clock.sleep(5)
        assert INVALID._value.get() == 0
        desk.note()
        await desk.clock.sleep(1)
        assert [sink for _, sink, _ in desk.sent] == ["plain", "other"]

    with log_lines() as lines:
        play(tmp_path, PLAIN, story)
        warnings = [line for line in lines() if line["level"] == "WARN"]
    assert [line["message"] for line in warnings] == ["NOTIFY_FILE cannot be used; the rules before it stay"]


@pytest.mark.spec("NO-7")
def test_a_file_that_is_put_back_as_it_was_is_good_again(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        for _ in range(3):
            desk.path.unlink()
            await desk.clock.sleep(5)
            assert INVALID._value.get() == 1
            desk.write(PLAIN)
            await desk.clock.sleep(5)
            assert INVALID._value.get() == 0

    play(tmp_path, PLAIN, story)


@pytest.mark.spec("NO-7")
def test_a_secret_that_is_swapped_by_a_symbolic_link_is_noticed(tmp_path: Path) -> None:
    """As the kubelet does it: a folder with a date, a link to it, and a link to the file below that."""

    def mount(name: str, sinks: str) -> None:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "notify.yaml").write_text(HEAD + sinks)
        fresh = tmp_path / "..data_tmp"
        fresh.symlink_to(name)
        fresh.rename(tmp_path / "..data")

    async def main() -> None:
        mount("..2026_01", PLAIN)
        mounted = tmp_path / "notify.yaml"
        mounted.symlink_to("..data/notify.yaml")
        desk = Desk(tmp_path / "unused.yaml", PLAIN)
        file = NotifyFile(str(mounted))
        notifier = Notifier(file, file.load(), NotifierContext(desk.clock, desk.make_sender, "prod"))
        running = asyncio.create_task(notifier.run())
        mount("..2026_02", "- {name: swapped, to: stdout}\n")
        await desk.clock.sleep(5)
        desk.notifier = notifier
        desk.note()
        await desk.clock.sleep(1)
        assert [sink for _, sink, _ in desk.sent] == ["swapped"]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await desk.stop()

    run_virtual(main())


def test_what_a_changed_sink_has_not_sent_it_sends_by_its_new_rules(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.fails = lambda sink, second: Retry("away") if second < 30 else None
        for number in range(4):
            desk.note(GONE if number % 2 else INTERRUPTED, f"node/{number}")
        await desk.clock.sleep(10)
        desk.write("- {name: plain, to: stdout, when: [{kinds: [Interrupted]}]}\n")
        await desk.clock.sleep(60)
        assert [batch.records[0].subject for _, _, batch in desk.sent] == ["node/0", "node/2"]

    play(tmp_path, PLAIN, story)


def test_a_sink_that_is_not_touched_by_a_change_notices_nothing(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.note()
        await desk.clock.sleep(100)
        desk.write("- {name: five, to: stdout, digest: 5m}\n- {name: new, to: stdout}\n")
        await desk.clock.sleep(250)
        assert [(second, sink) for second, sink, _ in desk.sent] == [(300, "five")]

    play(tmp_path, "- {name: five, to: stdout, digest: 5m}\n- {name: old, to: stdout, digest: 10m}\n", story)


def test_a_file_that_cannot_be_read_at_the_start_says_its_line(tmp_path: Path) -> None:
    path = tmp_path / "notify.yaml"
    path.write_text(HEAD + "- name: a\n  to: stdout\n  when:\n  - kinds: [NodeTerminated]\n")
    with pytest.raises(
        Misconfigured, match='line 7: there is no kind "NodeTerminated"; did you mean NodeGone'
    ):
        NotifyFile(str(path)).load()
    path.write_text(HEAD + "- {name: a, to: slack}\n- {name: A, to: b, digest: x}\n")
    with pytest.raises(Misconfigured, match="dovetail validate -f "):
        NotifyFile(str(path)).load()
    with pytest.raises(Misconfigured, match="No such file"):
        NotifyFile(str(tmp_path / "none")).load()
    path.write_bytes(b"#" * (300 << 10))
    with pytest.raises(Misconfigured, match="longer than 256 KiB"):
        NotifyFile(str(path)).load()
