"""One control plane that `up` started, and the controller under test with what it uses."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

from upstream_specs import binaries

HERE = Path(__file__).resolve().parent
TICK = os.sysconf("SC_CLK_TCK")
READY_SECONDS = 120
GATES = "NodeRepair=true,CapacityBuffer=true,StaticCapacity=true"  # upstream's own e2e settings
OF_THE_CLUSTER = (
    "validatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "nodepools",
    "nodeclaims",
    "kwoknodeclasses",
    "nodeoverlays",
)
OF_THE_NAMESPACE = (
    "deployments",
    "daemonsets",
    "capacitybuffers",
    "podtemplates",
    "poddisruptionbudgets",
    "limitranges",
    "persistentvolumeclaims",
    "pods",
)
FINALIZED = ("nodepools", "nodeclaims", "kwoknodeclasses", "nodes", "pods")


class SuiteFailed(RuntimeError):
    """The suite itself could not go on; the message says what to do."""


class UpstreamCluster:
    """A control plane of its own, in a folder of its own."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder.resolve(), port
        self.kubeconfig = self.folder / "kubeconfig"

    def start(self) -> None:
        self._call("up")

    def stop(self) -> None:
        self._call("down")

    def _call(self, script: str) -> None:
        env = {**os.environ, "UPSTREAM_PORT": str(self.port)}
        done = subprocess.run(
            [HERE / script, self.folder], env=env, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SuiteFailed(done.stderr.strip() or f"{script} {self.folder} ended with {done.returncode}")

    def kubectl(self, *arguments: str) -> str:
        command = [binaries() / "kubectl", "--kubeconfig", self.kubeconfig, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def scrub(self) -> None:
        """Leave nothing of a failed spec behind, whatever finalizers the controller left."""
        for kind in OF_THE_CLUSTER:
            self.kubectl("delete", kind, "--all", "--wait=false", "--ignore-not-found")
        for kind in OF_THE_NAMESPACE:
            self.kubectl(
                "delete", kind, "--all", "-n", "default", "--wait=false", "--grace-period=0", "--force"
            )
        for kind in ("priorityclasses", "storageclasses", "persistentvolumes"):
            self.kubectl("delete", kind, "-l", "testing/cluster", "--wait=false")
        self.kubectl("delete", "nodes", "--all", "--wait=false")
        time.sleep(5)
        for kind in FINALIZED:
            for name in self.kubectl("get", kind, "-n", "default", "-o", "name").split():
                free = '{"metadata":{"finalizers":null}}'
                self.kubectl("patch", name, "-n", "default", "--type=merge", "-p", free)
        self.kubectl("delete", "pods", "--all", "-n", "default", "--grace-period=0", "--force")


class ControllerUnderTest:
    """A command run as a child with Karpenter's settings in its environment."""

    def __init__(self, cluster: UpstreamCluster, command: str, log: Path, gates: str = GATES) -> None:
        self.cluster, self.command, self.log, self.gates = cluster, command, log, gates
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Run it and wait until it answers /readyz."""
        health = self.cluster.port + 5
        settings = {
            "KUBECONFIG": str(self.cluster.kubeconfig),
            "FEATURE_GATES": self.gates,
            "LOG_LEVEL": "info",
            "DISABLE_LEADER_ELECTION": "true",
            "LEADER_ELECTION_NAMESPACE": "kube-system",
            "SYSTEM_NAMESPACE": "kube-system",
            "METRICS_PORT": str(self.cluster.port + 4),
            "HEALTH_PROBE_PORT": str(health),
        }
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                shlex.split(self.command),
                stdout=output,
                stderr=output,
                env=os.environ | settings,
                start_new_session=True,
            )
        began = time.monotonic()
        while time.monotonic() - began < READY_SECONDS:
            if not self.alive:
                raise SuiteFailed(f"the controller ended with {self.process.returncode}; see {self.log}")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{health}/readyz", timeout=2):
                    return
            except OSError:
                time.sleep(0.1)
        raise SuiteFailed(f"the controller is not ready after {READY_SECONDS} seconds; see {self.log}")

    def stop(self) -> None:
        if self.process is None or not self.alive:
            return
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def members(self) -> list[int]:
        """The process and everything it forked: all that share its session."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and self.process is not None:
                fields = _stat(int(entry.name))
                if fields and int(fields[3]) == self.process.pid:
                    found.append(int(entry.name))
        return found

    def cpu_seconds(self) -> float:
        """Own and reaped children's, user and system, of every member."""
        return sum(sum(map(int, _stat(pid)[11:15])) for pid in self.members()) / TICK

    def reset_peak(self) -> None:
        for pid in self.members():
            try:
                Path(f"/proc/{pid}/clear_refs").write_text("5")
            except OSError:
                continue  # it has just ended

    def peak_mb(self) -> float:
        """The highest resident memory since the last reset, added up over the members."""
        total = 0
        for pid in self.members():
            try:
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            except OSError:
                continue  # it has just ended
            total += sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
        return total / 1024


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name; none when it has just ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []
