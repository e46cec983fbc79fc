"""``dovetail demo``: a cluster is autoscaled before your eyes, in under a minute, in this one process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from dovetail.app.embedded_cluster import EmbeddedCluster, EmbeddedOptions, run_embedded_cluster
from dovetail.app.simulated_aws import CLUSTER, EmbeddedAws
from dovetail.cli.views.output import COMPLAINTS, format_count, print_text
from dovetail.runtime import logs
from dovetail.settings import read_settings
from dovetail.sim.aws.ec2.instance_record import SimInstance

PATIENCE = 60.0
# A story should not wait for the second burst of pods: shorter windows than in production.
HURRY = ("--batch-idle-duration=500ms", "--batch-max-duration=1s")
NAMED = (f"--cluster-name={CLUSTER}", f"--interruption-queue={CLUSTER}")
# Machines boot and end in seconds here, not in half a minute.
BOOTS = (2.0, 3.0)
EAGER = {"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}}
LOOK_EVERY = 0.05
CLAIMS, POOLS = "nodeclaims.karpenter.sh", "nodepools.karpenter.sh"
TYPE, ZONE = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"


class DemoFailed(Exception):
    """A step of the story did not happen in time."""


def demo(
    replicas: Annotated[int, typer.Option(min=1, max=1000, help="How many pods to run.")] = 6,
    log_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the controller's log lines here.")
    ] = None,
) -> None:
    """Watch a Deployment get nodes and lose them again, on an embedded cluster.

    No account, no containers: the cluster, a simulated EC2 and the autoscaler run in this process, and
    both APIs are the real ones. The exit code says whether everything happened.
    """
    logs.configure_logging("info", (str(log_file) if log_file else "/dev/null",))
    with TemporaryDirectory(prefix="dovetail-demo-") as folder:
        options = EmbeddedOptions(
            read_settings((*HURRY, *NAMED), {}, provider="aws"),
            kubeconfig=Path(folder) / "kubeconfig",
            cloud="aws",
            boots=BOOTS,
            pool=EAGER,
        )
        try:
            asyncio.run(_tell_story(options, replicas))
        except DemoFailed as error:
            print_text(f"\nThe story stopped: {error}\n")
            raise typer.Exit(COMPLAINTS) from None


class DemoTeller:
    """Says what happens, and when."""

    def __init__(self, cluster: EmbeddedCluster, cloud: EmbeddedAws) -> None:
        self.cluster, self.aws = cluster, cloud.aws
        self.api = cluster.world.server.build_local_client("demo")
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        print_text(f"{time.monotonic() - self._started:6.1f} s  {text}\n")

    async def wait_until(self, what: str, holds: Callable[[], bool]) -> float:
        """Wait for something; returns how long it took."""
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > PATIENCE:
                raise DemoFailed(f"waited {PATIENCE:.0f} s for {what}")
            await asyncio.sleep(LOOK_EVERY)
        return time.monotonic() - began

    def list_pods(self, phase: str = "") -> list[dict[str, Any]]:
        found = self.api.list("pods", "default")
        return [pod for pod in found if not phase or (pod.get("status") or {}).get("phase") == phase]

    def has_running(self, replicas: int) -> bool:
        """So many pods run on nodes that will stay."""
        staying = {node["metadata"]["name"] for node in self.api.list("nodes") if not _is_terminating(node)}
        return sum(pod["spec"].get("nodeName") in staying for pod in self.list_pods("Running")) >= replicas

    def scale(self, replicas: int) -> None:
        self.api.patch("deployments.apps", "inflate", {"spec": {"replicas": replicas}}, "default")

    def find_price(self, machine: SimInstance) -> float:
        prices = self.aws.prices
        if machine.capacity_type == "spot":
            return prices.spot_price(machine.type, machine.zone) or 0.0
        return prices.on_demand_price(machine.type) or 0.0

    def announce_new(self, known: set[str]) -> None:
        """Say which instances there are that nobody has heard of."""
        for machine in self.aws.list_running():
            if machine.id not in known:
                known.add(machine.id)
                self.say(
                    f"instance {machine.id} launched: {machine.type}, {machine.capacity_type} in "
                    f"{machine.zone}, "
                    f"${self.find_price(machine):.4f}/h"
                )


async def _tell_story(options: EmbeddedOptions, replicas: int) -> None:
    async with run_embedded_cluster(options) as cluster:
        assert cluster.beside is not None
        teller = DemoTeller(cluster, cluster.beside)
        teller.say(f"a Kubernetes API server listens on {cluster.url}, with Dovetail in it")
        teller.say(f"a simulated AWS listens on {cluster.beside.url or 'no port: boto3 is not installed'}")
        await _prepare_pool(teller)
        known: set[str] = set()
        first, running, price, nodes = await _scale_up(teller, replicas, known)
        moved = await _reclaim_spot(teller, replicas, known)
        await _scale_down(teller)
        pods, machines = format_count(replicas, "pod"), format_count(nodes, "node")
        print_text(f"\nfirst node ready after {first:.1f} s, all {pods} running after {running:.1f} s;\n")
        print_text(
            f"{machines} at ${price:.4f} an hour, the reclaimed one replaced within {moved:.1f} s of 120.\n"
        )


async def _prepare_pool(teller: DemoTeller) -> None:
    teller.api.create("deployments.apps", _build_deployment())
    await teller.wait_until("the pool to become ready", lambda: _is_ready(teller.api.get(POOLS, "default")))
    status = teller.api.get("ec2nodeclasses.karpenter.k8s.aws", "default")["status"]
    zones = format_count(len({subnet["zone"] for subnet in status["subnets"]}), "zone")
    images = format_count(len(status["amis"]), "image")
    teller.say(f"a NodePool is ready: subnets in {zones} of {teller.aws.region}, {images} to boot from")


async def _scale_up(teller: DemoTeller, replicas: int, known: set[str]) -> tuple[float, float, float, int]:
    teller.scale(replicas)
    began = time.monotonic()
    await teller.wait_until("pods", lambda: len(teller.list_pods("Pending")) == replicas)
    teller.say(
        f"inflate wants {format_count(replicas, 'pod')} across zones: all pending, no node can run them"
    )
    await teller.wait_until("NodeClaims", lambda: bool(teller.api.list(CLAIMS)))
    claims = teller.api.list(CLAIMS)
    types = next(r for r in claims[0]["spec"]["requirements"] if r["key"] == TYPE)
    teller.say(
        f"{format_count(len(claims), 'NodeClaim')} ordered, each any of {len(types['values'])} instance types"
    )
    await teller.wait_until("instances", lambda: len(teller.aws.list_running()) >= len(claims))
    teller.announce_new(known)
    await teller.wait_until("a ready node", lambda: any(map(_is_ready, teller.api.list("nodes"))))
    first = time.monotonic() - began
    await teller.wait_until("running pods", lambda: teller.has_running(replicas))
    running = time.monotonic() - began
    machines = teller.aws.list_running()
    zones = {machine.zone for machine in machines}
    places = f"{format_count(len(machines), 'node')} in {format_count(len(zones), 'zone')}"
    teller.say(f"{format_count(replicas, 'pod')} running on {places}")
    return first, running, sum(map(teller.find_price, machines)), len(machines)


async def _reclaim_spot(teller: DemoTeller, replicas: int, known: set[str]) -> float:
    """Spot takes an instance back, and its pods are elsewhere before it goes."""
    victim = next((machine for machine in teller.aws.list_running() if machine.capacity_type == "spot"), None)
    if victim is None:
        raise DemoFailed("there is no spot instance to take back")
    began = time.monotonic()
    teller.aws.reclaim(victim.id)
    teller.say(f"EC2 wants {victim.id} back: it ends in two minutes")

    def noticed() -> bool:
        nodes = teller.api.list("nodes")
        return all(_is_terminating(node) for node in nodes if node["spec"]["providerID"].endswith(victim.id))

    await teller.wait_until("the warning to be heard", noticed)
    teller.say(
        f"heard through EventBridge and SQS: node {victim.dns_name.partition('.')[0]} is being drained"
    )
    await teller.wait_until("a replacement", lambda: teller.has_running(replicas))
    moved = time.monotonic() - began
    teller.announce_new(known)
    teller.say(f"{format_count(replicas, 'pod')} running again, {120 - moved:.0f} s before the time was up")
    return moved


async def _scale_down(teller: DemoTeller) -> None:
    teller.scale(0)
    await teller.wait_until("the pods to go", lambda: not teller.list_pods())
    teller.say("scaled to 0: the pods are deleted, the nodes are empty")
    # The newest was promised to pods a moment ago, and is left alone for a while.
    await teller.wait_until("the nodes to go", lambda: len(teller.api.list("nodes")) <= 1)
    left = teller.api.list("nodes")
    newest = "; the newest follows" if left else ""
    teller.say(f"empty nodes were drained, their instances terminated and forgotten{newest}")


def _is_ready(obj: dict[str, Any]) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _is_terminating(node: dict[str, Any]) -> bool:
    taints = node["spec"].get("taints") or ()
    return "deletionTimestamp" in node["metadata"] or any(
        t["key"] == "karpenter.sh/disrupted" for t in taints
    )


def _build_deployment() -> dict[str, Any]:
    container = {
        "name": "inflate",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": {"cpu": "1"}},
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "inflate"}},
    }
    inner = {
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "topologySpreadConstraints": [spread],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "inflate", "namespace": "default"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "inflate"}},
            "template": {"metadata": {"labels": {"app": "inflate"}}, "spec": inner},
        },
    }
