"""``dovetail validate``: everything wrong with some manifests, before a cluster sees them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from dovetail.api import crds, validation
from dovetail.api.crds.manifest import OWN
from dovetail.api.manifests import Document, ManifestComplaint, Severity
from dovetail.cli.views.files import FilesOption, MoreFiles, read_manifests
from dovetail.cli.views.options import check_provider
from dovetail.cli.views.output import (
    COMPLAINTS,
    Output,
    OutputOption,
    format_count,
    print_note,
    print_structured,
    print_text,
)
from dovetail.history.notify import check_notify, is_notify
from dovetail.state.unreadable import KINDS_READ, find_doubts

KINDS = {each.record.KIND for name in crds.PROVIDER_APIS for each in crds.list_definitions(name)}
OWN_KINDS = {each.record.KIND for each in OWN}
__all__ = ["find_unreadable", "is_checked", "list_complaints", "validate"]

StrictOption = Annotated[bool, typer.Option("--strict", help="Let warnings fail, too.")]
ManifestProviderOption = Annotated[
    str | None,
    typer.Option(
        "--provider",
        "--flavour",
        metavar="NAME",
        callback=check_provider,
        help="The provider the manifests are for: aws or kwok.  [default: the one each of them names]",
    ),
]


def validate(
    files: FilesOption,
    more: MoreFiles = None,
    strict: StrictOption = False,
    provider: ManifestProviderOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Check manifests and say what is wrong with them.

    Checks NodePools, NodeClaims, NodeOverlays, EC2NodeClasses, KWOKNodeClasses, CapacityBuffers,
    SpendLimits and ZoneShifts: fields and values, the admission rules of the API server, and what the
    controller checks later. Of the other kinds that the controller reads, such as Pods and Nodes, it names
    what cannot be read: the controller would set the object aside. The Notify file of NOTIFY_FILE is
    checked as well.
    Every complaint names its file and line. Kinds that the controller does not read are skipped. Nothing
    is sent anywhere.
    """
    found = read_manifests([*files, *(more or ())])
    ours = [document for document in found.documents if _is_read(document)]
    skipped = [document for document in found.documents if not _is_read(document)]
    complaints = [*found.complaints]
    for document in ours:
        complaints += _all_complaints(document, provider)
    if not found.documents and not complaints:
        complaints.append(ManifestComplaint("input", None, None, "", "there is no object in it"))
    complaints.sort(key=lambda complaint: (complaint.source, complaint.line or 0))
    if output is Output.table:
        _print_complaints(ours, skipped, complaints)
    else:
        print_structured(_build_document(ours, skipped, complaints), output)
    if any(strict or complaint.severity is Severity.ERROR for complaint in complaints):
        raise typer.Exit(COMPLAINTS)


def is_checked(api_version: str, kind: str) -> bool:
    """True for our kinds, and for what looks like a slip in naming one of them."""
    group = api_version.partition("/")[0]
    ours = any((api_version, kind) == (known.api_version, known.kind) for known in OWN_KINDS)
    return ours or any(kind == known.kind or group == known.group for known in KINDS)


def _is_read(document: Document) -> bool:
    named = document.api_version, document.kind
    return is_checked(*named) or named in KINDS_READ or is_notify(document)


def _all_complaints(document: Document, provider: str | None) -> list[ManifestComplaint]:
    """What is wrong with an object; where nothing else is, what the controller could not read of it."""
    if is_notify(document):
        return list(check_notify(document).complaints)
    ours = is_checked(document.api_version, document.kind)
    found = list_complaints(document, provider) if ours else []
    if any(complaint.severity is Severity.ERROR for complaint in found):
        return found
    return [*found, *find_unreadable(document)]


def find_unreadable(document: Document) -> Iterator[ManifestComplaint]:
    """Why the controller would set an object aside, field by field."""
    for path, why in find_doubts(document.api_version, document.kind, document.value):
        told = f"{document.kind} {document.name or 'without a name'} would be set aside: {why}"
        yield ManifestComplaint(document.source, document.line_of(path), None, path, told)


def _detect_provider(document: Document) -> str:
    """The cloud a manifest is for, by its own group or by the class it names."""
    spec = document.value.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    inner = template.get("spec") if isinstance(template, dict) else spec
    reference = inner.get("nodeClassRef") if isinstance(inner, dict) else None
    named = reference.get("group") if isinstance(reference, dict) else None
    groups = (named, document.api_version.partition("/")[0])
    return next((name for name, api in crds.PROVIDER_APIS.items() if api.kind.group in groups), "aws")


def list_complaints(document: Document, provider: str | None = None) -> list[ManifestComplaint]:
    """Everything wrong with one of our objects, each with its line."""
    return [
        ManifestComplaint(
            document.source, document.line_of(each.path), None, each.path, each.message, each.severity
        )
        for each in validation.check_document(document.value, provider or _detect_provider(document))
    ]


def _print_complaints(
    ours: list[Document], skipped: list[Document], complaints: list[ManifestComplaint]
) -> None:
    print_text("".join(f"{complaint}\n" for complaint in complaints))
    for document in skipped:
        kind = f"{document.api_version} {document.kind}"
        print_note(f"{_describe_place(document)}: skipped: {kind} is not a kind that Dovetail reads")
    errors = sum(complaint.severity is Severity.ERROR for complaint in complaints)
    tally = f"{format_count(errors, 'error')}, {format_count(len(complaints) - errors, 'warning')}"
    print_note(f"{format_count(len(ours), 'object')} checked: {tally}")


def _describe_place(document: Document) -> str:
    return document.source if document.line is None else f"{document.source}:{document.line}"


def _build_document(
    ours: list[Document], skipped: list[Document], complaints: list[ManifestComplaint]
) -> dict[str, object]:
    return {
        "checked": [_build_object(document) for document in ours],
        "skipped": [_build_object(document) for document in skipped],
        "complaints": [_build_complaint(complaint) for complaint in complaints],
    }


def _build_object(document: Document) -> dict[str, object]:
    named = {"apiVersion": document.api_version, "kind": document.kind, "name": document.name}
    return {"source": document.source, "line": document.line, **named}


def _build_complaint(complaint: ManifestComplaint) -> dict[str, object]:
    return {
        "source": complaint.source,
        "line": complaint.line,
        "column": complaint.column,
        "path": complaint.path,
        "severity": complaint.severity.value,
        "message": complaint.message,
    }
