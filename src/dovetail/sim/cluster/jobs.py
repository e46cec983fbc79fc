"""Jobs: pods that run to an end, until enough of them have succeeded or too many failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.sim.cluster.base import CommitHandler, Json, Key, SimController, SimControllerManager
from dovetail.sim.cluster.objects import (
    controller_of,
    has_pod_ended,
    is_deleting,
    is_pod_ready,
    key_of,
    labels_of,
    parse_time,
)
from dovetail.sim.cluster.owner_index import OwnerIndex
from dovetail.sim.cluster.workload_pods import build_pod, delete_quietly
from dovetail.sim.kube.meta import is_condition_true, with_condition

__all__ = ["JobController", "format_indexes", "is_indexed", "is_job_finished", "parse_indexes"]


def is_indexed(job: dict[str, Any]) -> bool:
    """Whether each success of the Job is for an index of its own."""
    return bool(job["spec"].get("completionMode") == "Indexed")


def parse_indexes(text: str) -> set[int]:
    """The indexes a text names."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def format_indexes(indexes: set[int]) -> str:
    """Indexes as text; neighbours become a range."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    parts: list[str] = []
    for run in runs:
        parts += [f"{run[0]}-{run[-1]}"] if len(run) > 1 else [str(run[0])]
    return ",".join(parts)


RESOURCE = "jobs.batch"
TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
BACKOFF_FIRST, BACKOFF_LAST = 10.0, 600.0


def is_job_finished(job: Json) -> bool:
    """The Job has come to its end, well or badly."""
    return is_condition_true(job, "Complete") or is_condition_true(job, "Failed")


class JobController(SimController):
    """Runs the pods of every Job to the number of successes it asks for."""

    name = "job-controller"

    def __init__(self, manager: SimControllerManager, owned: OwnerIndex) -> None:
        super().__init__(manager)
        self.owned = owned
        self._gone: dict[Key, set[str]] = {}
        owned.subscribe_owner("Job", self.enqueue)

    def list_handlers(self) -> Mapping[str, CommitHandler]:
        return {RESOURCE: self._handle_job, "pods": self._handle_pod}

    def _handle_job(self, before: Json | None, after: Json | None) -> None:
        job = after or before
        assert job is not None
        self.enqueue(key_of(job))

    def _handle_pod(self, before: Json | None, after: Json | None) -> None:
        """A pod that still waits to be counted by a Job that is gone must not wait for ever."""
        if (
            after is None
            or not is_deleting(after)
            or TRACKING not in (after["metadata"].get("finalizers") or ())
        ):
            return
        owner = controller_of(after)
        if owner is None or owner["kind"] != "Job":
            return
        key = (after["metadata"]["namespace"], owner["name"])
        job = self.find_object(RESOURCE, key)
        if job is None or job["metadata"]["uid"] != owner["uid"]:
            self._gone.setdefault(key, set()).add(owner["uid"])
            self.enqueue(key)

    def reconcile(self, key: Key) -> None:
        for uid in sorted(self._gone.pop(key, ())):
            for pod in self.owned.list_pods(uid):
                self._remove_finalizer(pod)
        job = self.find_object(RESOURCE, key)
        if job is None:
            return
        status = dict(job.get("status") or {})
        if not job["spec"].get("suspend"):
            status.setdefault("startTime", self.format_now())
        pods = self.owned.list_pods(job["metadata"]["uid"])
        running = [p for p in pods if not has_pod_ended(p) and not is_deleting(p)]
        if is_job_finished(job) or is_deleting(job) or job["spec"].get("suspend"):
            self._stop_pods(running)
            running = []
        self._count_ended_pods(job, status, self.owned.list_pods(job["metadata"]["uid"]))
        if not is_job_finished(job) and not is_deleting(job):
            running = self._suspend_or_run(job, status, running)
        status |= {"active": len(running), "ready": sum(map(is_pod_ready, running))}
        status["terminating"] = sum(is_deleting(p) and not has_pod_ended(p) for p in pods)
        shown = ("ready", "terminating", "uncountedTerminatedPods")
        status = {k: v for k, v in status.items() if v or k in shown}
        if status != job.get("status"):
            self.api.report_status(RESOURCE, job, status)
        if is_job_finished(job):
            self._expire_job(job)

    def _stop_pods(self, running: list[Json]) -> None:
        """Pods that are stopped on purpose are nobody's failure: they are not counted."""
        for pod in running:
            self._remove_finalizer(pod)
            delete_quietly(self.api, pod)

    def _count_ended_pods(self, job: Json, status: Json, pods: list[Json]) -> None:
        """Each ended pod is counted once; the finalizer says it has not been counted yet."""
        done = parse_indexes(status.get("completedIndexes", ""))
        for pod in pods:
            if not _is_uncounted(pod):
                continue
            phase = (pod.get("status") or {}).get("phase")
            if phase == "Succeeded":
                status["succeeded"] = status.get("succeeded", 0) + 1
                done.add(_read_index(pod))
            elif phase == "Failed" or is_deleting(pod):
                status["failed"] = status.get("failed", 0) + 1
            else:
                continue
            self._remove_finalizer(pod)
        if is_indexed(job):
            done &= set(range(job["spec"]["completions"]))
            status["completedIndexes"], status["succeeded"] = format_indexes(done), len(done)

    def _remove_finalizer(self, pod: Json) -> None:
        finalizers = pod["metadata"].get("finalizers") or []
        if TRACKING in finalizers:
            left = [f for f in finalizers if f != TRACKING]
            patch = {"metadata": {"finalizers": left or None}}
            self.api.patch("pods", pod["metadata"]["name"], patch, pod["metadata"]["namespace"])

    def _suspend_or_run(self, job: Json, status: Json, running: list[Json]) -> list[Json]:
        if self._finish_if_ended(job, status, running):
            self._stop_pods(running)
            return []
        suspended = bool(job["spec"].get("suspend"))
        if suspended != is_condition_true({"status": status}, "Suspended"):
            why = "JobSuspended" if suspended else "JobResumed"
            state = {"type": "Suspended", "status": str(suspended), "reason": why}
            if suspended or any(c["type"] == "Suspended" for c in status.get("conditions") or ()):
                status |= with_condition(status, state, self.format_now())
            if not suspended:
                status["startTime"] = self.format_now()
        if suspended:
            status.pop("startTime", None)
            return []
        return self._run_pods(job, status, running)

    def _finish_if_ended(self, job: Json, status: Json, running: list[Json]) -> bool:
        spec = job["spec"]
        succeeded, completions = status.get("succeeded", 0), spec.get("completions")
        if (completions is not None and succeeded >= completions) or (
            completions is None and succeeded and not running
        ):
            self._finish_job(status, "Complete", "CompletionsReached")
        elif status.get("failed", 0) > spec.get("backoffLimit", 6):
            self._finish_job(status, "Failed", "BackoffLimitExceeded")
        elif self._is_past_deadline(job, status):
            self._finish_job(status, "Failed", "DeadlineExceeded")
        else:
            return False
        return True

    def _is_past_deadline(self, job: Json, status: Json) -> bool:
        limit, started = job["spec"].get("activeDeadlineSeconds"), status.get("startTime")
        if limit is None or started is None or job["spec"].get("suspend"):
            return False
        left = limit - (self.clock.now() - parse_time(started)).total_seconds()
        if left > 0:
            self.enqueue(key_of(job), left)
        return bool(left <= 0)

    def _run_pods(self, job: Json, status: Json, running: list[Json]) -> list[Json]:
        spec = job["spec"]
        wanted, completions = spec.get("parallelism", 1), spec.get("completions")
        if completions is not None:
            wanted = min(wanted, completions - status.get("succeeded", 0))
        elif status.get("succeeded", 0):
            wanted = min(wanted, len(running))
        if len(running) > wanted:
            newest_first = sorted(
                running, key=lambda p: (is_pod_ready(p), p["metadata"]["creationTimestamp"])
            )
            self._stop_pods(newest_first[: len(running) - wanted])
            return newest_first[len(running) - wanted :]
        missing = wanted - len(running)
        if not missing or not self._is_backoff_over(job, status):
            return running
        taken = parse_indexes(status.get("completedIndexes", "")) | {_read_index(p) for p in running}
        free = (i for i in range(completions or 0) if i not in taken)
        return running + [
            self._create_pod(job, next(free) if is_indexed(job) else None) for _ in range(missing)
        ]

    def _is_backoff_over(self, job: Json, status: Json) -> bool:
        """After a failure the next pod waits: ten seconds, then twice as long each time."""
        if not status.get("failed"):
            return True
        wait = min(BACKOFF_FIRST * 2 ** (status["failed"] - 1), BACKOFF_LAST)
        ends = [
            s["state"]["terminated"]["finishedAt"]
            for p in self.owned.list_pods(job["metadata"]["uid"])
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

    def _create_pod(self, job: Json, index: int | None) -> Json:
        pod, meta = build_pod(job["spec"]["template"], job), job["metadata"]
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
        return self.api.create_pod(pod)

    def _finish_job(self, status: Json, kind: str, reason: str) -> None:
        now = self.format_now()
        early = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}[kind]
        done = with_condition(status, {"type": early, "status": "True", "reason": reason}, now)
        done = with_condition(done, {"type": kind, "status": "True", "reason": reason}, now)
        status.update(done)
        if kind == "Complete":
            status["completionTime"] = now

    def _expire_job(self, job: Json) -> None:
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        if ttl is None or is_deleting(job):
            return
        ends = [c for c in job["status"]["conditions"] if c["type"] in ("Complete", "Failed")]
        left = ttl - (self.clock.now() - parse_time(ends[0]["lastTransitionTime"])).total_seconds()
        if left > 0:
            self.enqueue(key_of(job), left)
            return
        meta = job["metadata"]
        self.api.delete(RESOURCE, meta["name"], meta["namespace"], propagation="Background")


def _is_uncounted(pod: Json) -> bool:
    return TRACKING in (pod["metadata"].get("finalizers") or ())


def _read_index(pod: Json) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(INDEX) or labels_of(pod).get(INDEX) or "-1"
    return int(text)
