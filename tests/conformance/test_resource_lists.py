"""Lists of amounts add up, subtract and compare as upstream's do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dovetail.api.quantity import (
    Quantity,
    add_amounts,
    max_amounts,
    min_amounts,
    subtract_amounts,
)
from dovetail.scheduling.model.resources import convert_to_nano, fits_within
from support.vectors import cases

CASES = list(cases("resource-lists"))


def amounts(texts: Mapping[str, str] | None) -> dict[str, Quantity]:
    return {name: Quantity.parse(text) for name, text in (texts or {}).items()}


def test_every_case_of_the_vector_file_is_here() -> None:
    assert len(CASES) == 500


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_lists_are_combined_as_upstream_combines_them(case: dict[str, Any]) -> None:
    a, b, c = amounts(case["a"]), amounts(case["b"]), amounts(case["c"])
    assert add_amounts(a, b, c) == amounts(case["merge"])
    assert subtract_amounts(a, b) == amounts(case["subtract"])
    assert max_amounts(a, b, c) == amounts(case["max"])
    assert min_amounts(a, b, c) == amounts(case["min"])
    assert fits_within(convert_to_nano(a), convert_to_nano(b)) is case["fits"]
