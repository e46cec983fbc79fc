"""`GET /history`: lines newest first, an ETag, one sentence for what cannot be answered."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from dovetail.history.record import DecisionRecord, RecordKind, decode_record
from dovetail.history.ring import HistoryRing
from dovetail.runtime import health
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.history_server import LEADER, NEAREST, REMEMBERS, TELLS, HistoryServer
from dovetail.runtime.transport import ApiReply
from support.decision_records import Stamping
from unit.runtime.test_health import asking


@dataclass
class Election:
    leading: bool
    leader: str = ""


def server_of(*records: DecisionRecord, view: Election | None = None) -> HistoryServer:
    ring = HistoryRing(timedelta(days=10_000))
    for record in records:
        ring.note_record(record)
    return HistoryServer(ring, SystemClock(), view)


def read(reply: ApiReply) -> list[DecisionRecord]:
    return [decode_record(line) for line in reply.body.splitlines()]


def test_the_newest_record_is_the_first_line() -> None:
    stamp = Stamping()
    first, second = stamp(subject="node/a"), stamp(RecordKind.NODE_GONE, "node/a")
    reply = server_of(first, second).answer([])
    assert reply.status == 200
    assert read(reply) == [second, first]
    assert reply.headers["Content-Type"].startswith("application/jsonl")
    assert reply.headers[REMEMBERS] == first.time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_the_same_answer_again_is_not_sent_again() -> None:
    server = server_of(Stamping()(subject="node/a"))
    tag = server.answer([]).headers["ETag"]
    for known in (tag, f'"other", W/{tag}'):
        again = server.answer([], known)
        assert (again.status, again.body, again.headers["ETag"]) == (304, b"", tag)
    assert server.answer([("name", "nobody")], tag).status == 200


def test_what_cannot_be_read_is_a_400_in_one_sentence() -> None:
    server = server_of()
    for pairs in ([("since", "yesterday")], [("kind", "x")], [("limit", "-1")], [("nmae", "a")]):
        reply = server.answer(pairs)
        assert reply.status == 400
        assert reply.body.count(b"\n") == 1
        assert reply.body.endswith(b"\n")


def test_a_follower_names_the_leader() -> None:
    reply = server_of(view=Election(False, "dovetail-7c_41")).answer([])
    assert (reply.status, reply.headers[LEADER]) == (503, "dovetail-7c_41")
    assert reply.body == b"this process does not lead; dovetail-7c_41 does, and the history is the leader's\n"
    assert b"no process leads yet" in server_of(view=Election(False)).answer([]).body
    assert server_of(view=Election(True, "me")).answer([]).status == 200


def test_an_unknown_name_gets_the_nearest_one() -> None:
    stamp = Stamping()
    server = server_of(stamp(subject="node/ip-10-0-4-12", pool="default"), stamp(subject="pod/shop/wéb-7"))
    assert server.answer([("name", "ip-10-0-4-13")]).headers[NEAREST] == "ip-10-0-4-12"
    assert server.answer([("name", "wéb-8")]).headers[NEAREST] == "shop/w%C3%A9b-7"
    assert server.answer([("name", "pool/defualt")]).headers[NEAREST] == "pool/default"
    assert NEAREST not in server.answer([("name", "zebra")]).headers
    # Known, and nothing happened of what was asked for: there is nobody else to suggest.
    assert NEAREST not in server.answer([("name", "ip-10-0-4-12"), ("kind", "Expired")]).headers


def test_a_ring_that_is_switched_off_says_so() -> None:
    reply = HistoryServer(HistoryRing(timedelta()), SystemClock()).answer([])
    assert (reply.status, reply.body) == (404, b"no history is kept here: HISTORY_KEEP is 0s\n")


async def test_it_is_served_beside_the_metrics_and_only_read() -> None:
    record = Stamping()(subject="node/a")
    async with asking(health.build_metrics_app(history=server_of(record))) as session:
        async with session.get("/history?name=node/a&limit=1") as reply:
            tag = reply.headers["ETag"]
            assert (reply.status, decode_record((await reply.read()).rstrip())) == (200, record)
        async with session.get("/history?name=node/a&limit=1", headers={"If-None-Match": tag}) as reply:
            assert (reply.status, await reply.read()) == (304, b"")
        async with session.get("/history?since=yesterday") as reply:
            assert (reply.status, await reply.text()) == (
                400,
                "since yesterday: write a duration such as 24h, or a time such as 2026-11-02T03:00:00Z\n",
            )
        async with session.post("/history") as reply:
            assert reply.status == 405
        async with session.get("/metrics") as reply:
            assert reply.status == 200
    async with asking(health.build_metrics_app()) as session, session.get("/history") as reply:
        assert reply.status == 404


def test_a_record_says_which_sinks_heard_of_it() -> None:
    stamp = Stamping()
    first, second = stamp(subject="node/a"), stamp(subject="node/b")
    ring, told = HistoryRing(timedelta(days=10_000)), dict[str, tuple[str, ...]]()
    told[first.id] = ("oncall", "bus")
    for record in (first, second):
        ring.note_record(record)
    server = HistoryServer(ring, SystemClock(), list_told=lambda each: told.get(each, ()))
    before = server.answer([])
    assert before.headers[TELLS] == "true"
    assert [each.told for each in read(before)] == [(), ("oncall", "bus")]
    told[second.id] = ("oncall",)
    assert server.answer([], before.headers["ETag"]).status == 200, "who was told is part of the answer"
    assert TELLS not in server_of(first).answer([]).headers
    assert b"told" not in server_of(first).answer([]).body
