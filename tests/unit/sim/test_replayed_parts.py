"""Parts of a replay: Jobs work as long as they did, reclaims take their share, gaps and slices are cut."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from dovetail.api.meta import OwnerReference
from dovetail.api.pod import Pod
from dovetail.disruption.situation import Situation
from dovetail.history.recording.reader import RecordedLook
from dovetail.history.supply import RecordedReclaim, SpotPlace
from dovetail.play.kept_pods import KeptPods
from dovetail.play.replay_sections import ReplaySection, cut_slices, survey_recording
from dovetail.play.replaying import ReplayRun, Variation
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.world import World
from support.builders import NOW, pod
from support.recordings import begin_segment, random_looks, read_back

HOUR = timedelta(hours=1)
JOB = {
    "metadata": {"name": "sum", "namespace": "default"},
    "spec": {"containers": [{"name": "main", "image": "recorded"}]},
}


@pytest.mark.spec("RP-6")
def test_an_evicted_job_works_again_and_all_of_its_work_is_done() -> None:
    async def main() -> tuple[float, float, int]:
        world = World(VirtualClock(NOW))
        kept = KeptPods(world.manager)
        world.manager.add(kept)
        world.add_node("node-1")
        async with world.running():
            await asyncio.sleep(10)
            kept.keep_pod("default/sum", JOB, job=True, work=3600.0)
            await asyncio.sleep(1810)
            world.api.delete("pods", "sum", "default")
            await asyncio.sleep(2 * 3600)
            return kept.job_hours, kept.repeated_hours, len(world.api.list("pods"))

    done, repeated, left = run_virtual(main())
    assert done == pytest.approx(1.0)
    assert repeated == pytest.approx(0.5, abs=0.01)
    assert left == 0


@pytest.mark.spec("RP-7")
def test_a_reclaim_takes_the_same_share_of_a_place_and_nothing_elsewhere() -> None:
    start = RecordedLook(1, 1, NOW, Situation())
    run = ReplayRun(start, Variation(), seed=3)
    try:
        for number in range(20):
            zone = "a" if number < 10 else "b"
            known = {
                "karpenter.sh/capacity-type": "spot",
                "karpenter.sh/nodepool": "default",
                "node.kubernetes.io/instance-type": "m5.large",
                "topology.kubernetes.io/zone": zone,
            }
            run.world.add_node(f"node-{number}", known)
        here, elsewhere = SpotPlace("m5.large", "a"), SpotPlace("c5.large", "a")
        run.spot.reclaim_share(RecordedReclaim(at=NOW, place=here, taken=3, among=10))
        run.spot.reclaim_share(RecordedReclaim(at=NOW, place=elsewhere, taken=3, among=3))
        taken = run.spot.list_reclaimed()
    finally:
        run.close()
    assert 2 <= len(taken) <= 4
    assert all(int(name.removeprefix("node-")) < 10 for name in taken)


@pytest.mark.spec("RP-8")
def test_a_gap_ends_a_part_and_is_not_counted() -> None:
    looks = random_looks(1, 6)
    segments = []
    for name, shift in (("s0", timedelta()), ("s1", timedelta(hours=20))):
        writer = begin_segment(name, looks[0][0] + shift)
        data = b""
        for at, situation in looks:
            writer.write_look(situation, at + shift)
            data += writer.flush()
        segments.append(data + writer.end_segment(looks[-1][0] + shift))
    found = survey_recording(read_back(segments))
    first, second = found.sections
    assert (first.since, first.until) == (looks[0][0], looks[-1][0])
    assert second.since == looks[0][0] + timedelta(hours=20)
    assert found.gaps == [(first.until, second.since)]
    assert found.length == 2 * (looks[-1][0] - looks[0][0])
    watched = sum(hour.watched_seconds for hour in found.bill.hours)
    assert watched == pytest.approx(found.length.total_seconds())


@pytest.mark.spec("RP-9")
def test_slices_count_every_moment_once_and_begin_an_hour_before() -> None:
    section = ReplaySection(NOW, NOW + 50 * HOUR, NOW)
    slices = cut_slices([section], 24 * HOUR)
    assert [each.counted for each in slices] == [NOW, NOW + 24 * HOUR, NOW + 48 * HOUR]
    assert [each.since for each in slices] == [NOW, NOW + 23 * HOUR, NOW + 47 * HOUR]
    assert sum((each.length for each in slices), timedelta()) == section.length
    assert cut_slices([section], None) == [section]


@pytest.mark.spec("RP-1")
def test_replicasets_of_one_deployment_know_each_other() -> None:
    """Which pod a ReplicaSet lets go of hangs on the pods of its siblings beside it."""

    def own(name: str, owner: str, template: str) -> Pod:
        known = {"pod-template-hash": template} if template else {}
        made = pod(name, labels=known)
        reference = OwnerReference(
            api_version="apps/v1", kind="ReplicaSet", name=owner, uid=owner, controller=True
        )
        return replace(made, metadata=replace(made.metadata, uid=name, owner_references=(reference,)))

    pods = (
        own("w1", "web-a", "a"),
        own("w2", "web-b", "b"),
        own("o1", "other-a", "a"),
        own("s1", "set-a", ""),
    )
    run = ReplayRun(RecordedLook(1, 1, NOW, Situation()), Variation(), seed=3)
    try:
        later = NOW + timedelta(seconds=10)
        run.feed(RecordedLook(1, 2, later, Situation(snapshot=Snapshot(pods=pods))))
        run.advance_to(later + HOUR)
        found = {
            each["metadata"]["name"]: [
                owner["uid"] for owner in each["metadata"].get("ownerReferences") or ()
            ]
            for each in run.world.api.list("replicasets.apps")
        }
    finally:
        run.close()
    assert found["set-a"] == []
    assert found["web-a"] == found["web-b"] != found["other-a"]
    assert len(found["web-a"]) == len(found["other-a"]) == 1
