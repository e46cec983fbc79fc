"""Absurd values in any field of any object we read change nothing for anybody else.

The fields are found by looking at the records, so that a new one is covered on the day it is added. Bad items
are put into the cluster many at a time; when that changes something, they are tried one by one to say which.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from dovetail.api import codec
from dovetail.api.meta import Object
from dovetail.api.setaside import reason_of
from dovetail.disruption import choose
from dovetail.disruption.candidates import Scene
from dovetail.errors import BadInput
from dovetail.scheduling.solve import solve
from support.hostile import VALUES, fields_of, on_the_wire, others, read_all, snapshot_of, spoil, victims

# `make soak` tries more values in each field.
TIMES = int(os.environ.get("DOVETAIL_EXAMPLES", "1"))
AT_ONCE = 40
OTHERS = others()
NAMES = {each.full_name for each in OTHERS}
VICTIMS = victims()
KINDS: list[type[Object]] = sorted(VICTIMS, key=lambda kind: kind.KIND.kind)
METHODS = (choose.empty, choose.drifted, choose.multi, choose.single)
Bad = tuple[Any, Any, dict[str, Any]]


def outcome(bad: list[dict[str, Any]], kind: type[Object]) -> list[Any]:
    """What is decided for the others while these are in the cluster too."""
    documents: dict[type[Object], list[dict[str, Any]]] = {kind: []}
    for each in OTHERS:
        documents.setdefault(type(each), []).append(codec.to_dict(each))
    documents[kind] = [*documents[kind], *bad]
    snapshot = snapshot_of(read_all(documents))
    plan = solve(snapshot)
    found: list[Any] = [
        sorted((n.pool, n.instance_types, n.pods, n.price) for n in plan.new_nodes if NAMES & {*n.pods}),
        {name: sorted(NAMES & {*pods}) for name, pods in plan.existing.items() if NAMES & {*pods}},
        {name: why for name, why in plan.unschedulable.items() if name in NAMES},
    ]
    scene = Scene(snapshot)
    for method in METHODS:
        for command in method(scene).commands:
            going = sorted(NAMES & {each.name for each in command.candidates})
            bought = [(each.pool, each.instance_types, each.price) for each in command.replacements]
            found += [(going, bought)] if going else []
    return found


def cases(kind: type[Object]) -> Iterator[Bad]:
    """A bad item for each field, with as many values as there is time for."""
    chance = Random(kind.KIND.kind)
    sound = codec.to_dict(VICTIMS[kind])
    for path in dict.fromkeys(fields_of(kind)):
        for value in chance.sample(VALUES, min(TIMES, len(VALUES))):
            yield path, value, spoil(sound, on_the_wire(path, kind), value)


def numbered(document: dict[str, Any], number: int, path: Any) -> dict[str, Any]:
    """Bad items have names of their own, unless their name is what is bad."""
    meta = document.get("metadata")
    if isinstance(meta, dict) and path[:2] not in (("metadata",), ("metadata", "name")):
        meta["name"] = f"{meta.get('name', 'v')}-{number}"
        meta["uid"] = f"uid-{number}"
    return document


@pytest.mark.parametrize("kind", KINDS, ids=[kind.KIND.kind for kind in KINDS])
def test_an_absurd_value_in_any_field_changes_nothing_for_the_others(kind: type[Object]) -> None:
    untouched = outcome([], kind)
    tried = [(p, v, numbered(d, i, p)) for i, (p, v, d) in enumerate(cases(kind))]
    assert tried
    for start in range(0, len(tried), AT_ONCE):
        part = tried[start : start + AT_ONCE]
        if _fate([document for _, _, document in part], kind) != untouched:
            guilty = [
                (path, str(value)[:40], _fate([document], kind))
                for path, value, document in part
                if _fate([document], kind) != untouched
            ]
            assert not guilty, "\n".join(map(str, guilty))
            pytest.fail(f"only together: {[(path, str(value)[:40]) for path, value, _ in part]}")


def _fate(bad: list[dict[str, Any]], kind: type[Object]) -> Any:
    try:
        return outcome(bad, kind)
    except Exception as error:  # noqa: BLE001 - what it is, is told
        return f"{type(error).__name__}: {str(error)[:200]}"


@pytest.mark.parametrize("kind", KINDS, ids=[kind.KIND.kind for kind in KINDS])
def test_an_object_that_cannot_be_read_is_never_lost_while_it_has_a_name(kind: type[Object]) -> None:
    """A Node or NodeClaim that vanished from memory would be bought again, or its machine collected."""
    tried = [(path, numbered(document, i, path)) for i, (path, _, document) in enumerate(cases(kind))]
    kept = {each.name: each for each in read_all({kind: [document for _, document in tried]})[kind]}
    for path, document in tried:
        if path[:2] in (("metadata",), ("metadata", "name")):
            continue
        found = kept.get(document["metadata"]["name"])
        assert found is not None, path
        try:
            # Half a character is read as Go reads it, and is no reason to set anything aside.
            codec.convert(kind, json.loads(json.dumps(document).replace("\\ud800", "?")))
        except BadInput:
            assert reason_of(found), f"{path} cannot be read, and nobody is told"
