"""``dovetail snapshot``: a cluster in a file, to be planned and explained elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dovetail.cli.files import STDIN, expect_writable, write_file
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
    does not read are never included. The file is readable by its owner alone.
    """
    if output != STDIN:
        expect_writable(Path(output))
    seen = look(Where(kubeconfig, context, provider, cluster_name, region)).snapshot
    data = to_file(seen)
    if output == STDIN:
        put(data.decode())
        return
    write_file(Path(output), data, private=True)
    waiting, pools = counted(len(seen.pods), "pending pod"), counted(len(seen.pools), "pool")
    note(f"{output}: {counted(len(seen.nodes), 'node')}, {waiting}, {pools}, {len(data):,} bytes")
