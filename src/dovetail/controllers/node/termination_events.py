"""What people are told about the end of a node, word for word where dashboards and people search for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from dovetail.api.core import Node
from dovetail.api.labels import POD_DELETION_COST
from dovetail.api.pod import Pod
from dovetail.api.predicates import DoNotDisrupt
from dovetail.controllers.base import DONE, Backoff, Result, Trigger
from dovetail.controllers.nodeclaim.finalization import format_rfc3339
from dovetail.disruption.candidates import find_unreadable_cost
from dovetail.ports import Recorder

__all__ = [
    "DeletionCostEvents",
    "record_awaited_volumes",
    "record_blocked_repair",
    "record_deadline",
    "record_do_not_disrupt",
    "record_evicted_pod",
    "record_failing_drain",
    "record_forced_pod",
]

NAMED = 5
REPAIR_WINDOW = 900.0


def record_evicted_pod(recorder: Recorder, pod: Pod, reason: str) -> None:
    recorder.publish_event(pod, "Evicted", f"Evicted pod: {reason}", dedupe=(pod.name,))


def record_forced_pod(recorder: Recorder, pod: Pod, deadline: datetime, grace: int) -> None:
    own = pod.spec.termination_grace_period_seconds
    note = (
        f"Deleting the pod because its node terminates at {format_rfc3339(deadline)}. "
        f"It was granted {grace} seconds"
        f" of grace-period of its {own} terminationGracePeriodSeconds."
        " Its PDB and its do-not-disrupt annotation are bypassed."
    )
    recorder.publish_event(pod, "Disrupted", note, dedupe=(pod.name,))


def record_failing_drain(recorder: Recorder, node: Node, why: str) -> None:
    note = f"Failed to drain node, {why}"
    recorder.publish_event(node, "FailedDraining", note, warning=True, dedupe=(node.name,))


def record_awaited_volumes(recorder: Recorder, node: Node, attachments: Sequence[str]) -> None:
    named, more = ", ".join(attachments[:NAMED]), len(attachments) - NAMED
    listed = f"{named} and {more} other(s)" if more > 0 else named
    note = f"Awaiting deletion of bound volumeattachments ({listed})"
    recorder.publish_event(node, "AwaitingVolumeDetachment", note, dedupe=(node.name,))


def record_deadline(recorder: Recorder, node: Node, deadline: str) -> None:
    # By uid: the node's claim, told the same, may go by the same name.
    note = f"All pods will be deleted by {deadline}"
    recorder.publish_event(node, "TerminationGracePeriodExpiring", note, warning=True, dedupe=(node.uid,))


def record_blocked_repair(recorder: Recorder, node: Node, *, pool: bool) -> None:
    # Karpenter: "then" is how the second text is spelled, and alerts match it (health/events.go).
    note = (
        "more than 20% nodes are unhealthy in the nodepool"
        if pool
        else "more then 20% nodes are unhealthy in the cluster"
    )
    recorder.publish_event(
        node, "NodeRepairBlocked", note, warning=True, dedupe=(node.uid, note), window=REPAIR_WINDOW
    )


def record_do_not_disrupt(recorder: Recorder, pod: Pod, verdict: DoNotDisrupt) -> None:
    """What a do-not-disrupt annotation with a duration, or with nonsense, comes to."""
    if verdict.reason:
        recorder.publish_event(
            pod, verdict.reason, verdict.note, warning=verdict.warning, dedupe=(pod.uid, verdict.note)
        )


class DeletionCostEvents:
    """Tells of pods whose annotation cannot be counted, as it hears of them; nothing is left to do later."""

    name = "pod.deletioncost"
    singleton = False
    concurrency = 1
    backoff = Backoff()

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(Pod, self._report_change),)

    async def reconcile(self, key: str) -> Result:
        return DONE

    def _report_change(self, before: Pod | None, pod: Pod | None) -> Iterable[str]:
        if pod is None or find_unreadable_cost(pod) is None:
            return ()
        known = before is not None and find_unreadable_cost(before) == find_unreadable_cost(pod)
        if not known:
            note = (
                f"Invalid {POD_DELETION_COST} annotation: {find_unreadable_cost(pod)!r} is not a number, "
                "so the pod counts as if it had none; give an integer"
            )
            self._recorder.publish_event(pod, "InvalidDeletionCost", note, warning=True, dedupe=(pod.uid,))
        return ()
