"""``dovetail snapshot``: a cluster in a file, to be planned and explained elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dovetail.cli.files import STDIN
from dovetail.cli.live import look
from dovetail.cli.output import counted, note, put
from dovetail.cli.seen import (
    ClusterNameOption,
    ContextOption,
    KubeconfigOption,
    ProviderOption,
    RegionOption,
    Where,
    to_file,
)
from dovetail.errors import BadInput


def snapshot(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to write it; - for stdout.")
    ],
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    provider: ProviderOption = "auto",
    cluster_name: ClusterNameOption = "",
    region: RegionOption = "",
) -> None:
    """Save what Dovetail sees of a cluster, to plan and explain it elsewhere.

    The cluster is only read. Secrets, images, arguments, environment values and annotations that Dovetail
    does not read are never included.
    """
    seen = look(Where(kubeconfig, context, provider, cluster_name, region)).snapshot
    data = to_file(seen)
    if output == STDIN:
        put(data.decode())
        return
    try:
        Path(output).write_bytes(data)
    except OSError as error:
        raise BadInput(f"writing {output}: {(error.strerror or str(error)).lower()}") from error
    waiting, pools = counted(len(seen.pods), "waiting pod"), counted(len(seen.pools), "pool")
    note(f"{output}: {counted(len(seen.nodes), 'node')}, {waiting}, {pools}, {len(data):,} bytes")
