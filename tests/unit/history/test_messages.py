"""What sinks are sent: CloudEvents that keep to the published schema, and texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace

from dovetail.history.filters import DueBatch
from dovetail.history.messages import SCHEMA, build_cloud_event, build_schema, render_message, tell_digest
from dovetail.history.record import DecisionRecord, RecordKind
from support.decision_records import Stamping, one_of_each

PUBLISHED = Path(__file__).parents[3] / "docs" / "reference" / "decision.schema.json"
stamp = Stamping()


def published() -> Any:
    schema = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())


@pytest.mark.spec("NO-11")
@pytest.mark.parametrize("record", one_of_each(), ids=lambda record: str(record.kind))
def test_the_cloud_event_of_every_kind_keeps_to_the_published_schema(record: DecisionRecord) -> None:
    event = json.loads(render_message(DueBatch((record,)), "cloudevents", "prod").body)
    published().validate(event["data"])
    assert event == build_cloud_event(record, "prod")
    assert {
        key: event[key] for key in ("specversion", "id", "source", "type", "subject", "time", "dataschema")
    } == {
        "specversion": "1.0",
        "id": record.id,
        "source": "/dovetail/prod",
        "type": f"sh.dovetail.decision.{record.kind}.v1",
        "subject": "node/a",
        "time": f"2026-06-01T12:00:{record.time.second:02d}.000Z",
        "dataschema": SCHEMA,
    }
    assert event["data"]["kind"] == record.kind
    published().validate(json.loads(json.dumps(event["data"])) | {"seq": 1, "prev": "a" * 64})


@pytest.mark.spec("NO-11")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "NodeTerminated"),
        ("id", "1"),
        ("time", "yesterday"),
        ("subject", "a"),
        ("pods", ["a"] * 21),
        ("seq", "1"),
    ],
)
def test_the_published_schema_refuses_what_is_no_record(field: str, value: object) -> None:
    data = build_cloud_event(stamp(), "prod")["data"] | {field: value}
    with pytest.raises(jsonschema.ValidationError):
        published().validate(data)
    with pytest.raises(jsonschema.ValidationError):
        published().validate({key: each for key, each in data.items() if key != field} | {"id": 5})


def test_the_published_schema_is_that_of_the_record() -> None:
    assert json.loads(PUBLISHED.read_text(encoding="utf-8")) == build_schema()


@pytest.mark.spec("NO-5")
@pytest.mark.parametrize("form", ["slack", "teams", "text", "cloudevents"])
def test_a_digest_has_a_count_a_list_of_ten_and_a_link(form: str) -> None:
    records = tuple(stamp(RecordKind.INTERRUPTED, f"node/n{number:03d}", number) for number in range(200))
    link = "https://dovetail.example.test/history?kind=Interrupted"
    body = render_message(DueBatch(records, digest=True), form, "prod", link).body.decode()
    assert "200" in body
    assert sum(f"n{number:03d}" in body for number in range(200)) == 10
    assert link in body


def test_a_digest_counts_by_kind() -> None:
    records = [*(stamp(RecordKind.INTERRUPTED) for _ in range(2)), stamp()]
    assert tell_digest(records).splitlines()[0] == "3 decisions: 2 × Interrupted, 1 × NodeGone"
    assert "more" not in tell_digest(records)


def test_a_text_says_when_what_and_what_it_saves() -> None:
    record = stamp(message="lived 4h12m", price_before=0.192, price_after=0.0)
    assert render_message(DueBatch((record,)), "text", "prod").body.decode() == (
        "prod: 12:00:00 node a is gone: lived 4h12m; saves $0.1920 an hour\n"
    )
    told = replace(record, message="delete: [a]; saves $0.1920 an hour")
    assert render_message(DueBatch((told,)), "text", "prod").body.count(b"saves") == 1


def test_slack_and_teams_read_no_markup_in_names() -> None:
    record = stamp(subject="pod/<!channel>/[x](http://evil.example.test)", message="a & b")
    slack = json.loads(render_message(DueBatch((record,)), "slack", "prod").body)
    assert "<" not in slack["text"]
    assert "&lt;!channel&gt;" in slack["text"]
    assert "a &amp; b" in slack["text"]
    teams = json.loads(render_message(DueBatch((record,)), "teams", "prod").body)
    (attachment,) = teams["attachments"]
    assert {block["type"] for block in attachment["content"]["body"]} == {"RichTextBlock"}
