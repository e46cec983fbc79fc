"""The words of `dovetail validate` for what the one schema interpreter finds."""

from __future__ import annotations

import sys
from subprocess import run
from typing import Any

import pytest

from dovetail.api.schema.object_schema import Schema
from dovetail.api.validation.schema import schema_complaints

ITEM = {"type": "object", "properties": {"k": {"type": "string"}, "n": {"type": "integer"}}}
SPEC = {
    "name": {"type": "string", "pattern": "^a+$", "minLength": 2, "maxLength": 3},
    "size": {"type": "integer", "format": "int32", "maximum": 5},
    "kind": {"type": "string", "enum": ["a", "b"]},
    "since": {"type": "string", "format": "date-time", "maxLength": 3},
    "items": {
        "type": "array",
        "items": ITEM,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
    },
}
SCHEMA = Schema.from_openapi(
    {
        "type": "object",
        "properties": {"metadata": {"type": "object"}, "spec": {"type": "object", "properties": SPEC}},
    }
)


def told(spec: Any, old: Any = None) -> list[str]:
    before = () if old is None else ({"spec": old},)
    return [str(each) for each in schema_complaints(SCHEMA, {"metadata": 1, "spec": spec}, *before)]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        # Every limit of a text is told, the pattern first; the API server tells only one of them.
        (
            {"name": "bbbb"},
            [
                'spec.name: "bbbb" is not of the form ^a+$ (pattern)',
                "spec.name: has 4, may have at most 3 (length)",
            ],
        ),
        # Of a value of the wrong type nothing else is told, though the API server names its enum too.
        ({"kind": 1}, ["spec.kind: must be a string, not 1: put it in quotes (type)"]),
        ({"size": 2**31}, ["spec.size: 2147483648 does not fit in int32 (type)"]),
        (
            {"since": "noon"},
            ['spec.since: must be a time such as 2026-06-01T12:00:00Z, not "noon" (type)'],
        ),
        # Lists are told item by item, and each repetition.
        (
            {"items": [{"k": "x", "n": "1"}, {"k": "x"}, {"k": "x", "n": True}]},
            [
                'spec.items[0].n: must be an integer, not "1" (type)',
                "spec.items[1]: is in the list already (duplicate)",
                "spec.items[2]: is in the list already (duplicate)",
                "spec.items[2].n: must be an integer, not true (type)",
            ],
        ),
        (
            {"nme": 1},
            ["spec.nme: is not a field of this kind and would be dropped: did you mean name? (unknown)"],
        ),
    ],
)
def test_a_failure_has_the_words_of_validate(spec: Any, words: list[str]) -> None:
    assert told(spec) == words


def test_what_did_not_change_is_not_told() -> None:
    assert told({"name": "b", "size": 9}, {"name": "b", "size": 7}) == ["spec.size: 9 is more than 5 (range)"]


def test_checking_a_document_does_not_load_cel() -> None:
    script = (
        "import sys\nfrom dovetail.api.validation import check_document\n"
        "check_document({'apiVersion': 'karpenter.sh/v1', 'kind': 'NodePool', 'spec': {}})\n"
        "print('cel' in sys.modules)"
    )
    assert run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "False\n"
