"""Absurd values in what histories are read from: one bad line, sink or segment, and all others are served."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from dovetail.controllers.history import DecisionRecorder
from dovetail.history.chain import DecisionChain, LogPart, check_chain, find_log_end
from dovetail.history.filters import SinkQueue, find_sinks
from dovetail.history.log_parts import list_records
from dovetail.history.messages import render_batch
from dovetail.history.notify import Notify, describe_complaint, describe_sink, parse_notify
from dovetail.history.record import DecisionRecord, RecordDraft, RecordIds, RecordKind, stamp_record
from dovetail.history.ring import HistoryQuery
from dovetail.history.telling import tell_rows, tell_sentence
from dovetail.settings import Settings
from support.apiserver import START, HandClock
from support.hostile_values import VALUES, fields_of, spoil
from support.recordings import random_looks, read_back, unzip, write_segments

Json = dict[str, Any]
NOW = START - timedelta(hours=1)
DEEP = "deeper than any stack"
MORE = (
    *("zz", "f" * 24, "F" * 24, "0" * 25, "2026-11-02T03:00:00", "9000-01-01T00:00:00Z", "*" * 300),
    DEEP,
    "\ud800" * 20,
)
SHARE = int(os.environ.get("DOVETAIL_EXAMPLES", "1"))


def dump(document: Json) -> bytes:
    """The document as JSON, with one value nested deeper than Python itself can write."""
    return json.dumps(document).replace(f'"{DEEP}"', "[" * 3_000 + "]" * 3_000).encode()


def absurd(chance: Random) -> list[Any]:
    """Some of the absurd values, others for each field; `make soak` tries more."""
    return [*chance.sample(VALUES, min(10 * SHARE, len(VALUES))), *MORE]


def write_line(number: int) -> bytes:
    """A line of a log as a leader writes it."""
    time = NOW + timedelta(minutes=number)
    draft = RecordDraft(RecordKind.NODE_GONE, f"node/sound-{number}", "Empty", "it is gone", "default")
    record = stamp_record(draft, RecordIds("c1").make_id(time), time, "leader")
    return DecisionChain().link_record(record)


def bad_lines() -> Iterator[tuple[str, bytes]]:
    sound = json.loads(write_line(1))
    for path in dict(fields_of(DecisionRecord)):
        for value in absurd(Random(str(path))):
            yield f"{path}: {value!r:.40}", dump(spoil(sound, path, value))
    for value in (b"", b"null", b"\xff\xfe", b"[" * 100_000, b'{"id":' * 5_000, b"9" * 5_000):
        yield f"{value[:10]!r}", value


def test_whatever_stands_in_a_line_of_a_log_a_leader_knows_the_others_and_leads() -> None:
    before, after = write_line(0), write_line(2)
    for told, bad in bad_lines():
        lines = [before + b"\n", bad + b"\n", after + b"\n"]
        recorder = DecisionRecorder(Settings(), HandClock(), "leader")
        recorder.restore_records(list_records([line[:-1] for line in lines]))
        recorder.begin_term("c1")
        made = recorder.note_decision(RecordDraft(RecordKind.NODE_GONE, "node/new"))
        found = recorder.ring.find_records(HistoryQuery())
        names = {record.subject for record in found}
        assert {"node/sound-0", "node/sound-2", "node/new"} <= names, told
        assert len(made) == 24, told
        rows = tell_rows(found, NOW)
        "\n".join(" ".join(row) for row in rows).encode()  # nothing in it that no terminal can be sent
        assert [tell_sentence(record) for record in found] != []
        for name in ("sound-0", "sound-1", "sound-2"):
            assert recorder.ring.find_records(HistoryQuery(name=name)) or name == "sound-1", told
        assert check_chain([LogPart("log", lines)]).records >= 2, told
        assert find_log_end(b"".join(lines)) is not None, told


SINK: Json = {
    "name": "ops",
    "to": "https://hooks.example.test/x",
    "format": "text",
    "headers": {"Authorization": {"file": "/run/token"}},
    "when": [{"kinds": ["NodeGone"], "pools": ["def*"], "minSaving": "0", "severity": "info"}],
    "digest": "0s",
    "quiet": [{"schedule": "0 20 * * *", "duration": "10h", "timeZone": "Europe/Berlin", "except": []}],
}
NOTIFY: Json = {"apiVersion": "dovetail.sh/v1alpha1", "kind": "Notify", "sinks": [SINK]}


def bad_documents() -> Iterator[tuple[str, bytes]]:
    for path in dict(fields_of(Notify)):
        for value in absurd(Random(str(path))):
            yield f"{path}: {value!r:.40}", dump(spoil(NOTIFY, path, value))


def test_whatever_stands_in_a_notify_file_is_a_complaint_or_can_be_used() -> None:
    assert parse_notify(json.dumps(NOTIFY), "notify.yaml").complaints == ()
    (record,) = list_records([write_line(0)])
    used = 0
    for told, text in bad_documents():
        notify, complaints = parse_notify(text, "notify.yaml")
        assert (notify is None) == bool(complaints), told
        json.dumps([describe_complaint(each) for each in complaints])
        for sink in () if notify is None else notify.sinks:
            used += 1
            json.dumps(describe_sink(sink))
            assert notify is not None
            find_sinks(notify, record)
            queue = SinkQueue(sink)
            queue.add_record(record, NOW)
            for batch in queue.take_due(NOW + timedelta(days=9)):
                assert render_batch(batch, sink, "c", notify.dashboard).body, told
    assert used > 20


def reframe(body: bytes) -> bytes:
    return b"%08x %b\n" % (zlib.crc32(body), body)


def list_paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where something stands in a document."""
    inside: Any = value.items() if isinstance(value, dict) else enumerate(value[:3])
    for step, each in inside:
        yield (*path, step)
        if isinstance(each, dict | list):
            yield from list_paths(each, (*path, step))


@pytest.mark.parametrize("seed", range(3))
def test_whatever_stands_in_a_segment_the_others_are_read_to_their_end(seed: int) -> None:
    chance = Random(f"segments {seed}")
    looks = random_looks(seed, 6)
    first, middle, last = write_segments(looks, 2)
    sound = [at for at, _ in (*looks[:2], *looks[4:])]
    lines = unzip(middle).splitlines()
    for _ in range(40 * SHARE):
        number = chance.choice((0, 0, 1, 2))
        document = json.loads(lines[number][9:])
        path = chance.choice(list(list_paths(document)))
        bad = reframe(dump(spoil(document, path, chance.choice((*VALUES, *MORE)))))
        text = b"".join(bad if at == number else line + b"\n" for at, line in enumerate(lines))
        packing = zlib.compressobj(1, zlib.DEFLATED, 31)
        reader = read_back([first, packing.compress(text) + packing.flush(), last])
        found = [look.at for look in reader.looks()]
        assert [at for at in found if at in sound] == sound, (number, path)
        reader.list_gaps()
