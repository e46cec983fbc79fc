"""``dovetail convert``: manifests of older versions in, today's out, and a word about every change."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from dovetail.api.legacy import Conversion, ConvertOptions, render_conversion
from dovetail.api.legacy import convert_documents as converted
from dovetail.cli.views.files import FilesOption, MoreFiles, read_manifests, write_all
from dovetail.cli.views.output import COMPLAINTS, Format, FormatOption, format_count, print_note, print_text
from dovetail.errors import Misconfigured

ClusterName = Annotated[
    str, typer.Option(metavar="NAME", help="Name of the cluster, for selectors that relied on it.")
]
Role = Annotated[str, typer.Option(metavar="NAME", help="Node role to write in place of instance profiles.")]
Profile = Annotated[str, typer.Option(metavar="NAME", help="Instance profile of templates that name none.")]
Version = Annotated[
    str,
    typer.Option(metavar="VERSION", help="Version of the cluster, such as 1.33: some images end with one."),
]
Tags = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE", help="A tag that the old global settings gave to everything. Repeatable."
    ),
]
IgnoreDefaults = Annotated[
    bool, typer.Option("--ignore-defaults", help="Leave out requirements that were once implied.")
]
NoLimit = Annotated[
    bool, typer.Option("--no-eni-limit", help="Pods per node were not limited by network interfaces.")
]
Budgets = Annotated[
    bool, typer.Option("--legacy-budgets", help="Write budgets close to the parallelism of old.")
]
Workloads = Annotated[
    bool, typer.Option("--rewrite-workloads", help="Rename labels and annotations in workloads, too.")
]
Directory = Annotated[
    str | None, typer.Option(metavar="DIRECTORY", help="Write one file for each object instead of printing.")
]


def convert(
    files: FilesOption,
    more: MoreFiles = None,
    cluster_name: ClusterName = "",
    role: Role = "",
    default_instance_profile: Profile = "",
    kubernetes_version: Version = "",
    tag: Tags = None,
    ignore_defaults: IgnoreDefaults = False,
    no_eni_limit: NoLimit = False,
    legacy_budgets: Budgets = False,
    rewrite_workloads: Workloads = False,
    output_dir: Directory = None,
    output: FormatOption = Format.yaml,
) -> None:
    """Turn manifests of older Karpenter versions into today's.

    Reads Provisioners, AWSNodeTemplates and beta objects; what is already of today passes through.
    The result goes to stdout, and a remark about everything that was guessed, changed or lost to
    stderr. Ends with 1 when something could not be converted; the rest is printed all the same.
    """
    options = ConvertOptions(
        cluster_name=cluster_name,
        ignore_defaults=ignore_defaults,
        default_instance_profile=default_instance_profile,
        role=role,
        kubernetes_version=kubernetes_version,
        tags=_parse_tags(tag or []),
        eni_limited_pod_density=not no_eni_limit,
        legacy_budgets=legacy_budgets,
        rewrite_workloads=rewrite_workloads,
    )
    found = read_manifests([*files, *(more or ())])
    conversion = converted(found.documents, options)
    for remark in (*found.complaints, *conversion.notes):
        print_note(str(remark))
    _write_manifests(conversion, output_dir, output)
    if found.broken or not conversion.complete:
        raise typer.Exit(COMPLAINTS)


def _parse_tags(pairs: list[str]) -> dict[str, str]:
    tags = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise Misconfigured(f'--tag is "{pair}", but must be a key, an = and a value')
        tags[key] = value
    return tags


def _write_manifests(conversion: Conversion, directory: str | None, output: Format) -> None:
    if directory is None:
        print_text(render_conversion(conversion, output.value) if conversion.manifests else "")
        return
    texts: dict[str, str] = {}
    for index, manifest in enumerate(conversion.manifests):
        # Remarks follow their object into its file; those about no object have been said already.
        notes = tuple(replace(each, target=0) for each in conversion.notes if each.target == index)
        texts[_file_name(manifest, output, texts)] = render_conversion(
            Conversion((manifest,), notes), output.value
        )
    write_all(directory, texts)
    print_note(f"{format_count(len(texts), 'file')} written to {directory}")


def _file_name(manifest: dict[str, object], output: Format, taken: dict[str, str]) -> str:
    """``nodepool-default.yaml``, with a number when two objects would share it."""
    metadata = manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    words = f"{manifest.get('kind')}-{name or 'unnamed'}".lower()
    # A name from a file must not be able to leave the directory.
    base = "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in words)
    candidate, count = f"{base}.{output.value}", 2
    while candidate in taken:
        candidate, count = f"{base}-{count}.{output.value}", count + 1
    return candidate
