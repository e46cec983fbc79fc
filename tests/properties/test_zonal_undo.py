"""Whatever happens in between, a pool ends as its user last wanted it, byte for byte."""

from __future__ import annotations

import os
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.zonal.model.drift_guard import BudgetGuard, add_drift_guard
from dovetail.zonal.model.ledgers import restore_zones
from dovetail.zonal.model.nodes import NodeLedger, NodeMarks, protect_node, release_node, sweep_node
from dovetail.zonal.model.pools import ZONE, ZONE_ID, ImpairedZones, PoolLedger, Strategy, edit_requirements
from dovetail.zonal.model.rehearsal import limit_room

NAMES = ("us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d")
IDS = ("use1-az1", "use1-az2", "use1-az4", "use1-az6")
CASES = int(os.environ.get("DOVETAIL_ZONAL_CASES", "500"))
Entry = dict[str, Any]


def _values(key: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(NAMES if key == ZONE else IDS), min_size=1, max_size=4, unique=True)


@st.composite
def zone_entries(draw: st.DrawFn) -> Entry:
    key = draw(st.sampled_from((ZONE, ZONE, ZONE_ID)))
    operator = draw(st.sampled_from(("In", "In", "NotIn", "Exists", "DoesNotExist")))
    if operator in ("Exists", "DoesNotExist"):
        return {"key": key, "operator": operator}
    values = draw(_values(key))
    least = draw(st.none() | st.integers(1, len(values))) if operator == "In" else None
    return {"key": key, "operator": operator, "values": values} | ({"minValues": least} if least else {})


@st.composite
def other_entries(draw: st.DrawFn) -> Entry:
    key = draw(st.sampled_from(("kubernetes.io/arch", "kubernetes.io/os", "example.test/team")))
    return {
        "key": key,
        "operator": "In",
        "values": draw(st.lists(st.sampled_from("xyz"), min_size=1, unique=True)),
    }


pools = st.lists(zone_entries() | other_entries(), max_size=5)
impaired = st.sets(st.integers(0, 3), max_size=3)


@st.composite
def moments(draw: st.DrawFn) -> tuple[str, Any]:
    """A shift begins or ends, a user edits something else, or the controller starts anew."""
    what = draw(st.sampled_from(("shift", "shift", "add", "drop", "restart", "again")))
    return what, draw(
        {"shift": impaired, "add": other_entries(), "drop": st.integers(0, 9)}.get(what, st.none())
    )


def _zones(which: set[int]) -> ImpairedZones:
    chosen = sorted(which)
    return ImpairedZones(tuple(NAMES[i] for i in chosen), tuple(IDS[i] for i in chosen), NAMES, IDS)


@settings(max_examples=CASES)
@given(
    pools, st.lists(moments(), max_size=8), st.sampled_from(("AppendNotIn", "RemoveFromIn")), st.booleans()
)
def test_a_pool_ends_as_its_user_last_wanted_it(
    base: list[Entry], story: list[tuple[str, Any]], strategy: Strategy, freeze: bool
) -> None:
    only_zone: Any = "Freeze" if freeze else "Leave"
    now, desired, ledger = [dict(each) for each in base], [dict(each) for each in base], None
    away: set[int] = set()
    for what, value in story:
        if what == "add":
            now, desired = [*now, value], [*desired, value]
        elif what == "drop":
            others = [each for each in desired if each["key"] not in (ZONE, ZONE_ID)]
            if others:
                gone = others[value % len(others)]
                now.remove(gone)
                desired.remove(gone)
        elif what == "restart" and ledger is not None:
            # All that survives is what stands on the object.
            ledger = msgspec.json.decode(msgspec.json.encode(ledger), type=PoolLedger)
        else:
            away = value if what == "shift" else away
            edit = edit_requirements(
                now,
                ledger,
                _zones(away),
                sorted(map(str, away)),
                uid="u",
                strategy=strategy,
                only_zone=only_zone,
            )
            now, ledger = [dict(each) for each in edit.entries], edit.ledger
            assert (
                edit_requirements(
                    now,
                    ledger,
                    _zones(away),
                    sorted(map(str, away)),
                    uid="u",
                    strategy=strategy,
                    only_zone=only_zone,
                )
                == edit
            )
    end = edit_requirements(now, ledger, _zones(set()), [], uid="u", strategy=strategy, only_zone=only_zone)

    assert end.ledger is None
    assert sorted(map(msgspec.json.encode, end.entries)) == sorted(map(msgspec.json.encode, desired))
    assert _zone_part(end.entries) == _zone_part(desired)


def _zone_part(entries: Any) -> list[Any]:
    return [each for each in entries if each["key"] in (ZONE, ZONE_ID)]


@st.composite
def rezoned(draw: st.DrawFn) -> tuple[str, Any]:
    """A shift begins or ends, or a user rewrites, adds or drops a requirement on zones."""
    what = draw(st.sampled_from(("shift", "shift", "rewrite", "add", "drop")))
    if what == "shift":
        return what, draw(impaired)
    return what, (draw(st.integers(0, 9)), draw(_values(ZONE)))


@settings(max_examples=CASES)
@given(pools, st.lists(rezoned(), max_size=8))
def test_what_a_user_does_to_zones_themselves_is_kept_too(
    base: list[Entry], story: list[tuple[str, Any]]
) -> None:
    now, desired, ledger = [dict(each) for each in base], [dict(each) for each in base], None
    for what, value in story:
        mine = [each for each in desired if (each["key"], each["operator"]) == (ZONE, "In")]
        if what == "shift":
            edit = edit_requirements(now, ledger, _zones(value), sorted(map(str, value)), uid="u")
            now, ledger = [dict(each) for each in edit.entries], edit.ledger
        elif what == "add":
            made = {"key": ZONE, "operator": "In", "values": value[1]}
            now, desired = [*now, made], [*desired, made]
        elif mine:
            old = mine[value[0] % len(mine)]
            fresh = [] if what == "drop" else [{"key": ZONE, "operator": "In", "values": value[1]}]
            now, desired = _instead(now, old, fresh), _instead(desired, old, fresh)
    end = edit_requirements(now, ledger, _zones(set()), [], uid="u")

    assert end.ledger is None
    assert list(end.entries) == desired


def _instead(entries: list[Entry], old: Entry, fresh: list[Entry]) -> list[Entry]:
    at = entries.index(old)
    return [*entries[:at], *fresh, *entries[at + 1 :]]


budgets = st.builds(
    lambda nodes, reasons: {"nodes": nodes} | ({"reasons": reasons} if reasons else {}),
    st.sampled_from(("0", "10%", "3")),
    st.sampled_from((None, ["Drifted"], ["Empty", "Underutilized"])),
)


@settings(max_examples=CASES)
@given(
    st.none() | st.lists(budgets, max_size=4),
    st.lists(st.sets(st.sampled_from(("a/1", "b/2")), max_size=2) | budgets, max_size=8),
)
def test_a_pools_budgets_end_as_its_user_last_wanted_them(base: Any, story: list[Any]) -> None:
    now, desired, ledger = base, base, None
    for each in story:
        if isinstance(each, dict):
            # A user adds a budget of their own, before ours or after it.
            now, desired = [each, *(now or ())], [each, *(desired or ())]
        else:
            held = add_drift_guard(now, ledger, sorted(each), uid="u")
            now, ledger = None if held.budgets is None else list(held.budgets), held.ledger
            if ledger is not None:
                ledger = msgspec.json.decode(msgspec.json.encode(ledger), type=BudgetGuard)
            assert add_drift_guard(now, ledger, sorted(each), uid="u") == held
    end = add_drift_guard(now, ledger, [], uid="u")

    assert end.ledger is None
    left = None if end.budgets is None else [dict(each) for each in end.budgets]
    assert left == desired


standings = st.builds(
    NodeMarks,
    uid=st.just("n"),
    label=st.sampled_from((None, "true", "false")),
    annotation=st.sampled_from((None, "true", "4h")),
    cordoned=st.booleans(),
)


SHIFTS = ("a/1", "b/2", "c/3")
turns = st.tuples(st.sampled_from(("begins", "begins", "ends", "sweeps")), st.sampled_from(SHIFTS))


@settings(max_examples=CASES)
@given(standings, st.lists(turns, max_size=9))
def test_a_node_ends_as_it_was_but_for_marks_that_were_swept_on_purpose(
    before: NodeMarks, story: list[tuple[str, str]]
) -> None:
    now, ledger, wanted = before, None, before
    for what, shift in story:
        if what == "sweeps":
            # Only a node without a ledger is swept: marks of ours are undone by their own record.
            found = sweep_node(now) if ledger is None else None
            assert found is None or found.ledger is None
            wanted = found.standing if found is not None else wanted
            now = found.standing if found is not None else now
            continue
        marked = protect_node(now, ledger, shift) if what == "begins" else release_node(now, ledger, [shift])
        now, ledger = marked.standing, marked.ledger
        if ledger is not None:
            ledger = msgspec.json.decode(msgspec.json.encode(ledger), type=NodeLedger)

    end = release_node(now, ledger, SHIFTS).standing
    assert end == wanted
    assert end.annotation == before.annotation
    if before.label != "true":
        assert end == before, "who does not carry the label is never touched by a sweep"


workloads = st.dictionaries(st.sampled_from("xyz"), st.integers(0, 5))


@settings(max_examples=CASES)
@given(workloads, workloads, st.lists(workloads | st.just("restart"), max_size=8))
def test_room_bought_for_a_zone_never_grows_and_never_exceeds_who_is_left(
    needed: dict[str, int], left: dict[str, int], story: list[Any]
) -> None:
    known: dict[str, int] | None = needed
    have: dict[str, int] = limit_room(known, {}, left)
    assert all(0 < size <= min(needed[each], left.get(each, 0)) for each, size in have.items())
    bought = dict(have)
    for each in story:
        if each == "restart":
            # What was worked out is forgotten; the buffers stand.
            known = None
            continue
        after = limit_room(known, have, each)
        if have:
            assert after.keys() == have.keys(), "a buffer goes only with its shift"
            assert all(size <= have[name] for name, size in after.items())
        assert all(size <= each.get(name, 0) for name, size in after.items())
        have = after
        assert limit_room(known, have, each) == have, "a second look changes nothing"
    assert sum(have.values()) <= max(sum(bought.values()), sum(needed.values()))


@settings(max_examples=CASES)
@given(pools, impaired, st.sampled_from(("AppendNotIn", "RemoveFromIn")))
def test_a_pool_that_lost_its_ledger_lets_its_nodes_be_there_again(
    base: list[Entry], away: set[int], strategy: Strategy
) -> None:
    edit = edit_requirements(base, None, _zones(away), sorted(map(str, away)), uid="u", strategy=strategy)
    found = restore_zones(edit.entries, _zones(away))
    left = edit.entries if found is None else found
    for each in left:
        zones = _zones(away).list_by_key(str(each["key"])) if each["key"] in (ZONE, ZONE_ID) else ()
        if each["operator"] == "In":
            assert all(zone in each["values"] for zone in zones)
        if each["operator"] == "NotIn":
            assert not any(zone in each["values"] for zone in zones)
    assert restore_zones(left, _zones(away)) is None, "once is enough"
    others = [each for each in base if each["key"] not in (ZONE, ZONE_ID)]
    assert [each for each in left if each["key"] not in (ZONE, ZONE_ID)] == others
