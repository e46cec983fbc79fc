"""What is wrong with a document, where, and by which rule."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.api.manifests import Severity


@dataclass(frozen=True, slots=True)
class Complaint:
    """One thing wrong at one place.

    `rule` is an admission rule's id (`NP-4`, `EC-2:al2`), the schema check that failed (`type`, `pattern`),
    `runtime` for what a controller would find, or the name of a piece of advice. An error keeps the object
    from being stored or used; a warning does not.
    """

    path: str
    message: str
    rule: str
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        return f"{self.path}: {self.message} ({self.rule})" if self.path else f"{self.message} ({self.rule})"


def field_path(parent: str, name: str) -> str:
    """The path of a field; names with dots and slashes stand in brackets."""
    if not name.replace("-", "").replace("_", "").isalnum():
        return f"{parent}[{name}]"
    return f"{parent}.{name}" if parent else name
