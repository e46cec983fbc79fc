"""Edits of NodePools: every operator, every strategy, and the undo."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.zonal.model.pools import ZONE, ZONE_ID, ImpairedZones, PoolLedger, edit_requirements

A, B, C = "us-east-1a", "us-east-1b", "us-east-1c"
IDS = {A: "use1-az1", B: "use1-az2", C: "use1-az3"}
Entry = dict[str, Any]


def zones(*names: str, eligible: tuple[str, ...] = (A, B, C)) -> ImpairedZones:
    return ImpairedZones(names, tuple(IDS[n] for n in names), eligible, tuple(IDS[n] for n in eligible))


def entry(operator: str, *values: str, key: str = ZONE, **more: Any) -> Entry:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {}), **more}


def away(base: list[Entry], *names: str, **more: Any) -> Any:
    return edit_requirements(base, None, zones(*names), ["s"], uid="u", **more)


def back(edit: Any, theirs: list[Entry] | None = None, **more: Any) -> list[Entry]:
    now = list(edit.entries) if theirs is None else theirs
    ledger = msgspec.json.decode(msgspec.json.encode(edit.ledger), type=PoolLedger)
    after = edit_requirements(now, ledger, more.pop("zones", zones()), [], uid=more.pop("uid", "u"), **more)
    return [dict(each) for each in after.entries]


LINUX = entry("In", "linux", key="kubernetes.io/os")
BASES: dict[str, list[Entry]] = {
    "no zone": [LINUX],
    "In": [entry("In", A, B, C), LINUX],
    "NotIn": [LINUX, entry("NotIn", C)],
    "Exists": [entry("Exists"), LINUX],
    "minValues": [entry("In", A, B, C, minValues=3)],
    "zone-id": [entry("In", IDS[A], IDS[B], key=ZONE_ID)],
    "two entries": [entry("In", A, B), LINUX, entry("In", C, A)],
    "In and NotIn": [entry("In", A, B, C), entry("NotIn", C)],
}


@pytest.mark.spec("zonal-E20")
@pytest.mark.parametrize("strategy", ["AppendNotIn", "RemoveFromIn"])
@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_the_undo_gives_back_exactly_what_was(base: list[Entry], strategy: str) -> None:
    edit = away(base, A, strategy=strategy)

    assert edit.ledger is not None
    assert list(edit.entries) != base
    assert msgspec.json.encode(back(edit)) == msgspec.json.encode(base)


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ([entry("In", A, B, C)], [entry("In", B, C)]),
        ([LINUX], [LINUX, entry("In", B, C)]),
        ([entry("NotIn", C)], [entry("NotIn", C, A)]),
        ([entry("Exists")], [entry("Exists"), entry("In", B, C)]),
        ([entry("In", A, B, C, minValues=3)], [entry("In", B, C, minValues=2)]),
        ([entry("In", IDS[A], IDS[B], key=ZONE_ID)], [entry("In", IDS[B], key=ZONE_ID)]),
        ([entry("In", A, B), entry("In", C, A)], [entry("In", B), entry("In", C)]),
    ],
)
def test_removing_a_zone_follows_the_operator(base: list[Entry], expected: list[Entry]) -> None:
    assert list(away(base, A, strategy="RemoveFromIn").entries) == expected


@pytest.mark.parametrize("base", [[entry("In", B, C)], [entry("NotIn", A)], [entry("DoesNotExist")]])
@pytest.mark.parametrize("strategy", ["AppendNotIn", "RemoveFromIn"])
def test_a_pool_that_cannot_reach_the_zone_is_left_alone(base: list[Entry], strategy: str) -> None:
    edit = away(base, A, strategy=strategy)

    assert list(edit.entries) == base
    assert edit.ledger is None


@pytest.mark.spec("zonal-E1")
@pytest.mark.parametrize("strategy", ["AppendNotIn", "RemoveFromIn"])
def test_a_second_zone_joins_and_each_leaves_alone(strategy: Any) -> None:
    base = [entry("In", A, B, C), LINUX]
    both = edit_requirements(
        away(base, A, strategy=strategy).entries,
        away(base, A, strategy=strategy).ledger,
        zones(A, B),
        ["s", "t"],
        uid="u",
        strategy=strategy,
    )
    only_b = edit_requirements(both.entries, both.ledger, zones(B), ["t"], uid="u", strategy=strategy)

    assert only_b == edit_requirements(base, None, zones(B), ["t"], uid="u", strategy=strategy)
    assert back(only_b) == base


@pytest.mark.spec("zonal-E19")
def test_the_only_zone_follows_its_policy() -> None:
    base = [entry("In", A)]

    frozen = away(base, A, strategy="RemoveFromIn")
    assert list(frozen.entries) == [entry("In", A), entry("NotIn", A)]
    assert "launches nothing" in frozen.notes[0]
    assert away(base, A, strategy="RemoveFromIn", only_zone="Leave").ledger is None
    standing_in = away(base, A, strategy="RemoveFromIn", only_zone="Fallback", fallback=[C])
    assert list(standing_in.entries) == [entry("In", C)]
    assert back(frozen) == back(standing_in) == base


@pytest.mark.spec("zonal-E19")
@pytest.mark.parametrize(
    "base", [[entry("In", A)], [entry("NotIn", B, C)], [entry("In", A, B), entry("NotIn", B)]]
)
def test_the_only_zone_is_told_of_under_the_default_strategy_too(base: list[Entry]) -> None:
    frozen = away(base, A)
    assert list(frozen.entries) == [*base, entry("NotIn", A)]
    assert frozen.notes == ("its only zone is impaired: it launches nothing until the shift ends",)
    left = away(base, A, only_zone="Leave")
    assert (left.ledger, list(left.entries)) == (None, base)
    assert back(frozen) == base


def test_a_stand_in_for_the_only_zone_is_used_under_the_default_strategy_too() -> None:
    edit = away([entry("In", A), LINUX], A, only_zone="Fallback", fallback=[C])
    assert list(edit.entries) == [entry("In", C), LINUX]
    assert back(edit) == [entry("In", A), LINUX]


def test_a_pool_with_another_zone_is_not_told_that_it_has_none() -> None:
    assert away([entry("In", A, B)], A).notes == ()
    assert away([LINUX], A).notes == ()


# What someone edits in our entry is kept, and the zone is not left out for it.
EDITED: dict[str, tuple[list[Entry], str, list[Entry], list[Entry]]] = {
    "a zone is added to our NotIn": (
        [LINUX],
        "AppendNotIn",
        [LINUX, entry("NotIn", A, C)],
        [LINUX, entry("NotIn", C)],
    ),
    "our NotIn is joined with theirs": (
        [entry("NotIn", C)],
        "AppendNotIn",
        [entry("NotIn", C, A)],
        [entry("NotIn", C)],
    ),
    "a zone is taken out of our In": (
        [LINUX],
        "RemoveFromIn",
        [LINUX, entry("In", B)],
        [LINUX, entry("In", B, A)],
    ),
    "the list we shortened is shortened more": (
        [entry("In", A, B, C)],
        "RemoveFromIn",
        [entry("In", C)],
        [entry("In", C, A)],
    ),
    "a zone is added to the NotIn we lengthened": (
        [entry("NotIn", C)],
        "RemoveFromIn",
        [entry("NotIn", C, A, B)],
        [entry("NotIn", C, B)],
    ),
    "their own zone is taken out of the NotIn we lengthened": (
        [LINUX, entry("NotIn", C)],
        "RemoveFromIn",
        [LINUX, entry("NotIn", A)],
        [LINUX],
    ),
}


@pytest.mark.spec("zonal-E15")
@pytest.mark.parametrize(("base", "strategy", "theirs", "expected"), EDITED.values(), ids=EDITED)
def test_no_zone_is_left_excluded_when_someone_edited_the_entry(
    base: list[Entry], strategy: str, theirs: list[Entry], expected: list[Entry]
) -> None:
    edit = away(base, A, strategy=strategy)
    assert back(edit, theirs) == expected
    assert all(each.get("values") != [] for each in back(edit, theirs)), "the API takes no empty list"


@pytest.mark.spec("zonal-E15")
def test_what_a_user_changed_meanwhile_is_kept() -> None:
    base = [entry("In", A, B, C), LINUX]
    edit = away(base, A, strategy="RemoveFromIn")
    arm = entry("In", "arm64", key="kubernetes.io/arch")

    assert back(edit, [*edit.entries, arm]) == [*base, arm]
    assert back(edit, [edit.entries[0]]) == [base[0]]
    assert back(edit, [entry("In", B), LINUX]) == [entry("In", B, A), LINUX]
    assert back(edit, [LINUX]) == [LINUX]
    assert back(edit, base) == base


def test_a_zone_the_user_wants_gone_for_good_stays_out() -> None:
    edit = away([entry("In", A, B, C)], A, strategy="RemoveFromIn")

    assert back(edit, keep_removed=[A]) == [entry("In", B, C)]


def test_a_zone_whose_subnets_are_gone_is_not_put_back() -> None:
    edit = away([entry("In", A, B, C)], A, strategy="RemoveFromIn")
    after = edit_requirements(edit.entries, edit.ledger, zones(eligible=(B, C)), [], uid="u")

    assert list(after.entries) == [entry("In", B, C)]
    assert "no subnet" in after.notes[0]


@pytest.mark.spec("zonal-E22", "zonal-E18")
def test_a_pool_made_anew_owes_nothing_to_its_namesake() -> None:
    edit = away([entry("In", A, B, C)], A)
    fresh = [entry("In", B)]

    assert back(edit, fresh, uid="another") == fresh


def test_a_full_list_falls_back_to_removing_values() -> None:
    base = [entry("In", A, B), *(entry("Exists", key=f"example.test/{n}") for n in range(99))]
    edit = away(base, A)

    assert len(edit.entries) == 100
    assert edit.entries[0] == entry("In", B)
    assert back(edit) == base


def test_asking_again_changes_nothing() -> None:
    edit = away([LINUX], A)

    again = edit_requirements(edit.entries, edit.ledger, zones(A), ["s"], uid="u")
    assert again == edit


ADDED = f"the zones {C} stay excluded: they were added by someone else"
CHANGED = f"the requirement on {ZONE} stays: its values were changed by someone else"


@pytest.mark.parametrize(
    ("strategy", "theirs", "notes"),
    [
        ("AppendNotIn", [LINUX, entry("NotIn", A)], ()),
        ("AppendNotIn", [LINUX, entry("NotIn", A, C)], (ADDED,)),
        ("RemoveFromIn", [LINUX, entry("In", B, C)], ()),
        ("RemoveFromIn", [LINUX, entry("In", B)], (CHANGED,)),
    ],
)
def test_what_is_left_of_our_entry_because_of_someone_else_is_told(
    strategy: str, theirs: list[Entry], notes: tuple[str, ...]
) -> None:
    edit = away([LINUX], A, strategy=strategy)
    assert edit_requirements(theirs, edit.ledger, zones(), [], uid="u").notes == notes


def test_a_zone_that_stays_out_is_told_of_with_the_reason() -> None:
    edit = away([entry("In", A, B, C)], A, strategy="RemoveFromIn")
    kept = edit_requirements(edit.entries, edit.ledger, zones(), [], uid="u", keep_removed=[A])
    assert kept.notes == (f"the zone {A} is not put back: the pool asks to keep it out",)
    gone = edit_requirements(edit.entries, edit.ledger, zones(eligible=(B, C)), [], uid="u")
    assert gone.notes == (f"the zone {A} is not put back: no subnet of its node class is there any more",)


def test_a_pool_whose_nodes_have_no_zone_is_left_alone_and_says_so() -> None:
    base = [LINUX, entry("DoesNotExist")]
    edit = away(base, A)
    assert (list(edit.entries), edit.ledger) == (base, None)
    assert edit.notes == ("nodes of this pool have no zone: nothing to take away",)


def test_min_values_that_we_lowered_are_put_back_as_far_as_there_are_values() -> None:
    edit = away([entry("In", A, B, C, minValues=3)], A, strategy="RemoveFromIn")
    assert back(edit, [entry("In", C, minValues=2)]) == [entry("In", C, A, minValues=2)]
    assert back(edit, [entry("In", B, C, "us-east-1d", minValues=2)]) == [
        entry("In", B, C, "us-east-1d", A, minValues=3)
    ]
    assert back(edit, [entry("In", B, C, minValues=1)]) == [entry("In", B, C, A, minValues=1)]
