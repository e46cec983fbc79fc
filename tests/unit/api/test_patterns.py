"""Patterns mean what RE2 means by them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.patterns import PatternError, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("^a$", "a", True),
        ("^a$", "a\n", False),
        ("a$|b", "ab", True),
        (r"[$]", "$", True),
        (r"\$", "$", True),
        ("b", "abc", True),
        (r"^\d+$", "٣", False),
        ("[[:alpha:]]+", "1a", True),
        ("^[[:digit:]-]+$", "1-2", True),
        ("[^]]", "]", False),
        ("[]a]", "]", True),
        ("[a+*(]", "+", True),
        ("(?i)ABC", "abc", True),
        ("(?P<name>a)", "a", True),
        ("(?<name>a)", "a", True),
        ("(?:a|b)+", "ab", True),
        (r"\Qa.b\E", "a.b", True),
        (r"\Qa.b\E", "axb", False),
        (r"\x{41}", "A", True),
        (r"^a\z", "a", True),
        ("a{2,3}", "aa", True),
        (".", "\n", False),
        ("^*a", "a", True),
        (r"^\pL$", "é", True),
        (r"^\p{L}$", "1", False),
        ("(?m)^b$", "a\nb\nc", True),
        ("a{,2}", "a", False),
        ("a{,2}", "a{,2}", True),
        ("[a&&b]", "&", True),
        ("[[a]", "[", True),
        ("a}", "a}", True),
    ],
)
def test_a_pattern_finds_what_re2_finds(pattern: str, text: str, found: bool) -> None:
    assert compile_pattern(pattern).has_match(text) is found


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        r"(a)\1",
        "(?>a)",
        "a++",
        "a{2}+",
        "a**",
        "[a--b]",
        "a{1001}",
        "(",
        r"\y",
        "[[:nope:]]",
        "(?P=a)",
    ],
)
def test_what_re2_lacks_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        compile_pattern(pattern)


def accepted(pattern: str) -> bool:
    try:
        compile_pattern(pattern)
    except PatternError:
        return False
    return True


@given(st.text(max_size=20))
def test_any_text_compiles_or_is_refused(pattern: str) -> None:
    assert accepted(pattern) in (True, False)


def test_the_difference_between_the_two_shows() -> None:
    assert accepted("a|b")
    assert not accepted("a|(b")
