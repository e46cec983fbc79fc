"""Laws of history: no record holds a secret or grows too long, and no change to a log goes unnoticed."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.api.codec import decode
from dovetail.api.pod import Pod
from dovetail.disruption.report import build_report
from dovetail.history import drafts
from dovetail.history.chain import DecisionChain, LogPart, check_chain, find_log_end
from dovetail.history.notify import parse_notify
from dovetail.history.record import (
    MOST_BYTES,
    RecordDraft,
    RecordIds,
    RecordKind,
    encode_record,
    stamp_record,
)
from dovetail.history.telling import tell_row, tell_sentence
from dovetail.history.verdicts import MOST_AN_HOUR, Verdict, VerdictFilter
from dovetail.scheduling.solve import QUICK, solve
from support.builders import NOW
from support.decision_records import CLUSTER, LEADER, Stamping, at, write_term
from support.disruption import SMALL, pdb, pool, scene, state
from support.explain_snapshots import world

SECRET = "hunter2-c0ffee"
KINDS = tuple(RecordKind)


def hostile_pod(number: int, chance: Random) -> Pod:
    """A pod that keeps a secret wherever it can be kept, and asks for things that make people ask why."""
    secret = f"{SECRET}-{number}"
    container: dict[str, Any] = {
        "name": "main",
        "image": f"registry.example.test/{secret}:latest",
        "command": ["run", secret],
        "args": [f"--token={secret}"],
        "env": [{"name": f"TOKEN_{secret}", "value": secret}],
        "envFrom": [{"secretRef": {"name": secret}}],
        "lifecycle": {"preStop": {"exec": {"command": [secret]}}},
        "resources": {"requests": {"cpu": chance.choice(["1", "3", "900"]), "memory": "1Gi"}},
    }
    spec: dict[str, Any] = {
        "containers": [container],
        "initContainers": [container | {"name": "first"}],
        "imagePullSecrets": [{"name": secret}],
        "nodeSelector": chance.choice([{}, {"team": "blue"}]),
        "volumes": [{"name": "v", "secret": {"secretName": secret}}],
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": [secret]}],
    }
    metadata = {
        "name": f"web-{number}",
        "namespace": "shop",
        "uid": f"uid-{number}",
        "annotations": {
            "example.test/token": secret,
            "kubectl.kubernetes.io/last-applied-configuration": secret,
            "karpenter.sh/do-not-disrupt": chance.choice(["true", "false", secret]),
            "controller.kubernetes.io/pod-deletion-cost": secret,
        },
        "labels": {"app": chance.choice(["web", "db"])},
    }
    status = {
        "phase": "Pending",
        "message": secret,
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": secret}
        ],
    }
    return decode(Pod, json.dumps({"metadata": metadata, "spec": spec, "status": status}).encode())


@pytest.mark.spec("HI-9")
def test_ten_thousand_records_hold_nothing_that_pods_keep_to_themselves() -> None:
    chance, ids, lines = Random(9), RecordIds(CLUSTER), list[bytes]()
    number = 0
    while len(lines) < 10_000:
        pods = [hostile_pod(number + each, chance) for each in range(60)]
        number += len(pods)
        plan = solve(world(3, pods[:20]), QUICK)
        nodes = [state(f"n{at}", *pods[20 + 8 * at : 28 + 8 * at], of=SMALL) for at in range(5)]
        report = build_report(scene(*nodes, state("spare"), pools=[pool()], pdbs=[pdb(namespace="shop")]))
        found = [each.draft for each in (*drafts.of_plan(plan, {}), *drafts.of_report(report, {}))]
        for command in report.commands:
            found += [drafts.of_command(kind, command, "41c2") for kind in KINDS]
        assert plan.decisions
        # Each draft many times: what is looked for is in its words, not in how often it is stamped.
        lines += [
            encode_record(stamp_record(draft, ids.make_id(NOW), NOW, LEADER))
            for draft in found
            for _ in range(20)
        ]
    whole = b"\n".join(lines)
    assert b"shop/web-" in whole
    assert SECRET.encode() not in whole
    assert b"registry.example.test" not in whole


names = st.text(max_size=300)


@settings(deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    subject=st.text("abc-./0", max_size=320),
    texts=st.tuples(st.text(max_size=3_000), names, st.text(max_size=100)),
    lists=st.tuples(st.lists(names, max_size=40), st.lists(names, max_size=40)),
)
def test_whatever_is_recorded_is_short_and_is_read_and_told(
    kind: RecordKind,
    subject: str,
    texts: tuple[str, str, str],
    lists: tuple[list[str], list[str]],
) -> None:
    message, pool_name, reason = texts
    draft = RecordDraft(
        kind=kind,
        subject=f"node/{subject}",
        message=message,
        pool=pool_name[:63],
        reason=reason[:40],
        names=tuple(lists[0]),
        pods=tuple(lists[1]),
    )
    record = stamp_record(draft, RecordIds(CLUSTER).make_id(NOW), NOW, LEADER, "a" * 64)
    line = DecisionChain().link_record(record)
    assert len(line) <= MOST_BYTES
    assert check_chain([LogPart("part", [line + b"\n"])]).fault is None
    told = (*tell_row(record, NOW), tell_sentence(record))
    assert not any(ord(each) < 32 or each == "\x1b" for text in told for each in text)


def two_terms() -> list[bytes]:
    first = write_term(DecisionChain(), 12)
    return [*first, *write_term(DecisionChain(), 12, find_log_end(b"".join(first)))]


LOG = two_terms()
HEAD = check_chain([LogPart("log", LOG)]).head


@pytest.mark.spec("NO-2")
@settings(deadline=None, max_examples=400)
@given(data=st.data())
def test_one_changed_byte_anywhere_is_found(data: st.DataObject) -> None:
    whole = bytearray(b"".join(LOG))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] = data.draw(st.integers(0, 255).filter(lambda byte: byte != whole[place]))
    lines = [line + b"\n" for line in bytes(whole).split(b"\n")]
    lines[-1] = lines[-1][:-1]
    fault = check_chain([LogPart("log", [line for line in lines if line])], HEAD).fault
    assert fault is not None
    changed = bytes(whole)[:place].count(b"\n") + 1
    assert changed - 2 <= fault.line <= changed + 2, "it is named where it is"


@pytest.mark.spec("NO-2")
@settings(deadline=None)
@given(at_line=st.integers(1, len(LOG) - 1), count=st.integers(1, 5))
def test_dropped_records_are_found(at_line: int, count: int) -> None:
    """The first record of a log may follow on from parts that were deleted; any other may not be missing."""
    lines = LOG[:at_line] + LOG[at_line + count :]
    assert check_chain([LogPart("log", lines)], HEAD).fault is not None


@pytest.mark.spec("NO-2")
@settings(deadline=None)
@given(
    places=st.tuples(st.integers(0, len(LOG) - 1), st.integers(0, len(LOG) - 1)).filter(
        lambda p: p[0] != p[1]
    )
)
def test_swapped_records_are_found(places: tuple[int, int]) -> None:
    lines = list(LOG)
    lines[places[0]], lines[places[1]] = lines[places[1]], lines[places[0]]
    assert check_chain([LogPart("log", lines)], HEAD).fault is not None


@settings(deadline=None)
@given(cut=st.integers(0, len(b"".join(LOG))))
def test_a_log_cut_at_any_byte_can_be_gone_on_with(cut: int) -> None:
    """A killed writer leaves any beginning; the next term declares what is lost, and the log is whole."""
    left = b"".join(LOG)[:cut]
    end = find_log_end(left)
    kept = left[: end.whole_bytes] if end is not None else b""
    lines = [*kept.splitlines(keepends=True), *write_term(DecisionChain(), 3, end)]
    assert check_chain([LogPart("log", lines)]).fault is None
    assert (
        check_chain(
            [LogPart("1", left.splitlines(keepends=True)), LogPart("2", write_term(DecisionChain(), 3, end))]
        ).fault
        is None
    )


@settings(deadline=None)
@given(steps=st.lists(st.tuples(st.integers(1, 400), st.integers(0, 3)), max_size=120))
def test_an_object_has_at_most_seven_records_in_any_hour(steps: list[tuple[int, int]]) -> None:
    changes, now, found = VerdictFilter(), 0, list[float]()
    last = -1
    for seconds, reason in steps:
        now += seconds
        key = (RecordKind.NODE_BLOCKED, str(reason), "")
        draft = RecordDraft(kind=key[0], subject="node/a", reason=str(reason))
        found += [now] * len(changes.note_verdicts(at(now), [Verdict(key, draft)]))
        last = reason
    for start in found:
        assert sum(start <= each < start + 3600 for each in found) <= MOST_AN_HOUR + 1
    settled = changes.settle_verdicts(at(now + 7300))
    assert last < 0 or not settled or settled[-1].draft.reason == str(last)


@settings(deadline=None)
@given(text=st.one_of(st.text(max_size=500), st.binary(max_size=500)))
def test_no_notify_document_raises(text: str | bytes) -> None:
    found = parse_notify(text, "notify.yaml")
    assert found.notify is None
    assert found.complaints


def test_ids_of_one_process_sort_as_they_were_made() -> None:
    stamp, chance = Stamping(), Random(4)
    made = [stamp(seconds=chance.uniform(-5, 5)).id for _ in range(5_000)]
    assert made == sorted(set(made))
