"""What to do about each kind of zonal shift, written `manual=Enforce,observer=Observe`; shares, as `25%`."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace

from dovetail.settings.value_kinds import SettingKind

__all__ = ["OBJECT_NAME", "SHARE", "ZONAL_POLICY", "ZonalPolicy"]

WORDS = ("Enforce", "Protect", "Observe", "Ignore")


@dataclass(frozen=True, slots=True)
class ZonalPolicy:
    """One word for each kind: shift away fully, only stop buying and disrupting, only tell, or nothing."""

    manual: str = "Enforce"
    autoshift: str = "Enforce"
    fis: str = "Enforce"
    practice: str = "Enforce"
    observer: str = "Observe"

    def __str__(self) -> str:
        return ",".join(f"{each.name}={getattr(self, each.name)}" for each in fields(self))


NAMES = tuple(each.name for each in fields(ZonalPolicy))


def _parse_policy(text: str) -> ZonalPolicy:
    policy = ZonalPolicy()
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, word = part.partition("=")
        if name not in NAMES:
            raise ValueError(f"{name!r} is not one of {', '.join(NAMES)}")
        if word not in WORDS:
            raise ValueError(f"{word!r} is not one of {', '.join(WORDS)}")
        policy = replace(policy, **{name: word})
    return policy


def _parse_share(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,3})%", text)
    if found is None or not 1 <= int(found[1]) <= 100:
        raise ValueError
    return int(found[1]) / 100


def _show_share(value: float) -> str:
    return f"{round(value * 100)}%"


def _parse_object_name(text: str) -> str:
    if text and not re.fullmatch(r"([a-z0-9][a-z0-9.-]*/)?[a-z0-9][a-z0-9.-]*", text):
        raise ValueError
    return text


OBJECT_NAME = SettingKind("a name, or namespace/name", _parse_object_name, blank=True)
ZONAL_POLICY = SettingKind(
    "a list such as manual=Enforce,practice=Protect; words are Enforce, Protect, Observe and Ignore",
    _parse_policy,
    str,
    blank=True,
)
SHARE = SettingKind("a percentage from 1% to 100%", _parse_share, _show_share)
