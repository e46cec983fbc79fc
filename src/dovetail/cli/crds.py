"""``dovetail crds``: the definitions a cluster needs before it can hold pools and claims."""

from __future__ import annotations

from typing import Annotated

import typer

from dovetail.api import crds as definitions
from dovetail.cli.views.files import write_all
from dovetail.cli.views.options import check_provider
from dovetail.cli.views.output import (
    Format,
    FormatOption,
    format_count,
    print_manifests,
    print_note,
    render_json,
    render_yaml,
)


def crds(
    provider: Annotated[
        str,
        typer.Option(
            "--provider",
            "--flavour",
            metavar="NAME",
            callback=check_provider,
            help="The provider whose node class to add: aws or kwok.",
        ),
    ] = "aws",
    own: Annotated[
        bool,
        typer.Option("--own", help="Only the kinds of our own, such as ZoneShift; any provider's cluster."),
    ] = False,
    output_dir: Annotated[
        str | None, typer.Option(metavar="DIRECTORY", help="Write one file for each instead of printing.")
    ] = None,
    output: FormatOption = Format.yaml,
) -> None:
    """Print the CustomResourceDefinitions to install.

    They are the ones Karpenter installs: same groups, versions and names, so that objects already
    in a cluster stay valid. Use it as `dovetail crds | kubectl apply --server-side -f -`.

    Kinds that Karpenter does not have are printed with --own. They are optional: a controller that
    runs notices one that is installed later within five minutes.
    """
    manifests = definitions.build_own_manifests() if own else definitions.build_manifests(provider)
    if output_dir is None:
        print_manifests(manifests, output)
        return
    render = render_json if output is Format.json else render_yaml
    texts = {f"{_file_name(manifest)}.{output.value}": render([manifest]) for manifest in manifests}
    write_all(output_dir, texts)
    print_note(f"{format_count(len(texts), 'file')} written to {output_dir}")


def _file_name(manifest: dict[str, object]) -> str:
    """``nodepools.karpenter.sh`` is kept in ``karpenter.sh_nodepools``, as generators of CRDs do."""
    metadata = manifest["metadata"]
    assert isinstance(metadata, dict)
    plural, _, group = str(metadata["name"]).partition(".")
    return f"{group}_{plural}"
