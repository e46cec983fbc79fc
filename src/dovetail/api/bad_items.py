"""Bad items: objects that Dovetail cannot read or cannot decide with, each named so that somebody mends it.

An object that is set aside keeps its place in memory and carries why in an annotation that is never written
to the cluster: writes are differences between two records, and both have it.
"""

from __future__ import annotations

from typing import Final, TypeVar

from msgspec.structs import replace

from dovetail.api.meta import Object, Record
from dovetail.errors import note_contained, shorten_text

__all__ = ["SET_ASIDE", "SetAside", "describe_failure", "mark_set_aside", "reason_of", "set_aside"]

O = TypeVar("O", bound=Object)  # noqa: E741 - O for object

SET_ASIDE: Final = "dovetail.sh/set-aside"
"""The annotation that says, in memory alone, why an object is set aside."""


class SetAside(Record, frozen=True):
    """One object that is left out of a decision, and why."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    why: str = ""

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {where} is set aside: {self.why}"


def set_aside(obj: Object, why: str) -> SetAside:
    """The object as a bad item."""
    return SetAside(kind=obj.KIND.kind, name=obj.name, namespace=obj.namespace, uid=obj.uid, why=why)


def mark_set_aside(obj: O, why: str) -> O:
    """The object, carrying why it is set aside."""
    annotations = {**obj.annotations, SET_ASIDE: why}
    marked: O = replace(obj, metadata=replace(obj.metadata, annotations=annotations))
    return marked


def reason_of(obj: Object) -> str:
    """Why an object is set aside; empty for all others."""
    annotations = obj.metadata.annotations
    return annotations.get(SET_ASIDE, "") if annotations else ""


def describe_failure(error: Exception) -> str:
    """What a person is told of an object that made a decision fail."""
    note_contained(error)
    cause = shorten_text(f"{type(error).__name__}: {error}")
    return f"nothing can be decided with it ({cause}); mend or delete it"
