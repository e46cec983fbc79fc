"""Questions to a history, read from text: what is taken, and the one sentence for what is not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from dovetail.errors import BadInput
from dovetail.history.asking import (
    build_query,
    encode_query,
    find_nearest_name,
    parse_kind,
    parse_moment,
)
from dovetail.history.record import RecordKind
from dovetail.history.ring import HistoryQuery

NOW = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)


def refusal(*pairs: tuple[str, str]) -> str:
    with pytest.raises(BadInput) as caught:
        build_query(pairs, NOW)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("24h", NOW - timedelta(hours=24)),
        ("1h30m", NOW - timedelta(minutes=90)),
        ("0s", NOW),
        ("2026-11-02T03:00:00Z", datetime(2026, 11, 2, 3, tzinfo=UTC)),
        ("2026-11-02T03:00:00+02:00", datetime(2026, 11, 2, 1, tzinfo=UTC)),
        ("2026-11-02 03:00", datetime(2026, 11, 2, 3, tzinfo=UTC)),
        ("2026-11-02", datetime(2026, 11, 2, tzinfo=UTC)),
    ],
)
def test_a_moment_is_a_duration_ago_or_a_time(text: str, found: datetime) -> None:
    assert parse_moment(text, NOW, "--since") == found


@pytest.mark.parametrize(
    "text", ["yesterday", "", "-1h", "24", "0001-01-01T00:00:00+14:00", "\x1b[31m", "9" * 999]
)
def test_any_other_moment_gets_one_sentence(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_moment(text, NOW, "--since")
    said = str(caught.value)
    assert said.startswith("--since ")
    assert said.endswith(": write a duration such as 24h, or a time such as 2026-11-02T03:00:00Z")
    assert len(said) < 260


def test_since_yesterday_is_answered_word_for_word() -> None:
    with pytest.raises(BadInput) as caught:
        parse_moment("yesterday", NOW, "--since")
    assert str(caught.value) == (
        "--since yesterday: write a duration such as 24h, or a time such as 2026-11-02T03:00:00Z"
    )


def test_an_unknown_kind_gets_the_nearest_and_all_there_are() -> None:
    with pytest.raises(BadInput) as caught:
        parse_kind("NodeTerminated", "--kind")
    said = str(caught.value)
    assert said.startswith(
        "--kind NodeTerminated: there is no such kind; did you mean NodeGone? There are Command"
    )
    assert all(kind in said for kind in RecordKind)


def test_a_kind_like_no_other_gets_all_there_are_once() -> None:
    with pytest.raises(BadInput) as caught:
        parse_kind("xyz", "kind")
    said = str(caught.value)
    assert said.startswith("kind xyz: there is no such kind; there are CommandDecided, ")
    assert said.count("NodeGone") == 1


def test_a_question_survives_its_way_through_a_url() -> None:
    asked = HistoryQuery(
        "node/a",
        NOW - timedelta(hours=1),
        NOW,
        frozenset((RecordKind.NODE_GONE, RecordKind.NODE_READY)),
        "default",
        "Underutilized",
        True,
        17,
    )
    assert build_query(encode_query(asked).items(), NOW) == asked
    assert build_query((), NOW) == HistoryQuery()
    repeated = build_query([("kind", "NodeGone"), ("kind", "NodeReady")], NOW)
    assert repeated.kinds == asked.kinds


def test_parameters_that_cannot_be_read_get_one_sentence() -> None:
    assert refusal(("nmae", "a")) == (
        "there is no parameter nmae; there are name, since, until, kind, pool, reason, acts, limit"
    )
    assert refusal(("limit", "5001")) == "limit 5001: write a number from 1 to 5,000"
    assert refusal(("limit", "0")) == "limit 0: write a number from 1 to 5,000"
    assert refusal(("limit", "٣")) == "limit ٣: write a number from 1 to 5,000"
    assert refusal(("acts", "maybe")) == "acts maybe: write true or false"
    assert refusal(("name", "a"), ("name", "b")) == "name is given twice; give it once"
    assert refusal(("name", "a" * 1001)) == "name is longer than 1,000 characters"
    assert refusal(("since", "1h"), ("until", "2h")) == "since is after until; exchange them"
    assert refusal(("since", "soon")).startswith("since soon: write a duration")


def test_the_nearest_name_is_found_among_very_many() -> None:
    names = [f"ip-10-0-{high}-{low}.ec2.internal" for high in range(200) for low in range(250)]
    assert find_nearest_name("node/ip-10-0-0-1.ec2.internla", names) == "ip-10-0-0-1.ec2.internal"
    assert find_nearest_name("web-77", ["shop/web-7", "shop/db-1"]) == "shop/web-7"
    assert find_nearest_name("zebra", names) == ""
