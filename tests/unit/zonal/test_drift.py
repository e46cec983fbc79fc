"""An edit of ours makes no node drifted; an edit of the user's does, also while ours stands beside it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import codec, labels
from dovetail.api.nodepool import NodePool
from dovetail.api.reasons import REQUIREMENTS_DRIFTED
from dovetail.disruption.methods.drift import find_pool_drift
from dovetail.zonal.model.ledgers import remove_shift_edits, render_ledger
from dovetail.zonal.model.pools import ZONE, ImpairedZones, Strategy, edit_requirements
from support.builders import nodeclaim

A, B = "us-east-1a", "us-east-1b"
AWAY = ImpairedZones((A,), ("use1-az1",), (A, B), ("use1-az1", "use1-az2"))
IN_A = nodeclaim(labels={ZONE: A, labels.OS: "linux"})


def pool(entries: Any, **notes: str) -> NodePool:
    document: dict[str, Any] = {
        "metadata": {"name": "default", "uid": "u", "annotations": notes},
        "spec": {"template": {"spec": {"requirements": list(entries)}}},
    }
    return codec.convert(NodePool, document)


def shifted(base: list[dict[str, Any]], strategy: Strategy, *more: dict[str, Any]) -> NodePool:
    edit = edit_requirements(base, None, AWAY, ["use1-az1/1"], uid="u", strategy=strategy)
    assert edit.ledger is not None
    return pool([*edit.entries, *more], **{labels.ZONE_LEDGER: render_ledger(edit.ledger)})


@pytest.mark.parametrize("strategy", ["AppendNotIn", "RemoveFromIn"])
@pytest.mark.parametrize("base", [[], [{"key": ZONE, "operator": "In", "values": [A, B]}]])
def test_a_zone_we_took_out_makes_its_nodes_no_drifted_ones(strategy: Strategy, base: Any) -> None:
    edited_pool = shifted(base, strategy)
    assert find_pool_drift(edited_pool, IN_A) == REQUIREMENTS_DRIFTED
    assert find_pool_drift(remove_shift_edits(edited_pool), IN_A) == ""
    assert (
        remove_shift_edits(edited_pool).spec.template.spec.requirements
        == pool(base).spec.template.spec.requirements
    )


@pytest.mark.parametrize("strategy", ["AppendNotIn", "RemoveFromIn"])
def test_drift_that_the_user_asks_for_is_drift_still(strategy: Strategy) -> None:
    windows = {"key": labels.OS, "operator": "In", "values": ["windows"]}
    mixed = shifted([], strategy, windows)
    assert find_pool_drift(remove_shift_edits(mixed), IN_A) == REQUIREMENTS_DRIFTED
    theirs = pool([{"key": ZONE, "operator": "NotIn", "values": [A]}])
    assert find_pool_drift(remove_shift_edits(theirs), IN_A) == REQUIREMENTS_DRIFTED, (
        "an entry without a ledger is theirs"
    )


def test_a_ledger_that_is_damaged_or_of_a_namesake_hides_nothing() -> None:
    entry = {"key": ZONE, "operator": "NotIn", "values": [A]}
    damaged = pool([entry], **{labels.ZONE_LEDGER: "{"})
    assert find_pool_drift(remove_shift_edits(damaged), IN_A) == REQUIREMENTS_DRIFTED
    ours = shifted([], "AppendNotIn")
    namesake = replace(ours, metadata=replace(ours.metadata, uid="another"))
    assert find_pool_drift(remove_shift_edits(namesake), IN_A) == REQUIREMENTS_DRIFTED
