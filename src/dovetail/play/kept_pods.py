"""KeptPods: pods that are wanted one by one, made again when they are evicted; those of Jobs until done.

Pods that come in numbers have a ReplicaSet. These are the others: of StatefulSets and Jobs, of owners nobody
knows, and of none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from dovetail.sim.cluster.base import CommitHandler, Json, Key, SimController, SimControllerManager
from dovetail.sim.cluster.objects import has_pod_ended, is_deleting, key_of, parse_time
from dovetail.sim.kube.status import ApiError

__all__ = ["KeptPods"]

SOON = 1e-6


@dataclass(slots=True)
class _KeptPod:
    """A pod that is wanted. `work` is how long a pod of a Job must run, as soon as that is known."""

    document: Json
    job: bool
    work: float | None = None
    began: datetime | None = None
    uid: str = ""
    over: bool = False


class KeptPods(SimController):
    """The owner of all pods that no ReplicaSet has. Keys are those of pods."""

    name = "replay-controller"

    def __init__(self, manager: SimControllerManager) -> None:
        super().__init__(manager)
        self._kept: dict[Key, _KeptPod] = {}
        self._slots: dict[str, Key] = {}
        self._done_seconds = 0.0
        self._repeated_seconds = 0.0

    @property
    def repeated_hours(self) -> float:
        """Hours that pods of Jobs had worked when they were evicted, and had to work again."""
        return self._repeated_seconds / 3600

    @property
    def job_hours(self) -> float:
        """Hours of work of Jobs that are done, and of those under way."""
        now = self.clock.now()
        under_way = sum(
            min((now - each.began).total_seconds(), each.work if each.work is not None else float("inf"))
            for each in self._kept.values()
            if each.job and each.began is not None
        )
        return (self._done_seconds + under_way) / 3600

    def list_handlers(self) -> Mapping[str, CommitHandler]:
        return {"pods": self._handle_pod}

    def keep_pod(self, slot: str, document: Json, *, job: bool, work: float | None = None) -> None:
        """Want a pod from now on; one of a Job until it has worked so long, if that is known."""
        key = key_of(document)
        self._slots[slot] = key
        self._kept[key] = _KeptPod(document, job, work)
        self.enqueue(key)

    def keep_running(self, slot: str, document: Json, stored: Json, *, job: bool, work: float | None) -> None:
        """Want a pod that is there already."""
        key = key_of(document)
        self._slots[slot] = key
        began = parse_time(stored["status"]["startTime"]) if stored.get("status") else None
        self._kept[key] = _KeptPod(document, job, work, began, stored["metadata"]["uid"])
        self.enqueue(key)

    def drop_pod(self, slot: str, work: float | None = None) -> None:
        """Want a pod no more; one of a Job goes on until it has done the work that it did as recorded."""
        key = self._slots.get(slot)
        kept = self._kept.get(key) if key is not None else None
        if key is None or kept is None:
            return
        if kept.job and work is not None:
            kept.work = work if kept.work is None else kept.work
        else:
            kept.over = True
        self.enqueue(key)

    def _handle_pod(self, before: Json | None, after: Json | None) -> None:
        pod = after or before
        assert pod is not None
        kept = self._kept.get(key_of(pod))
        if kept is None or (kept.uid and kept.uid != pod["metadata"]["uid"]):
            return
        if after is None or has_pod_ended(after):
            self._lose_pod(kept)
            self.enqueue(key_of(pod))
        elif kept.began is None and (after.get("status") or {}).get("phase") == "Running":
            kept.began = self.clock.now()
            self.enqueue(key_of(pod))

    def _lose_pod(self, kept: _KeptPod) -> None:
        if kept.job and kept.began is not None and not kept.over:
            self._repeated_seconds += (self.clock.now() - kept.began).total_seconds()
        kept.began, kept.uid = None, ""

    def reconcile(self, key: Key) -> None:
        kept = self._kept.get(key)
        if kept is None:
            return
        left = self._find_left(kept)
        if left is not None and left <= SOON:
            self._done_seconds += kept.work or 0.0
            kept.over, kept.began = True, None
        if kept.over:
            self._end_pod(key)
            return
        if left is not None:
            self.enqueue(key, left)
        stored = self.find_object("pods", key)
        if stored is None:
            made = self.api.create("pods", kept.document, key[0])
            kept.uid = made["metadata"]["uid"]
        elif has_pod_ended(stored) and not is_deleting(stored):
            self._delete_pod(key)

    def _find_left(self, kept: _KeptPod) -> float | None:
        """The seconds that a pod of a Job has left to work; None while that is not known."""
        if not kept.job or kept.work is None or kept.began is None or kept.over:
            return None
        return kept.work - (self.clock.now() - kept.began).total_seconds()

    def _end_pod(self, key: Key) -> None:
        del self._kept[key]
        if self.find_object("pods", key) is not None:
            self._delete_pod(key)

    def _delete_pod(self, key: Key) -> None:
        try:
            self.api.delete("pods", key[1], key[0])
        except ApiError as error:
            if error.code not in (404, 409):
                raise
