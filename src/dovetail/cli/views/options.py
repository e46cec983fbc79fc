"""Options that several commands have: which cluster to look at, and whom to ask for its history."""

from __future__ import annotations

from typing import Annotated

import typer

from dovetail.api.crds import find_provider_api
from dovetail.errors import BadInput

__all__ = [
    "ClusterNameOption",
    "ContextOption",
    "HistoryPlaceOption",
    "KubeconfigOption",
    "ProviderOption",
    "RegionOption",
    "SnapshotOption",
    "check_history_place",
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
HistoryPlaceOption = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="URL|DIR|s3://…",
        help="Ask this metrics port, or read this decision log, and not the cluster's leader.",
    ),
]


def check_history_place(place: str, kubeconfig: str, context: str) -> None:
    """A history comes from a place or from a cluster; BadInput where both are named."""
    if place and (kubeconfig or context):
        other = "--kubeconfig" if kubeconfig else "--context"
        raise BadInput(f"--from and {other} exclude each other; leave one out")


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
