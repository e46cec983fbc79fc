"""pod.deletioncost: a deletion cost that is no number is said to be none."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.api.labels import POD_DELETION_COST
from dovetail.api.pod import Pod
from dovetail.controllers.base import DONE, Backoff, Result, Trigger
from dovetail.disruption.cost import unreadable_cost
from dovetail.ports import Recorder

__all__ = ["DeletionCosts"]


class DeletionCosts:
    """Tells of pods whose annotation cannot be counted, as it hears of them; nothing is left to do later."""

    name = "pod.deletioncost"
    concurrency = 1
    backoff = Backoff()

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(Pod, self._changed),)

    async def reconcile(self, key: str) -> Result:
        return DONE

    def _changed(self, before: Pod | None, pod: Pod | None) -> Iterable[str]:
        if pod is None or unreadable_cost(pod) is None:
            return ()
        known = before is not None and unreadable_cost(before) == unreadable_cost(pod)
        if not known:
            note = (
                f"Invalid {POD_DELETION_COST} annotation: {unreadable_cost(pod)!r} is not a number, "
                "so the pod counts as if it had none; give an integer"
            )
            self._recorder.event(pod, "InvalidDeletionCost", note, warning=True, dedupe=(pod.uid,))
        return ()
