"""``dovetail validate``: everything wrong with some manifests, before a cluster sees them."""

from __future__ import annotations

from typing import Annotated

import typer

from dovetail.api import validation
from dovetail.api.manifests import Complaint, Document, Manifests, Severity
from dovetail.cli.files import FilesOption, MoreFiles, manifests_in
from dovetail.cli.output import COMPLAINTS, Output, OutputOption, counted, note, put, structured


def validate(
    files: FilesOption,
    more: MoreFiles = None,
    strict: Annotated[bool, typer.Option("--strict", help="Let warnings fail, too.")] = False,
    output: OutputOption = Output.table,
) -> None:
    """Check manifests and say what is wrong with them.

    Checks NodePools, NodeClaims, NodeOverlays, EC2NodeClasses, KWOKNodeClasses and CapacityBuffers:
    fields and values, the admission rules of the API server, and what the controller checks
    later. Every complaint names its file and line. Nothing is sent anywhere.
    """
    found = manifests_in([*files, *(more or ())])
    complaints = [*found.complaints]
    for document in found.documents:
        complaints += validation.check(document)
    if not found.documents and not complaints:
        complaints.append(
            Complaint("input", None, None, "", "there is no object in it; was it meant to be empty?")
        )
    if output is Output.table:
        _print(found, complaints)
    else:
        structured(_document(found, complaints), output)
    if any(strict or complaint.severity is Severity.ERROR for complaint in complaints):
        raise typer.Exit(COMPLAINTS)


def _print(found: Manifests, complaints: list[Complaint]) -> None:
    put("".join(f"{complaint}\n" for complaint in complaints))
    errors = sum(complaint.severity is Severity.ERROR for complaint in complaints)
    tally = f"{counted(errors, 'error')}, {counted(len(complaints) - errors, 'warning')}"
    note(f"{counted(len(found.documents), 'object')} checked: {tally}")


def _document(found: Manifests, complaints: list[Complaint]) -> dict[str, object]:
    return {
        "objects": [_described(document) for document in found.documents],
        "complaints": [_complained(complaint) for complaint in complaints],
    }


def _described(document: Document) -> dict[str, object]:
    named = {"apiVersion": document.api_version, "kind": document.kind, "name": document.name}
    return {"source": document.source, "line": document.line, **named}


def _complained(complaint: Complaint) -> dict[str, object]:
    return {
        "source": complaint.source,
        "line": complaint.line,
        "column": complaint.column,
        "path": complaint.path,
        "severity": complaint.severity.value,
        "message": complaint.message,
    }
