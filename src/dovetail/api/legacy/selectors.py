"""Flat alpha selectors to v1 selector terms.

Alpha packed everything into one map: special keys for ids, names and owners, comma lists in values,
and tags for the rest. v1 has one term per alternative, so that comma lists multiply out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from dovetail.api.legacy.notes import Scribe

_IDS = ("aws-ids", "aws::ids")
_NAMES, _OWNERS = "aws::name", "aws::owners"
_MOST_TERMS = 30  # v1 admits no more in one list
_MOST_TAGS = 20


@dataclass(frozen=True, slots=True)
class Selector:
    """One kind of alpha selector: where it stands, and what its ids look like."""

    field: str
    ids: re.Pattern[str]
    special: frozenset[str]


SUBNETS = Selector("subnetSelector", re.compile(r"subnet-[0-9a-z]+"), frozenset(_IDS))
GROUPS = Selector("securityGroupSelector", re.compile(r"sg-[0-9a-z]+"), frozenset(_IDS))
IMAGES = Selector("amiSelector", re.compile(r"ami-[0-9a-z]+"), frozenset({*_IDS, _NAMES, _OWNERS}))


def terms(scribe: Scribe, selector: Selector, given: Mapping[str, str]) -> list[dict[str, Any]]:
    """Every term the map stands for: owners by ids by names by tag values."""
    ids = [one for key in _IDS for one in _split(given.get(key, ""))]
    if ids:
        return _by_id(scribe, selector, given, ids)
    special = selector.special
    names = _split(given.get(_NAMES, "")) if _NAMES in special else []
    owners = _split(given.get(_OWNERS, "")) if _OWNERS in special else []
    tags = {key: value for key, value in given.items() if key not in special}
    if owners and not names and not tags:
        scribe.warn(selector.field, 'names only owners, which v1 does not take alone; name "*" is added')
        names = ["*"]
    return _product(scribe, selector, owners, names, _choices(scribe, selector, tags))


def _by_id(
    scribe: Scribe, selector: Selector, given: Mapping[str, str], ids: list[str]
) -> list[dict[str, Any]]:
    others = [key for key in given if key not in _IDS]
    if others:
        message = (
            f"gives ids together with {', '.join(others)}; an id stands alone in v1, so only the ids are kept"
        )
        scribe.warn(selector.field, message)
    for one in ids:
        if not selector.ids.fullmatch(one):
            scribe.refuse(selector.field, f'"{one}" is not an id that v1 takes; correct it first')
    if len(ids) > _MOST_TERMS:
        scribe.refuse(
            selector.field, f"names {len(ids)} ids and v1 takes {_MOST_TERMS}; select by tag instead"
        )
    return [{"id": one} for one in ids]


def _product(
    scribe: Scribe,
    selector: Selector,
    owners: list[str],
    names: list[str],
    choices: dict[str, list[str]],
) -> list[dict[str, Any]]:
    count = max(1, len(owners)) * max(1, len(names)) * prod(len(values) for values in choices.values())
    if count > _MOST_TERMS:
        message = f"stands for {count} terms and v1 takes {_MOST_TERMS}; select by fewer tags instead"
        scribe.refuse(selector.field, message)
        return []
    tags = [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]
    found = [
        ({"owner": owner} if owner else {})
        | ({"name": name} if name else {})
        | ({"tags": tag} if tag else {})
        for owner, name, tag in product(owners or [""], names or [""], tags)
    ]
    return [term for term in found if term]


def _choices(scribe: Scribe, selector: Selector, tags: Mapping[str, str]) -> dict[str, list[str]]:
    """The values each tag may have. An empty value meant any, which v1 spells `*`."""
    if len(tags) > _MOST_TAGS:
        scribe.refuse(selector.field, f"names {len(tags)} tags and v1 takes {_MOST_TAGS}; use fewer")
    choices: dict[str, list[str]] = {}
    for key, value in tags.items():
        if not key.strip():
            scribe.refuse(selector.field, "has a tag without a key; v1 does not take one")
            continue
        choices[key.strip()] = values = _split(value) or ["*"]
        if not _split(value):
            scribe.info(f"{selector.field}[{key}]", 'is empty, which meant any value; "*" says so in v1')
        if len(values) > 1:
            scribe.info(f"{selector.field}[{key}]", "lists several values; v1 takes one term for each")
    return choices


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
