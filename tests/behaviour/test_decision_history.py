"""Every NodeClaim has records from cause to end: through a day, through kills, and the same in every run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dovetail.app.controller import Dovetail
from dovetail.history.record import DecisionRecord, RecordKind
from dovetail.ports import Instance
from dovetail.sim.clock import run_virtual
from dovetail.sim.transport import LocalTransport
from support.apiserver import deployment
from support.builders import nodepool
from support.claim_chains import ClaimLog
from support.killable_process import Fate, MortalCloud, MortalTransport
from support.survival import Lost, tell
from support.world import Scene

CLAIMS, DEPLOYMENTS = "nodeclaims.karpenter.sh", "deployments.apps"
HOUR, HOURS = 3600.0, 24


def _build_pods(replicas: int) -> dict[str, Any]:
    made = deployment("web", replicas=replicas)
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    return made


class RecordedCluster:
    """A cluster whose records are kept as a log would keep them, and read back by every new leader."""

    def __init__(self, seed: int) -> None:
        self.scene = Scene(seed, flags=("--batch-idle-duration=1s",))
        self.log = ClaimLog(self.scene.world.server.store)
        self.records: list[DecisionRecord] = []
        self.fate = Fate()
        self.scene.on_made = self._keep_records
        self.scene.cloud.on_launch = self._join

    def _keep_records(self, dovetail: Dovetail) -> None:
        dovetail.history.restore_records(tuple(self.records))
        dovetail.history.add_listener(self.records.append)

    def _join(self, claim: object, instance: Instance) -> None:
        self.scene.join(claim, instance, name=f"node-{instance.provider_id.removeprefix('fake://')}")  # type: ignore[arg-type]

    async def start_leader(self) -> None:
        """A process that may be killed leads from now on."""
        self.fate = Fate()
        mortal = MortalTransport(LocalTransport(self.scene.world.server), self.fate)
        cloud = MortalCloud(self.scene.cloud, self.fate, Counter(), lambda claim: "")
        await self.scene.restart(self.log.listen_to(mortal), cloud)

    def scale(self, replicas: int) -> None:
        self.scene.api.patch(DEPLOYMENTS, "web", {"spec": {"replicas": replicas}}, "default")

    def list_kinds(self) -> set[str]:
        return {str(record.kind) for record in self.records}


async def _live_a_day(cluster: RecordedCluster) -> None:
    """Pods come and go each hour, nodes expire, a person deletes one now and then, a machine vanishes."""
    scene, chance = cluster.scene, Random(11)
    async with scene.world.running():
        await cluster.start_leader()
        scene.apply(nodepool(consolidate_after="60s", expire_after="5h"))
        scene.api.create(DEPLOYMENTS, _build_pods(3), "default")
        for hour in range(HOURS):
            await scene.sleep(HOUR / 2)
            cluster.scale(chance.choice((0, 1, 2, 4, 6)))
            await scene.sleep(HOUR / 2)
            claims = sorted(each.name for each in scene.claims() if not each.deleting)
            if claims and hour % 5 == 2:
                scene.api.delete(CLAIMS, chance.choice(claims))
            if hour % 7 == 3 and scene.cloud.instances:
                scene.cloud.vanish(chance.choice(sorted(scene.cloud.instances)))
        cluster.scale(0)
        await scene.sleep(HOUR)
        await scene.stop()


@pytest.mark.spec("HI-1")
def test_a_day_of_nodes_has_no_gap_in_its_records() -> None:
    cluster = RecordedCluster(11)
    run_virtual(_live_a_day(cluster))
    assert len(cluster.log.lives) > 20, "nodes came and went"
    assert cluster.list_kinds() >= {"Expired", "CommandDone", "PodEvicted", "NodeGone"}
    assert not list(cluster.log.find_gaps(cluster.records))
    people = [each for each in cluster.records if each.kind == "NodeDraining" and each.reason == "Deleted"]
    assert people, "what a person deleted is told as that"
    gone = [each.message for each in cluster.records if each.kind == RecordKind.NODE_GONE]
    assert all(text.startswith("lived ") for text in gone)


@pytest.mark.spec("HI-1")
@pytest.mark.parametrize(
    ("broken", "seed"),
    [("_note_launched", 0), ("_note_ready", 0), ("_note_gone", 0), ("note_draining", 0), ("_find_order", 8)],
)
def test_a_record_that_is_not_made_is_found_out(
    broken: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def note_nothing(self: object, claim: object) -> str:
        return ""

    monkeypatch.setattr(f"dovetail.controllers.claim_history.ClaimHistory.{broken}", note_nothing)
    with pytest.raises(Lost, match=r"records Node|was caused"):
        _tell_stories(range(seed, seed + 8))


def _tell_stories(seeds: Iterable[int]) -> None:
    for seed in seeds:
        tell(seed)


async def _consolidate(cluster: RecordedCluster, write: int, before: bool) -> None:
    """A node is replaced by a cheaper one, and the leader is killed at that write of the command."""
    scene = cluster.scene
    async with scene.world.running():
        await cluster.start_leader()
        scene.apply(nodepool(consolidate_after="20s"))
        scene.api.create(DEPLOYMENTS, _build_pods(3), "default")
        await scene.until(lambda: RecordKind.NODE_READY in cluster.list_kinds(), 600)
        await scene.sleep(60)
        cluster.scale(1)
        await scene.until(lambda: RecordKind.COMMAND_DECIDED in cluster.list_kinds(), 600)
        cluster.fate.strike_at(write, before=before)
        await scene.until(cluster.fate.dead.is_set, 600)
        await scene.kill()
        await scene.sleep(20)
        await cluster.start_leader()
        await scene.sleep(1200)
        await scene.stop()


@pytest.mark.spec("HI-5")
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("write", range(1, 13))
def test_the_next_leader_goes_on_with_the_records_of_a_command(write: int, before: bool) -> None:
    cluster = RecordedCluster(5)
    run_virtual(_consolidate(cluster, write, before))
    assert not list(cluster.log.find_gaps(cluster.records)), "nor is an id given twice"
    second = [number for number, each in enumerate(cluster.records) if each.kind == "TermBegan"][1]
    earlier, later = cluster.records[:second], cluster.records[second:]
    started = [each.id for each in earlier if each.kind == "CommandStarted"]
    causes = {each.parent for each in later}
    chain = {*started, *(each.id for each in earlier if each.parent in started)}
    chain |= {each.id for each in earlier if each.parent in chain}
    assert not started or causes & chain, "the command of the first leader is continued"
    assert any(each.kind == "CommandDone" for each in cluster.records)


STORY = """
import hashlib, logging, sys
logging.disable(logging.CRITICAL)
from dovetail.history.record import encode_record
from support.survival import tell
lines = [encode_record(each) for each in tell(int(sys.argv[1])).records]
print(len(lines), hashlib.sha256(b"\\n".join(lines)).hexdigest())
"""


def _hash_records(seed: int, hashing: int) -> str:
    tests = Path(__file__).parents[1]
    paths = [str(tests), str(tests.parent / "src")]
    env = {**os.environ, "PYTHONHASHSEED": str(hashing), "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", STORY, str(seed)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=True).stdout


@pytest.mark.spec("HI-11")
@pytest.mark.parametrize("seed", [3, 6])
def test_two_runs_of_one_story_have_the_same_records_byte_for_byte(seed: int) -> None:
    first = _hash_records(seed, 1)
    assert int(first.split()[0]) > 10
    assert _hash_records(seed, 2) == first
