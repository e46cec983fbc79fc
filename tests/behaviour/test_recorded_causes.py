"""Whatever ends a node or holds its pool back is on record in a running world, and so is what followed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.app.controller import Dovetail
from dovetail.history.record import DecisionRecord
from dovetail.history.ring import HistoryQuery
from dovetail.play import play_scenario
from dovetail.ports import Instance
from dovetail.runtime.recording_folder import read_recording
from dovetail.sim.scenario_file import read_scenario
from support.aws_world import AwsWorld
from support.builders import nodepool, pod
from support.disruption_policies import asking
from support.ec2_instances import QUEUE
from support.world import POOLS, Scene, virtual

LOSS = """
apiVersion: dovetail.sh/v1alpha1
kind: Scenario
name: a zone is shifted away, then lost
duration: 75m
step: 30s
settings: {FEATURE_GATES: NodeRepair=true}
pools: [{name: default, consolidateAfter: 10m}]
workloads:
  - name: web
    cpu: "1"
    replicas: {value: 3}
    spec:
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: topology.kubernetes.io/zone
          whenUnsatisfiable: DoNotSchedule
          labelSelector: {matchLabels: {app: web}}
events:
  - {at: 10m, zonalShift: {zone: test-zone-a, for: 20m}}
  - {at: 40m, zoneLoss: {zone: test-zone-a, lasts: 30m}}
"""


def listen(dovetail: Dovetail) -> list[DecisionRecord]:
    records: list[DecisionRecord] = []
    dovetail.history.add_listener(records.append)
    return records


def of_kind(records: Sequence[DecisionRecord], *kinds: str) -> list[DecisionRecord]:
    return [record for record in records if record.kind in kinds]


def trace_causes(records: Sequence[DecisionRecord], last: DecisionRecord) -> Iterator[tuple[str, str]]:
    """The record and what caused it, each by kind and reason."""
    by_id = {record.id: record for record in records}
    each: DecisionRecord | None = last
    while each is not None:
        yield str(each.kind), each.reason
        each = by_id.get(each.parent)


@pytest.fixture(scope="module")
def loss(tmp_path_factory: pytest.TempPathFactory) -> list[DecisionRecord]:
    """The records of a zone that was shifted away for a while, and lost an hour later."""
    folder = tmp_path_factory.mktemp("loss")
    file = folder / "scenario.yaml"
    file.write_text(LOSS.replace("settings: {", f"settings: {{RECORDING: 'file:{folder}/recording', "))
    play_scenario(read_scenario(file))
    looks = read_recording(str(folder / "recording")).looks()
    return [record for look in looks for record in look.records]


def test_the_end_of_a_shift_follows_from_its_beginning(loss: list[DecisionRecord]) -> None:
    began, ended = of_kind(loss, "ShiftBegan", "ShiftEnded")
    assert (began.kind, began.subject, began.parent) == ("ShiftBegan", "zone/test-zone-a", "")
    assert (ended.kind, ended.subject, ended.parent) == ("ShiftEnded", "zone/test-zone-a", began.id)
    assert ended.time - began.time >= timedelta(minutes=20)


def test_a_node_that_is_repaired_is_gone_because_of_it(loss: list[DecisionRecord]) -> None:
    (repaired,) = of_kind(loss, "Repaired")
    (gone,) = [each for each in of_kind(loss, "NodeGone") if each.subject == repaired.subject]
    found = list(trace_causes(loss, gone))
    assert found == [("NodeGone", "Ready"), ("NodeDraining", "Ready"), ("Repaired", "Ready")]
    assert "was tolerated until" in repaired.message


@virtual
async def test_an_interrupted_node_is_gone_because_of_it() -> None:
    world = AwsWorld(0, f"--interruption-queue={QUEUE}", types=("m5.large",))
    records = listen(world.dovetail)
    async with world.running():
        world.aws.add_interruption_queue(QUEUE)
        world.default()
        world.pods(1)
        await world.until(lambda: world.ready() == 1, within=300)
        (doomed,) = world.aws.list_running()
        world.aws.reclaim(doomed.id)
        await world.until(lambda: of_kind(records, "NodeGone"), within=600)
    (gone,) = of_kind(records, "NodeGone")
    kind = "spot_interrupted"
    assert list(trace_causes(records, gone)) == [
        ("NodeGone", kind),
        ("NodeDraining", kind),
        ("Interrupted", kind),
    ]
    (interrupted,) = of_kind(records, "Interrupted")
    assert interrupted.severity == "warning"
    assert any(name.endswith(doomed.id) for name in interrupted.names)


@virtual
async def test_a_node_that_its_static_pool_released_is_gone_because_of_it() -> None:
    scene = Scene(flags=("--feature-gates=StaticCapacity=true",))
    records = listen(scene.dovetail)
    async with scene.running():
        scene.apply(nodepool(replicas=2))
        await scene.until(lambda: len(of_kind(records, "NodeReady")) == 2, 300)
        scene.api.patch(POOLS, "default", {"spec": {"replicas": 1}})
        await scene.until(lambda: of_kind(records, "NodeGone"), 300)
    (released,) = of_kind(records, "NodeReleased")
    assert released.message == "pool default has more nodes than replicas"
    (gone,) = of_kind(records, "NodeGone")
    assert list(trace_causes(records, gone))[-1] == ("NodeReleased", "Replicas")
    assert gone.reason == "Replicas"


@virtual
async def test_drift_that_is_paused_is_resumed_because_its_nodes_came_up() -> None:
    scene = Scene()
    records = listen(scene.dovetail)
    async with scene.running():
        scene.apply(asking(nodepool(consolidate_after="Never"), drift_pause_after="5m"), pod("web", cpu="1"))
        await scene.until(lambda: of_kind(records, "NodeReady"), 300)
        joining, waiting = scene.cloud.on_launch, list[tuple[NodeClaim, Instance]]()
        scene.cloud.on_launch = lambda claim, instance: waiting.append((claim, instance))
        scene.api.patch(POOLS, "default", {"spec": {"template": {"metadata": {"labels": {"new": "yes"}}}}})
        await scene.until(lambda: of_kind(records, "DriftPaused"), 1200)
        for claim, instance in waiting:
            if instance.provider_id in scene.cloud.instances:
                scene.join(claim, instance)
        scene.cloud.on_launch = joining
        await scene.until(lambda: of_kind(records, "DriftResumed"), 1200)
    paused, resumed = of_kind(records, "DriftPaused")[-1], of_kind(records, "DriftResumed")[0]
    assert (paused.subject, paused.reason, paused.severity) == ("pool/default", "NodesNotReady", "warning")
    assert "not ready after 5m0s" in paused.message
    assert (resumed.subject, resumed.parent) == ("pool/default", paused.id)
    (started, *_) = of_kind(records, "CommandStarted")
    assert started.reason == "Drifted"


@virtual
async def test_an_instance_without_a_claim_is_given_up_on_record() -> None:
    scene = Scene()
    records = listen(scene.dovetail)
    async with scene.running():
        lost = Instance(
            provider_id="fake://lost",
            claim="default-lost",
            created=scene.true_clock.now() - timedelta(minutes=5),
            labels={labels.INSTANCE_TYPE: "default-instance-type"},
        )
        scene.cloud.instances[lost.provider_id] = lost
        await scene.until(lambda: of_kind(records, "NodeGivenUp"), 60)
    (given_up,) = of_kind(records, "NodeGivenUp")
    assert (given_up.subject, given_up.reason) == ("claim/default-lost", "Orphaned")
    assert given_up.names == ("default-lost", "fake://lost")


@pytest.mark.spec("HI-7")
@virtual
async def test_asked_for_a_pod_a_history_tells_the_end_of_its_node() -> None:
    scene = Scene()
    async with scene.running():
        scene.apply(nodepool(consolidate_after="30s"), pod("web", cpu="1"))
        await scene.until(lambda: scene.pods()[0].node_name and scene.claims(), 300)
        await scene.sleep(90)
        node = scene.node_of("web").name
        scene.api.delete("pods", "web", "default")
        await scene.until(lambda: not scene.claims(), 600)
        found = scene.dovetail.history.ring.find_records(HistoryQuery(name="pod/default/web"))
    kinds = [str(record.kind) for record in reversed(found)]
    assert [kind for kind in kinds if kind != "PodPlaced"] == [
        *("NodeOrdered", "CommandDecided", "CommandStarted", "NodeDraining", "NodeGone")
    ]
    assert found[0].subject == f"node/{node}"
