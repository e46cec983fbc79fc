"""Shadow Karpenter's own controller on a real control plane, and check what the shadow says.

    CLUSTER_BIN=DIR .venv/bin/python hack/shadow_beside_original.py [--minutes 32] [--folder DIR]

Karpenter's kwok provider, built from its Go module (hack/upstream-suite/build), buys and drains nodes for a
cluster whose workloads grow and shrink by a seed; `dovetail shadow` watches it under an account that may only
read. Afterwards: no write request of that account is in the API server's audit log, what the shadow says was
paid is what the timestamps of NodeClaims, watched by another program, come to at the prices that Karpenter
wrote on its nodes, and ten differences are printed to be looked at. Exit 1 when one of the two does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PRICE = "eks-node-viewer/instance-price"
WRITES = {"create", "update", "patch", "delete", "deletecollection"}
ACCOUNT = "system:serviceaccount:kube-system:shadow"
AUDIT = (
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"
)
Json = dict[str, Any]

POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: NAME}
spec:
  template:
    metadata: {labels: {team: NAME}}
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [CAPACITY]}
        - {key: kubernetes.io/arch, operator: In, values: [amd64]}
        - {key: kubernetes.io/os, operator: In, values: [linux]}
  disruption:
    consolidateAfter: 20s
    consolidationPolicy: WhenEmptyOrUnderutilized
    budgets: [{nodes: "25%"}]
---
"""
CLASS = "apiVersion: karpenter.kwok.sh/v1alpha1\nkind: KWOKNodeClass\nmetadata: {name: default}\n---\n"
WORKLOAD = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  replicas: 0
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      nodeSelector: {team: TEAM}
      terminationGracePeriodSeconds: 0
      containers:
        - {name: app, image: "registry.k8s.io/pause:3.10", resources: {requests: {cpu: CPU, memory: MEMORY}}}
---
"""
# Name, team, cpu, memory, and the most pods it grows to.
WORKLOADS = (
    ("web", "web", "900m", "1300Mi", 22),
    ("api", "web", "1700m", "2Gi", 12),
    ("cache", "web", "500m", "6Gi", 8),
    ("worker", "batch", "2300m", "3Gi", 14),
    ("report", "batch", "300m", "500Mi", 30),
)
ROLE = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: shadow, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: shadow}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: shadow}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: shadow}
subjects: [{kind: ServiceAccount, name: shadow, namespace: kube-system}]
"""


class OriginalCluster:
    """A real control plane with Karpenter's own controller, in a folder."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.kubeconfig = folder / "cluster" / "kubeconfig"
        self.binaries = Path(
            os.environ.get("CLUSTER_BIN") or Path.home() / ".cache/dovetail/upstream-suite/bin"
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        """The control plane, from up to down."""
        policy = self.folder / "audit.yaml"
        policy.write_text(AUDIT)
        env = os.environ | {
            "CLUSTER_BIN": str(self.binaries),
            "CLUSTER_PORT": str(self.port),
            "CLUSTER_NODES": "kwok-partition",
            "CLUSTER_STAGES": " ".join(map(str, sorted((self.binaries / "karpenter-stages").glob("*.yaml")))),
            "CLUSTER_MANIFESTS": str(self.binaries / "crds"),
            "CLUSTER_AUDIT": str(policy),
        }
        scripts = ROOT / "hack/real-cluster"
        subprocess.run(
            [scripts / "up", self.folder / "cluster"], env=env, check=True, stdout=subprocess.DEVNULL
        )
        try:
            yield
        finally:
            subprocess.run([scripts / "down", self.folder / "cluster"], env=env, check=False)

    def kubectl(self, *arguments: str, given: str = "") -> str:
        command = [self.binaries / "kubectl", "--kubeconfig", self.kubeconfig, *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"kubectl {shlex.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def write_reader(self) -> Path:
        """A kubeconfig of the account that may only read."""
        self.kubectl("apply", "-f", "-", given=ROLE)
        token = self.kubectl("create", "token", "shadow", "-n", "kube-system", "--duration=8h").strip()
        config = json.loads(self.kubectl("config", "view", "--raw", "-o", "json"))
        config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
        path = self.folder / "reader.kubeconfig"
        path.write_text(json.dumps(config))
        path.chmod(0o600)
        return path

    @contextmanager
    def controlled(self) -> Iterator[None]:
        """Karpenter's controller, from start to end."""
        settings = {
            "KUBECONFIG": str(self.kubeconfig),
            "DISABLE_LEADER_ELECTION": "true",
            "SYSTEM_NAMESPACE": "kube-system",
            "METRICS_PORT": str(self.port + 4),
            "HEALTH_PROBE_PORT": str(self.port + 5),
            "LOG_LEVEL": "info",
        }
        with child([str(self.binaries / "karpenter-reference")], self.folder / "karpenter.log", settings):
            yield


@contextmanager
def child(command: list[str], log: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours with its output in a file; it is told to end, and waited for."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | env)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class ClaimWatch:
    """What another program sees of NodeClaims: when each was launched and gone, and its price by its node."""

    def __init__(self, cluster: OriginalCluster) -> None:
        self._cluster = cluster
        self.claims: dict[str, Json] = {}
        self.gone: dict[str, datetime] = {}
        self.prices: dict[str, float] = {}
        self._processes: list[subprocess.Popen[str]] = []

    def start(self) -> None:
        for kind, heard in (("nodeclaims", self._hear_claim), ("nodes", self._hear_node)):
            command = [
                *(self._cluster.binaries / "kubectl", "--kubeconfig", self._cluster.kubeconfig),
                *("get", kind, "--watch", "--output-watch-events", "-o", "json"),
            ]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            self._processes.append(process)
            threading.Thread(target=self._follow, args=(process, heard), daemon=True).start()

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
            process.wait()

    def _follow(self, process: subprocess.Popen[str], heard: Any) -> None:
        assert process.stdout is not None
        decoder, rest = json.JSONDecoder(), ""
        for line in process.stdout:
            rest += line
            try:
                event, end = decoder.raw_decode(rest)
            except ValueError:
                continue  # more of it is to come
            rest = rest[end:].lstrip()
            heard(event["type"], event["object"], datetime.now(UTC))

    def _hear_claim(self, kind: str, claim: Json, now: datetime) -> None:
        uid = claim["metadata"]["uid"]
        self.claims[uid] = claim
        if kind == "DELETED":
            self.gone[uid] = now

    def _hear_node(self, kind: str, node: Json, now: datetime) -> None:
        price = node["metadata"].get("labels", {}).get(PRICE)
        if price:
            self.prices[node["spec"].get("providerID", "")] = float(price)

    def sum_paid(self, since: datetime, until: datetime) -> tuple[float, float, int]:
        """Dollars, hours and how many nodes, between two times."""
        dollars = hours = 0.0
        counted = 0
        for uid, claim in self.claims.items():
            launched = read_condition(claim, "Launched")
            if launched is None:
                continue
            ends = [
                each for each in (self.gone.get(uid), read_condition(claim, "InstanceTerminating")) if each
            ]
            length = (min([*ends, until]) - max(launched, since)).total_seconds() / 3600
            if length > 0:
                counted += 1
                hours += length
                dollars += length * self.prices.get(claim["status"].get("providerID", ""), 0.0)
        return dollars, hours, counted


def read_condition(obj: Json, kind: str) -> datetime | None:
    """Since when a condition holds; None while it does not."""
    for each in obj.get("status", {}).get("conditions", ()):
        if each["type"] == kind and each["status"] == "True":
            return datetime.fromisoformat(each["lastTransitionTime"])
    return None


def churn(cluster: OriginalCluster, seconds: float, chance: random.Random) -> None:
    """Let workloads grow and shrink until the time is over."""
    ends = time.monotonic() + seconds
    now: dict[str, int] = {}
    while time.monotonic() < ends:
        name, _, _, _, most = chance.choice(WORKLOADS)
        sizes = (1, most // 4, most // 2, most, chance.randrange(most + 1))
        replicas = now[name] = chance.choice([each for each in sizes if each != now.get(name)])
        cluster.kubectl("scale", "deployment", name, f"--replicas={replicas}")
        time.sleep(min(chance.uniform(5, 35), max(0.0, ends - time.monotonic())))


def count_requests(cluster: OriginalCluster) -> Counter[tuple[str, str]]:
    """What the account of the shadow asked for, by verb, and every write of it by its address."""
    found: Counter[tuple[str, str]] = Counter()
    with (cluster.folder / "cluster/logs/audit.log").open(encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            if event.get("user", {}).get("username") == ACCOUNT:
                verb = event["verb"]
                found[verb, event["requestURI"] if verb in WRITES else ""] += 1
    return found


def main() -> int:
    about = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    about.add_argument("--minutes", type=float, default=32.0)
    about.add_argument("--folder", type=Path, default=None)
    about.add_argument("--port", type=int, default=27300)
    about.add_argument("--seed", type=int, default=1)
    about.add_argument("--record", action="store_true", help="only record, with `dovetail record`")
    asked = about.parse_args()
    folder = (asked.folder or Path(tempfile.mkdtemp(prefix="shadow-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    cluster = OriginalCluster(folder, asked.port)
    watch = ClaimWatch(cluster)
    recording = folder / "recording"
    dovetail = str(ROOT / ".venv/bin/dovetail")
    command = [dovetail, "record"] if asked.record else [dovetail, "shadow", "--report", f":{asked.port + 6}"]
    with cluster.running():
        reader = cluster.write_reader()
        cluster.kubectl(
            "apply",
            "-f",
            "-",
            given=CLASS
            + POOL.replace("NAME", "web").replace("CAPACITY", "on-demand")
            + POOL.replace("NAME", "batch").replace("CAPACITY", "spot"),
        )
        for name, team, cpu, memory, _ in WORKLOADS:
            made = WORKLOAD.replace("NAME", name).replace("TEAM", team).replace("CPU", cpu)
            cluster.kubectl("apply", "-f", "-", given=made.replace("MEMORY", memory))
        watch.start()
        with cluster.controlled():
            arguments = [*command, "--to", str(recording), "--kubeconfig", str(reader), "--provider", "kwok"]
            with child(arguments, folder / "shadow.log", {}):
                time.sleep(20)
                churn(cluster, asked.minutes * 60, random.Random(asked.seed))
        watch.stop()
        requests = count_requests(cluster)
    (folder / "claims.json").write_text(
        json.dumps(
            {
                "claims": watch.claims,
                "prices": watch.prices,
                "gone": {uid: time.isoformat() for uid, time in watch.gone.items()},
            }
        )
    )
    print(
        f"the shadow asked {sum(requests.values())} times:",
        dict(Counter({v: n for (v, _), n in requests.items()})),
    )
    wrote = [address for (verb, address), _ in requests.items() if verb in WRITES]
    print("writes of the shadow in the audit log:", wrote or "none")
    return judge(watch, recording, folder, bool(wrote))


def judge(watch: ClaimWatch, recording: Path, folder: Path, wrote: bool) -> int:
    """Compare what was paid, and print ten differences."""
    dovetail = str(ROOT / ".venv/bin/dovetail")
    said = subprocess.run(
        [dovetail, "shadow", "report", str(recording), "-o", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    (folder / "report.json").write_text(said.stdout)
    if said.returncode:
        print(said.stderr)
        return 1
    report = json.loads(said.stdout)
    since, until = (datetime.fromisoformat(report["paid"][name]) for name in ("since", "until"))
    dollars, hours, counted = watch.sum_paid(since, until)
    paid = report["paid"]["dollars"]
    print(
        f"what was paid: the shadow says ${paid:.4f}; NodeClaims' timestamps come to ${dollars:.4f} "
        f"({counted} nodes, {hours:.4f} hours; the shadow has {report['paid']['nodeHours']:.4f})"
    )
    equal = abs(paid - dollars) < 0.01
    print("equal to the cent" if equal else "NOT equal to the cent")
    for each in sorted(report["differences"], key=lambda one: -abs(one["dollars"]))[:10]:
        print(json.dumps(each, indent=1))
    return 0 if equal and not wrote else 1


if __name__ == "__main__":
    sys.exit(main())
