"""Recordings made from recordings: a part of the time, all of it without names, and what one holds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail import __version__
from dovetail.api import labels
from dovetail.api.meta import ObjectMeta
from dovetail.disruption.situation import Situation
from dovetail.history.recording.anonymise import NameHider, hash_parts
from dovetail.history.recording.answers import DecisionAnswer, PlannedNodeAnswer
from dovetail.history.recording.deciding import METHODS, decide_again
from dovetail.history.recording.editing import anonymise_segments, cut_segments
from dovetail.history.recording.segment import split_segments
from dovetail.history.recording.summary import summarise_recording
from dovetail.runtime.recording_folder import read_recording
from support.recordings import begin_segment, random_looks, read_back, strip, unzip, write_segments

SALT = b"salt"
KEPT = Path(__file__).parents[2] / "conformance" / "recordings" / __version__


def texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from texts_of(key)
            yield from texts_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts_of(each)


def names_in(situation: Situation) -> set[str]:
    """Every name, label value and zone of a Situation that says something of whose it is."""
    found: set[str] = set()
    snapshot = situation.snapshot

    def add(metadata: ObjectMeta) -> None:
        found.update((metadata.name, metadata.uid, *metadata.labels.values()))

    for state in snapshot.nodes:
        for part in (state.node, state.claim, *state.pods):
            if part is not None:
                add(part.metadata)
        if state.node is not None:
            found.add(state.node.spec.provider_id)
    for each in (*snapshot.pods, *snapshot.budgets, *snapshot.services, *snapshot.daemons):
        add(each.metadata)
    for pool in snapshot.pools:
        add(pool.nodepool.metadata)
    for types in snapshot.catalogs:
        found.update(each.name for each in types)
        found.update(offering.zone for each in types for offering in each.offerings)
    found.update((*snapshot.namespaces, *situation.queued, *situation.excluded_zones))
    plain = re.compile(r"[0-9]*|true|false|spot|on-demand|reserved|linux|amd64|windows|arm64")
    return {name for name in found if not plain.fullmatch(name)}


@pytest.mark.spec("TA-6")
@pytest.mark.parametrize("seed", range(12))
def test_nothing_of_a_name_is_left_in_an_anonymised_recording(seed: int) -> None:
    looks = random_looks(seed)
    names = set().union(*(names_in(situation) for _, situation in looks))
    assert len(names) > 20
    (found,) = anonymise_segments(read_back(write_segments(looks)), SALT)
    lines = [json.loads(line[9:]) for line in unzip(found[1]).splitlines()]
    left = {text for line in lines for text in texts_of(line)}
    assert not names & left
    left -= {"default-scheduler", "daemons"}
    assert not [(text, name) for text in left for name in names if len(name) > 4 and name in text]


@pytest.mark.spec("TA-6")
@pytest.mark.parametrize("seed", range(8))
def test_deciding_over_an_anonymised_recording_gives_the_same_numbers(seed: int) -> None:
    looks = random_looks(seed)
    hidden = [data for _, data in anonymise_segments(read_back(write_segments(looks, 3)), SALT)]
    reader = read_back(hidden)
    found = list(reader.looks())
    assert len(found) == len(looks)
    assert reader.list_gaps() == []
    for look, (_, seen) in zip(found, looks, strict=True):
        for question in ("plan", *METHODS):
            assert answer(look.situation, question) == answer(strip(seen), question), question


@pytest.mark.spec("TA-6")
def test_commands_of_an_anonymised_recording_save_what_they_saved() -> None:
    """What a controller decided in a cluster where a little of everything happens."""
    reader = read_recording(str(KEPT))
    hidden = read_back(data for _, data in anonymise_segments(reader, SALT))
    busy = 0
    for look, other in zip(reader.looks(), hidden.looks(), strict=True):
        for decision, told in zip(look.decisions, other.decisions, strict=True):
            numbers = count(decision.answer)
            assert count(told.answer) == numbers
            if any(numbers):
                busy += bool(decision.answer.commands)
                assert answer(other.situation, decision.question) == numbers, (look.at, decision.question)
    assert busy >= 9


def answer(situation: Situation, question: str) -> tuple[Any, ...]:
    found = decide_again(situation, question)
    assert found is not None
    return count(found)


def count(answer: DecisionAnswer) -> tuple[Any, ...]:
    """The numbers of an answer: nodes, prices, savings and pods."""

    def tell(node: PlannedNodeAnswer) -> tuple[Any, ...]:
        return node.price, node.capacity_type, len(node.pods)

    return (
        list(map(tell, answer.nodes)),
        sorted(map(len, answer.places.values())),
        (len(answer.unschedulable), len(answer.deferred)) if answer.unschedulable or answer.deferred else (),
        [
            (each.reason, each.kind, len(each.nodes), list(map(tell, each.replacements)), each.savings)
            for each in answer.commands
        ],
    )


@pytest.mark.spec("TA-6")
def test_what_decisions_read_in_annotations_stays_and_nothing_else() -> None:
    """A pool whose policy cannot be read holds all its nodes; so its words stay what they were."""
    hider = NameHider(hash_parts(SALT))

    def hide(key: str, text: str) -> str:
        found: ObjectMeta = hider._hide(ObjectMeta(name="shop", annotations={key: text}))
        return found.annotations[key]

    kept = {
        labels.CONSOLIDATION: "many",
        labels.DRIFT: "paused",
        labels.GROWTH: "ahead",
        labels.MIN_SAVING: "5e-3",
        labels.RATE: "10/1h",
        labels.RECENT: "2026-01-05T00:00:42Z=1 2026-01-05T00:01:42.5Z=2",
        labels.LOST_REPLACEMENTS: "Drifted=2@2026-01-05T00:00:42Z/17",
        labels.DO_NOT_DISRUPT: "true",
    }
    for key, text in kept.items():
        assert hide(key, text) == text
    for key in (labels.CONSOLIDATION, labels.LOST_REPLACEMENTS, labels.NODEPOOL_HASH, labels.ZONE_LEDGER):
        assert "shop" not in hide(key, "shop")
        assert "shop" not in hide(key, "many shop=1")
    for plain in ("0 9 * * mon-fri", "@daily", "@every 6h", "-2147483647"):
        assert hider.hide_name(plain) == plain


@pytest.mark.spec("TA-6")
def test_names_may_be_hashed_while_they_are_written() -> None:
    looks = random_looks(2)
    hider = NameHider(hash_parts(SALT))
    writer = begin_segment(rename=hider.hide_line)
    for at, situation in looks:
        writer.write_look(situation, at)
    data = writer.end_segment(looks[-1][0])
    left = unzip(data).replace(b"default-scheduler", b"")
    assert not [name for name in names_in(looks[0][1]) if len(name) > 4 and name.encode() in left]
    assert [look.at for look in read_back([data]).looks()] == [at for at, _ in looks]
    again = NameHider(hash_parts(b"other"))
    assert again.hide_name("web-7") != hider.hide_name("web-7")


@pytest.mark.spec("TA-6")
def test_a_name_made_of_names_is_made_of_their_pseudonyms() -> None:
    hider = NameHider(hash_parts(SALT))
    pod, volume = hider.hide_name("web-7f9c-x2k"), hider.hide_name("data")
    assert hider.hide_name("web-7f9c-x2k-data") == f"{pod}-{volume}"
    zone = hider.hide_name("eu-west-1a")
    assert hider.hide_name("aws:///eu-west-1a/i-0123456789abcdef0").startswith(f"aws:///{zone}/")
    kept = ("", "4", "16384", "true", "spot", "10%", "720h", "1h30m", "2026-11-02T03:00:00Z", "1500m")
    for each in (*kept, "10/1h", "0 9 * * 1-5"):
        assert hider.hide_name(each) == each
    for hidden in ("123456789012", "10.0.4.12", "i-0123456789abcdef0", "shop", "n0", "m5"):
        assert hider.hide_name(hidden) != hidden


def test_a_part_of_the_time_is_cut_out_whole() -> None:
    looks = random_looks(4, 12)
    reader = read_back(write_segments(looks, 5))
    data = b"".join(cut_segments(reader, looks[3][0], looks[8][0]))
    parts = list(split_segments(data))
    assert len(parts) == 2
    cut = read_back(parts)
    assert [look.situation for look in cut.looks()] == [strip(seen) for _, seen in looks[3:9]]
    assert cut.list_gaps() == []


def test_a_cut_between_two_looks_begins_with_what_was_seen_then() -> None:
    looks = random_looks(4, 12)
    reader = read_back(write_segments(looks, 5))
    between = looks[3][0] + (looks[4][0] - looks[3][0]) / 2
    cut = read_back(split_segments(b"".join(cut_segments(reader, between, looks[6][0]))))
    assert [look.at for look in cut.looks()] == [at for at, _ in looks[3:7]]


def test_a_torn_segment_stays_torn_without_its_names() -> None:
    looks = random_looks(4, 12)
    (data,) = write_segments(looks)
    torn = read_back([data[: len(data) - 400]])
    reader = read_back(part for _, part in anonymise_segments(torn, SALT))
    assert 0 < len(list(reader.looks())) < len(looks)
    assert reader.list_gaps()


def test_a_summary_counts_what_there_is() -> None:
    looks = random_looks(7, 6)
    found = summarise_recording(read_back(write_segments(looks, 4)))
    assert (found.looks, found.segments, found.gaps, found.unreadable) == (6, 2, (), ())
    assert (found.since, found.until) == (looks[0][0], looks[-1][0])
    sizes = [len(seen.snapshot.nodes) for _, seen in looks]
    assert (found.fewest_nodes, found.most_nodes) == (min(sizes), max(sizes))
    claims = {state.claim.uid for _, seen in looks for state in seen.snapshot.nodes if state.claim}
    assert len(found.orders) == len(claims)


def test_every_part_of_a_snapshot_is_in_a_recording() -> None:
    """A field that a snapshot gains is recorded by itself; one that holds many objects should get a table."""
    (_, seen), *_ = random_looks(1)
    known = {
        *("pools", "catalogs", "nodes", "pods", "moving", "virtual", "daemons", "namespaces", "storage"),
        *("budgets", "services", "workloads", "devices", "options", "set_aside"),
        *("commitments", "open_commitments"),
    }
    assert set(type(seen.snapshot).__struct_fields__) == known
    assert replace(seen) == seen
