"""``dovetail snapshot``: a cluster in a file, to be planned and explained elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dovetail.app.cluster_source import ClusterSource
from dovetail.app.live_cluster import read_cluster
from dovetail.app.snapshot_file import encode_snapshot
from dovetail.cli.views.files import STDIN, expect_writable, write_file
from dovetail.cli.views.options import add_cluster_options
from dovetail.cli.views.output import format_count, print_note, print_remark, print_text


@add_cluster_options
def snapshot(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to write it; - for stdout.")
    ],
    *,
    where: ClusterSource,
) -> None:
    """Save what Dovetail sees of a cluster, to plan and explain it later.

    The cluster is only read. Secrets, images, arguments, environment values and annotations that Dovetail
    does not read are never included. The file is readable by its owner alone.
    """
    if output != STDIN:
        expect_writable(Path(output))
    found = read_cluster(where, print_remark)
    data = encode_snapshot(found)
    seen = found.snapshot
    if output == STDIN:
        print_text(data.decode())
        return
    write_file(Path(output), data, private=True)
    waiting, pools = format_count(len(seen.pods), "pending pod"), format_count(len(seen.pools), "pool")
    print_note(f"{output}: {format_count(len(seen.nodes), 'node')}, {waiting}, {pools}, {len(data):,} bytes")
