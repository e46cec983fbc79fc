"""The algebra of label requirements: which values each label of a node may take.

One `Values` is what one label may be; `Requirements` is that for every label somebody cares about.
Both are frozen, so they can be shared and cached freely. Nothing here knows of pods or nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from dovetail.api.labels import HOSTNAME, normalize_label
from dovetail.api.nodepool import Requirement
from dovetail.api.numbers import LARGEST, SMALLEST, clamp_integer, parse_integer

__all__ = ["EXISTS", "NOTHING", "Requirements", "Values", "build_entries", "describe_values", "parse_values"]

IN: Final = "In"
NOT_IN: Final = "NotIn"
EXISTS_OPERATOR: Final = "Exists"
DOES_NOT_EXIST: Final = "DoesNotExist"

_SHOWN: Final = 5


class Values(msgspec.Struct, frozen=True, gc=False):
    """The values one label may take: a finite set, or everything except one.

    In is a set and NotIn its complement; Exists excludes nothing, DoesNotExist allows
    nothing. Gt and Lt become bounds, which only an open set carries: a closed set has
    already been filtered by them. `min_values` asks that many distinct values of the
    instance types a node may become, and has no say in which values are allowed.
    """

    names: frozenset[str] = frozenset()
    open: bool = False
    at_least: int | None = None
    at_most: int | None = None
    min_values: int | None = None

    def __contains__(self, value: str) -> bool:
        return (value in self.names) is not self.open and self._in_bounds(value)

    def __len__(self) -> int:
        return LARGEST - len(self.names) if self.open else len(self.names)

    def __bool__(self) -> bool:
        return self.open or bool(self.names)

    def __and__(self, other: Values) -> Values:
        if self is other:
            return self
        wanted = choose_higher(self.min_values, other.min_values)
        low = choose_higher(self.at_least, other.at_least)
        high = choose_lower(self.at_most, other.at_most)
        if low is not None and high is not None and low > high:
            return Values(min_values=wanted)
        if self.open and other.open:
            return Values(_keep_within_bounds(self.names | other.names, low, high), True, low, high, wanted)
        if self.open:
            names = other.names - self.names
        else:
            names = self.names - other.names if other.open else self.names & other.names
        return Values(_keep_within_bounds(names, low, high), min_values=wanted)

    def has_intersection(self, other: Values) -> bool:
        """Whether some value is allowed by both.

        Karpenter: two open sets are taken to meet unless their bounds contradict each other; that
        exclusions might use up a narrow range is not looked at (requirement.go, HasIntersection).
        """
        low = choose_higher(self.at_least, other.at_least)
        high = choose_lower(self.at_most, other.at_most)
        if low is not None and high is not None and low > high:
            return False
        if self.open and other.open:
            return True
        if self.open:
            names = other.names - self.names
        elif other.open:
            names = self.names - other.names
        else:
            return not self.names.isdisjoint(other.names)
        return bool(names) if low is None and high is None else bool(_keep_within_bounds(names, low, high))

    @property
    def operator(self) -> str:
        """The operator this amounts to. Bounded sets call themselves Exists, as in Karpenter."""
        if self.open:
            return NOT_IN if self.names else EXISTS_OPERATOR
        return IN if self.names else DOES_NOT_EXIST

    @property
    def negative(self) -> bool:
        """Whether a node without the label would do: NotIn and DoesNotExist."""
        return bool(self.names) if self.open else not self.names

    @property
    def only(self) -> str | None:
        """The one value allowed, when it is exactly one."""
        if self.open or len(self.names) != 1:
            return None
        (name,) = self.names
        return name

    def with_min_values(self, count: int | None) -> Values:
        return replace(self, min_values=count)

    def _in_bounds(self, value: str) -> bool:
        return _is_within_bounds(value, self.at_least, self.at_most)


EXISTS: Final = Values(open=True)
NOTHING: Final = Values()


def choose_higher(a: int | None, b: int | None) -> int | None:
    """The larger of two bounds, where None does not bind."""
    if a is None or b is None:
        return b if a is None else a
    return max(a, b)


def choose_lower(a: int | None, b: int | None) -> int | None:
    """The smaller of two bounds, where None does not bind."""
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)


def _is_within_bounds(value: str, low: int | None, high: int | None) -> bool:
    if low is None and high is None:
        return True
    number = parse_integer(value)
    return number is not None and (low is None or number >= low) and (high is None or number <= high)


def _keep_within_bounds(names: frozenset[str], low: int | None, high: int | None) -> frozenset[str]:
    if low is None and high is None:
        return names
    return frozenset(name for name in names if _is_within_bounds(name, low, high))


def _parse_bound(values: Iterable[str]) -> int:
    """The number of a Gt or Lt. What validation would refuse acts as 0; what is too large is clamped."""
    return clamp_integer(next(iter(values), "")) or 0


def parse_values(operator: str, values: Iterable[str] = (), min_values: int | None = None) -> Values:
    """What an operator and its values allow."""
    match operator:
        case "In":
            return Values(frozenset(values), min_values=min_values)
        case "NotIn":
            return Values(frozenset(values), True, min_values=min_values)
        case "Exists":
            return Values(open=True, min_values=min_values)
        case "Gt":
            bound = _parse_bound(values)
            # Nothing is greater than the greatest; Karpenter forgets minValues here too.
            return (
                NOTHING if bound == LARGEST else Values(open=True, at_least=bound + 1, min_values=min_values)
            )
        case "Lt":
            # Karpenter subtracts in 64 bits, so that less than the least wraps round to no bound at all.
            bound = _parse_bound(values)
            below = LARGEST if bound == SMALLEST else bound - 1
            return Values(open=True, at_most=below, min_values=min_values)
        case "Gte":
            return Values(open=True, at_least=_parse_bound(values), min_values=min_values)
        case "Lte":
            return Values(open=True, at_most=_parse_bound(values), min_values=min_values)
        case _:
            return Values(min_values=min_values)


def describe_values(key: str, values: Values) -> str:
    """How a requirement is written in messages: `zone In [a b]`, at most five values shown."""
    parts = f"{key} {values.operator}"
    if values.names:
        shown = sorted(values.names)
        more = f" and {len(shown) - _SHOWN} others" if len(shown) > _SHOWN else ""
        parts += f" [{' '.join(shown[:_SHOWN])}{more}]"
    if values.at_least is not None:
        parts += f" >={values.at_least}"
    if values.at_most is not None:
        parts += f" <={values.at_most}"
    if values.min_values is not None:
        parts += f" minValues {values.min_values}"
    return parts


def build_entries(key: str, values: Values) -> tuple[Requirement, ...]:
    """The API form. Gt and Lt come out as Gte and Lte, and exclusions beside a bound are kept."""
    bounds = (("Gte", values.at_least), ("Lte", values.at_most))
    bounded = tuple(
        Requirement(key=key, operator=operator, values=(str(bound),), min_values=values.min_values)
        for operator, bound in bounds
        if bound is not None
    )
    if bounded and not values.names:
        return bounded
    # Karpenter drops exclusions when there is a bound; a NodeClaim should say what was decided.
    plain = Requirement(
        key=key, operator=values.operator, values=tuple(sorted(values.names)), min_values=values.min_values
    )
    return (*bounded, plain)


class RequirementExpression(Protocol):
    """One condition as people write it: in a node selector term, or in a NodePool."""

    @property
    def key(self) -> str: ...
    @property
    def operator(self) -> str: ...
    @property
    def values(self) -> tuple[str, ...]: ...


@lru_cache(maxsize=16_384)
def _build_single_value(value: str) -> Values:
    """This value alone. Thousands of nodes say the same of their zones and types, and need it only once."""
    return Values(frozenset((value,)))


class Requirements(msgspec.Struct, frozen=True, gc=False):
    """What is required of each label, by normalised key. Labels not listed may be anything."""

    by_key: Mapping[str, Values] = {}

    @staticmethod
    def from_expressions(expressions: Iterable[RequirementExpression]) -> Requirements:
        """All of these conditions together."""
        by_key: dict[str, Values] = {}
        for each in expressions:
            values = parse_values(each.operator, each.values, getattr(each, "min_values", None))
            _add_values(by_key, normalize_label(each.key), values)
        return Requirements(by_key)

    @staticmethod
    def from_labels(labels: Mapping[str, str]) -> Requirements:
        """Exactly these labels."""
        by_key: dict[str, Values] = {}
        for key, value in labels.items():
            _add_values(by_key, normalize_label(key), _build_single_value(value))
        return Requirements(by_key)

    def __getitem__(self, key: str) -> Values:
        return self.by_key.get(key, EXISTS)

    def __contains__(self, key: str) -> bool:
        return key in self.by_key

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_key)

    def __len__(self) -> int:
        return len(self.by_key)

    def __and__(self, other: Requirements) -> Requirements:
        if not other.by_key:
            return self
        if not self.by_key:
            return other
        by_key = dict(self.by_key)
        for key, values in other.by_key.items():
            _add_values(by_key, key, values)
        return Requirements(by_key)

    def replace_key(self, key: str, values: Values) -> Requirements:
        return Requirements({**self.by_key, key: values})

    def drop_keys(self, keys: AbstractSet[str]) -> Requirements:
        return Requirements({key: values for key, values in self.by_key.items() if key not in keys})

    def is_compatible(self, incoming: Requirements, undefined: AbstractSet[str] = frozenset()) -> bool:
        """Whether a node described by these could meet the incoming ones.

        A label that only the incoming side speaks of is unknown here and so not met, unless its
        absence would do or it is one of `undefined`, which a node gets when it is launched.
        """
        mine = self.by_key
        for key, theirs in incoming.by_key.items():
            known = mine.get(key)
            if known is None:
                if key not in undefined and not theirs.negative:
                    return False
            elif not known.has_intersection(theirs) and not (known.negative and theirs.negative):
                return False
        return True

    def intersects(self, other: Requirements) -> bool:
        """Whether every label both speak of has a value for both."""
        if len(other.by_key) > len(self.by_key):
            self, other = other, self
        mine = self.by_key
        for key, theirs in other.by_key.items():
            known = mine.get(key)
            if (
                known is not None
                and not known.has_intersection(theirs)
                and not (known.negative and theirs.negative)
            ):
                return False
        return True

    def describe_incompatibility(
        self, incoming: Requirements, undefined: AbstractSet[str] = frozenset()
    ) -> tuple[str, ...]:
        """Why `compatible` says no, in Karpenter's words; nothing when it says yes."""
        unknown = [
            key
            for key, theirs in incoming.by_key.items()
            if key not in self.by_key and key not in undefined and not theirs.negative
        ]
        if unknown:
            key = min(unknown)
            return (f'label "{key}" does not have known values{self._suggest_key(key, undefined)}',)
        return self.describe_conflicts(incoming)

    def describe_conflicts(self, incoming: Requirements) -> tuple[str, ...]:
        """Why `intersects` says no: every label without a common value."""
        mine = self.by_key
        return tuple(
            f"key {key}, {describe_values(key, theirs)} not in {describe_values(key, mine[key])}"
            for key, theirs in sorted(incoming.by_key.items())
            if key in mine
            and not mine[key].has_intersection(theirs)
            and not (mine[key].negative and theirs.negative)
        )

    def _suggest_key(self, bad: str, undefined: AbstractSet[str]) -> str:
        """A likely misspelling: a known key that contains the bad one, or ends as it does."""
        ending = bad.partition("/")[2] if "/" in bad else bad
        for candidate in (*sorted(undefined), *sorted(self.by_key)):
            if bad in candidate or candidate.endswith(ending):
                return f' (typo of "{candidate}"?)'
        return ""

    @property
    def has_min_values(self) -> bool:
        return any(values.min_values is not None for values in self.by_key.values())

    @property
    def too_few(self) -> dict[str, int]:
        """Keys with fewer values than their own minValues, and how many: the API refuses such a claim."""
        return {
            key: len(values.names)
            for key, values in self.by_key.items()
            if values.min_values is not None and not values.open and len(values.names) < values.min_values
        }

    def list_entries(self) -> tuple[Requirement, ...]:
        """The API form, by key."""
        return tuple(entry for key in sorted(self.by_key) for entry in build_entries(key, self.by_key[key]))

    def __str__(self) -> str:
        return ", ".join(sorted(describe_values(key, v) for key, v in self.by_key.items() if key != HOSTNAME))


def _add_values(by_key: dict[str, Values], key: str, values: Values) -> None:
    known = by_key.get(key)
    by_key[key] = values if known is None else known & values
