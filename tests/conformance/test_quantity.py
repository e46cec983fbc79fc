"""Amounts read, print, add and compare as upstream's do; every case of the vectors is asserted."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import pytest

from dovetail.api.quantity import BadQuantity, Quantity, print_as_go
from support.vectors import cases

ALL = list(cases("quantity"))
PARSED = [case["q"] for case in ALL if case["kind"] == "parse" and "error" not in case["q"]]
REFUSED = [case["q"] for case in ALL if case["kind"] == "parse" and "error" in case["q"]]
SUMS = [case for case in ALL if case["kind"] == "arith"]
EXACT = Context(prec=600)

# Go keeps amounts of many digits in another form, and rounds the negative ones of those wrongly: a positive
# remainder is added instead of taken away, and what passes 64 bits on the way wraps round. We round all
# negative amounts away from zero, as Go does with short ones. Nothing upstream rounds a negative amount.
ROUNDED_WRONGLY = {
    "value": [
        "-0.0000000001",
        "-1.5Pi",
        "-1000Pi",
        "-1108Pi",
        "-15.6Gi",
        "-2.2Ei",
        "-28.2Ti",
        "-38.85Pi",
        "-3Ei",
        "-4Pi",
        "-584735728Gi",
        "-59.77Ki",
        "-696734795628314222434e-3",
        "-8556053358293721272870e-3",
        "-98.3597u",
        "-9Pi",
    ],
    "milli": ["-0.0000000001", "-1.5Pi", "-15.6Gi", "-28.2Ti", "-4Pi", "-98.3597u"],
}
SUMS_ROUNDED_WRONGLY = 85


def test_every_case_of_the_vector_file_is_here() -> None:
    assert (len(PARSED), len(REFUSED), len(SUMS)) == (915, 21, 700)


@pytest.mark.parametrize("case", PARSED, ids=lambda case: case["in"])
def test_an_amount_reads_as_upstream_reads_it(case: dict[str, Any]) -> None:
    amount = Quantity.parse(case["in"])
    assert str(amount) == case["text"]
    assert print_as_go(case["in"]) == case.get("kept", case["text"])
    assert amount.format == case["format"]
    assert (amount.nano > 0) - (amount.nano < 0) == case["sign"]
    assert Decimal(amount.nano).scaleb(-9, EXACT) == Decimal(case["dec"])
    for name in ("value", "milli"):
        if name in case and case["in"] not in ROUNDED_WRONGLY[name]:
            assert getattr(amount, name) == case[name]


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in ROUNDED_WRONGLY.items() for text in texts]
)
def test_long_negative_amounts_are_rounded_away_from_zero_too(name: str, text: str) -> None:
    amount = Quantity.parse(text)
    unit = {"value": 10**9, "milli": 10**6}[name]
    rounded = getattr(amount, name)
    assert rounded * unit <= amount.nano < (rounded + 1) * unit
    assert rounded != next(case for case in PARSED if case["in"] == text)[name]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: repr(case["in"]))
def test_what_upstream_refuses_is_refused_in_one_sentence(case: dict[str, Any]) -> None:
    with pytest.raises(BadQuantity) as caught:
        Quantity.parse(case["in"])
    message = str(caught.value)
    assert repr(case["in"]) in message
    assert "\n" not in message
    assert ("suffixes" in message) == ("suffix" in case["error"])


@pytest.mark.parametrize("case", SUMS, ids=lambda case: " ".join(case["in"]))
def test_amounts_add_and_compare_as_upstream_does(case: dict[str, Any]) -> None:
    amounts = [Quantity.parse(text) for text in case["in"]]
    first, second = amounts[:2]
    total = sum(amounts[1:], start=first)
    assert str(total) == case["sum"]
    assert str(first - second) == case["diff"]
    assert (first > second) - (first < second) == case["cmp"]
    assert (first == second) is case["equal"]
    for amount, milli in ((total, case["sumMilli"]), (first - second, case["diffMilli"])):
        if milli is not None and amount.nano >= 0:
            assert amount.milli == milli


def test_only_long_negative_sums_are_rounded_differently() -> None:
    differing = []
    for case in SUMS:
        first, second, *rest = (Quantity.parse(text) for text in case["in"])
        for amount, milli in (
            (sum(rest, start=first + second), case["sumMilli"]),
            (first - second, case["diffMilli"]),
        ):
            if milli is not None and amount.milli != milli:
                differing.append(amount)
    assert len(differing) == SUMS_ROUNDED_WRONGLY
    assert all(amount.nano < 0 for amount in differing)
