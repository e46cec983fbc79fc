"""CronJobs: a Job each time a schedule fires."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dovetail.api.cron import Schedule
from dovetail.api.cron import parse_schedule as parse_cron
from dovetail.sim.cluster.base import CommitHandler, Json, Key, SimController
from dovetail.sim.cluster.jobs import is_job_finished
from dovetail.sim.cluster.objects import (
    controller_of,
    is_deleting,
    key_of,
    needs_reconcile,
    owner_reference,
    parse_time,
)
from dovetail.sim.kube.meta import find_condition, format_time, is_condition_true
from dovetail.sim.kube.status import ApiError

__all__ = ["CronJobController"]

RESOURCE, JOBS = "cronjobs.batch", "jobs.batch"
SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"


class CronJobController(SimController):
    """Starts a Job each time a schedule fires."""

    name = "cronjob-controller"

    def list_handlers(self) -> Mapping[str, CommitHandler]:
        return {RESOURCE: self._handle_cronjob, JOBS: self._handle_job}

    def _handle_cronjob(self, before: Json | None, after: Json | None) -> None:
        if after is not None and needs_reconcile(before, after):
            self.enqueue(key_of(after))

    def _handle_job(self, before: Json | None, after: Json | None) -> None:
        job = after or before
        owner = controller_of(job) if job is not None else None
        if job is not None and owner is not None and owner["kind"] == "CronJob":
            self.enqueue((job["metadata"]["namespace"], owner["name"]))

    def reconcile(self, key: Key) -> None:
        cron = self.find_object(RESOURCE, key)
        if cron is None or is_deleting(cron):
            return
        status = dict(cron.get("status") or {})
        if not cron["spec"].get("suspend"):
            self._start_due_job(cron, status, [j for j in self._list_jobs(cron) if not is_job_finished(j)])
        jobs = self._list_jobs(cron)
        status["active"] = [
            _build_reference(j) for j in jobs if not is_job_finished(j) and not is_deleting(j)
        ]
        ends = [j["status"]["completionTime"] for j in jobs if is_condition_true(j, "Complete")]
        status["lastSuccessfulTime"] = max(ends, default=status.get("lastSuccessfulTime"))
        status = {k: v for k, v in status.items() if v}
        if status != (cron.get("status") or {}):
            self.api.report_status(RESOURCE, cron, status)
        self._trim_history(cron, jobs)

    def _list_jobs(self, cron: Json) -> list[Json]:
        uid = cron["metadata"]["uid"]
        return [
            job
            for job in self.list_objects(JOBS, cron["metadata"]["namespace"])
            if (owner := controller_of(job)) is not None and owner["uid"] == uid
        ]

    def _start_due_job(self, cron: Json, status: Json, active: list[Json]) -> None:
        try:
            schedule, zone = (
                parse_cron(cron["spec"]["schedule"]),
                _load_time_zone(cron["spec"].get("timeZone")),
            )
        except (ValueError, ZoneInfoNotFoundError):
            return  # the API server admits such a schedule; it never fires
        now = self.clock.now()
        following = _find_next_time(schedule, zone, now)
        if following is not None:
            self.enqueue(key_of(cron), (following - now).total_seconds())
        due = self._find_due_time(cron, status, schedule, zone)
        if due is None:
            return
        policy = cron["spec"].get("concurrencyPolicy", "Allow")
        if policy == "Forbid" and active:
            return
        if policy == "Replace":
            for job in active:
                self._delete_job(job)
        self._start_job(cron, due)
        status["lastScheduleTime"] = format_time(due)

    def _find_due_time(
        self, cron: Json, status: Json, schedule: Schedule, zone: ZoneInfo | None
    ) -> datetime | None:
        """The latest time that came and was not acted on: of several missed, that one is made up for."""
        now, limit = self.clock.now(), cron["spec"].get("startingDeadlineSeconds")
        since = parse_time(status.get("lastScheduleTime") or cron["metadata"]["creationTimestamp"])
        if limit is not None:
            since = max(since, now - timedelta(seconds=limit))
        due, latest = _find_next_time(schedule, zone, since), None
        while due is not None and due <= now:
            latest, due = due, _find_next_time(schedule, zone, due)
        return latest

    def _start_job(self, cron: Json, due: datetime) -> None:
        template, meta = cron["spec"]["jobTemplate"], cron["metadata"]
        annotations = {
            **((template.get("metadata") or {}).get("annotations") or {}),
            SCHEDULED: format_time(due),
        }
        metadata = {
            "name": f"{meta['name']}-{int(due.timestamp()) // 60}",
            "namespace": meta["namespace"],
            "labels": (template.get("metadata") or {}).get("labels") or {},
            "annotations": annotations,
            "ownerReferences": [owner_reference(cron)],
        }
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"]}
        try:
            self.api.create(JOBS, body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    def _trim_history(self, cron: Json, jobs: list[Json]) -> None:
        spec = cron["spec"]
        for kind, limit in (
            ("Complete", spec.get("successfulJobsHistoryLimit", 3)),
            ("Failed", spec.get("failedJobsHistoryLimit", 1)),
        ):
            ended = sorted(
                (j for j in jobs if is_condition_true(j, kind) and not is_deleting(j)), key=_ended_at
            )
            for job in ended[: max(len(ended) - limit, 0)]:
                self._delete_job(job)

    def _delete_job(self, job: Json) -> None:
        meta = job["metadata"]
        self.api.delete(JOBS, meta["name"], meta["namespace"], propagation="Background")


def _ended_at(job: Json) -> tuple[str, str]:
    condition = find_condition(job, "Complete") or find_condition(job, "Failed") or {}
    return condition.get("lastTransitionTime", ""), job["metadata"]["name"]


def _build_reference(job: Json) -> Json:
    meta = job["metadata"]
    named = {"apiVersion": "batch/v1", "kind": "Job", "namespace": meta["namespace"], "name": meta["name"]}
    return {**named, "uid": meta["uid"]}


def _load_time_zone(name: str | None) -> ZoneInfo | None:
    return ZoneInfo(name) if name else None


def _find_next_time(schedule: Schedule, zone: ZoneInfo | None, after: datetime) -> datetime | None:
    """The next time of a schedule that is written in a zone's own hours."""
    if zone is None or schedule.every is not None:
        return schedule.find_next(after)
    local = after.astimezone(zone).replace(tzinfo=UTC)
    found = schedule.find_next(local)
    while found is not None:
        moment = found.replace(tzinfo=zone).astimezone(UTC)
        if moment > after:
            return moment
        found = schedule.find_next(found)  # an hour that comes twice when clocks go back counts once
    return None
