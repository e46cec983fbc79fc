"""Every number of zonal shift is there after one shift; a process that starts in its midst shows them too."""

from __future__ import annotations

import json
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from dovetail.api.crds import build_zonal_manifest
from dovetail.runtime.metrics import render_exposition
from dovetail.settings import read_settings
from dovetail.sim.aws.messaging.eventbridge import EventRule
from dovetail.zonal import shift_metrics
from dovetail.zonal.ingest.signals import SignalStore
from dovetail.zonal.ingest.sns_endpoint import SnsEndpoint
from support.aws import CLUSTER
from support.aws_world import AwsWorld
from support.sns import TOPIC, Signer, headers_of, notification
from support.stage import virtual

A, ZONE = "us-west-2a", "topology.kubernetes.io/zone"
CRDS, SHIFTS = "customresourcedefinitions.apiextensions.k8s.io", "zoneshifts.dovetail.sh"
FLAGS = (
    "--enable-zonal-shift=true",
    "--zonal-shift-mode=Both",
    "--enable-do-not-disrupt=true",
    "--zonal-shift-queue=zonal",
)
# Names and labels as the design has them.
SHIFT: dict[str, set[str]] = {
    "active": {"zone", "zone_id", "kind", "policy"},
    "phase": {"zone_id", "phase"},
    "duration_seconds": {"zone", "kind"},
    "signals_total": {"source", "kind", "result"},
    "signature_failures_total": {"reason"},
    "poll_errors_total": {"op", "code"},
    "last_confirmed_timestamp": set(),
    "nodes_protected": {"zone"},
    "nodepools_edited": {"zone"},
    "undo_external_total": {"object"},
    "contested": set(),
    "time_to_gate_seconds_count": set(),
    "time_to_protect_seconds_count": set(),
    "time_to_restore_seconds_count": set(),
    "pods_waiting_for_zone": {"zone"},
    "readiness": {"zone"},
}
OTHERS: dict[str, set[str]] = {
    "karpenter_cloudprovider_zonal_shift_duration": {"zone"},
    "dovetail_zonal_readiness": {"zone"},
}
EVERY = {f"dovetail_zonal_shift_{name}": labels for name, labels in SHIFT.items()} | OTHERS


def samples() -> list[Any]:
    families = text_string_to_metric_families(render_exposition().decode())
    return [sample for family in families for sample in family.samples if "zonal" in sample.name]


def value(name: str, **labels: str) -> float:
    found = [each for each in samples() if each.name == name and labels.items() <= each.labels.items()]
    return float(found[0].value) if found else 0.0


def world_of() -> AwsWorld:
    world = AwsWorld(0, *FLAGS)
    world.api.create(CRDS, build_zonal_manifest())
    queue = world.aws.queues.add("zonal", {})
    arn = f"arn:aws:events:{world.aws.region}:{world.aws.account}:rule/zonal"
    rule = EventRule("zonal", arn, {"source": ["aws.arc-zonal-shift"]})
    rule.targets["queue"] = {"Id": "queue", "Arn": queue.arn}
    world.aws.buses.by_name["default"].rules["zonal"] = rule
    return world


async def start(world: AwsWorld) -> str:
    asked = {
        "resourceIdentifier": world.aws.eks.clusters[CLUSTER].arn,
        "awayFrom": world.aws.network.zone_ids[A],
        "expiresIn": "12h",
        "comment": "",
    }
    made = await world.aws.call("arc-zonal-shift", "StartZonalShift", asked)
    return str(made["zonalShiftId"])


def phase(world: AwsWorld) -> str:
    found = [each for each in world.listed(SHIFTS) if each["spec"]["kind"] != "SIGNAL"]
    return str(found[0].get("status", {}).get("phase", "")) if found else ""


async def forged(world: AwsWorld) -> int:
    """A delivery whose text was changed after it was signed."""
    settings = read_settings(("--cluster-name=test", f"--zonal-shift-topic-arn={TOPIC}"), {}, provider="aws")
    store = SignalStore(None, arn=lambda: "", woken=lambda: None)
    endpoint = SnsEndpoint(settings, world.aws, store, world.clock)
    fields = {**Signer().signed(notification("{}")), "TopicArn": "arn:aws:sns:us-west-2:1:another"}
    return await endpoint.take(json.dumps(fields).encode(), headers_of(fields))


@virtual
async def test_every_number_of_the_design_is_shown_after_one_shift() -> None:
    shift_metrics.PHASE.clear()  # other shifts of this process have left theirs
    async with world_of().running() as world:
        world.default()
        world.pods(3, cpu="1")
        patch = {"spec": {"template": {"spec": {"nodeSelector": {ZONE: A}}}}}
        world.api.patch("deployments.apps", "web", patch, "default")
        await world.until(lambda: world.placed() == 3, within=240)
        assert await forged(world) == 403
        protected = value("dovetail_zonal_shift_time_to_protect_seconds_count")
        world.aws.refuse("ThrottlingException", "GetManagedResource", times=1)
        shift = await start(world)
        await world.until(lambda: phase(world) == "Active", within=200)
        assert value("dovetail_zonal_shift_active", zone=A, kind="ZONAL_SHIFT", policy="Enforce") == 1
        assert value("dovetail_zonal_shift_phase", phase="Active") == 1
        assert value("dovetail_zonal_shift_nodes_protected", zone=A) >= 1
        assert value("dovetail_zonal_shift_nodepools_edited", zone=A) == 1
        world.scale(5)  # two more can only run there
        await world.world.settle(60)
        assert value("dovetail_zonal_shift_pods_waiting_for_zone", zone=A) == 2
        lasted = value("dovetail_zonal_shift_duration_seconds", zone=A, kind="ZONAL_SHIFT")
        assert 30 <= lasted == value("karpenter_cloudprovider_zonal_shift_duration", zone=A)
        assert (
            value("dovetail_zonal_shift_readiness", zone=A) == value("dovetail_zonal_readiness", zone=A) == 0
        )

        # A person takes back one mark; it is left to them, and counted.
        world.api.patch("nodes", world.nodes[0]["metadata"]["name"], {"spec": {"unschedulable": False}})
        await world.world.settle(310)
        await world.aws.call("arc-zonal-shift", "CancelZonalShift", {"zonalShiftId": shift})
        await world.until(lambda: phase(world) == "Restored", within=3600, step=5)
        await world.world.settle(30)
        assert value("dovetail_zonal_shift_active", zone=A) == 0
        phases = [each for each in samples() if each.name == "dovetail_zonal_shift_phase" and each.value]
        assert [each.labels["phase"] for each in phases] == ["Restored"], "one phase at a time"
        # Once for each shift: not when it is Active again after an edit, nor with every pass.
        assert value("dovetail_zonal_shift_time_to_protect_seconds_count") == protected + 1
        assert value("dovetail_zonal_shift_duration_seconds", zone=A) == 0
        assert value("dovetail_zonal_shift_nodes_protected", zone=A) == 0
        assert value("dovetail_zonal_shift_pods_waiting_for_zone", zone=A) == 0

    shown: dict[str, set[str]] = {}
    for each in samples():
        shown.setdefault(each.name, set()).update(each.labels)
    assert {name: shown.get(name) for name in EVERY} == EVERY


@virtual
async def test_a_process_that_starts_in_the_midst_of_a_shift_shows_it() -> None:
    async with world_of().running() as world:
        world.default()
        await start(world)
        await world.until(lambda: phase(world) == "Active", within=100)
        await world.world.settle(120)
        for each in ("dovetail_zonal_shift_active", "dovetail_zonal_shift_phase"):
            _forget(each)
        await world.killed(10)
        await world.world.settle(60)
        assert value("dovetail_zonal_shift_active", zone=A, kind="ZONAL_SHIFT", policy="Enforce") == 1
        assert value("dovetail_zonal_shift_phase", phase="Active") == 1
        assert value("dovetail_zonal_shift_duration_seconds", zone=A, kind="ZONAL_SHIFT") >= 180


def _forget(name: str) -> None:
    """As in a process of its own, which has not shown anything yet."""
    {"dovetail_zonal_shift_active": shift_metrics.ACTIVE, "dovetail_zonal_shift_phase": shift_metrics.PHASE}[
        name
    ].clear()
