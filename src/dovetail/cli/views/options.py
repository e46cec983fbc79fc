"""Options that several commands have: which cluster to look at."""

from __future__ import annotations

from typing import Annotated

import typer

from dovetail.api.crds import find_provider_api

__all__ = [
    "ClusterNameOption",
    "ContextOption",
    "KubeconfigOption",
    "ProviderOption",
    "RegionOption",
    "SnapshotOption",
    "check_provider",
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


def check_provider(name: str | None) -> str | None:
    """The name of a provider as it was given; Misconfigured where there is none of that name."""
    if name is not None:
        find_provider_api(name)
    return name


def _check_provider_or_auto(name: str) -> str:
    # A history is asked for without all that looking at a cluster takes.
    from dovetail.app.cluster_source import AUTO

    return name if name == AUTO else str(check_provider(name))


ProviderOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        callback=_check_provider_or_auto,
        help="Whose machines the cluster uses: EC2's (aws), or simulated ones (kwok); auto asks the cluster.",
    ),
]
ClusterNameOption = Annotated[
    str,
    typer.Option(metavar="NAME", help="What the cluster is called in AWS; else as its controller has it."),
]
RegionOption = Annotated[
    str, typer.Option(metavar="REGION", help="The cluster's AWS region; else as its controller or nodes say.")
]
