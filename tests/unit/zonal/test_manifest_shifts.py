"""ZoneShifts in files: a plan buys nothing in their zones, or says why they do not matter."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from dovetail.api.meta import ObjectMeta
from dovetail.api.nodeclass import EC2NodeClass, EC2NodeClassStatus, Subnet
from dovetail.api.zoneshift import ZoneShift, ZoneShiftSpec, ZoneShiftStatus
from dovetail.disruption.situation import Situation, decide_plan
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.zonal.model.manifest_shifts import find_shifted_zones, index_zones
from dovetail.zonal.model.shifts import ShiftPolicies
from support.builders import NOW, node, pod
from support.commands import dovetail
from support.worlds import instance_type, offering

A, B = "test-zone-a", "test-zone-b"
ZONE_LABEL = "topology.kubernetes.io/zone"
ZONES = {"az1": A, "az2": B}
HOUR = timedelta(hours=1)


def shift(
    name: str = "s", zone: str = "az1", status: ZoneShiftStatus | None = None, **spec: Any
) -> ZoneShift:
    return ZoneShift(
        metadata=ObjectMeta(name=name),
        spec=ZoneShiftSpec(zone_id=zone, **spec),
        status=status or ZoneShiftStatus(),
    )


def in_phase(phase: str, **about: Any) -> ZoneShiftStatus:
    return ZoneShiftStatus(phase=phase, **about)


@pytest.mark.parametrize(
    "given",
    [
        shift(),
        shift(expires=NOW + HOUR),
        shift(status=in_phase("Pending"), policy="Protect"),
        shift(status=in_phase("Restoring", step="nodes")),
        shift(kind="ZONAL_SHIFT", status=in_phase("Active")),
    ],
)
def test_a_shift_in_force_leaves_its_zone_out(given: ZoneShift) -> None:
    found = find_shifted_zones([given], ZONES, NOW)
    assert found.names == {A}
    assert found.remarks == (f"zone {A} is left out, as ZoneShift s shifts away from it",)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (shift(kind="SIGNAL"), "it is a message about a shift, and ARC is asked about that"),
        (shift(dry_run=True), "it is a dry run"),
        (shift(status=in_phase("Restored")), "its phase is Restored"),
        (shift(expires=NOW - HOUR, status=in_phase("Active")), "it expired at 2026-06-01 11:00 UTC"),
        (
            replace(shift(), metadata=ObjectMeta(name="s", deletion_timestamp=NOW)),
            "it is being deleted",
        ),
        (shift(kind="ZONAL_SHIFT"), "ARC keeps it, and its status does not say that it is in force"),
        (shift(kind="OBSERVED", status=in_phase("Active")), "its policy is Observe"),
        (shift(policy="Observe"), "its policy is Observe"),
        (shift(kind="SOMETHING"), "its kind SOMETHING is not known"),
        (shift(status=in_phase("Restoring", step="lifted")), "it is over but for its last step"),
        (shift(zone="az9"), "the zone az9 is not known here"),
    ],
)
def test_a_shift_that_does_not_matter_says_why(given: ZoneShift, why: str) -> None:
    found = find_shifted_zones([given], ZONES, NOW)
    assert (found.names, found.remarks) == (frozenset(), (f"ZoneShift s does not matter to a plan: {why}",))


def test_policies_and_the_least_number_of_zones_count_as_for_the_controller() -> None:
    ignored = find_shifted_zones([shift()], ZONES, NOW, policies=ShiftPolicies(manual="Ignore"))
    assert ignored.remarks == ("ZoneShift s does not matter to a plan: its policy is Ignore",)
    both = [shift("new", "az2"), shift("old", "az1", in_phase("Active"))]
    found = find_shifted_zones(both, ZONES, NOW)
    assert found.by_shift == {"old": A}
    assert found.remarks[0].endswith("shifting away from az2 too would leave fewer than 1 zones")


def test_zones_have_the_ids_that_nodes_and_node_classes_tell() -> None:
    types = [
        instance_type("t", 4, "16Gi", 110, offerings=[offering(zone, "spot", 1.0) for zone in (A, B, "c")])
    ]
    inside = node("n", labels={"topology.kubernetes.io/zone": A, "topology.k8s.aws/zone-id": "az1"})
    known = EC2NodeClass(status=EC2NodeClassStatus(subnets=(Subnet(id="s", zone=B, zone_id="az2"),)))
    assert index_zones(types, [inside], [known]) == {"az1": A, "az2": B, "c": "c"}


POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements:
      - {key: topology.kubernetes.io/zone, operator: In, values: [test-zone-a, test-zone-b]}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: app, image: app, resources: {requests: {cpu: "1"}}}]}
---
apiVersion: dovetail.sh/v1alpha1
kind: ZoneShift
metadata: {name: away}
spec: {zoneId: ZONE}
"""


@pytest.mark.parametrize(("away", "other"), [(A, B), (B, A)])
def test_a_plan_for_files_buys_nothing_in_a_zone_that_is_shifted_away(
    tmp_path: Path, away: str, other: str
) -> None:
    file = tmp_path / "files.yaml"
    file.write_text(POOL.replace("ZONE", away))
    ended = dovetail("plan", "-f", str(file), "-o", "json")
    assert [each["offering"]["zone"] for each in json.loads(ended.out)["nodes"]] == [other]
    assert f"note: zone {away} is left out, as ZoneShift away shifts away from it\n" in ended.err
    assert "kinds that do not matter" not in ended.err


def test_a_pod_of_the_zone_is_deferred_as_the_controller_defers_it(tmp_path: Path) -> None:
    """It is not unschedulable: nothing about it need change, and its zone will be back."""
    tied = POOL.replace("ZONE", A).replace(
        "spec: {containers", f"spec: {{nodeSelector: {{{ZONE_LABEL}: {A}}}, containers"
    )
    file = tmp_path / "files.yaml"
    file.write_text(tied)
    told = find_zone_bound_sentence()
    shown = dovetail("plan", "-f", str(file))
    assert f"default/web is deferred: {told}\n" in shown.out
    assert "unschedulable" not in shown.out
    (left,) = json.loads(dovetail("plan", "-f", str(file), "-o", "json").out)["unschedulable"]
    assert left == {
        "pod": "default/web",
        "reasons": [{"reason": told, "count": 1, "nearest": None}],
        "deferred": True,
    }
    free = dovetail("plan", "-f", str(file), env={"ENABLE_ZONAL_SHIFT": "false"})
    assert free.code == 0, "without the shift it has a place"


def find_zone_bound_sentence() -> str:
    """What the controller says of the pod: it decides by the same function."""
    waiting = pod("web", node_selector={ZONE_LABEL: A})
    situation = Situation(snapshot=Snapshot(pods=(waiting,)), closed_zones={A: A})
    return decide_plan(situation).deferred[waiting.full_name]


def test_a_shift_is_ignored_where_the_feature_is_switched_off(tmp_path: Path) -> None:
    file = tmp_path / "files.yaml"
    file.write_text(POOL.replace("ZONE", A))
    ended = dovetail("plan", "-f", str(file), env={"ENABLE_ZONAL_SHIFT": "false"})
    assert "note: ZoneShifts do not matter to a plan: ENABLE_ZONAL_SHIFT is false\n" in ended.err


def test_no_node_in_a_zone_that_files_shift_away_is_removable(tmp_path: Path) -> None:
    nodes = Path(__file__).parents[3] / "examples" / "disruption.yaml"
    file = tmp_path / "shift.yaml"
    file.write_text(POOL.rpartition("---")[2].replace("ZONE", A))
    planned = json.loads(
        dovetail("plan", "--disruption", "-f", str(nodes), "-f", str(file), "-o", "json").out
    )
    inside = {
        each["metadata"]["name"]
        for each in yaml.safe_load_all(nodes.read_text())
        if each["kind"] == "Node" and each["metadata"]["labels"]["topology.kubernetes.io/zone"] == A
    }
    assert len(inside) > 1
    assert {each["node"] for each in planned["staying"] if each["reason"] == "zonal-shift"} == inside
