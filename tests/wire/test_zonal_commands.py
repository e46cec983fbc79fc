"""`dovetail zonal-shift` as people run it: a server it reaches over HTTPS, and an AWS it reaches by boto3."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from dovetail.api.crds import build_manifests, build_zonal_manifest
from dovetail.runtime.clock import SystemClock
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.aws.wire.server import serve_aws
from support.aws import CLUSTER
from support.builders import owner, pod
from support.commands import Ended, dovetail, process
from support.disruption import pdb, scene, state
from support.https_apiserver import DEFINITIONS, Secured, secured
from support.seen_clusters import encode_world
from support.two_servers import free_ports
from support.worlds import instance_type, offering

SHIFTS, POOLS, NODES = "zoneshifts.dovetail.sh", "nodepools.karpenter.sh", "nodes"
ZONE, ZONE_ID = "topology.kubernetes.io/zone", "topology.k8s.aws/zone-id"
LEDGER = "zonalshift.dovetail.sh/ledger"
A, B, C = "us-west-2a", "us-west-2b", "us-west-2c"


class Site:
    """A cluster with a node in each of three zones, and the account it is in."""

    def __init__(self, server: Secured, folder: Path) -> None:
        self.server = server
        self.api = server.server.build_local_client("someone")
        self.aws = SimulatedAws(SystemClock(), 1, cluster=CLUSTER)
        self._door = serve_aws(self.aws, moto=False)
        url = asyncio.run_coroutine_threadsafe(self._door.__aenter__(), server.loop).result(20).url
        self.env = {
            "HOME": str(folder),
            "KUBECONFIG": str(server.kubeconfig),
            "AWS_ENDPOINT_URL": url,
            "AWS_REGION": "us-west-2",
            "AWS_ACCESS_KEY_ID": f"AKIA{self.aws.account}",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "CLUSTER_NAME": CLUSTER,
        }
        server.call(self._furnish)

    def _furnish(self) -> None:
        (ec2,) = (each for each in build_manifests("aws") if "ec2nodeclasses" in each["metadata"]["name"])
        for each in (build_zonal_manifest(), ec2):
            self.api.create(DEFINITIONS, each)
        for zone in (A, B, C):
            self.node(zone)

    def node(self, zone: str) -> None:
        known = {ZONE: zone, ZONE_ID: self.id(zone)}
        self.api.create(NODES, {"metadata": {"name": f"node-{zone[-1]}", "labels": known}, "spec": {}})

    def id(self, zone: str) -> str:
        return self.aws.network.zone_ids[zone]

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._door.__aexit__(None, None, None), self.server.loop).result(20)

    def ask(self, *arguments: str, **more: str) -> Ended:
        return dovetail("zonal-shift", *arguments, env={**self.env, **more})

    def shifts(self) -> list[Any]:
        return list(self.server.call(lambda: self.api.list(SHIFTS)))

    def clear(self) -> None:
        """No shift anywhere, as before any of them."""

        def gone() -> None:
            for each in self.api.list(SHIFTS):
                name = each["metadata"]["name"]
                self.api.patch(SHIFTS, name, {"metadata": {"finalizers": None}})
                if not each["metadata"].get("deletionTimestamp"):
                    self.api.delete(SHIFTS, name)
            for active in self.aws.shifts.list_active(self.managed):
                self.aws.shifts.stop(self.managed, active, "CANCELED")

        self.server.call(gone)

    @property
    def managed(self) -> Any:
        found = self.aws.shifts.find_resource(self.aws.eks.clusters[CLUSTER].arn)
        assert found is not None
        return found

    def phase(self, name: str, phase: str) -> None:
        self.api.patch(SHIFTS, name, {"status": {"phase": phase}}, subresource="status")

    def kept(self, zone: str, kind: str, shift_id: str = "", phase: str = "Active", name: str = "") -> None:
        """A ZoneShift as the controller would have made it."""

        def make() -> None:
            called = name or kind.lower().replace("_", "-")
            self.make(f"{self.id(zone)}-{called}", zone, kind, shift_id, phase)

        self.server.call(make)

    def make(self, name: str, zone: str, kind: str, shift_id: str, phase: str) -> None:
        spec = {"zoneId": self.id(zone), "kind": kind, "shiftId": shift_id}
        self.api.create(SHIFTS, {"metadata": {"name": name}, "spec": spec})
        self.api.patch(SHIFTS, name, {"status": {"phase": phase, "zoneName": zone}}, subresource="status")


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("zonal")
    with secured(folder) as server:
        made = Site(server, folder)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
def site(everything: Site) -> Iterator[Site]:
    yield everything
    everything.clear()


def in_one_sentence(ended: Ended) -> str:
    """A refusal: nothing on stdout, one line on stderr, no traceback, an exit code that says so."""
    assert ended.code in (1, 2), ended
    assert ended.out == ""
    lines = ended.err.strip().splitlines()
    assert len(lines) == 1, ended.err
    assert lines[0].startswith("dovetail: ")
    assert "bug" not in lines[0]
    return lines[0]


# In this cluster alone


def test_a_local_shift_is_started_extended_shown_and_cancelled(site: Site) -> None:
    zone = site.id(A)
    started = site.ask("start", "--zone", zone, "--for", "2h", "--local", "--comment", "why not")
    assert (started.code, f"local-{zone} created" in started.out) == (0, True)
    (made,) = site.shifts()
    assert made["spec"]["kind"] == "LOCAL"
    assert made["metadata"]["finalizers"] == ["dovetail.sh/zone-restore"]
    first = made["spec"]["expires"]

    shown = site.ask("status", "-o", "json")
    assert json.loads(shown.out)["shifts"][0]["zone-id"] == zone
    assert zone in site.ask("status").out
    assert site.ask("extend", "--zone", zone, "--for", "5h").code == 0
    assert site.shifts()[0]["spec"]["expires"] > first
    again = in_one_sentence(site.ask("start", "--zone", zone, "--local"))
    assert f"it is shifted away already; `dovetail zonal-shift extend --zone {zone}`" in again
    assert site.ask("cancel", "--zone", zone).code == 0
    assert site.shifts()[0]["metadata"].get("deletionTimestamp")
    assert zone not in site.ask("history").out


def test_a_zone_may_be_told_by_its_name_and_a_dry_run_is_marked_as_one(site: Site) -> None:
    assert site.ask("start", "--zone", A, "--local", "--dry-run").code == 0
    (made,) = site.shifts()
    assert (made["spec"]["zoneId"], made["spec"]["dryRun"]) == (site.id(A), True)


def test_a_shift_that_is_over_is_history_and_leaves_its_name_to_the_next(site: Site) -> None:
    site.ask("start", "--zone", A, "--local")
    name = site.shifts()[0]["metadata"]["name"]
    over = {"status": {"phase": "Restored", "endReason": "Operator"}}
    site.server.call(lambda: site.api.patch(SHIFTS, name, over, subresource="status"))
    assert name in site.ask("history").out
    assert name not in site.ask("status").out
    assert f"{name}-2 created" in site.ask("start", "--zone", A, "--local").out


@pytest.mark.spec("zonal-E24", "zonal-E3")
def test_a_zone_that_is_unknown_or_the_last_is_not_stepped_out_of(site: Site) -> None:
    unknown = in_one_sentence(site.ask("start", "--zone", "mars1-az1", "--local"))
    assert f"the cluster has no such zone; it has {site.id(A)}" in unknown
    for zone in (A, B):
        assert site.ask("start", "--zone", zone, "--local").code == 0
    last = in_one_sentence(site.ask("start", "--zone", C, "--local"))
    assert "no zone would be left" in last
    assert f"{site.id(A)}, {site.id(B)} is away already; cancel that first" in last
    assert len(site.shifts()) == 2


@pytest.mark.spec("zonal-E19")
def test_the_only_zone_there_is_is_not_stepped_out_of(site: Site) -> None:
    def only() -> None:
        for name in ("node-b", "node-c"):
            site.api.delete(NODES, name)

    site.server.call(only)
    try:
        told = in_one_sentence(site.ask("start", "--zone", A, "--local"))
        assert "no zone would be left, as it is the only one; add another first" in told
    finally:
        for zone in (B, C):
            site.server.call(partial(site.node, zone))


def test_what_is_missing_or_makes_no_sense_is_said_in_a_sentence(site: Site) -> None:
    assert "give one with --zone" in in_one_sentence(site.ask("start", "--local"))
    nothing = in_one_sentence(site.ask("cancel", "--zone", "mars1-az1"))
    assert "there is none that a person started" in nothing
    assert "there is none that a person started" in in_one_sentence(site.ask("extend", "--zone", A))
    for lasts in ("soon", "-2h", "0s"):
        told = in_one_sentence(site.ask("start", "--zone", A, "--local", f"--for={lasts}"))
        assert f"--for is {lasts!r}" in told
    long = in_one_sentence(site.ask("start", "--zone", A, "--local", "--comment", "x" * 129))
    assert "--comment has 129 characters, but at most 128 can be kept" in long


# Through ARC


def test_a_shift_of_arc_is_started_extended_and_cancelled(site: Site) -> None:
    zone = site.id(A)
    started = site.ask("start", "--zone", zone, "--for", "3h", "--comment", "smoke in the hall")
    assert started.code == 0, started.err
    (active,) = site.aws.shifts.list_active(site.managed)
    assert (active.away, active.comment) == (zone, "smoke in the hall")
    assert round((active.expires - active.started).total_seconds()) == 3 * 3600
    assert started.out.startswith(f"{active.id}: away from {zone} until ")
    site.kept(A, "ZONAL_SHIFT", active.id)

    before = active.expires
    extended = site.ask("extend", "--zone", zone, "--for", "5h")
    assert (extended.code, f"{active.id} now ends in 5h" in extended.out) == (0, True)
    assert active.expires > before
    cancelled = site.ask("cancel", "--zone", zone)
    assert (cancelled.code, cancelled.out) == (0, f"cancelled {active.id}\n")
    assert site.aws.shifts.list_active(site.managed) == []


def test_a_cancel_ends_well_beside_a_shift_that_is_ending_already(site: Site) -> None:
    zone = site.id(A)
    assert site.ask("start", "--zone", zone, "--for", "3h").code == 0
    (active,) = site.aws.shifts.list_active(site.managed)
    site.kept(A, "ZONAL_SHIFT", active.id)
    # The one before is over in ARC, and its nodes are still being released.
    site.kept(A, "ZONAL_SHIFT", "11111111-2222-3333-4444-555555555555", "Restoring", name="before")

    cancelled = site.ask("cancel", "--zone", A)
    assert (cancelled.code, cancelled.out) == (0, f"cancelled {active.id}\n"), cancelled.err
    again = site.ask("cancel", "--zone", A)
    assert again.code == 1, "the object is Active until the controller has seen it"
    site.server.call(lambda: site.phase(f"{zone}-zonal-shift", "Restoring"))
    twice = site.ask("cancel", "--zone", A)
    assert (twice.code, "on its way back already" in twice.out) == (0, True)


def test_a_shift_on_its_way_back_is_not_said_to_be_extended(site: Site) -> None:
    zone = site.id(A)
    assert site.ask("start", "--zone", zone, "--for", "1h", "--local").code == 0
    (made,) = site.shifts()
    for way in ("phase", "cancel"):
        if way == "phase":
            site.server.call(lambda: site.phase(f"local-{zone}", "Restoring"))
        else:
            site.server.call(lambda: site.phase(f"local-{zone}", "Active"))
            assert site.ask("cancel", "--zone", zone).code == 0
        told = in_one_sentence(site.ask("extend", "--zone", zone, "--for", "5h"))
        assert f"on its way back already; start another: dovetail zonal-shift start --zone {zone}" in told
        assert site.shifts()[0]["spec"]["expires"] == made["spec"]["expires"]
    assert site.ask("start", "--zone", zone, "--for", "5h", "--local").code == 0


def test_what_arc_refuses_is_told_with_what_to_do(site: Site) -> None:
    zone = site.id(A)
    assert site.ask("start", "--zone", zone).code == 0
    again = in_one_sentence(site.ask("start", "--zone", site.id(B)))
    assert "the cluster is shifted away already; cancel or extend that shift" in again
    (active,) = site.aws.shifts.list_active(site.managed)
    site.kept(A, "ZONAL_SHIFT", active.id)
    site.server.call(lambda: site.aws.shifts.stop(site.managed, active, "CANCELED"))
    over = in_one_sentence(site.ask("extend", "--zone", zone, "--for", "1h"))
    assert over == f"dovetail: extending the shift of {zone}: the shift is over already"


def test_what_arc_would_refuse_is_not_asked(site: Site) -> None:
    assert "ARC takes whole minutes or hours" in in_one_sentence(
        site.ask("start", "--zone", A, "--for", "1h30m")
    )
    for zone in (A, B):
        site.kept(zone, "LOCAL")
    last = in_one_sentence(site.ask("start", "--zone", C))
    assert "no zone would be left" in last
    site.clear()
    nameless = in_one_sentence(site.ask("start", "--zone", site.id(A), CLUSTER_NAME=""))
    assert nameless == "dovetail: no cluster is named; give --cluster-name=NAME, or use --local"
    site.server.call(lambda: setattr(site.aws.eks.clusters[CLUSTER], "zonal_shift", False))
    try:
        stranger = in_one_sentence(site.ask("start", "--zone", site.id(A)))
        assert (
            "ARC does not know the cluster; set zonalShiftConfig.enabled=true on it, or use --local"
            in stranger
        )
    finally:
        site.server.call(lambda: setattr(site.aws.eks.clusters[CLUSTER], "zonal_shift", True))
    assert site.aws.shifts.list_active(site.managed) == []


def test_arc_needs_no_cluster_to_be_reached(site: Site) -> None:
    started = site.ask("start", "--zone", site.id(A), KUBECONFIG="/nonexistent")
    assert started.code == 0, started.err


def test_a_zone_that_arc_does_not_know_is_told_so(site: Site) -> None:
    told = in_one_sentence(site.ask("start", "--zone", "mars1-az1"))
    assert "ARC knows no such zone here" in told


# Beforehand


def pool() -> dict[str, Any]:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    template = {"spec": {"nodeClassRef": reference, "requirements": []}}
    return {"metadata": {"name": "default"}, "spec": {"template": template}}


def test_a_plan_tells_every_write_and_makes_none(site: Site) -> None:
    site.server.call(lambda: site.api.create(POOLS, pool()))
    try:
        planned = process("zonal-shift", "plan", "--zone", site.id(A), "-d", env=site.env)
        assert planned.code == 0, planned.err
        assert f"gate disruption in {site.id(A)}\n" in planned.out
        assert "Node/node-a cordon: false -> true (protected" in planned.out
        zone = "topology.kubernetes.io/zone NotIn ["
        assert f"NodePool/default requirements: none -> {zone}" in planned.out
        assert "{" not in planned.out
        assert LEDGER not in json.dumps(
            site.server.call(lambda: [*site.api.list(NODES), *site.api.list(POOLS)])
        )
        wrong = in_one_sentence(process("zonal-shift", "plan", "--zone", "mars1-az1", env=site.env))
        assert "the cluster has no such zone" in wrong
    finally:
        site.server.call(lambda: site.api.delete(POOLS, "default"))


def until(true: Callable[[], object], process: subprocess.Popen[bytes], seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert process.poll() is None, "the process has ended"
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)


def test_run_follows_a_shift_and_ends_when_told(site: Site) -> None:
    site.server.call(lambda: site.api.create(POOLS, pool()))
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    site.server.call(lambda: site.api.patch(NODES, "node-a", ready, subresource="status"))
    port = free_ports(1)
    given = (
        "--disable-leader-election=true",
        "--metrics-port=0",
        f"--health-probe-port={port}",
        "-d",
        "--zonal-shift-debounce=0s",
    )
    running = subprocess.Popen(
        [sys.executable, "-m", "dovetail", "zonal-shift", "run", f"--cluster-name={CLUSTER}", *given],
        env={"PATH": os.environ["PATH"], **site.env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def marked() -> bool:
        found = site.server.call(lambda: site.api.get(NODES, "node-a"))
        return LEDGER in found["metadata"].get("annotations", {})

    try:
        assert site.ask("start", "--zone", site.id(A), "--local").code == 0
        until(marked, running)
        with urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
            assert answer.read() == b"ok"
        until(lambda: "Active" in site.ask("status").out, running)
        edited = site.server.call(lambda: site.api.get(POOLS, "default"))
        assert edited["spec"]["template"]["spec"]["requirements"][0]["values"] == [A]
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0
    finally:
        running.kill()
        running.wait()
        site.server.call(lambda: site.api.delete(POOLS, "default"))


# Rehearsals


SOLD = instance_type(
    "medium", 4, "32Gi", 110, offerings=[offering(zone, "on-demand", 2.0) for zone in ("za", "zb")]
)


def snapshot(folder: Path, *, picky: bool) -> str:
    selector: dict[str, Any] = {"node_selector": {ZONE: "za"}} if picky else {}
    lost = [
        pod(
            f"p{n}", cpu="3", node="x", labels={"app": "web"}, owned_by=owner("ReplicaSet", "web"), **selector
        )
        for n in range(3)
    ]
    states = [state(f"node-{each.name}", each, of=SOLD, zone="za") for each in lost]
    states.append(state("node-b", pod("q", cpu="3", node="node-b"), of=SOLD, zone="zb"))
    file = folder / "world.json"
    file.write_bytes(encode_world(scene(*states, types=(SOLD,), pdbs=[pdb(allowed=1)]).snapshot))
    return str(file)


def test_a_rehearsal_that_passes_says_what_it_takes(tmp_path: Path) -> None:
    ended = dovetail("zonal-shift", "rehearse", "--zone", "za", "--snapshot", snapshot(tmp_path, picky=False))
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "without za: 3 nodes and 3 pods would be lost",
        "needed in other zones: 3 nodes, $6.00 an hour, in about 2 minutes",
        "budget in violation: default/pdb",
        "all replicas in the zone: ReplicaSet/default/web",
        "readiness 100%: ready",
    ]
    slow = ("--launch-rate", "1", "-o", "json")
    file = snapshot(tmp_path, picky=False)
    told = json.loads(dovetail("zonal-shift", "rehearse", "--zone", "za", "--snapshot", file, *slow).out)
    assert (told["minutes"], told["passed"], told["newNodes"]) == (5.0, True, 3)


def test_a_rehearsal_that_fails_says_why_and_ends_with_one(tmp_path: Path) -> None:
    file = snapshot(tmp_path, picky=True)
    ended = dovetail("zonal-shift", "rehearse", "--zone", "za", "--snapshot", file)
    assert ended.code == 1
    assert "unschedulable (selector): default/p0: " in ended.out
    assert "\nreasons: selector 3\n" in ended.out
    assert ended.out.endswith("readiness 0%: not ready\n")
    told = json.loads(
        dovetail("zonal-shift", "rehearse", "--zone", "za", "--snapshot", file, "-o", "json").out
    )
    assert {each["reason"] for each in told["homeless"]} == {"selector"}
    assert (told["readiness"], told["budgets"]) == (0.0, ["default/pdb"])


def test_a_rehearsal_needs_a_snapshot_that_is_there_and_a_zone_that_is_in_it(tmp_path: Path) -> None:
    missing = dovetail("zonal-shift", "rehearse", "--zone", "a", "--snapshot", str(tmp_path / "none.json"))
    assert "reading the snapshot" in in_one_sentence(missing)
    file = snapshot(tmp_path, picky=False)
    wrong = dovetail("zonal-shift", "rehearse", "--zone", "mars1-az1", "--snapshot", file)
    assert "there is no such zone; there are za, zb" in in_one_sentence(wrong)


def test_a_rehearsal_looks_at_the_live_cluster(site: Site) -> None:
    """A pod on the node of the zone, and nothing that could be bought elsewhere."""
    bound: dict[str, Any] = {
        "metadata": {"name": "lonely", "namespace": "default"},
        "spec": {"nodeName": "node-a", "containers": [{"name": "c", "image": "i"}]},
    }
    site.server.call(lambda: site.api.create("pods", bound))
    try:
        given = ("zonal-shift", "rehearse", "--zone", site.id(A), "-o", "json")
        ended = process(*given, env=site.env)
        assert ended.code == 1, ended.err
        told = json.loads(ended.out)
        assert (told["zone"], told["nodes"], told["pods"]) == (A, 1, 1)
        assert [each["pod"] for each in told["homeless"]] == ["default/lonely"]
    finally:
        site.server.call(lambda: site.api.delete("pods", "lonely", "default"))
