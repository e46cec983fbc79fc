"""Options that several commands have: which cluster to look at."""

from __future__ import annotations

from typing import Annotated

import typer

from dovetail.app.cluster_source import Provider

__all__ = [
    "ClusterNameOption",
    "ContextOption",
    "KubeconfigOption",
    "ProviderOption",
    "RegionOption",
    "SnapshotOption",
]

SnapshotOption = Annotated[
    str,
    typer.Option(
        "--snapshot", metavar="FILE", help="Look at this file of `dovetail snapshot` (- for stdin) instead."
    ),
]
KubeconfigOption = Annotated[
    str,
    typer.Option(metavar="FILE", help="Kubeconfig; else $KUBECONFIG, the pod's own, or ~/.kube/config."),
]
ContextOption = Annotated[str, typer.Option(metavar="NAME", help="Context of the kubeconfig to use.")]
ProviderOption = Annotated[
    Provider,
    typer.Option(help="Whose machines the cluster uses: EC2's, or simulated ones; auto asks the cluster."),
]
ClusterNameOption = Annotated[
    str,
    typer.Option(metavar="NAME", help="What the cluster is called in AWS; else as its controller has it."),
]
RegionOption = Annotated[
    str, typer.Option(metavar="REGION", help="The cluster's AWS region; else as its controller or nodes say.")
]
