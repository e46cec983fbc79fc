"""What people are told about the end of a node, word for word where dashboards and people search for it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from dovetail.api.core import Node
from dovetail.api.pod import Pod
from dovetail.api.predicates import DoNotDisrupt
from dovetail.controllers.nodeclaim.finalization import rfc3339
from dovetail.ports import Recorder

__all__ = [
    "awaiting_volumes",
    "deadline_set",
    "drain_failing",
    "held",
    "pod_evicted",
    "pod_forced",
    "repair_blocked",
]

NAMED = 5
REPAIR_WINDOW = 900.0


def pod_evicted(recorder: Recorder, pod: Pod, reason: str) -> None:
    recorder.event(pod, "Evicted", f"Evicted pod: {reason}", dedupe=(pod.name,))


def pod_forced(recorder: Recorder, pod: Pod, deadline: datetime, grace: int) -> None:
    own = pod.spec.termination_grace_period_seconds
    note = (
        f"Deleting the pod because its node terminates at {rfc3339(deadline)}. It was granted {grace} seconds"
        f" of grace-period of its {own} terminationGracePeriodSeconds."
        " Its PDB and its do-not-disrupt annotation are bypassed."
    )
    recorder.event(pod, "Disrupted", note, dedupe=(pod.name,))


def drain_failing(recorder: Recorder, node: Node, why: str) -> None:
    note = f"Failed to drain node, {why}"
    recorder.event(node, "FailedDraining", note, warning=True, dedupe=(node.name,))


def awaiting_volumes(recorder: Recorder, node: Node, attachments: Sequence[str]) -> None:
    named, more = ", ".join(attachments[:NAMED]), len(attachments) - NAMED
    listed = f"{named} and {more} other(s)" if more > 0 else named
    note = f"Awaiting deletion of bound volumeattachments ({listed})"
    recorder.event(node, "AwaitingVolumeDetachment", note, dedupe=(node.name,))


def deadline_set(recorder: Recorder, node: Node, deadline: str) -> None:
    # By uid: the node's claim, told the same, may go by the same name.
    note = f"All pods will be deleted by {deadline}"
    recorder.event(node, "TerminationGracePeriodExpiring", note, warning=True, dedupe=(node.uid,))


def repair_blocked(recorder: Recorder, node: Node, *, pool: bool) -> None:
    # Karpenter: "then" is how the second text is spelled, and alerts match it (health/events.go).
    note = (
        "more than 20% nodes are unhealthy in the nodepool"
        if pool
        else "more then 20% nodes are unhealthy in the cluster"
    )
    recorder.event(
        node, "NodeRepairBlocked", note, warning=True, dedupe=(node.uid, note), window=REPAIR_WINDOW
    )


def held(recorder: Recorder, pod: Pod, verdict: DoNotDisrupt) -> None:
    """What a do-not-disrupt annotation with a duration, or with nonsense, comes to."""
    if verdict.reason:
        recorder.event(
            pod, verdict.reason, verdict.note, warning=verdict.warning, dedupe=(pod.uid, verdict.note)
        )
