"""Options that several commands have: which cluster to look at, and whom to ask for its history."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any, get_type_hints

import typer

from dovetail.api.crds import find_provider_api
from dovetail.errors import BadInput

__all__ = [
    "ContextOption",
    "HistoryPlaceOption",
    "KubeconfigOption",
    "SnapshotOption",
    "add_cluster_options",
    "build_cluster_source",
    "check_history_place",
    "check_provider",
    "replace_parameter",
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

# The options that name a cluster, in the order of the help; each is the member of ClusterSource so called.
CLUSTER_OPTIONS: dict[str, tuple[Any, str]] = {
    "kubeconfig": (KubeconfigOption, ""),
    "context": (ContextOption, ""),
    "provider": (ProviderOption, "auto"),
    "cluster_name": (ClusterNameOption, ""),
    "region": (RegionOption, ""),
}


def add_cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options that name a cluster in place of its parameter `where: ClusterSource`."""
    return replace_parameter(command, "where", CLUSTER_OPTIONS, build_cluster_source)


def build_cluster_source(given: dict[str, Any]) -> object:
    """The ClusterSource that these options name; they are taken out of those given."""
    from dovetail.app.cluster_source import ClusterSource

    return ClusterSource(**{name: given.pop(name) for name in CLUSTER_OPTIONS})


def replace_parameter(
    command: Callable[..., None],
    parameter: str,
    options: dict[str, tuple[Any, Any]],
    build: Callable[[dict[str, Any]], object],
) -> Callable[..., None]:
    """The command with options in place of one parameter, which `build` makes of them."""
    # What the parameter's type is called is never looked up: it may be imported for type checks alone.
    hidden = {"ClusterSource": object, "WorldSource": object}
    hints = get_type_hints(command, localns=hidden, include_extras=True)
    plain = signature(command)
    listed: list[Parameter] = []
    for each in plain.parameters.values():
        if each.name != parameter:
            listed.append(each.replace(annotation=hints[each.name]))
            continue
        for name, (annotation, default) in options.items():
            listed.append(Parameter(name, each.kind, default=default, annotation=annotation))

    @wraps(command)
    def run(**given: Any) -> None:
        built = build(given)
        command(**{parameter: built}, **given)

    # Typer reads both.
    run.__signature__ = plain.replace(parameters=listed)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in listed}
    return run
