"""A recording without its names: every name and label value under a pseudonym, every number as it was.

A text that could be anybody's (a number, an amount, a time, a word of Kubernetes) stays. Of any other, each
part between `-`, `.` and `/` gets a pseudonym, so that a name made of names (`<pod>-<volume>`,
`namespace/name`, a provider ID with its zone) is made of their pseudonyms. Label keys and the names of
resources and drivers stay. Pseudonyms that sort as the parts do leave every tie as it was decided.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec.structs import asdict, replace

from dovetail.api.labels import Flavour
from dovetail.api.quantity import Quantity
from dovetail.disruption.situation import Situation
from dovetail.history.recording.rows import LookLine, decode_row, decode_value, encode_row
from dovetail.history.recording.segment import SegmentHead, SegmentLine

__all__ = ["NameHider", "hash_parts", "rank_parts"]

HidePart = Callable[[str], str]
_PARTS: Final = re.compile(r"([-./]+)")
# Numbers shorter than an account's, amounts, percentages, durations, rates, times and schedules.
_NUMBER = r"[+-]?[0-9]{1,10}(\.[0-9]{1,9})?"
_LENGTH = rf"({_NUMBER}(h|ms|us|ns|m|s|d))+"
_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{5,18}(Z|[+-][0-9:]{4,6})?"
_DAYS = "mon|tue|wed|thu|fri|sat|sun|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_FIELD = rf"([0-9*,/?-]|{_DAYS}|{_DAYS.upper()}){{1,24}}"
_PLAIN: Final = re.compile(
    rf"{_NUMBER}(%|n|u|m|k|[KMGTPE]i?)?|({_NUMBER}/)?{_LENGTH}"
    rf"|{_TIME}|({_FIELD} ){{4}}{_FIELD}"
    rf"|@(yearly|annually|monthly|weekly|daily|midnight|hourly|every {_LENGTH})"
)
# What decisions read in annotations of ours: words, amounts, and notes of when nodes moved or were lost.
_NOTE: Final = re.compile(
    rf"many|one|paused|go|ahead|[0-9.]{{1,20}}(e[+-]?[0-9]{{1,3}})?|{_TIME}=[0-9]{{1,9}}"
    rf"|(Empty|Drifted|Underutilized)=[0-9]{{1,6}}@{_TIME}/[0-9]{{1,12}}"
)
_WORDS: Final = frozenset(
    (
        *("", "true", "false", "True", "False", "Unknown", "Never", "0.0.0.0", "::", "aws:", "kwok:"),
        *("amd64", "arm64", "linux", "windows", "spot", "on-demand", "reserved", "default-scheduler"),
        *("system-cluster-critical", "system-node-critical", "ReplicaSet", "StatefulSet", "Deployment"),
    )
)
_OURS: Final = frozenset(("disruption.dovetail.sh", "scheduling.dovetail.sh"))
# What fields of these names hold are words of Kubernetes, of drivers or of ours, or keys.
_KEPT: Final = frozenset(
    (
        *("api_version", "kind", "group", "operator", "effect", "type", "reason", "reasons", "phase"),
        *("status", "key", "topology_key", "match_label_keys", "mismatch_label_keys", "when_unsatisfiable"),
        *("node_affinity_policy", "node_taints_policy", "unhealthy_pod_eviction_policy", "protocol"),
        *("restart_policy", "preemption_policy", "consolidation_policy", "allocation_mode", "access_modes"),
        *("volume_binding_mode", "driver", "provisioner", "match_attribute", "distinct_attribute"),
        *("preferences", "min_values", "reservation_label", "blocked_reason", "nodes_allowed"),
        *("format", "version", "names_are", "question", "sha256", "resource_version", "finalizers"),
        *("id", "parent", "situation", "severity", "prev", "resize", "volume_limits"),
        *("unsupported_provisioners", "unsupported_volume_keys"),
    )
)
# What people write in whole sentences, and digests of names.
_BLANK: Final = frozenset(("message", "why", "error", "digest"))
# Mappings whose keys are names.
_NAMED: Final = frozenset(
    ("closed_zones", "places", "unschedulable", "deferred", "ignored", "disrupted_pods", "classes", "rates")
)
_LITERAL: Final = re.compile(r"(\"[^\"]*\"|'[^']*')")


def hash_parts(salt: bytes) -> HidePart:
    """Pseudonyms that follow from the part and the salt alone."""
    known: dict[str, str] = {}

    def hide(part: str) -> str:
        found = known.get(part)
        if found is None:
            digest = sha256(salt + part.encode("utf-8", "replace")).hexdigest()
            found = known[part] = f"q{digest[:12]}"
        return found

    return hide


def rank_parts(parts: Iterable[str], salt: bytes) -> HidePart:
    """Pseudonyms that sort as these parts do; of any other part, its salted hash."""
    hashed = hash_parts(salt)
    ranked = {part: f"q{rank:06x}{hashed(part)[1:7]}" for rank, part in enumerate(sorted(set(parts)))}
    return lambda part: ranked.get(part) or hashed(part)


class NameHider:
    """Gives every line of a recording without names. `hide_part` gives the pseudonym of a part of a name."""

    def __init__(self, hide_part: HidePart) -> None:
        self._hide_part = hide_part
        self._known: dict[str, str] = {}

    def hide_line(self, line: SegmentLine) -> SegmentLine:
        """The same line without names."""
        if line.look is not None:
            return SegmentLine(look=self._hide_look(line.look))
        if line.head is not None:
            return SegmentLine(head=self._hide_head(line.head))
        hidden: SegmentLine = self._hide(line)
        return hidden

    def _hide_head(self, head: SegmentHead) -> SegmentHead:
        settings = {name: value for name, value in head.settings.items() if _is_plain(value)}
        return replace(
            head,
            name=self._hide_segment(head.name),
            follows=self._hide_segment(head.follows),
            by=self.hide_name(head.by),
            cluster=self.hide_name(head.cluster),
            names="hash",
            settings=settings,
        )

    def _hide_segment(self, name: str) -> str:
        """The name of a segment with the time it began, and without who wrote it."""
        began, dash, writer = name.partition("-")
        return f"{began}{dash}{self._hide_part(writer)}" if dash else self.hide_name(name)

    def _hide_look(self, look: LookLine) -> LookLine:
        return replace(
            look,
            digest="",
            rows={
                name: [msgspec.Raw(encode_row(self._hide(decode_row(name, row)))) for row in rows]
                for name, rows in look.rows.items()
            },
            maps={
                name: replace(
                    change,
                    gone=tuple(map(self.hide_name, change.gone)),
                    put={self.hide_name(key): number for key, number in change.put.items()},
                )
                for name, change in look.maps.items()
            },
            rest=tuple(
                msgspec.Raw(encode_row(self._hide(decode_value(rest, Situation)))) for rest in look.rest
            ),
        )

    def hide_name(self, text: str) -> str:
        """The pseudonym of a name or of a label's value; the text itself where it could be anybody's."""
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = self._make_pseudonym(text)
        return found

    def _make_pseudonym(self, text: str) -> str:
        if _is_plain(text):
            return text
        parts = _PARTS.split(text)
        return "".join(
            part if at % 2 or part in _WORDS else self._hide_part(part) for at, part in enumerate(parts)
        )

    def _hide(self, value: Any, name: str = "") -> Any:
        if isinstance(value, str):
            return value if isinstance(value, Enum) or name in _KEPT else self._hide_text(value, name)
        if value is None or isinstance(value, (int, float, Quantity, Flavour)):
            return value
        if isinstance(value, msgspec.Struct):
            return _rebuild(value, {key: self._hide(each, key) for key, each in asdict(value).items()})
        if name in _KEPT:
            return value
        if is_dataclass(value) and not isinstance(value, type):
            named = {each.name: self._hide(getattr(value, each.name), each.name) for each in fields(value)}
            return type(value)(**named)
        if isinstance(value, Mapping):
            if name == "annotations":
                return {key: self._hide_annotation(key, each) for key, each in value.items()}
            named_keys = name in _NAMED
            return {
                self.hide_name(key) if named_keys else key: self._hide(each) for key, each in value.items()
            }
        if isinstance(value, (tuple, list)):
            return tuple(self._hide(each, name) for each in value)
        if isinstance(value, frozenset):
            return frozenset(self._hide(each, name) for each in value)
        return value

    def _hide_annotation(self, key: str, text: str) -> str:
        """What decisions read of it stays: another word there would hold up the pool."""
        if key.partition("/")[0] in _OURS and all(map(_NOTE.fullmatch, text.split())):
            return text
        return self.hide_name(text)

    def _hide_text(self, text: str, name: str) -> str:
        if name in _BLANK:
            return ""
        if name == "expression":
            quoted = (each[0] + self.hide_name(each[1:-1]) + each[0] for each in _LITERAL.findall(text))
            return _LITERAL.sub(lambda _: next(quoted), text)
        return self.hide_name(text)


def _rebuild(before: Any, after: dict[str, Any]) -> Any:
    """The same object when nothing in it changed, which keeps what is left out of the file left out."""
    changes = {key: each for key, each in after.items() if each != getattr(before, key)}
    return replace(before, **changes) if changes else before


def _is_plain(text: str) -> bool:
    return text in _WORDS or _PLAIN.fullmatch(text) is not None
