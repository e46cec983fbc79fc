"""``dovetail explain``: why a pod has the place it has or none, and why a node stays or may go."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Annotated

import typer

from dovetail.app.cluster_source import ClusterSource, SeenCluster
from dovetail.app.snapshot_file import find_cluster
from dovetail.cli.views.options import SnapshotOption, add_cluster_options
from dovetail.cli.views.output import LEFT_OUT, Output, OutputOption, print_remark
from dovetail.cli.views.pods import explain_pod, show_pod
from dovetail.errors import BadInput
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.collector import pause_collector
from dovetail.scheduling.model.snapshot import StateNode

# A pod by its full name, or a node with its claim.
Thing = str | StateNode


@add_cluster_options
def explain(
    name: Annotated[
        str,
        typer.Argument(
            metavar="POD|NODE|NODECLAIM",
            help="A name; where several things share it: NAMESPACE/NAME, pod/NAMESPACE/NAME, node/NAME or "
            "nodeclaim/NAME.",
        ),
    ],
    snapshot: SnapshotOption = "",
    everything: Annotated[
        bool, typer.Option("--all", help="Name every pool and node that was rejected, not only some.")
    ] = False,
    *,
    where: ClusterSource,
    output: OutputOption = Output.table,
) -> None:
    """Say where a pod will run or why it cannot, or why a node is blocked.

    The cluster is only read, once, and the controller's own rules are asked; the controller need not run.
    Exit codes: 0 there is an answer, 3 the pod is pending and unschedulable, 1 there is no such thing.
    """
    with pause_collector():
        seen = find_cluster(snapshot, where, print_remark)
        thing = _find_thing(seen, name)
        if isinstance(thing, StateNode):
            # Why nodes stay is for disruption to say, and that takes time to load; pods do without.
            from dovetail.cli.views.nodes import explain_node, show_node

            show_node(explain_node(seen, thing), output)
            _show_lately(thing, snapshot, where, output)
            return
        answer = explain_pod(seen, thing)
    show_pod(answer, output, everything)
    _show_lately(thing, snapshot, where, output)
    if answer.stuck:
        raise typer.Exit(LEFT_OUT)


def _show_lately(thing: Thing, snapshot: str, where: ClusterSource, output: Output) -> None:
    """Print the last lines of its history, for people, where there is one that answers at once."""
    if snapshot or output is not Output.table:
        return
    # Who looks at a snapshot need not load it.
    from dovetail.cli.views.histories import print_lately

    if isinstance(thing, StateNode):
        print_lately(f"node/{views.read_name(thing)}", where)
    else:
        print_lately(f"pod/{thing}", where)


def _find_thing(seen: SeenCluster, name: str) -> Thing:
    """The only thing of that name."""
    found: dict[str, Thing] = {}
    spellings: list[str] = []
    for full, names, thing in _list_things(seen):
        spellings.append(full)
        if name in names and thing not in found.values():
            found[full] = thing
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise BadInput(f"{name} could be {_join_choices(sorted(found))}; say which")
    near = get_close_matches(name, [each.partition("/")[2] for each in spellings], 1)
    hint = f"did you mean {near[0]}?" if near else "is it spelled right?"
    raise BadInput(f"there is no pod, node or nodeclaim {name} here; {hint}")


def _list_things(seen: SeenCluster) -> Iterator[tuple[str, tuple[str, ...], Thing]]:
    """Everything that can be asked about: how to name it for certain, the names it goes by, and itself."""
    for namespace, pod in sorted(_list_pods(seen)):
        full = f"{namespace}/{pod}"
        yield f"pod/{full}", (pod, full, f"pod/{pod}", f"pod/{full}"), full
    for state in seen.snapshot.nodes:
        if state.node is not None:
            yield f"node/{state.node.name}", (state.node.name, f"node/{state.node.name}"), state
        if state.claim is not None:
            yield f"nodeclaim/{state.claim.name}", (state.claim.name, f"nodeclaim/{state.claim.name}"), state


def _list_pods(seen: SeenCluster) -> set[tuple[str, str]]:
    snapshot = seen.snapshot
    everyone = (*snapshot.pods, *seen.pods.values(), *(pod for state in snapshot.nodes for pod in state.pods))
    return {(pod.namespace, pod.name) for pod in everyone}


def _join_choices(names: list[str]) -> str:
    shown = names[:4]
    more = f" or one of {len(names) - len(shown):,} others" if len(names) > len(shown) else ""
    return ", ".join(shown[:-1]) + (f" or {shown[-1]}" if not more else f", {shown[-1]}{more}")
