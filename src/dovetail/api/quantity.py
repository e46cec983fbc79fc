"""Exact amounts, as Kubernetes writes them (`1500m`, `2Gi`, `20e9`), and lists of them by resource name.

An amount is a whole number of billionths, so sums are exact; what is finer is rounded away from
zero when it is read. The suffix family an amount was written in is carried along for printing and
has no say in comparisons: `1024Mi` equals `1Gi` and hashes alike.

`parse` follows apimachinery's ParseQuantity to the letter, its odd corners included: a lone sign, point or
suffix is zero, binary amounts stop at 2^63-1. Writing is always canonical. Objects of the cluster are read
with `read`, which stops all amounts there: one pod or node that speaks of 1e400 must not upset arithmetic
that is done for everybody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from dovetail.api.numbers import parse_integer
from dovetail.errors import shorten_text

__all__ = [
    "BINARY",
    "DECIMAL",
    "EXPONENT",
    "LARGEST",
    "ZERO",
    "BadQuantity",
    "Quantity",
    "add_amounts",
    "max_amounts",
    "min_amounts",
    "print_as_go",
    "subtract_amounts",
]

DECIMAL: Final = "DecimalSI"
BINARY: Final = "BinarySI"
EXPONENT: Final = "DecimalExponent"

NANO: Final = 1_000_000_000
MILLI: Final = 1_000_000
LARGEST: Final = ((1 << 63) - 1) * NANO
"""The most that is counted with, in billionths: as many whole units as Kubernetes has in 64 bits."""
# Go would take exponents up to 2^31; nobody means them, and 10**(2**31) does not fit in memory. What is
# written with more digits than this before the point stands for the number that is one and so many zeros.
_MOST_DIGITS: Final = 1_000
_ENDLESS: Final = 10**_MOST_DIGITS * NANO
# Enough after the point to round up what is left over, whatever exponent follows.
_MOST_DECIMALS: Final = 2 * _MOST_DIGITS

# apimachinery reads at most one sign, then zeros and digits that may all be missing. Possessive: a long text
# that is no amount is looked at once.
_SHAPE = re.compile(r"([+-]?)0*+([0-9]*+)(?:\.([0-9]*+))?([eEinumkKMGTP]*+[+-]?[0-9]*+)")
_POWERS_OF_TEN = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_POWERS_OF_TWO = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {power: suffix for suffix, power in _POWERS_OF_TEN.items()}
_BINARY_SUFFIX = ("", *_POWERS_OF_TWO)


class BadQuantity(ValueError):
    """A text that is no amount."""


class Quantity:
    """One amount: immutable, exact, compared and hashed by what it amounts to."""

    __slots__ = ("format", "nano")

    nano: int
    """The amount in billionths."""
    format: str
    """The suffix family it prints in: DecimalSI, BinarySI or DecimalExponent."""

    def __new__(cls, nano: int = 0, format: str = DECIMAL) -> Quantity:
        self = object.__new__(cls)
        _set_nano(self, nano)
        _set_format(self, format)
        return self

    @staticmethod
    def parse(source: str | int | float | Quantity) -> Quantity:
        """The amount a text or a JSON number stands for; BadQuantity says what is wrong with it."""
        if type(source) is str:
            known = _PARSED.get(source)
            return known if known is not None else _parse_and_remember(source)
        if isinstance(source, Quantity):
            return source
        if type(source) is int:
            return Quantity(source * NANO)
        return Quantity.parse(str(source))

    @staticmethod
    def parse_clamped(source: str | int | float) -> Quantity:
        """The amount a document holds; beyond 64 bits of whole units, as much as those hold."""
        amount = Quantity.parse(source)
        if -LARGEST <= amount.nano <= LARGEST:
            return amount
        return Quantity(max(-LARGEST, min(LARGEST, amount.nano)), amount.format)

    @property
    def boundless(self) -> bool:
        """Whether it is as large as an amount can be: nobody means that, and no machine has it."""
        return not -LARGEST < self.nano < LARGEST

    @property
    def value(self) -> int:
        """In whole units, rounded away from zero."""
        return _away_from_zero(self.nano, NANO)

    @property
    def milli(self) -> int:
        """In thousandths, rounded away from zero."""
        return _away_from_zero(self.nano, MILLI)

    def __add__(self, other: Quantity) -> Quantity:
        # As in Go, zero has no suffix family of its own to insist on.
        nano = self.nano
        return Quantity(nano + other.nano, self.format if nano else other.format)

    def __sub__(self, other: Quantity) -> Quantity:
        nano = self.nano
        return Quantity(nano - other.nano, self.format if nano else other.format)

    def __mul__(self, times: int) -> Quantity:
        return Quantity(self.nano * times, self.format)

    __rmul__ = __mul__

    def __neg__(self) -> Quantity:
        return Quantity(-self.nano, self.format)

    def __bool__(self) -> bool:
        return self.nano != 0

    def __eq__(self, other: object) -> bool:
        return self.nano == other.nano if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: Quantity) -> bool:
        return self.nano < other.nano if isinstance(other, Quantity) else NotImplemented

    def __le__(self, other: Quantity) -> bool:
        return self.nano <= other.nano if isinstance(other, Quantity) else NotImplemented

    def __gt__(self, other: Quantity) -> bool:
        return self.nano > other.nano if isinstance(other, Quantity) else NotImplemented

    def __ge__(self, other: Quantity) -> bool:
        return self.nano >= other.nano if isinstance(other, Quantity) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.nano)

    def __str__(self) -> str:
        return _write_canonical(self.nano, self.format)

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Quantity does not change; cannot set {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Quantity does not change; cannot delete {name}")

    def __reduce__(self) -> tuple[type[Quantity], tuple[int, str]]:
        return Quantity, (self.nano, self.format)

    def __copy__(self) -> Quantity:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Quantity:
        return self


# The slots' own setters go round the refusal in __setattr__, and are quicker than object.__setattr__.
_set_nano = Quantity.__dict__["nano"].__set__
_set_format = Quantity.__dict__["format"].__set__

_PARSED: dict[str, Quantity] = {}
_MOST_REMEMBERED = 50_000
_LONGEST_REMEMBERED = 64
ZERO: Final = Quantity()


def _parse_and_remember(text: str) -> Quantity:
    """Clusters use few distinct amounts, and ask for them over and over."""
    amount = _parse_text(text)
    if len(text) > _LONGEST_REMEMBERED:
        return amount
    if len(_PARSED) >= _MOST_REMEMBERED:
        _PARSED.clear()
    _PARSED[text] = amount
    return amount


def print_as_go(text: str) -> str:
    """What Go prints for an amount it has just read: short forms keep the text they came in."""
    _, whole, fraction, suffix = _split_text(text)
    base, power, _ = _parse_suffix(suffix, text)
    kept = (
        _kept_decimal(whole + fraction, power - len(fraction))
        if base == 10
        else (not fraction and _kept_binary(whole, power))
    )
    return text if kept else str(Quantity.parse(text))


def _kept_decimal(digits: str, scale: int) -> bool:
    short = len(digits) <= 18 and scale >= -9
    return short and scale % 3 == 0 and not digits.endswith("000") and not digits.startswith("0")


def _kept_binary(digits: str, power: int) -> bool:
    short = len(digits) + power * 3 // 10 < 15
    return short and int(digits) % 8 != 0


def _parse_text(text: str) -> Quantity:
    sign, whole, fraction, suffix = _split_text(text)
    base, power, format = _parse_suffix(suffix, text)
    if whole != "0" and len(whole) + (power if base == 10 else 0) > _MOST_DIGITS:
        nano = _ENDLESS if base == 10 else LARGEST
    elif base == 10:
        nano = _scale_digits(int(whole + fraction), power - len(fraction) + 9)
    else:
        nano = min(_scale_digits(int(whole + fraction) << power, 9 - len(fraction)), LARGEST)
        if 0 < nano < NANO:
            format = DECIMAL
    return Quantity(-nano if sign == "-" else nano, format)


def _split_text(text: str) -> tuple[str, str, str, str]:
    """Sign, digits before and after the point, and suffix."""
    shape = _SHAPE.fullmatch(text)
    if shape is None or not text:
        raise BadQuantity(
            f"{shorten_text(text)!r} is not a quantity: write digits, with a point if need be, "
            "then one of n u m k M G T P E Ki Mi Gi Ti Pi Ei or an exponent such as e3"
        )
    return shape[1], shape[2] or "0", _shorten_fraction(shape[3] or ""), shape[4]


def _shorten_fraction(digits: str) -> str:
    """The digits after the point, without those that cannot matter but for being there at all."""
    if len(digits) <= _MOST_DECIMALS:
        return digits
    return digits[:_MOST_DECIMALS] + ("1" if digits[_MOST_DECIMALS:].strip("0") else "")


def _parse_suffix(suffix: str, text: str) -> tuple[int, int, str]:
    """Base, power and format of a suffix."""
    if (power := _POWERS_OF_TEN.get(suffix)) is not None:
        return 10, power, DECIMAL
    if (power := _POWERS_OF_TWO.get(suffix)) is not None:
        return 2, power, BINARY
    if suffix[:1] in ("e", "E"):
        power = parse_integer(suffix[1:])
        if power is not None:
            return 10, max(-_MOST_DECIMALS, min(_MOST_DECIMALS, power)), EXPONENT
    raise BadQuantity(
        f"{shorten_text(text)!r} is not a quantity: {shorten_text(suffix)!r} is none of the suffixes "
        "n u m k M G T P E Ki Mi Gi Ti Pi Ei, nor an exponent such as e3"
    )


def _scale_digits(digits: int, power: int) -> int:
    """digits x 10^power, rounded up."""
    if power >= 0:
        return digits * int(10**power)
    return -(-digits // int(10**-power))


def _away_from_zero(count: int, size: int) -> int:
    return -(-count // size) if count >= 0 else count // size


def _write_canonical(nano: int, format: str) -> str:
    """No fraction, and the largest suffix that allows that."""
    if not nano:
        return "0"
    if format == BINARY:
        units, rest = divmod(nano, NANO)
        if not rest and not -1024 < units < 1024:
            return _binary_text(units)
        format = DECIMAL
    text = str(nano)
    digits = text.rstrip("0")
    power = len(text) - len(digits) - 9
    digits, power = digits + "0" * (power % 3), power - power % 3
    if format == DECIMAL and power > 18:
        digits, power = digits + "0" * (power - 18), 18
    if format == DECIMAL:
        return digits + _DECIMAL_SUFFIX[power]
    return f"{digits}e{power}" if power else digits


def _binary_text(units: int) -> str:
    power = 0
    while power < 6 and not units % 1024:
        units, power = units // 1024, power + 1
    return f"{units}{_BINARY_SUFFIX[power]}"


def add_amounts(*lists: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """The sum, resource by resource."""
    total: dict[str, Quantity] = dict(lists[0]) if lists else {}
    for amounts in lists[1:]:
        for name, amount in amounts.items():
            known = total.get(name)
            total[name] = amount if known is None else known + amount
    return total


def subtract_amounts(left: Mapping[str, Quantity], right: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """What is left of each resource of the first list; resources only the second has do not matter."""
    return {
        name: amount if (taken := right.get(name)) is None else amount - taken
        for name, amount in left.items()
    }


def max_amounts(*lists: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """The largest amount of each resource that any list has."""
    largest: dict[str, Quantity] = {}
    for amounts in lists:
        for name, amount in amounts.items():
            known = largest.get(name)
            if known is None or known.nano < amount.nano:
                largest[name] = amount
    return largest


def min_amounts(*lists: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """The smallest amount of each resource that all lists have."""
    shared = set(lists[0]).intersection(*lists[1:]) if lists else set()
    return {name: min(amounts[name] for amounts in lists) for name in sorted(shared)}
