"""``dovetail hash``: the numbers that decide whether nodes drift."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from dovetail.api import codec, crds, hashes
from dovetail.api.manifests import Document, ManifestComplaint
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.nodepool import NodePool
from dovetail.cli.views.files import FilesOption, MoreFiles, read_manifests, read_text
from dovetail.cli.views.output import (
    COMPLAINTS,
    Output,
    OutputOption,
    print_note,
    print_structured,
    print_table,
)
from dovetail.errors import BadInput

COLUMNS = ("kind", "name", "hash", "version", "source")


def hash(  # commands bear the names of their functions
    files: FilesOption,
    more: MoreFiles = None,
    ca_bundle: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="The cluster's CA bundle in base64, which is part of a class's hash."
        ),
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Print the drift hashes of NodePools and EC2NodeClasses.

    These are the numbers Karpenter writes in the annotations karpenter.sh/nodepool-hash and
    karpenter.k8s.aws/ec2nodeclass-hash. When a change to a manifest changes its hash, the nodes made
    from it drift and are replaced. The API server's defaults are filled in first, as in a cluster.
    """
    bundle = "" if ca_bundle is None else read_text(ca_bundle, "CA bundle")
    found = read_manifests([*files, *(more or ())])
    complaints = [*found.complaints]
    rows = []
    for document in found.documents:
        try:
            rows += _build_rows(document, bundle)
        except BadInput as error:
            complaints.append(ManifestComplaint(document.source, document.line, None, "", str(error)))
    if not rows and not complaints:
        complaints.append(
            ManifestComplaint("input", None, None, "", "there is no NodePool and no EC2NodeClass in it")
        )
    for complaint in complaints:
        print_note(str(complaint))
    if output is Output.table:
        print_table(
            [column.upper() for column in COLUMNS], ([row[column] for column in COLUMNS] for row in rows)
        )
    else:
        print_structured({"hashes": rows}, output)
    if complaints:
        raise typer.Exit(COMPLAINTS)


def _build_rows(document: Document, ca_bundle: str) -> list[dict[str, str]]:
    """The hash of an object that has one; other kinds have none."""
    match document.api_version, document.kind:
        case "karpenter.sh/v1", "NodePool":
            pool = codec.convert(NodePool, crds.apply_defaults(document.kind, document.value))
            version = hashes.NODEPOOL_HASH_VERSION
            value = _compute_hash(lambda: hashes.hash_nodepool(pool))
        case "karpenter.k8s.aws/v1", "EC2NodeClass":
            made = codec.convert(EC2NodeClass, crds.apply_defaults(document.kind, document.value))
            version = hashes.NODECLASS_HASH_VERSION
            value = _compute_hash(lambda: hashes.hash_nodeclass(made, ca_bundle))
        case _:
            return []
    place = document.source if document.line is None else f"{document.source}:{document.line}"
    return [
        {"kind": document.kind, "name": document.name, "hash": value, "version": version, "source": place}
    ]


def _compute_hash(compute: Callable[[], str]) -> str:
    """A hash; a text in the object that spells no duration or amount makes it bad input."""
    try:
        return compute()
    except ValueError as error:
        raise BadInput(f"it has no hash: {error}") from error
