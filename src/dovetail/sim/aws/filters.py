"""How EC2 lists things: filters with wildcards, tags, pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from dovetail.sim.aws.service import AwsRequest, Json

__all__ = ["Values", "apply_filters", "tag_list", "tags_for", "tags_of", "take_page"]

T = TypeVar("T")
VALUES_MOST = 200
# What a filter compares: a thing's values under each filter name it knows; tags come by `tags`.
Values = Mapping[str, Iterable[str]]


def apply_filters(
    request: AwsRequest,
    things: Iterable[T],
    values: Callable[[T], Values],
    tags: Callable[[T], Mapping[str, str]],
    key: str = "Filters",
) -> list[T]:
    """The things that match every filter: one of its values each."""
    filters = [(each["Name"], tuple(each.get("Values") or ())) for each in request.get(key, ())]
    if sum(len(values) for _, values in filters) > VALUES_MOST:
        raise request.refuse(
            "FilterLimitExceeded", f"The maximum number of filter values on a single call is {VALUES_MOST}"
        )
    found = list(things)
    for name, wanted in filters:
        found = [thing for thing in found if _matches_filter(request, name, wanted, thing, values, tags)]
    return found


def _matches_filter(
    request: AwsRequest,
    name: str,
    wanted: tuple[str, ...],
    thing: T,
    values: Callable[[T], Values],
    tags: Callable[[T], Mapping[str, str]],
) -> bool:
    if name.startswith("tag:"):
        value = tags(thing).get(name[4:])
        return value is not None and _matches_any(wanted, (value,))
    if name == "tag-key":
        return _matches_any(wanted, tags(thing))
    known = values(thing)
    if name not in known:
        raise request.refuse("InvalidParameterValue", f"The filter '{name}' is invalid")
    return _matches_any(wanted, known[name])


def _matches_any(wanted: tuple[str, ...], values: Iterable[str]) -> bool:
    exact, patterns = _compile_values(wanted)
    return any(value in exact or any(each.fullmatch(value) for each in patterns) for value in values)


@lru_cache(4096)
def _compile_values(wanted: tuple[str, ...]) -> tuple[frozenset[str], tuple[re.Pattern[str], ...]]:
    plain = frozenset(value for value in wanted if "*" not in value and "?" not in value)
    wild = (re.escape(value).replace(r"\*", ".*").replace(r"\?", ".") for value in wanted)
    return plain, tuple(
        re.compile(text, re.DOTALL) for value, text in zip(wanted, wild, strict=True) if value not in plain
    )


def take_page(
    request: AwsRequest, things: Sequence[T], *, most: int = 1000, named: str = "", least: int = 1
) -> tuple[Sequence[T], Json]:
    """One page, and the token of the next one if there is more.

    Without MaxResults everything comes at once, as EC2 does it; ids and MaxResults do not go together.
    """
    limit, token = request.get("MaxResults"), request.get("NextToken")
    if limit is not None and named and request.get(named):
        raise request.refuse(
            "InvalidParameterCombination",
            f"The parameter {named} cannot be used with the parameter maxResults",
        )
    if limit is not None and not least <= int(limit):
        raise request.refuse(
            "InvalidParameterValue", f"Value ( {limit} ) for parameter maxResults is invalid."
        )
    start = 0
    if token:
        try:
            start = int(str(token), 36)
        except ValueError:
            raise request.refuse("InvalidNextToken", f"The token '{token}' is invalid.") from None
    end = start + (min(int(limit), most) if limit is not None else len(things))
    return things[start:end], ({"NextToken": _in_base_36(end)} if end < len(things) else {})


def _in_base_36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits.rjust(12, "0")


def tag_list(tags: Mapping[str, str]) -> list[Json]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def tags_of(listed: Iterable[Mapping[str, Any]] | None) -> dict[str, str]:
    return {each["Key"]: each.get("Value", "") for each in listed or ()}


def tags_for(request: AwsRequest, kind: str) -> dict[str, str]:
    """What a request's TagSpecifications say for a kind of resource."""
    found: dict[str, str] = {}
    for specification in request.get("TagSpecifications", ()):
        if specification.get("ResourceType") == kind:
            found |= tags_of(specification.get("Tags"))
    return found
