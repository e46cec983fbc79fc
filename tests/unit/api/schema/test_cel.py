"""CEL as Kubernetes speaks it: the language, its extensions, and where it says no."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.schema.cel import CelError, compile_rule

TRUE: list[tuple[str, Any]] = [
    ("self.size() == 3", "abc"),
    ("size(self) == 2", ["a", "b"]),
    ("self.all(k, self[k] > 1)", {"a": 2, "b": 3}),
    ("self.exists(x, x == 'b')", ["a", "b"]),
    ("self.exists_one(x, x == 'b')", ["a", "b"]),
    ("self.filter(x, x > 1).size() == 1", [1, 2]),
    ("self.map(x, x * 2) == [2, 4]", [1, 2]),
    ("has(self.a) && !has(self.b)", {"a": None}),
    ("self.matches('^[a-z]+$')", "abc"),
    ("!self.matches('^[a-z]+$')", "abc\n"),
    ("self.find('[0-9]+') == '12'", "ab12cd34"),
    ("self.find('x') == ''", "abc"),
    ("self.findAll('[0-9]+') == ['12', '34']", "ab12cd34"),
    ("self.findAll('[0-9]+', 1) == ['12']", "ab12cd34"),
    ("self.split(',') == ['a', 'b', '']", "a,b,"),
    ("self.split(',', 2) == ['a', 'b,']", "a,b,"),
    ("self.split('') == ['a', 'b']", "ab"),
    ("self.join('-') == 'a-b'", ["a", "b"]),
    ("self.indexOf('c') == 2 && self.indexOf('z') == -1", "abc"),
    ("self.lastIndexOf('a') == 2", "aba"),
    ("self.replace('a', 'x') == 'xbx'", "aba"),
    ("self.replace('a', 'x', 1) == 'xba'", "aba"),
    ("self.trim() == 'a'", " a\n"),
    ("self.lowerAscii() == 'abÉ' && self.upperAscii() == 'ABÉ'", "aBÉ"),
    ("self.substring(1, 2) == 'b' && self.charAt(0) == 'a'", "abc"),
    ("'%s=%d %.2f%%'.format([self, 3, 1.5]) == 'a=3 1.50%'", "a"),
    ("self.isSorted() && self.sum() == 6 && self.min() == 1 && self.max() == 3", [1, 2, 3]),
    ("!self.isSorted()", ["b", "a"]),
    ("sets.contains(self, ['a']) && !sets.intersects(self, ['c'])", ["a", "b"]),
    ("sets.equivalent(self, ['b', 'a', 'a'])", ["a", "b"]),
    ("self.distinct() == [1, 2]", [1, 2, 1]),
    ("quantity(self).isGreaterThan(quantity('1Gi'))", "1025Mi"),
    ("quantity(self) == quantity('1024Mi')", "1Gi"),
    ("quantity(self).add(quantity('500m')).compareTo(quantity('1')) == 0", "500m"),
    ("!isQuantity('ten') && isQuantity(self)", "1e3"),
    (
        "isURL(self) && url(self).getHost() == 'h:8080' && url(self).getPort() == '8080'",
        "http://h:8080/p?q=1",
    ),
    ("!isURL(self)", "not a url"),
    ("isIP(self) && !isCIDR(self)", "10.0.0.1"),
    ("ip(self).family() == 4 && cidr('10.0.0.0/8').containsIP(self) && !ip(self).isLoopback()", "10.1.2.3"),
    ("cidr(self).prefixLength() == 8 && cidr(self).containsCIDR('10.1.0.0/16')", "10.0.0.0/8"),
    ("string(duration(self)) == '90s' && string(1.5e30) == '1.5e+30' && string(0.5) == '0.5'", "1m30s"),
    ("string(timestamp(self)) == self && string(1234567.0) == '1.234567e+06'", "2020-01-01T00:00:00Z"),
    ("self.findAll('a*') == ['', 'a', 'aa']", "babaa"),
    ("self.sort() == ['a', 'b'] && lists.range(2) == [0, 1] && self.reverse() == ['a', 'b']", ["b", "a"]),
    ("strings.quote(self) == '\"a\"'", "a"),
    ("type(self) == string && self.indexOf('c', 9) == -1", "abc"),
    ("string(self) == 'true' && bool('false') == false", True),
    ("duration('90m') == duration('1h30m') && timestamp(self).getFullYear() == 2020", "2020-01-01T00:00:00Z"),
    ("self.x.y == 1 // a comment, and '//' in text", {"x": {"y": 1}}),
    ("type(self) == map", {}),
    ("self == 1", 1.0),
]


@pytest.mark.parametrize(("rule", "value"), TRUE, ids=[rule for rule, _ in TRUE])
def test_a_rule_that_holds(rule: str, value: Any) -> None:
    assert compile_rule(rule).evaluate(value) is True


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("self.absent == 1", {}),
        ("self + 1.0 > 0.0", 1),
        ("self + 1u > 0u", 1),
        ("self + 1 > 0", 2**63 - 1),
        ("self < 'a'", 1),
        ("1 / self == 1", 0),
        ("self", 1),
        ("self[5] == 1", [1]),
        ("self.find('(?=a)') == ''", "a"),
        ("quantity(self).isLessThan(quantity('1'))", "x"),
        ("self.min() == 1", []),
        ("self.substring(4) == ''", "abc"),
        ("int(self) == 1", "x"),
    ],
)
def test_a_rule_without_an_answer_is_an_error_and_not_a_no(rule: str, value: Any) -> None:
    with pytest.raises(CelError):
        compile_rule(rule).evaluate(value)


@pytest.mark.parametrize(
    "rule",
    [
        "self.",
        "self ==",
        "nonsense(self)",
        "self.nonsense()",
        "self.?a == 1",
        "cel.bind(x, 1, x == 1)",
        "math.abs(self) == 1",
        "self.all(i, v, v > i)",
    ],
)
def test_a_rule_that_cannot_be_understood_does_not_compile(rule: str) -> None:
    with pytest.raises(CelError):
        compile_rule(rule)


def test_an_error_on_one_side_of_an_or_is_absorbed_by_a_true_on_the_other() -> None:
    rule = compile_rule("self.absent == 1 || self.present")
    assert rule.evaluate({"present": True}) is True
    with pytest.raises(CelError):
        rule.evaluate({"present": False})


def test_strings_are_measured_in_characters_and_not_in_bytes() -> None:
    assert compile_rule("self.size() == 2 && size(self) == 2").evaluate("né")
    assert compile_rule("self.list.size() == 1 && self.text.size() == 1").evaluate({"list": [1], "text": "é"})


def test_the_old_value_is_bound_only_when_there_is_one() -> None:
    rule = compile_rule("self >= oldSelf")
    assert rule.uses_old
    assert rule.evaluate(2, 1) is True
    assert rule.evaluate(1, 2) is False
    with pytest.raises(CelError):
        rule.evaluate(1)


def test_an_optional_old_value_can_be_asked_for() -> None:
    rule = compile_rule("oldSelf.hasValue() ? oldSelf.value() <= self : self == 1")
    assert rule.evaluate(1, optional_old=True) is True
    assert rule.evaluate(2, optional_old=True) is False
    assert rule.evaluate(2, 1, optional_old=True) is True


@pytest.mark.parametrize(
    ("rule", "settled"),
    [
        ("self == oldSelf", True),
        ("has(self.a) == has(oldSelf.a)", True),
        ("has(self.a) == has(oldSelf.b)", False),
        ("self.a == oldSelf.a", False),
        ("self == oldSelf || false", False),
        ("self != oldSelf", False),
    ],
)
def test_only_plain_immutability_is_settled_by_equality(rule: str, settled: bool) -> None:
    assert compile_rule(rule).holds_when_equal is settled


def test_a_rule_knows_which_fields_it_selects() -> None:
    rule = compile_rule("has(self.a.b) && self.c.size() > oldSelf.d && self.e.all(x, x.f == self['g'])")
    assert rule.paths == {("a", "b"), ("c",), ("d",), ("e",), ()}


def test_a_name_in_text_is_no_mention_of_the_old_value() -> None:
    assert not compile_rule("self == 'oldSelf'").uses_old


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("self.a == 1 && size(self) == 2", {"a": 1, "b": 2}),
        ("self['b'] == 2 && self.a == 1", {"a": 1, "b": 2}),
        ("'b' in self && has(self.a)", {"a": 1, "b": 2}),
        ("[self.a].exists(x, x == self.b - 1)", {"a": 1, "b": 2}),
        ("self.self.self == 3", {"self": {"self": 3, "b": 1}}),
        ("self.x.self == 3", {"x": {"self": 3}}),
        ("{'k': self}.k.b == 2 && self.a == 1", {"a": 1, "b": 2}),
        ("self . a == 1 && !has(self.c)", {"a": 1, "b": 2}),
        ("self.filter(k, k == 'b').size() == 1", {"a": 1, "b": 2}),
    ],
)
def test_leaving_out_what_a_rule_does_not_name_leaves_its_answer(rule: str, value: Any) -> None:
    assert compile_rule(rule).evaluate(value) is True


def test_a_remembered_verdict_is_about_that_value_alone() -> None:
    rule = compile_rule("self.n == 1 && type(self.n) == int")
    assert [rule.evaluate({"n": n}) for n in (1, 2, 1, 1.0, True, "1")] == [
        True,
        False,
        True,
        False,
        False,
        False,
    ]
    assert rule.evaluate({"n": 1, "other": 5}) is True
    many = compile_rule("self[0] % 2 == 0")
    assert [many.evaluate([n]) for n in range(2000)] == [n % 2 == 0 for n in range(2000)]


def test_the_same_text_is_compiled_once() -> None:
    assert compile_rule("self == 41") is compile_rule("self == 41")


def test_comprehensions_inside_one_another_have_a_limit() -> None:
    rule = compile_rule("self.all(a, self.all(b, self.all(c, a == b || b == c || true)))")
    assert rule.evaluate(list(range(20))) is True
    with pytest.raises(CelError, match="limit"):
        rule.evaluate(list(range(1000)))


def test_a_failing_function_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CelError):
        compile_rule("quantity(self) == quantity('1')").evaluate("bad")
    assert capfd.readouterr() == ("", "")


def answers(text: str) -> bool:
    """Whether the text is a rule with an answer about an empty object."""
    try:
        compile_rule(text).evaluate({})
    except CelError:
        return False
    return True


@given(st.text(max_size=40))
def test_no_text_makes_the_compiler_fail_in_another_way(text: str) -> None:
    assert answers(text) in (True, False)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5),
        lambda s: st.lists(s, max_size=3) | st.dictionaries(st.text(max_size=3), s, max_size=3),
        max_leaves=8,
    )
)
def test_every_value_equals_itself(value: Any) -> None:
    assert compile_rule("self == self").evaluate(value) is True
