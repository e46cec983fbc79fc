"""One object found in a file, a complaint about one, and how much of a file we are willing to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dovetail.api.manifests.positions import Path, Positions, parse_path


class Severity(StrEnum):
    """How bad it is: an error means the text is not what its author thinks it is."""

    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """The most we read from one file. Each bound keeps some hostile or mistaken file cheap."""

    size: int = 64 * 1024 * 1024  # bytes
    documents: int = 200_000
    depth: int = 128
    nodes: int = 3_000_000  # values of every kind, over the whole file
    expanded: int = 100_000  # values that exist only because an alias repeated them
    complaints: int = 1_000


@dataclass(frozen=True, slots=True)
class ManifestComplaint:
    """Something wrong at one place in one file. Lines and columns count from 1."""

    source: str
    line: int | None
    column: int | None
    path: str
    message: str
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.source, self.line, self.column) if part is not None)
        where = f"{self.path}: " if self.path else ""
        return f"{place}: {self.severity}: {where}{self.message}"


@dataclass(frozen=True, slots=True)
class Document:
    """One Kubernetes object and where it was written.

    Items of a List are documents of their own. Positions are worked out on the first question about
    one, so that files nobody complains about cost nothing extra.
    """

    source: str
    index: int  # counted from 0 over the whole file, after lists were flattened
    api_version: str
    kind: str
    value: dict[str, Any]
    positions: Positions = field(default_factory=Positions, repr=False, compare=False)
    base: tuple[str | int, ...] = ()

    @property
    def name(self) -> str:
        """metadata.name, or nothing when there is none."""
        return _read_metadata(self.value, "name")

    @property
    def namespace(self) -> str:
        """metadata.namespace, or nothing when there is none."""
        return _read_metadata(self.value, "namespace")

    @property
    def line(self) -> int | None:
        """The line the object starts on."""
        return self.line_of(())

    def line_of(self, path: str | Path) -> int | None:
        """The line of a field, or of the nearest thing around it that was written down.

        A path is `spec.template.spec.requirements[0].key`, or the same as a sequence of steps. Keys
        with dots in them may be written plainly, in brackets or in quoted brackets.
        """
        steps = parse_path(path) if isinstance(path, str) else tuple(path)
        return self.positions.line_of((*self.base, *steps))


@dataclass(frozen=True, slots=True)
class Manifests:
    """Everything one file held: the objects that could be read, and what is wrong with the rest."""

    documents: tuple[Document, ...] = ()
    complaints: tuple[ManifestComplaint, ...] = ()

    @property
    def broken(self) -> bool:
        """True when something in the file could not be taken as written."""
        return any(complaint.severity is Severity.ERROR for complaint in self.complaints)

    @staticmethod
    def join_manifests(parts: Sequence[Manifests]) -> Manifests:
        """Several files as one."""
        return Manifests(
            tuple(document for part in parts for document in part.documents),
            tuple(complaint for part in parts for complaint in part.complaints),
        )


def _read_metadata(value: Mapping[str, Any], key: str) -> str:
    metadata = value.get("metadata")
    found = metadata.get(key) if isinstance(metadata, dict) else None
    return found if isinstance(found, str) else ""
