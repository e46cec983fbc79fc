"""Absurd values in any field of any object we read change nothing for anybody else.

The kinds are those a Dovetail follows, and the fields are found by looking at the records, so that a new
one is covered on the day it is added. Bad items are put into the cluster many at a time; when that changes
something, they are tried one by one to say which.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import dovetail
from dovetail.api import codec
from dovetail.api.bad_items import reason_of
from dovetail.api.meta import Object
from dovetail.errors import BadInput
from dovetail.sim.clock import run_virtual
from support.hostile_values import bad_documents, numbered, read_all
from support.hostile_world import COMPANIONS, decide, kinds_read, others, victims

AT_ONCE = 200
OTHERS = others()
NAMES = {each.full_name for each in OTHERS} | {f"default/capacity-buffer-room-{i}" for i in (1, 2)}
VICTIMS = victims()
PROVIDERS = kinds_read()
SOURCES = tuple(Path(dovetail.__file__).parent.rglob("*.py"))
KINDS: list[type[Object]] = sorted(PROVIDERS, key=lambda kind: kind.KIND.kind)


def outcome(bad: list[dict[str, Any]], kind: type[Object]) -> list[Any]:
    """What is decided for the others while these are in the cluster too, and who makes use of them."""
    documents: dict[type[Object], list[dict[str, Any]]] = {kind: []}
    for each in OTHERS:
        documents.setdefault(type(each), []).append(codec.to_dict(each))
    documents[kind] += bad
    for document in bad:
        for user, made in COMPANIONS.get(kind, lambda name: ())(_name_of(document)):
            documents.setdefault(user, []).append(made)
    return run_virtual(decide(documents, NAMES, PROVIDERS[kind]))


def _name_of(document: dict[str, Any]) -> str:
    meta = document.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else None
    return name if isinstance(name, str) else ""


ELSEWHERE = {
    "Commitment": "test_hostile_commitments.py",
    "ConfigMap": "one object by name; tests/behaviour/test_zonal_configured.py",
    "CronJob": "in files alone; test_hostile_files.py",
    "DnsService": "one object by name, at the start",
    "CoreV1Event": "written by the recorder, in the older of the two forms",
    "Event": "written, and shown by the dashboard",
    "HorizontalPodAutoscaler": "in files alone; test_hostile_files.py",
    "Job": "in files alone; test_hostile_files.py",
    "Lease": "one object by name; tests/unit/runtime/test_leader.py",
    "PoolDocument": "a NodePool as it is written; tests/behaviour/test_zonal_bad_ones.py",
    "SpendLimit": "test_hostile_spend_limits.py",
    "WrittenClass": "an EC2NodeClass as it is written; tests/behaviour/test_aws_validation.py",
    "ZoneShift": "test_hostile_files.py and tests/behaviour/test_zonal_bad_ones.py",
    "_Bare": "the metadata of any object",
}
"""Kinds that no Dovetail follows with its informers, and where else they are looked at."""


def test_every_kind_there_is_is_thrown_at_or_is_said_to_be_tested_elsewhere() -> None:
    """A kind that somebody adds is in neither list, unless an informer follows it."""
    defined = re.compile(r"^class (\w+)\(Object, frozen", re.MULTILINE)
    known = {name for path in SOURCES for name in defined.findall(path.read_text(encoding="utf-8"))}
    assert known - {kind.__name__ for kind in KINDS} == ELSEWHERE.keys()


@pytest.mark.parametrize("kind", KINDS, ids=[kind.KIND.kind for kind in KINDS])
def test_an_absurd_value_in_any_field_changes_nothing_for_the_others(kind: type[Object]) -> None:
    untouched = outcome([], kind)
    tried = [(p, v, numbered(d, i, p)) for i, (p, v, d) in enumerate(bad_documents(kind, VICTIMS[kind]))]
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
    tried = [
        (path, numbered(document, i, path))
        for i, (path, _, document) in enumerate(bad_documents(kind, VICTIMS[kind]))
    ]
    kept = {each.name: each for each in read_all({kind: [document for _, document in tried]})[kind]}
    for path, document in tried:
        if path[:2] in (("metadata",), ("metadata", "name")):
            continue
        found = kept.get(document["metadata"]["name"])
        assert found is not None, path
        try:
            # Half a character is read as Go reads it, and is no reason to set anything aside.
            codec.decode(kind, json.dumps(document).replace("\\ud800", "?").encode())
        except BadInput:
            assert reason_of(found), f"{path} cannot be read, and nobody is told"
