"""The files a person named, read into a world or into a change of one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from dovetail.api.manifests import DEFAULT, Document, ManifestComplaint, Manifests, Severity, parse_manifests
from dovetail.api.nodeclaim import NodeClaim
from dovetail.cli.validate import is_checked, list_complaints
from dovetail.cli.views.files import STDIN, read_manifests
from dovetail.cli.views.output import format_count, print_note
from dovetail.errors import BadInput, shorten_text
from dovetail.state.changed_pods import DeletedObject
from dovetail.state.offline import KINDS, OfflineCluster, find_kind

__all__ = ["SUBSET", "WorldReader", "list_errors", "parse_object_name", "read_change_files"]

SUBSET = "catalog-subset"


class _Head(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""


class _Annotated(msgspec.Struct, frozen=True):
    annotations: dict[str, str] = {}


class _List(msgspec.Struct):
    kind: str
    items: list[msgspec.Raw]
    metadata: _Annotated = _Annotated()


class WorldReader:
    """The files a person named, read into a world."""

    def __init__(self) -> None:
        self.world = OfflineCluster()
        self.subset = ""
        self._errors: list[ManifestComplaint] = []

    def read_files(self, paths: Sequence[str]) -> None:
        """Read every file; any that cannot be read ends it, after all have been looked at."""
        found = [self._read_path(path) for path in dict.fromkeys(paths)]
        everything = Manifests.join_manifests([each for each in found if each is not None])
        complaints = [*everything.complaints, *self._errors]
        complaints += [error for document in everything.documents for error in list_errors(document)]
        for complaint in complaints:
            print_note(str(complaint))
        if any(complaint.severity is Severity.ERROR for complaint in complaints):
            raise BadInput(f"{format_count(len(complaints), 'complaint')}; nothing was planned")
        for document in everything.documents:
            where = f"{document.source}:{document.line}"
            self._add_object(document.api_version, document.kind, document.value, where)

    def _read_path(self, path: str) -> Manifests | None:
        """What is still to be taken in; None when the file was a List, which is taken in at once."""
        if path == STDIN:
            piped = sys.stdin.buffer.read(DEFAULT.size + 1)
            return None if self._read_list(piped, "stdin") else parse_manifests(piped, "stdin")
        if path.endswith(".json"):
            with suppress(OSError):  # whatever is wrong with the file is said below
                if self._read_list(Path(path).read_bytes(), path):
                    return None
        return read_manifests([path])

    def _read_list(self, text: bytes, source: str) -> bool:
        """A List in JSON goes straight from bytes to records: tens of thousands of pods in a moment."""
        try:
            listed = msgspec.json.decode(text, type=_List)
            heads = [msgspec.json.decode(item, type=_Head) for item in listed.items]
        except (msgspec.MsgspecError, RecursionError):
            return False  # whatever is wrong is said by the reader that takes its time
        self.subset = self.subset or listed.metadata.annotations.get(SUBSET, "")
        for number, (head, item) in enumerate(zip(heads, listed.items, strict=True), 1):
            where = f"{source}, item {number}"
            if is_checked(head.api_version, head.kind):
                value = msgspec.json.decode(item, type=dict[str, Any])
                wrong = list_errors(Document(where, number - 1, head.api_version, head.kind, value))
                self._errors += wrong
                if wrong:
                    continue
            self._add_object(head.api_version, head.kind, bytes(item), where)
        return True

    def _add_object(self, api_version: str, kind: str, document: Any, where: str) -> None:
        try:
            self.world.add(api_version, kind, document)
        except (BadInput, ValueError) as error:
            raise BadInput(f"{where}: {error}") from error


def list_errors(document: Document) -> list[ManifestComplaint]:
    """What the API server or the controller would refuse of one of our objects; claims were accepted once."""
    if document.kind == NodeClaim.KIND.kind or not is_checked(document.api_version, document.kind):
        return []
    return [each for each in list_complaints(document) if each.severity is Severity.ERROR]


def read_change_files(paths: Sequence[str], deleted: Sequence[str] = ()) -> OfflineCluster:
    """The objects of a change; BadInput where there is nothing in the files that a plan could depend on."""
    reader = WorldReader()
    if paths:
        reader.read_files(paths)
    if not any(reader.world.found.values()) and not deleted:
        named = ", ".join(paths)
        raise BadInput(f"{named}: a plan depends on no object in it, so there is no change to show")
    return reader.world


def parse_object_name(text: str) -> DeletedObject:
    """What --delete names: KIND/NAME, or KIND/NAMESPACE/NAME."""
    word, _, rest = text.partition("/")
    namespace, _, name = rest.rpartition("/")
    kind = find_kind(word)
    if not name or "/" in namespace:
        forms = "KIND/NAME or KIND/NAMESPACE/NAME, such as deployment/shop/web"
        raise BadInput(f"--delete {shorten_text(text)}: write {forms}")
    if kind is None:
        near = get_close_matches(word.lower(), [each.KIND.kind.lower() for each in KINDS.values()], 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise BadInput(f"--delete {shorten_text(text)}: a plan depends on no {shorten_text(word)}{hint}")
    if namespace and not kind.KIND.namespaced:
        raise BadInput(f"--delete {shorten_text(text)}: a {kind.KIND.kind} is in no namespace")
    return DeletedObject(kind, name, namespace or ("default" if kind.KIND.namespaced else ""))
