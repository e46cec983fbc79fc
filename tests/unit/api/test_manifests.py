"""Reading manifests: what kubectl would read, where each field stands, and nothing hostile gets far."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dovetail.api.manifests import (
    Document,
    ManifestComplaint,
    Manifests,
    ReadLimits,
    Severity,
    parse_manifests,
    write_manifest,
)

POD = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n"


def only(text: bytes | str) -> Document:
    found = parse_manifests(text, "f.yaml")
    assert found.complaints == ()
    (document,) = found.documents
    return document


def complaint(text: bytes | str, limits: ReadLimits | None = None) -> ManifestComplaint:
    found = parse_manifests(text, "f.yaml", limits or ReadLimits())
    (one,) = found.complaints
    return one


def value_of(word: str) -> Any:
    return only(f"{POD}spec: {word}\n").value["spec"]


# Recorded from kubectl 1.32: `kubectl annotate --local -f file a=b -o json`.
KUBECTL: list[tuple[str, object]] = [
    ("yes", True), ("no", False), ("on", True), ("off", False), ("y", True), ("n", False), ("Y", True),
    ("True", True), ("TRUE", True), ("tRue", "tRue"), ("~", None), ("null", None), ("NULL", None),
    ("010", 8), ("-010", -8), ("00", 0), ("089", 89), ("0777_7", 4095), ("0o17", 15), ("0O7", 7),
    ("0x1F", 31), ("+0x1F", 31), ("0x_1", 1), ("0b11", 3), ("-0b11", -3), ("0B1", 1),
    ("1_000", 1000), ("1__0", 10), ("1_", 1), ("_1", "_1"), ("1_0.5", 10.5),
    ("1:30", "1:30"), ("190:20:30", "190:20:30"), ("2020-01-01", "2020-01-01"),
    ("2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z"),
    ("1e3", 1000), ("1e+3", 1000), ("1.5", 1.5), (".5", 0.5), ("+.5", 0.5), ("5.", 5), ("1.0", 1),
    ("0.1e-7", 1e-08), ("1.e+1", 10), ("+1", 1), ("-1", -1),
    ("12345678901234567890", 1.2345678901234567e19), ("99999999999999999999999", 1e23),
    ("9223372036854775808", 9.223372036854775808e18), ("0xFFFFFFFFFFFFFFFFF", "0xFFFFFFFFFFFFFFFFF"),
    ("1e400", "1e400"), ("=", "="), ('"1"', "1"), ("'on'", "on"), ("!!str 3", "3"), ("!!str on", "on"),
    ('!!int "4"', 4), ('!!int "0x1F"', 31), ("!!float 5", 5), ("!!bool yes", True), ("!!binary aGk=", "hi"),
    ('! "on"', "on"), ("{1: a, 1.5: b, on: c}", {"1": "a", "1.5": "b", "true": "c"}),
    ("{<<: {a: 1, b: 2}, b: 3}", {"a": 1, "b": 3}), ("{<<: [{a: 1}, {a: 2}]}", {"a": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("word", "meaning"), KUBECTL, ids=[word for word, _ in KUBECTL])
def test_words_mean_what_they_mean_to_kubectl(word: str, meaning: object) -> None:
    found = value_of(word)
    assert (found, type(found)) == (meaning, type(meaning))


@pytest.mark.parametrize(
    "word",
    [
        ".inf",
        "-.inf",
        ".nan",
        "!!int x",
        "!!int 4.0",
        "!!null x",
        "{null: x}",
        "{? [a] : b}",
        '!!binary "@@"',
    ],
)
def test_words_kubectl_refuses_are_complained_about_at_their_place(word: str) -> None:
    one = complaint(f"{POD}spec: {word}\n")
    assert one.line == 5
    assert one.severity is Severity.ERROR


def test_an_unknown_tag_is_read_through_with_a_warning() -> None:
    found = parse_manifests(f"{POD}spec: !Ref vpc\n", "f.yaml")
    assert found.documents[0].value["spec"] == "vpc"
    assert [(c.severity, c.path, c.line) for c in found.complaints] == [(Severity.WARNING, "spec", 5)]
    assert not found.broken


def test_documents_are_counted_and_know_their_names_and_lines() -> None:
    found = parse_manifests(f"# first\n{POD}---\n{POD}  namespace: b\n", "f.yaml")
    assert [(d.index, d.kind, d.api_version, d.name, d.namespace, d.line) for d in found.documents] == [
        (0, "Pod", "v1", "a", "", 2),
        (1, "Pod", "v1", "a", "b", 7),
    ]


def test_the_line_of_any_field_is_known() -> None:
    labels = "  labels:\n    karpenter.sh/a.b: c\n"
    spec = "spec:\n  list:\n  - x: 1\n  - y: 2\n    z:\n      deep: [1,\n 2]\n"
    document = only(f"---\n{POD}{labels}{spec}")
    assert document.line_of("kind") == 3
    assert document.line_of("metadata.labels.karpenter.sh/a.b") == 7
    assert document.line_of('metadata.labels["karpenter.sh/a.b"]') == 7
    assert document.line_of("metadata.labels[karpenter.sh/a.b]") == 7
    assert document.line_of("spec.list[1].y") == 11
    assert document.line_of(("spec", "list", 1, "z", "deep", 1)) == 14
    assert document.line_of("") == document.line == 2


def test_a_field_that_was_not_written_has_the_line_of_what_is_around_it() -> None:
    document = only(f"{POD}spec:\n  containers:\n  - name: x\n")
    assert document.line_of("spec.containers[0].image") == 7
    assert document.line_of("spec.containers[9]") == 6
    assert document.line_of("status.phase") == document.line == 1


def test_lines_are_known_in_json_with_tabs_and_emoji() -> None:
    document = only(
        '{"apiVersion": "v1",\n\t"kind": "Pod",\n\t"a": "\\ud83d\\ude00",\n\t"spec": {\n\t\t"x": 1}}'
    )
    assert document.value["a"] == "😀"
    assert document.line_of("spec.x") == 5


def test_lists_are_flattened_and_typed_items_get_their_kind() -> None:
    text = (
        "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: A}\n- apiVersion: karpenter.sh/v1\n"
        "  kind: NodePoolList\n  items:\n  - metadata: {name: p}\n    spec: {}\n"
    )
    found = parse_manifests(text, "f.yaml")
    assert [(d.api_version, d.kind, d.name, d.line) for d in found.documents] == [
        ("v1", "A", "", 4),
        ("karpenter.sh/v1", "NodePool", "p", 8),
    ]
    assert found.documents[1].line_of("spec") == 9
    assert found.documents[1].value["kind"] == "NodePool"


def test_json_arrays_and_objects_in_a_row_are_documents() -> None:
    a, b = ({"apiVersion": "v1", "kind": kind} for kind in "AB")
    assert [d.kind for d in parse_manifests(json.dumps([a, b]), "f").documents] == ["A", "B"]
    found = parse_manifests(f"{json.dumps(a)}\n{json.dumps(b)}\n", "f").documents
    assert [(d.kind, d.line) for d in found] == [("A", 1), ("B", 2)]


def test_one_broken_document_hides_no_other() -> None:
    found = parse_manifests(f"{POD}---\na: [\n---\n{POD}---\nb: \xff\n---\n{POD}".encode("latin-1"), "f.yaml")
    assert len(found.documents) == 3
    assert [(c.line, c.column) for c in found.complaints] == [(7, 1), (13, 4)]
    assert found.broken


@pytest.mark.parametrize("marker", ["---\n", "--- # next\n", "...\n---\n", "...\n"])
def test_every_marker_separates_documents(marker: str) -> None:
    assert len(parse_manifests(f"{POD}{marker}{POD}", "f").documents) == 2


def test_directives_stay_with_their_document() -> None:
    assert only(f"%YAML 1.1\n---\n{POD}").name == "a"


def test_a_byte_order_mark_and_windows_line_ends_are_harmless() -> None:
    assert only(b"\xef\xbb\xbf" + POD.replace("\n", "\r\n").encode()).name == "a"


@pytest.mark.parametrize(
    "text", ["", "\n\n", "---\n---\n", "# only a comment\n", "---\n...\n", "--- \n# x\n"]
)
def test_nothing_is_nothing(text: str) -> None:
    assert parse_manifests(text, "f") == Manifests()


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (b"a: 1\nb: \x00", 2, "NUL byte"),
        (b"a: 1\nb: \xff", 2, "not UTF-8"),
        ("a: 1".encode("utf-16"), None, "UTF-16"),
        (b"spec:\n\ta: 1\n", 2, "tab"),
        (b"a: 1\n b: 2\n", 2, "indentation"),
        (b"a: @b\n", 1, "quotes"),
        (b'{"a": 1,\n "b" 2}', 2, "not JSON"),
        (b"just words\n", 1, "not an object"),
        (b"kind: Pod\n", 1, "no apiVersion"),
        (b"apiVersion: v1\nkind: on\n", 2, "not a word"),
        (b"a: &a [*a]\n", 1, "refers to nothing"),
        (b"a: *b\n", 1, "refers to nothing"),
        (b"a: \x07\n", 1, "control characters"),
        (b"%TAG ! tag:a\n" * 100 + b"--- 1\n", 1, "start with %"),
    ],
)
def test_bad_input_gets_one_sentence_with_its_place(text: bytes, line: int | None, words: str) -> None:
    one = complaint(text)
    assert one.line == line
    assert words in one.message
    assert "\n" not in str(one)


def test_a_key_given_twice_is_reported_where_it_is_repeated() -> None:
    for text in (
        f"{POD}  name: b\n",
        '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a",\n"name": "b"}}',
    ):
        found = parse_manifests(text, "f.yaml")
        (one,) = found.complaints
        assert (one.path, one.severity) == ("metadata.name", Severity.ERROR)
        assert one.line in (2, 5)
        assert found.documents[0].name == "b"


def test_a_complaint_reads_like_a_compiler_message() -> None:
    assert str(complaint(b"a: 1\n b: 2\n")).startswith("f.yaml:2:3: error: this is not YAML: ")


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(c)}: &{chr(c)} [{','.join(f'*{chr(c - 1)}' for _ in range(9))}]\n" for c in range(98, 110)
)


@pytest.mark.parametrize(
    ("text", "limits", "words"),
    [
        (BOMB, ReadLimits(), "aliases repeat more than"),
        ("[" * 100_000, ReadLimits(), "nested deeper"),
        ('{"a":' * 100_000, ReadLimits(), "nested deeper"),
        ("- " * 5_000, ReadLimits(), "nested deeper"),
        ("? " * 5_000, ReadLimits(), "nested deeper"),
        ("[" + "1," * 1000 + "1]", ReadLimits(nodes=100), "more than 100 values"),
        ("- 1\n" * 1000, ReadLimits(nodes=100), "more than 100 values"),
        ("---\n" * 1000, ReadLimits(documents=100), "more than 100 documents"),
        ("a" * 1000, ReadLimits(size=999), "larger than 999 bytes"),
    ],
)
def test_limits_stop_what_has_no_end(text: str, limits: ReadLimits, words: str) -> None:
    assert words in complaint(text, limits).message


def test_the_value_limit_covers_the_whole_file() -> None:
    found = parse_manifests(f"{POD}---\n" * 100, "f", ReadLimits(nodes=300))
    assert 0 < len(found.documents) < 100
    assert found.broken


def test_complaints_have_a_limit_too() -> None:
    found = parse_manifests("- 1\n" * 50, "f", ReadLimits(complaints=10))
    assert len(found.complaints) == 11
    assert "the rest is not shown" in found.complaints[-1].message


def test_aliases_give_copies_that_do_not_share_fate() -> None:
    value = only(f"{POD}x: &x {{a: [1]}}\nz: *x\n").value
    value["x"]["a"].append(2)
    assert value["z"] == {"a": [1]}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: not x.is_integer())
    | st.text() | st.sampled_from(["on", "y", "0o7", "1_0", "<<", "=", "~", ".inf", "1e3", "- a"])
    | st.sampled_from(["a: b", "a\nb\n", "#"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=15,
)  # fmt: skip


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=4))
@settings(max_examples=300)
@example({"a": "\ufeffx", "b": "a\r\nb", "c": "\x85", "d": " \n", "e": "\x7f\ud7ff"})
def test_what_is_written_is_read_back_the_same(extra: dict[str, Any]) -> None:
    value = {"apiVersion": "v1", "kind": "Pod", "spec": extra}
    assert only(write_manifest(value)).value == value


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=4))
def test_json_is_read_as_itself(extra: dict[str, Any]) -> None:
    value = {"apiVersion": "v1", "kind": "Pod", "spec": extra}
    assert only(json.dumps(value)).value == value


PIECES = st.sampled_from(
    ["---\n", "...\n", "a: ", "- ", "[", "]", "{", "}", '"', "'", "&a ", "*a", "!!int ", "!x ", "<<: ", "? ",
     ": ", "|\n", ">-\n", "\n", "\t", "  ", "#", "%TAG ", "@", "`", "\x00", "\ufeff", "é", "\u2028", "\x85",
     "apiVersion: v1\n", "kind: List\n", "items:\n", "metadata: {name: a}\n", "\\ud800", "1e999", "-.inf",
     "null"]
)  # fmt: skip


@given(st.binary(max_size=200) | st.lists(PIECES, max_size=25).map(lambda parts: "".join(parts).encode()))
@settings(max_examples=1500)
def test_no_bytes_whatever_raise_anything(data: bytes) -> None:
    found = parse_manifests(data, "f", ReadLimits(depth=8, nodes=50, expanded=20))
    for document in found.documents:
        assert document.kind
        assert document.line is None or document.line >= 1
        assert document.line_of("metadata.name") is None or document.name is not None
    assert all(one.message and "\n" not in one.message for one in found.complaints)


@given(st.text(max_size=200))
def test_no_text_whatever_raises_anything(text: str) -> None:
    found = parse_manifests(text, "f")
    assert all(one.source == "f" for one in found.complaints)


@pytest.mark.parametrize("digits", [20, 400, 4_000, 5_000])
def test_a_number_of_any_length_in_json_is_read_as_in_yaml(digits: int) -> None:
    number = "1" + "0" * digits
    told = [f'{{"apiVersion": "v1", "kind": "Pod", "spec": {{"x": {number}}}}}']
    told.append(f"apiVersion: v1\nkind: Pod\nspec:\n  x: {number}\n")
    read = [parse_manifests(text, "f").documents[0].value["spec"]["x"] for text in told]
    assert read[0] == read[1]
