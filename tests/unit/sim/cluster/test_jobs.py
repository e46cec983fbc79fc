from __future__ import annotations

from typing import Any

import pytest

from dovetail.sim.cluster.jobs import format_indexes, parse_indexes
from dovetail.sim.kube.status import ApiError
from dovetail.sim.world import World
from support.cluster import cluster, condition, in_virtual_time, names, template

JOBS = "jobs.batch"
TRACKING = "batch.kubernetes.io/job-tracking"
FAILS = {"sim.dovetail.dev/fails": "true", "sim.dovetail.dev/run-for": "1s"}


def job(annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    body = {"template": template({}, annotations, restartPolicy="Never"), **spec}
    return {"metadata": {"name": "sum", "namespace": "default"}, "spec": body}


def pods(world: World) -> list[dict[str, Any]]:
    return world.api.list("pods", "default", "job-name=sum")


def phases(world: World) -> list[str]:
    return sorted(p["status"]["phase"] for p in pods(world))


@in_virtual_time
async def test_a_job_runs_its_pods_and_is_complete_when_enough_have_succeeded() -> None:
    async with cluster(1) as world:
        world.api.create(JOBS, job(completions=3, parallelism=2))
        await world.settle(5)
        found = world.api.get(JOBS, "sum", "default")
        assert (found["status"]["active"], found["status"]["ready"]) == (2, 2)
        assert all(TRACKING in p["metadata"]["finalizers"] for p in pods(world))
        labels = pods(world)[0]["metadata"]["labels"]
        assert labels["batch.kubernetes.io/job-name"] == "sum"
        assert labels["batch.kubernetes.io/controller-uid"] == found["metadata"]["uid"]
        await world.settle(60)
        found = world.api.get(JOBS, "sum", "default")
        assert found["status"]["succeeded"] == 3
        assert "active" not in found["status"]
        assert condition(found, "Complete")["status"] == "True"
        assert condition(found, "SuccessCriteriaMet")["status"] == "True"
        assert found["status"]["completionTime"] > found["status"]["startTime"]
        assert phases(world) == ["Succeeded"] * 3
        assert not any(p["metadata"].get("finalizers") for p in pods(world))


@in_virtual_time
async def test_failures_are_retried_with_growing_pauses_up_to_the_limit() -> None:
    async with cluster(1) as world:
        world.api.create(JOBS, job(FAILS, backoffLimit=2))
        await world.settle(5)
        assert phases(world) == ["Failed"]
        await world.settle(9)
        assert len(pods(world)) == 2
        await world.settle(10)
        assert len(pods(world)) == 2
        await world.settle(40)
        found = world.api.get(JOBS, "sum", "default")
        assert found["status"]["failed"] == 3
        assert condition(found, "Failed")["reason"] == "BackoffLimitExceeded"
        assert condition(found, "FailureTarget")["status"] == "True"
        assert not any(p["metadata"].get("finalizers") for p in pods(world))


@in_virtual_time
async def test_a_running_pod_that_is_deleted_counts_as_failed_and_is_replaced() -> None:
    async with cluster(1) as world:
        world.api.create(JOBS, job())
        await world.settle(3)
        (first,) = names(pods(world))
        world.api.delete("pods", first, "default")
        await world.settle(30)
        found = world.api.get(JOBS, "sum", "default")
        assert (found["status"]["failed"], found["status"]["succeeded"]) == (1, 1)
        assert first not in names(pods(world))


@in_virtual_time
async def test_a_finished_job_goes_after_its_time_to_live_and_takes_its_pods_along() -> None:
    async with cluster(1) as world:
        world.api.create(JOBS, job(ttlSecondsAfterFinished=30))
        await world.settle(35)
        assert condition(world.api.get(JOBS, "sum", "default"), "Complete")
        await world.settle(20)
        assert world.api.list(JOBS) == []
        assert pods(world) == []


@in_virtual_time
async def test_a_job_deleted_while_it_runs_leaves_no_finalizers_behind() -> None:
    async with cluster(1) as world:
        world.api.create(JOBS, job(parallelism=3, completions=3))
        await world.settle(3)
        world.api.delete(JOBS, "sum", "default", propagation="Background")
        await world.settle(10)
        assert world.api.list("pods") == []


@in_virtual_time
async def test_a_job_that_takes_too_long_fails_and_its_pods_are_stopped() -> None:
    async with cluster(1) as world:
        world.api.create(JOBS, job({"sim.dovetail.dev/run-for": "1h"}, activeDeadlineSeconds=20))
        await world.settle(30)
        found = world.api.get(JOBS, "sum", "default")
        assert condition(found, "Failed")["reason"] == "DeadlineExceeded"
        assert pods(world) == []


@in_virtual_time
async def test_a_suspended_job_has_no_pods_and_goes_on_when_it_is_resumed() -> None:
    async with cluster(1) as world:
        world.api.create(JOBS, job())
        await world.settle(3)
        world.api.patch(JOBS, "sum", {"spec": {"suspend": True}}, "default")
        await world.settle(5)
        found = world.api.get(JOBS, "sum", "default")
        assert pods(world) == []
        assert condition(found, "Suspended")["status"] == "True"
        assert "failed" not in found["status"]
        world.api.patch(JOBS, "sum", {"spec": {"suspend": False}}, "default")
        await world.settle(20)
        found = world.api.get(JOBS, "sum", "default")
        assert condition(found, "Suspended")["status"] == "False"
        assert condition(found, "Complete")["status"] == "True"


@in_virtual_time
async def test_less_parallelism_stops_the_pods_that_are_too_many() -> None:
    async with cluster(1) as world:
        world.api.create(JOBS, job(parallelism=4, completions=8))
        await world.settle(3)
        world.api.patch(JOBS, "sum", {"spec": {"parallelism": 1}}, "default")
        await world.settle(3)
        assert len(pods(world)) == 1


@in_virtual_time
async def test_an_indexed_job_runs_each_index_once() -> None:
    async with cluster(1) as world:
        world.api.create(JOBS, job(completions=4, parallelism=2, completionMode="Indexed"))
        await world.settle(60)
        found = world.api.get(JOBS, "sum", "default")
        assert (found["status"]["succeeded"], found["status"]["completedIndexes"]) == (4, "0-3")
        index = "batch.kubernetes.io/job-completion-index"
        assert sorted(p["metadata"]["annotations"][index] for p in pods(world)) == ["0", "1", "2", "3"]


def test_indexes_are_written_as_ranges_and_read_back() -> None:
    assert format_indexes({1, 3, 4, 5, 7}) == "1,3-5,7"
    assert parse_indexes("1,3-5,7") == {1, 3, 4, 5, 7}
    assert (format_indexes(set()), parse_indexes("")) == ("", set())


def cron(schedule: str = "*/5 * * * *", run_for: str = "10s", **spec: Any) -> dict[str, Any]:
    body = {"spec": {"template": template({}, {"sim.dovetail.dev/run-for": run_for}, restartPolicy="Never")}}
    return {
        "metadata": {"name": "tick", "namespace": "default"},
        "spec": {"schedule": schedule, "jobTemplate": body, **spec},
    }


@in_virtual_time
async def test_a_cronjob_starts_a_job_named_after_the_minute_each_time_it_is_due() -> None:
    async with cluster(1) as world:
        world.api.create("cronjobs.batch", cron())
        await world.settle(11 * 60)
        jobs = world.api.list(JOBS)
        minutes = [int(j["metadata"]["name"].removeprefix("tick-")) for j in jobs]
        assert [m % 5 for m in minutes] == [0, 0]
        assert jobs[0]["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
        status = world.api.get("cronjobs.batch", "tick", "default")["status"]
        assert status["lastScheduleTime"] == "2026-01-01T00:10:00Z"
        assert status["lastSuccessfulTime"] > status["lastScheduleTime"]


@in_virtual_time
async def test_history_limits_keep_the_latest_jobs() -> None:
    async with cluster(1) as world:
        world.api.create("cronjobs.batch", cron("* * * * *", successfulJobsHistoryLimit=2))
        await world.settle(10 * 60 + 30)
        jobs = names(world.api.list(JOBS))
        assert len(jobs) == 2
        assert len(world.api.list("pods")) == 2


@in_virtual_time
async def test_forbid_lets_one_finish_before_the_next_starts() -> None:
    async with cluster(1) as world:
        world.api.create("cronjobs.batch", cron("* * * * *", run_for="90s", concurrencyPolicy="Forbid"))
        most = 0
        for _ in range(600):
            await world.settle(1)
            most = max(most, sum(not condition(j, "Complete") for j in world.api.list(JOBS)))
        assert most == 1


@in_virtual_time
async def test_replace_stops_the_one_before_and_allow_lets_them_overlap() -> None:
    async with cluster(1) as world:
        body = cron("* * * * *", run_for="10m", concurrencyPolicy="Replace")
        world.api.create("cronjobs.batch", body)
        await world.settle(200)
        assert len(world.api.list(JOBS)) == 1
        world.api.patch("cronjobs.batch", "tick", {"spec": {"concurrencyPolicy": "Allow"}}, "default")
        await world.settle(120)
        assert len(world.api.list(JOBS)) == 3
        assert len(world.api.get("cronjobs.batch", "tick", "default")["status"]["active"]) == 3


@in_virtual_time
async def test_a_suspended_cronjob_makes_up_for_one_missed_time_unless_that_is_too_long_ago() -> None:
    async with cluster(1) as world:
        world.api.create("cronjobs.batch", cron("0 * * * *", suspend=True))
        late = cron("0 * * * *", suspend=True, startingDeadlineSeconds=60)
        world.api.create("cronjobs.batch", {**late, "metadata": {"name": "late", "namespace": "default"}})
        await world.settle(3 * 3600 + 600)
        for name in ("tick", "late"):
            world.api.patch("cronjobs.batch", name, {"spec": {"suspend": False}}, "default")
        await world.settle(5)
        assert [n.rsplit("-", 1)[0] for n in names(world.api.list(JOBS))] == ["tick"]


@in_virtual_time
async def test_a_time_zone_moves_the_hours() -> None:
    async with cluster(0) as world:
        world.api.create("cronjobs.batch", cron("30 5 * * *", timeZone="Asia/Kolkata"))
        await world.settle(60)
        assert world.api.list(JOBS) == []
        await world.settle(86400)
        (made,) = world.api.list(JOBS)
        note = made["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
        assert note == "2026-01-02T00:00:00Z"


@in_virtual_time
async def test_a_schedule_that_can_never_fire_never_does() -> None:
    async with cluster(0) as world:
        world.api.create("cronjobs.batch", cron("0 0 30 2 *"))
        odd = {**cron("whenever"), "metadata": {"name": "odd", "namespace": "default"}}
        with pytest.raises(ApiError) as refused:
            world.api.create("cronjobs.batch", odd)
        assert refused.value.code == 422
        await world.settle(86400)
        assert world.api.list(JOBS) == []
