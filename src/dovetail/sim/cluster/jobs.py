"""Jobs: pods that run to an end, until enough of them have succeeded or too many failed."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.sim.cluster.base import Desk, Heard, Json, Key, Neighbour
from dovetail.sim.cluster.indexes import expand, indexed, squeeze
from dovetail.sim.cluster.objects import controller_of, deleting, ended, key_of, labels_of, parse_time, ready
from dovetail.sim.cluster.owned import Owned
from dovetail.sim.cluster.pods_of import delete_quietly, pod_from
from dovetail.sim.kube.conditions import is_true, with_condition

__all__ = ["Jobs", "over"]

RESOURCE = "jobs.batch"
TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
BACKOFF_FIRST, BACKOFF_LAST = 10.0, 600.0


def over(job: Json) -> bool:
    """The Job has come to its end, well or badly."""
    return is_true(job, "Complete") or is_true(job, "Failed")


class Jobs(Neighbour):
    """Runs the pods of every Job to the number of successes it asks for."""

    name = "job-controller"

    def __init__(self, desk: Desk, owned: Owned) -> None:
        super().__init__(desk)
        self.owned = owned
        self._gone: dict[Key, set[str]] = {}
        owned.tell("Job", self.enqueue)

    def hears(self) -> Mapping[str, Heard]:
        return {RESOURCE: self._heard, "pods": self._pod_heard}

    def _heard(self, before: Json | None, after: Json | None) -> None:
        job = after or before
        assert job is not None
        self.enqueue(key_of(job))

    def _pod_heard(self, before: Json | None, after: Json | None) -> None:
        """A pod that still waits to be counted by a Job that is gone must not wait for ever."""
        if (
            after is None
            or not deleting(after)
            or TRACKING not in (after["metadata"].get("finalizers") or ())
        ):
            return
        owner = controller_of(after)
        if owner is None or owner["kind"] != "Job":
            return
        key = (after["metadata"]["namespace"], owner["name"])
        job = self.find(RESOURCE, key)
        if job is None or job["metadata"]["uid"] != owner["uid"]:
            self._gone.setdefault(key, set()).add(owner["uid"])
            self.enqueue(key)

    def work(self, key: Key) -> None:
        for uid in sorted(self._gone.pop(key, ())):
            for pod in self.owned.pods(uid):
                self._let_go(pod)
        job = self.find(RESOURCE, key)
        if job is None:
            return
        status = dict(job.get("status") or {})
        if not job["spec"].get("suspend"):
            status.setdefault("startTime", self.now())
        pods = self.owned.pods(job["metadata"]["uid"])
        running = [p for p in pods if not ended(p) and not deleting(p)]
        if over(job) or deleting(job) or job["spec"].get("suspend"):
            self._stop(running)
            running = []
        self._count(job, status, self.owned.pods(job["metadata"]["uid"]))
        if not over(job) and not deleting(job):
            running = self._suspend_or_run(job, status, running)
        status |= {"active": len(running), "ready": sum(map(ready, running))}
        status["terminating"] = sum(deleting(p) and not ended(p) for p in pods)
        shown = ("ready", "terminating", "uncountedTerminatedPods")
        status = {k: v for k, v in status.items() if v or k in shown}
        if status != job.get("status"):
            self.api.report(RESOURCE, job, status)
        if over(job):
            self._expire(job)

    def _stop(self, running: list[Json]) -> None:
        """Pods that are stopped on purpose are nobody's failure: they are not counted."""
        for pod in running:
            self._let_go(pod)
            delete_quietly(self.api, pod)

    def _count(self, job: Json, status: Json, pods: list[Json]) -> None:
        """Each ended pod is counted once; the finalizer says it has not been counted yet."""
        done = expand(status.get("completedIndexes", ""))
        for pod in pods:
            if not _uncounted(pod):
                continue
            phase = (pod.get("status") or {}).get("phase")
            if phase == "Succeeded":
                status["succeeded"] = status.get("succeeded", 0) + 1
                done.add(_index(pod))
            elif phase == "Failed" or deleting(pod):
                status["failed"] = status.get("failed", 0) + 1
            else:
                continue
            self._let_go(pod)
        if indexed(job):
            done &= set(range(job["spec"]["completions"]))
            status["completedIndexes"], status["succeeded"] = squeeze(done), len(done)

    def _let_go(self, pod: Json) -> None:
        finalizers = pod["metadata"].get("finalizers") or []
        if TRACKING in finalizers:
            left = [f for f in finalizers if f != TRACKING]
            patch = {"metadata": {"finalizers": left or None}}
            self.api.patch("pods", pod["metadata"]["name"], patch, pod["metadata"]["namespace"])

    def _suspend_or_run(self, job: Json, status: Json, running: list[Json]) -> list[Json]:
        if self._ended(job, status, running):
            self._stop(running)
            return []
        suspended = bool(job["spec"].get("suspend"))
        if suspended != is_true({"status": status}, "Suspended"):
            why = "JobSuspended" if suspended else "JobResumed"
            state = {"type": "Suspended", "status": str(suspended), "reason": why}
            if suspended or any(c["type"] == "Suspended" for c in status.get("conditions") or ()):
                status |= with_condition(status, state, self.now())
            if not suspended:
                status["startTime"] = self.now()
        if suspended:
            status.pop("startTime", None)
            return []
        return self._run(job, status, running)

    def _ended(self, job: Json, status: Json, running: list[Json]) -> bool:
        spec = job["spec"]
        succeeded, completions = status.get("succeeded", 0), spec.get("completions")
        if (completions is not None and succeeded >= completions) or (
            completions is None and succeeded and not running
        ):
            self._finish(status, "Complete", "CompletionsReached")
        elif status.get("failed", 0) > spec.get("backoffLimit", 6):
            self._finish(status, "Failed", "BackoffLimitExceeded")
        elif self._too_late(job, status):
            self._finish(status, "Failed", "DeadlineExceeded")
        else:
            return False
        return True

    def _too_late(self, job: Json, status: Json) -> bool:
        limit, started = job["spec"].get("activeDeadlineSeconds"), status.get("startTime")
        if limit is None or started is None or job["spec"].get("suspend"):
            return False
        left = limit - (self.clock.now() - parse_time(started)).total_seconds()
        if left > 0:
            self.enqueue(key_of(job), left)
        return bool(left <= 0)

    def _run(self, job: Json, status: Json, running: list[Json]) -> list[Json]:
        spec = job["spec"]
        wanted, completions = spec.get("parallelism", 1), spec.get("completions")
        if completions is not None:
            wanted = min(wanted, completions - status.get("succeeded", 0))
        elif status.get("succeeded", 0):
            wanted = min(wanted, len(running))
        if len(running) > wanted:
            newest_first = sorted(running, key=lambda p: (ready(p), p["metadata"]["creationTimestamp"]))
            self._stop(newest_first[: len(running) - wanted])
            return newest_first[len(running) - wanted :]
        missing = wanted - len(running)
        if not missing or not self._rested(job, status):
            return running
        taken = expand(status.get("completedIndexes", "")) | {_index(p) for p in running}
        free = (i for i in range(completions or 0) if i not in taken)
        return running + [self._create(job, next(free) if indexed(job) else None) for _ in range(missing)]

    def _rested(self, job: Json, status: Json) -> bool:
        """After a failure the next pod waits: ten seconds, then twice as long each time."""
        if not status.get("failed"):
            return True
        wait = min(BACKOFF_FIRST * 2 ** (status["failed"] - 1), BACKOFF_LAST)
        ends = [
            s["state"]["terminated"]["finishedAt"]
            for p in self.owned.pods(job["metadata"]["uid"])
            if (p.get("status") or {}).get("phase") == "Failed"
            for s in p["status"].get("containerStatuses") or ()
            if "terminated" in (s.get("state") or {})
        ]
        if not ends:
            return True
        left = wait - (self.clock.now() - parse_time(max(ends))).total_seconds()
        if left > 0:
            self.enqueue(key_of(job), left)
        return bool(left <= 0)

    def _create(self, job: Json, index: int | None) -> Json:
        pod, meta = pod_from(job["spec"]["template"], job), job["metadata"]
        pod["metadata"]["labels"] |= {
            "batch.kubernetes.io/controller-uid": meta["uid"],
            "batch.kubernetes.io/job-name": meta["name"],
            "controller-uid": meta["uid"],
            "job-name": meta["name"],
        }
        if index is not None:
            pod["metadata"]["labels"][INDEX] = str(index)
            pod["metadata"]["annotations"][INDEX] = str(index)
            pod["metadata"]["generateName"] = f"{meta['name']}-{index}-"
        pod["metadata"]["finalizers"] = [*pod["metadata"]["finalizers"], TRACKING]
        return self.api.spawn(pod)

    def _finish(self, status: Json, kind: str, reason: str) -> None:
        now = self.now()
        early = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}[kind]
        done = with_condition(status, {"type": early, "status": "True", "reason": reason}, now)
        done = with_condition(done, {"type": kind, "status": "True", "reason": reason}, now)
        status.update(done)
        if kind == "Complete":
            status["completionTime"] = now

    def _expire(self, job: Json) -> None:
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        if ttl is None or deleting(job):
            return
        ends = [c for c in job["status"]["conditions"] if c["type"] in ("Complete", "Failed")]
        left = ttl - (self.clock.now() - parse_time(ends[0]["lastTransitionTime"])).total_seconds()
        if left > 0:
            self.enqueue(key_of(job), left)
            return
        meta = job["metadata"]
        self.api.delete(RESOURCE, meta["name"], meta["namespace"], propagation="Background")


def _uncounted(pod: Json) -> bool:
    return TRACKING in (pod["metadata"].get("finalizers") or ())


def _index(pod: Json) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(INDEX) or labels_of(pod).get(INDEX) or "-1"
    return int(text)
