"""A cluster with something of everything in it, in processes of its own, for Prometheus to look at.

`dovetail up` is the cluster and its AWS, `dovetail controller` autoscales it with all its numbers shown,
`dovetail interruption-router` stands between the account's events and the cluster's queue, and
`dovetail shadow` watches it all.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import yaml

from dovetail.aws.eventbridge import READINGS
from support.kubectl import kubectl_binary
from support.prometheus import open_ports

__all__ = ["Loaded", "loaded"]

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 240.0
INVITATION = "Ctrl-C stops it."
BUS = {"urgent": "dovetail-bus-urgent", "bulk": "dovetail-bus-bulk", "park": "dovetail-bus-park"}
ZONAL_QUEUE = "zonal"
CAPACITY = "karpenter.sh/capacity-type"
FAMILIES = ["m5", "m5a", "c5", "c6g"]
PHASES = "jsonpath={.items[*].status.phase}"
HURRY = {
    "METRICS_DETAIL": "full",
    "DISABLE_LEADER_ELECTION": "true",
    "EKS_CONTROL_PLANE": "true",
    "BATCH_IDLE_DURATION": "500ms",
    "BATCH_MAX_DURATION": "1s",
    "ENABLE_ZONAL_SHIFT": "true",
    "ENABLE_DO_NOT_DISRUPT": "true",
    "ZONAL_SHIFT_MODE": "NodePoolEdit",
    "ZONAL_SHIFT_QUEUE": ZONAL_QUEUE,
    "ZONAL_SHIFT_POLL_INTERVAL": "2s",
    "ZONAL_SHIFT_POLL_INTERVAL_ACTIVE": "2s",
}


class Loaded:
    """The cluster, by kubectl and by boto3."""

    def __init__(self, folder: Path, env: dict[str, str], ports: dict[str, int]) -> None:
        self.folder, self.env, self.ports = folder, env, ports

    def kubectl(self, *arguments: str, given: str = "") -> str:
        env = {"HOME": str(self.folder), "PATH": os.environ["PATH"], "KUBECONFIG": self.env["KUBECONFIG"]}
        ended = subprocess.run(
            [str(kubectl_binary()), *arguments],
            env=env, input=given, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def apply(self, *documents: Json) -> None:
        self.kubectl("apply", "--server-side", "-f", "-", given=yaml.safe_dump_all(documents))

    def aws(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.env["AWS_ENDPOINT_URL"],
            region_name=self.env["AWS_REGION"],
            aws_access_key_id=self.env["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.env["AWS_SECRET_ACCESS_KEY"],
        )

    def happens(self, what: str, instance: str) -> None:
        asked = f"{self.env['AWS_ENDPOINT_URL']}/_simulation/{what}/{instance}"
        with urllib.request.urlopen(urllib.request.Request(asked, method="POST"), timeout=PATIENCE):
            pass

    def claims(self) -> list[Json]:
        found: list[Json] = json.loads(self.kubectl("get", "nodeclaims", "-o", "json"))["items"]
        return found

    def until(self, true: Callable[[], object], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < end, f"{what}: not so after {PATIENCE:g} s"
            time.sleep(1)

    # What the router needs

    def account(self) -> str:
        return str(self.aws("sts").get_caller_identity()["Account"])

    def prepare_bus(self) -> Path:
        """Queues, rules and the router's configuration."""
        queues, events, account = self.aws("sqs"), self.aws("events"), self.account()
        for name in (*BUS.values(), ZONAL_QUEUE):
            queues.create_queue(QueueName=name)
        rules = [({"source": [source], "detail-type": [kind]}, BUS["bulk"]) for source, kind in READINGS]
        rules += [({"source": ["dovetail.bus.canary"]}, BUS["urgent"])]
        rules += [({"detail-type": ["EC2 Spot Instance Interruption Warning"]}, BUS["urgent"])]
        rules += [({"source": ["aws.arc-zonal-shift"]}, ZONAL_QUEUE)]
        for number, (pattern, queue) in enumerate(rules):
            events.put_rule(Name=f"bus-{number}", EventPattern=json.dumps(pattern))
            arn = f"arn:aws:sqs:{self.env['AWS_REGION']}:{account}:{queue}"
            events.put_targets(Rule=f"bus-{number}", Targets=[{"Id": "bus", "Arn": arn}])
        url = queues.get_queue_url(QueueName=self.env["INTERRUPTION_QUEUE"])["QueueUrl"]
        written = self.folder / "router.yaml"
        bus = {
            "region": self.env["AWS_REGION"],
            "queues": BUS,
            "accounts": [{"id": account}],
            "destinations": [
                {"cluster": self.env["CLUSTER_NAME"], "account": account, "queueUrl": url},
                {"cluster": "removed", "account": account, "queueUrl": f"{url}-of-old"},
            ],
            "batch": {"bulk": {"window": "1s"}},
            "canary": {"every": "2s"},
        }
        written.write_text(yaml.safe_dump({"bus": bus}), encoding="utf-8")
        return written

    # The load

    def furnish(self) -> None:
        """A class, and a pool that is eager to save, has limits and may be disrupted freely."""
        for each in (ROOT / "deploy" / "crds" / "zonal").glob("*.yaml"):
            self.kubectl("apply", "--server-side", "-f", str(each))
        text = (ROOT / "examples" / "aws.yaml").read_text(encoding="utf-8")
        pool, made = yaml.safe_load_all(text.replace("my-cluster", self.env["CLUSTER_NAME"]))
        # A few families, for in full every offering that a pool could use is told of.
        family = {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": FAMILIES}
        pool["spec"]["template"]["spec"]["requirements"].append(family)
        pool["spec"]["disruption"] = {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}
        self.apply(made, pool)

    def deployment(self, name: str, replicas: int, cpu: str, **node: str) -> None:
        """Pods that do not share a node with their like."""
        marks = {"app": name}
        apart = [{"labelSelector": {"matchLabels": marks}, "topologyKey": "kubernetes.io/hostname"}]
        pod = {
            "nodeSelector": {f"karpenter.sh/{key.replace('_', '-')}": value for key, value in node.items()},
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}},
            "containers": [{"name": "main", "image": "app", "resources": {"requests": {"cpu": cpu}}}],
        }
        spec = {
            "replicas": replicas,
            "selector": {"matchLabels": marks},
            "template": {"metadata": {"labels": marks}, "spec": pod},
        }
        meta = {"name": name, "namespace": "default"}
        self.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec})

    def instances(self) -> list[tuple[str, str]]:
        """Instance and capacity type of every claim that has joined."""
        return [
            (each["status"]["providerID"].rpartition("/")[2], each["metadata"]["labels"][CAPACITY])
            for each in self.claims()
            if _joined(each) and "deletionTimestamp" not in each["metadata"]
        ]

    def spot(self) -> list[str]:
        return [instance for instance, capacity in self.instances() if capacity == "spot"]

    def reclaim_one(self) -> None:
        """EC2 takes a spot machine back, and says so twice; another comes in its place."""
        victim = self.spot()[0]
        self.happens("rebalance", victim)
        self.happens("reclaim", victim)
        self.until(lambda: victim not in self.spot() and len(self.spot()) == 2, "a reclaimed one's successor")

    def drift(self) -> None:
        before = {each["metadata"]["name"] for each in self.claims()}
        labelled = {"spec": {"template": {"metadata": {"labels": {"team": "another"}}}}}
        self.kubectl("patch", "nodepool", "default", "--type=merge", "-p", json.dumps(labelled))
        self.until(
            lambda: not before & {each["metadata"]["name"] for each in self.claims()}, "drifted nodes' end"
        )

    def shift(self) -> None:
        """The zone of some node is shifted away; the queue tells of it as well."""
        (node, *_) = json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"]
        zone = node["metadata"]["labels"]["topology.kubernetes.io/zone"]
        zones = self.aws("ec2").describe_availability_zones()["AvailabilityZones"]
        (away,) = (each["ZoneId"] for each in zones if each["ZoneName"] == zone)
        cluster = self.aws("eks").describe_cluster(name=self.env["CLUSTER_NAME"])["cluster"]["arn"]
        self.aws("arc-zonal-shift").start_zonal_shift(
            resourceIdentifier=cluster, awayFrom=away, expiresIn="1h", comment="for the dashboard"
        )
        self.until(lambda: "Active" in self.kubectl("get", "zoneshifts", "-o", PHASES), "an active shift")

    def noise(self) -> None:
        """What cannot be read, what nobody may send, and what is about nobody's instance."""
        said = {"version": "0", "account": self.account(), "region": self.env["AWS_REGION"], "resources": []}
        said["time"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        stranger = {"instance-id": "i-0123456789abcdef0", "state": "stopped", "instance-action": "terminate"}
        told = [
            ("bulk", "aws.ec2", "EC2 Instance State-change Notification"),
            ("bulk", "example.test", "EC2 Instance State-change Notification"),
            ("urgent", "aws.ec2", "EC2 Spot Instance Interruption Warning"),
        ]
        for queue, source, kind in told:
            message = {**said, "id": str(uuid4()), "source": source, "detail-type": kind, "detail": stranger}
            for _ in range(2):
                self.tell(BUS[queue], json.dumps(message))
        self.tell(BUS["bulk"], "not an event")

    def tell(self, queue: str, body: str) -> None:
        queues = self.aws("sqs")
        queues.send_message(QueueUrl=queues.get_queue_url(QueueName=queue)["QueueUrl"], MessageBody=body)

    def story(self) -> None:
        """Pods come, fit nowhere, go; machines come, are reclaimed, drift; a zone goes."""
        self.deployment("web", 2, "1", capacity_type="spot")
        self.deployment("shop", 1, "1", capacity_type="on-demand")
        self.deployment("batch", 1, "3", capacity_type="on-demand")
        self.deployment("giant", 1, "5000")
        self.until(lambda: len(self.instances()) >= 3, "nodes for the pods")
        self.noise()
        self.reclaim_one()
        self.reclaim_one()
        self.kubectl("delete", "deployment", "batch")
        self.until(lambda: len(self.instances()) == 3, "an empty node's end")
        self.drift()
        self.until(lambda: len(self.instances()) == 3, "nodes after a drift")
        self.noise()
        self.shift()


def _joined(claim: Json) -> bool:
    listed = claim.get("status", {}).get("conditions", ())
    return any(each["type"] == "Initialized" and each["status"] == "True" for each in listed)


@contextmanager
def _process(log: Path, env: dict[str, str], *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as said:
        running = subprocess.Popen(
            [sys.executable, "-m", "dovetail", *arguments],
            env={"PATH": os.environ["PATH"], "HOME": str(log.parent), **env},
            cwd=log.parent,
            stdout=said,
            stderr=said,
        )
    try:
        yield running
    finally:
        running.terminate()
        try:
            running.wait(30)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def _until_said(log: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + PATIENCE
    while text not in log.read_text(encoding="utf-8"):
        gone = process.poll() is not None or time.monotonic() > end
        assert not gone, log.read_text(encoding="utf-8")[-2000:]
        time.sleep(0.2)


@contextmanager
def loaded(folder: Path) -> Iterator[Loaded]:
    """The four processes; nothing has happened yet."""
    numbers, probes, router, router_probes, shadow = open_ports(5)
    with ExitStack() as stack:
        said, shell = folder / "up.log", folder / "shell.env"
        options = ("--no-controller", "--boot", "1", "--env", str(shell))
        _until_said(said, INVITATION, stack.enter_context(_process(said, {}, "up", *options)))
        env = dict(re.findall(r"^export (\w+)=(\S+)$", shell.read_text(encoding="utf-8"), re.MULTILINE))
        cluster = Loaded(folder, env, {"controller": numbers, "router": router, "shadow": shadow})
        cluster.furnish()
        config = cluster.prepare_bus()
        settings = {**env, **HURRY, "METRICS_PORT": str(numbers), "HEALTH_PROBE_PORT": str(probes)}
        acting = ("controller", "--provider", "aws")
        stack.enter_context(_process(folder / "controller.log", settings, *acting))
        ports = ("--metrics-port", str(router), "--health-port", str(router_probes))
        routing = ("interruption-router", "--config", str(config), *ports)
        log = folder / "router.log"
        _until_said(log, "the router is ready", stack.enter_context(_process(log, env, *routing)))
        watching = ("shadow", "--to", str(folder / "recording"), "--report", f"127.0.0.1:{shadow}")
        stack.enter_context(_process(folder / "shadow.log", env, *watching))
        yield cluster
