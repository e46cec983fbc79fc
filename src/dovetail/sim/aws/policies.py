"""IAM policies: is an action on a resource allowed? Pure; a deny wins, and what nothing allows is denied."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

__all__ = ["Need", "Principal", "Verdict"]

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Need:
    """An action on a resource, with what conditions may ask about."""

    action: str
    resource: str = "*"
    context: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether it is allowed, and if not, why not."""

    allowed: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: an ARN and the policies attached to it."""

    arn: str
    documents: Sequence[Document] = ()
    boundary: Document | None = None

    def judge(self, need: Need) -> Verdict:
        statements = [each for document in self.documents for each in _statements(document)]
        matching = [each for each in statements if _applies(each, need)]
        if any(each.get("Effect") == "Deny" for each in matching):
            return Verdict(False, "with an explicit deny in an identity-based policy")
        if not matching:
            return Verdict(False, f"because no identity-based policy allows the {need.action} action")
        if self.boundary is not None and not any(_applies(each, need) for each in _statements(self.boundary)):
            return Verdict(False, f"because no permissions boundary allows the {need.action} action")
        return Verdict(True)


def _statements(document: Document) -> list[Mapping[str, Any]]:
    listed = document.get("Statement", ())
    return [listed] if isinstance(listed, Mapping) else list(listed)


def _applies(statement: Mapping[str, Any], need: Need) -> bool:
    return (
        any(_like(each, need.action, folded=True) for each in _listed(statement.get("Action")))
        and any(_like(each, need.resource) for each in _listed(statement.get("Resource", "*")))
        and all(
            _condition(operator, key, _listed(wanted), need.context)
            for operator, keys in (statement.get("Condition") or {}).items()
            for key, wanted in keys.items()
        )
    )


def _listed(value: Any) -> list[str]:
    if value is None:
        return []
    return [str(each) for each in value] if isinstance(value, list | tuple) else [_text(value)]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _like(pattern: str, value: str, *, folded: bool = False) -> bool:
    return (
        _compiled(pattern.lower() if folded else pattern).fullmatch(value.lower() if folded else value)
        is not None
    )


@lru_cache(4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)


OPERATORS: dict[str, Callable[[str, str], bool]] = {
    "StringEquals": lambda wanted, value: wanted == value,
    "StringEqualsIgnoreCase": lambda wanted, value: wanted.casefold() == value.casefold(),
    "StringLike": lambda wanted, value: _like(wanted, value),
    "ArnEquals": lambda wanted, value: _like(wanted, value),
    "ArnLike": lambda wanted, value: _like(wanted, value),
    "Bool": lambda wanted, value: wanted.lower() == value.lower(),
    "NumericLessThanEquals": lambda wanted, value: float(value) <= float(wanted),
}


def _condition(
    operator: str, key: str, wanted: list[str], context: Mapping[str, str | tuple[str, ...]]
) -> bool:
    quantifier, _, plain = operator.rpartition(":")
    lenient = plain.endswith("IfExists")
    plain = plain.removesuffix("IfExists")
    known = {name.lower(): value for name, value in context.items()}
    value = known.get(key.lower())
    if plain == "Null":
        return (value is None) == (wanted == ["true"])
    if value is None:
        # Nothing to compare: true for all of none, and where the operator says so.
        return lenient or quantifier == "ForAllValues" or "Not" in plain
    negated = plain.replace("Not", "") if "Not" in plain else ""
    test = OPERATORS[negated or plain]
    values = (value,) if isinstance(value, str) else value
    met = [any(test(each, one) for each in wanted) is not bool(negated) for one in values]
    return any(met) if quantifier == "ForAnyValue" else all(met)
