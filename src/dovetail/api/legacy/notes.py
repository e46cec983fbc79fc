"""What a conversion says about itself: every lossy or guessed step, and where it was taken."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dovetail.api.manifests import Document


class NoteSeverity(StrEnum):
    """An error leaves something out that a person must supply; a warning changes or guesses something."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Note:
    """One remark about one field of one old manifest, and which new manifest it ended in, if any."""

    severity: NoteSeverity
    message: str
    path: str
    source: str
    line: int | None
    kind: str
    name: str
    target: int | None = None  # an index into Conversion.manifests

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        return f"{place}: {self.severity}: {self.subject}: {self.message}"

    @property
    def subject(self) -> str:
        """What it is about, as in `Provisioner/default spec.weight`."""
        thing = f"{self.kind}/{self.name}" if self.name else self.kind
        return f"{thing} {self.path}" if self.path else thing


@dataclass(slots=True)
class Scribe:
    """Reads one old object's loosely typed fields, and writes down what had to be done to them.

    Old manifests come from files that no API server has checked, so that every read says what it
    expects. After `refuse` the object has no counterpart, but reading goes on: all reasons are told.
    """

    document: Document
    prefix: str = ""
    name: str = ""
    notes: list[Note] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    @property
    def refused(self) -> bool:
        """True when the object has no counterpart."""
        return bool(self.refusals)

    def for_part(self, prefix: str) -> Scribe:
        """The same scribe for a part of the object, so that paths can be told from there."""
        return Scribe(self.document, prefix, self.name, self.notes, self.refusals)

    def info(self, path: str, message: str) -> None:
        self._add_note(NoteSeverity.INFO, path, message)

    def warn(self, path: str, message: str) -> None:
        self._add_note(NoteSeverity.WARNING, path, message)

    def error(self, path: str, message: str) -> None:
        self._add_note(NoteSeverity.ERROR, path, message)

    def refuse(self, path: str, message: str) -> None:
        self.refusals.append(path)
        self.error(path, message)

    def read_mapping(self, value: Any, path: str) -> dict[str, Any]:
        """A mapping; nothing counts as an empty one."""
        if value is None or isinstance(value, dict):
            return value or {}
        self.refuse(path, "is not a mapping, so the object cannot be converted; correct it first")
        return {}

    def read_items(self, value: Any, path: str) -> list[Any]:
        """A list; nothing counts as an empty one."""
        if value is None or isinstance(value, list):
            return value or []
        self.refuse(path, "is not a list, so the object cannot be converted; correct it first")
        return []

    def read_text(self, value: Any, path: str) -> str:
        """A string; a bare number or boolean was surely meant as one."""
        if isinstance(value, str):
            return value
        if value is None:
            return ""
        if isinstance(value, bool | int | float):
            spelled = str(value).lower() if isinstance(value, bool) else str(value)
            self.warn(path, f'is not text; "{spelled}" is written instead')
            return spelled
        self.refuse(path, "is not text, so the object cannot be converted; correct it first")
        return ""

    def read_strings(self, value: Any, path: str) -> dict[str, str]:
        """A mapping of strings."""
        found = self.read_mapping(value, path)
        return {key: self.read_text(item, f"{path}[{key}]") for key, item in found.items()}

    def read_number(self, value: Any, path: str) -> int | None:
        """A whole number that is not negative, or nothing."""
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
            return value
        self.refuse(
            path, "is not a whole number of zero or more, so the object cannot be converted; correct it first"
        )
        return None

    def keep_known(self, value: dict[str, Any], path: str, known: frozenset[str]) -> dict[str, Any]:
        """The members v1 knows; the others are named and left out."""
        for key in value:
            if key not in known:
                self.warn(f"{path}.{key}" if path else key, "is not a field that v1 knows; it is left out")
        return {key: item for key, item in value.items() if key in known}

    def _add_note(self, severity: NoteSeverity, path: str, message: str) -> None:
        full = ".".join(part for part in (self.prefix, path) if part)
        document = self.document
        line = document.line_of(full)
        name = self.name or document.name
        self.notes.append(Note(severity, message, full, document.source, line, document.kind, name))
