"""Jobs and CronJobs: pods that run to an end, by hand or by the clock."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.api.cron import parse as parse_cron
from dovetail.sim.cluster.base import Desk, Heard, Json, Key, Neighbour
from dovetail.sim.cluster.objects import (
    controller_of,
    deleting,
    ended,
    key_of,
    owner_reference,
    parse_time,
    ready,
)
from dovetail.sim.cluster.owned import Owned
from dovetail.sim.cluster.pods_of import delete_quietly, pod_from
from dovetail.sim.kube.conditions import is_true, with_condition
from dovetail.sim.kube.meta import stamp
from dovetail.sim.kube.status import ApiError

__all__ = ["CronJobs", "Jobs"]

RESOURCE, CRON = "jobs.batch", "cronjobs.batch"
TRACKING = "batch.kubernetes.io/job-tracking"
BACKOFF_FIRST, BACKOFF_LAST = 10.0, 360.0


class Jobs(Neighbour):
    """Runs the pods of every Job to the number of successes it asks for."""

    name = "job-controller"

    def __init__(self, desk: Desk, owned: Owned) -> None:
        super().__init__(desk)
        self.owned = owned

    def hears(self) -> Mapping[str, Heard]:
        return {RESOURCE: self._heard, "pods": self._pod_heard}

    def _heard(self, before: Json | None, after: Json | None) -> None:
        if after is not None:
            self.enqueue(key_of(after))

    def _pod_heard(self, before: Json | None, after: Json | None) -> None:
        pod = after or before
        owner = controller_of(pod) if pod is not None else None
        if pod is not None and owner is not None and owner["kind"] == "Job":
            self.enqueue((pod["metadata"]["namespace"], owner["name"]))

    def work(self, key: Key) -> None:
        try:
            job = self.api.get(RESOURCE, key[1], key[0])
        except ApiError as error:
            if error.code == 404:
                return
            raise
        over = is_true(job, "Complete") or is_true(job, "Failed")
        pods = self.owned.pods(job["metadata"]["uid"])
        status = dict(job.get("status") or {})
        status.setdefault("startTime", self.now())
        self._count(status, pods)
        running = [p for p in pods if not ended(p) and not deleting(p)]
        if over or deleting(job):
            for pod in running:
                self._let_go(pod)
                delete_quietly(self.api, pod)
        else:
            running = self._run(job, status, running)
        status["active"], status["ready"] = len(running), sum(ready(p) for p in running)
        status = {k: v for k, v in status.items() if v or k in ("ready", "uncountedTerminatedPods")}
        if status != job.get("status"):
            self.api.update(RESOURCE, {**job, "status": status}, "status")
        if over:
            self._expire(job)

    def _count(self, status: Json, pods: list[Json]) -> None:
        """Each ended pod is counted once; the finalizer says it has not been counted yet."""
        for pod in pods:
            if TRACKING not in (pod["metadata"].get("finalizers") or ()):
                continue
            phase = (pod.get("status") or {}).get("phase")
            if phase == "Succeeded":
                status["succeeded"] = status.get("succeeded", 0) + 1
            elif phase == "Failed" or deleting(pod):
                status["failed"] = status.get("failed", 0) + 1
            else:
                continue
            self._let_go(pod)

    def _let_go(self, pod: Json) -> None:
        finalizers = [f for f in pod["metadata"].get("finalizers") or () if f != TRACKING]
        if len(finalizers) == len(pod["metadata"].get("finalizers") or ()):
            return
        patch = {"metadata": {"finalizers": finalizers}}
        self.api.patch("pods", pod["metadata"]["name"], patch, pod["metadata"]["namespace"])

    def _run(self, job: Json, status: Json, running: list[Json]) -> list[Json]:
        spec = job["spec"]
        succeeded, failed = status.get("succeeded", 0), status.get("failed", 0)
        completions = spec.get("completions")
        if (completions is not None and succeeded >= completions) or (
            completions is None and succeeded and not running
        ):
            self._finish(status, "Complete", "CompletionsReached")
            return running
        if failed > spec.get("backoffLimit", 6):
            self._finish(status, "Failed", "BackoffLimitExceeded")
            return running
        if spec.get("suspend"):
            return running
        wanted = spec.get("parallelism", 1)
        if completions is not None:
            wanted = min(wanted, completions - succeeded)
        elif succeeded:
            wanted = len(running)
        if failed and wanted > len(running) and not self._rested(job, status, failed):
            return running
        for _ in range(wanted - len(running)):
            running.append(self._create(job))
        return running

    def _rested(self, job: Json, status: Json, failed: int) -> bool:
        wait = min(BACKOFF_FIRST * 2 ** (failed - 1), BACKOFF_LAST)
        ends = [
            s["state"]["terminated"]["finishedAt"]
            for p in self.owned.pods(job["metadata"]["uid"])
            for s in (p.get("status") or {}).get("containerStatuses") or ()
            if "terminated" in (s.get("state") or {})
        ]
        if not ends:
            return True
        left = wait - (self.clock.now() - parse_time(max(ends))).total_seconds()
        if left > 0:
            self.enqueue(key_of(job), left)
        return bool(left <= 0)

    def _create(self, job: Json) -> Json:
        pod = pod_from(job["spec"]["template"], job)
        meta = job["metadata"]
        pod["metadata"]["labels"] |= {
            "batch.kubernetes.io/controller-uid": meta["uid"],
            "batch.kubernetes.io/job-name": meta["name"],
            "controller-uid": meta["uid"],
            "job-name": meta["name"],
        }
        pod["metadata"]["finalizers"] = [*pod["metadata"]["finalizers"], TRACKING]
        return self.api.create("pods", pod)

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
        if ttl is None:
            return
        ends = [
            c["lastTransitionTime"]
            for c in job["status"]["conditions"]
            if c["type"] in ("Complete", "Failed")
        ]
        left = ttl - (self.clock.now() - parse_time(ends[0])).total_seconds()
        if left > 0:
            self.enqueue(key_of(job), left)
        else:
            self.api.delete(
                RESOURCE, job["metadata"]["name"], job["metadata"]["namespace"], propagation="Background"
            )


class CronJobs(Neighbour):
    """Starts a Job each time a schedule fires."""

    name = "cronjob-controller"

    def hears(self) -> Mapping[str, Heard]:
        return {CRON: self._heard, RESOURCE: self._job_heard}

    def _heard(self, before: Json | None, after: Json | None) -> None:
        if after is not None:
            self.enqueue(key_of(after))

    def _job_heard(self, before: Json | None, after: Json | None) -> None:
        job = after or before
        owner = controller_of(job) if job is not None else None
        if job is not None and owner is not None and owner["kind"] == "CronJob":
            self.enqueue((job["metadata"]["namespace"], owner["name"]))

    def work(self, key: Key) -> None:
        try:
            cron = self.api.get(CRON, key[1], key[0])
        except ApiError as error:
            if error.code == 404:
                return
            raise
        if deleting(cron):
            return
        jobs = self._jobs(cron)
        active = [j for j in jobs if not (is_true(j, "Complete") or is_true(j, "Failed"))]
        status = dict(cron.get("status") or {})
        if not cron["spec"].get("suspend"):
            self._fire(cron, status, active)
        status["active"] = [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "namespace": key[0],
                "name": j["metadata"]["name"],
                "uid": j["metadata"]["uid"],
            }
            for j in active
        ]
        status = {k: v for k, v in status.items() if v}
        if status != (cron.get("status") or {}):
            self.api.update(CRON, {**cron, "status": status}, "status")
        self._trim(cron, jobs)

    def _jobs(self, cron: Json) -> list[Json]:
        uid = cron["metadata"]["uid"]
        return [
            j
            for j in self.api.list(RESOURCE, cron["metadata"]["namespace"])
            if (owner := controller_of(j)) is not None and owner["uid"] == uid
        ]

    def _fire(self, cron: Json, status: Json, active: list[Json]) -> None:
        try:
            schedule = parse_cron(cron["spec"]["schedule"])
        except ValueError:
            return  # the API server admits such a schedule; it never fires
        since = parse_time(status.get("lastScheduleTime") or cron["metadata"]["creationTimestamp"])
        now, due = self.clock.now(), schedule.next(since)
        if due is None:
            return
        if due <= now:
            # Of several missed times only the latest is made up for.
            while (later := schedule.next(due)) is not None and later <= now:
                due = later
            policy = cron["spec"].get("concurrencyPolicy", "Allow")
            if policy == "Forbid" and active:
                return
            if policy == "Replace":
                for job in active:
                    self.api.delete(
                        RESOURCE,
                        job["metadata"]["name"],
                        job["metadata"]["namespace"],
                        propagation="Background",
                    )
            self._start(cron, int(due.timestamp()) // 60)
            status["lastScheduleTime"] = stamp(due)
        following = schedule.next(now)
        if following is not None:
            self.enqueue(key_of(cron), (following - now).total_seconds())

    def _start(self, cron: Json, minute: int) -> None:
        template = cron["spec"]["jobTemplate"]
        meta = {
            "name": f"{cron['metadata']['name']}-{minute}",
            "namespace": cron["metadata"]["namespace"],
            "labels": (template.get("metadata") or {}).get("labels") or {},
            "annotations": (template.get("metadata") or {}).get("annotations") or {},
            "ownerReferences": [owner_reference(cron)],
        }
        try:
            self.api.create(
                RESOURCE,
                {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": template["spec"]},
            )
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    def _trim(self, cron: Json, jobs: list[Json]) -> None:
        for kind, limit in (
            ("Complete", cron["spec"].get("successfulJobsHistoryLimit", 3)),
            ("Failed", cron["spec"].get("failedJobsHistoryLimit", 1)),
        ):
            over = sorted(
                (j for j in jobs if is_true(j, kind) and not deleting(j)), key=lambda j: j["metadata"]["name"]
            )
            for job in over[: max(len(over) - limit, 0)]:
                self.api.delete(
                    RESOURCE, job["metadata"]["name"], job["metadata"]["namespace"], propagation="Background"
                )
