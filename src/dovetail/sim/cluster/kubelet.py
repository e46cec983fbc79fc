"""The kubelets of all simulated nodes: nodes become ready, pods start, stop and run to their ends.

Which nodes are simulated, and how slow they are, is said by labels and annotations on the objects
themselves, so that a test or a person can change it with kubectl:

    kwok.x-k8s.io/node: fake                   (node)  this node has a simulated kubelet
    sim.dovetail.dev/ready-after: 5s           (node)  stays NotReady that long after it appears
    sim.dovetail.dev/heartbeat: stopped        (node)  the kubelet falls silent: no lease, no pod moves
    sim.dovetail.dev/start-after: 2s           (pod)   starts that long after it is bound
    sim.dovetail.dev/run-for: 30s              (pod)   runs that long, then succeeds
    sim.dovetail.dev/fails: "true"             (pod)   ends as Failed instead
    sim.dovetail.dev/never-ready: "true"       (pod)   runs and never becomes Ready
    sim.dovetail.dev/stop-after: 40s           (pod)   takes that long to stop, up to its grace period

Pods of Jobs run for a while and succeed, unless they say otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dovetail.settings.durations import parse_duration as parse_duration
from dovetail.sim.cluster.base import CommitHandler, Json, Key, SimController, SimControllerManager
from dovetail.sim.cluster.kubelet_status import (
    build_ended_status,
    build_node_status,
    build_recovered_status,
    build_running_status,
)
from dovetail.sim.cluster.objects import controller_of, has_pod_ended, is_deleting, key_of, parse_time
from dovetail.sim.kube.meta import find_condition
from dovetail.sim.kube.status import ApiError

__all__ = ["Kubelet", "KubeletOptions"]

PREFIX = "sim.dovetail.dev/"
READY_AFTER, HEARTBEAT = PREFIX + "ready-after", PREFIX + "heartbeat"
START_AFTER, RUN_FOR, FAILS = PREFIX + "start-after", PREFIX + "run-for", PREFIX + "fails"
NEVER_READY, STOP_AFTER = PREFIX + "never-ready", PREFIX + "stop-after"
SIMULATED = "kwok.x-k8s.io/node"
LEASES, CSI_NODES = "leases.coordination.k8s.io", "csinodes.storage.k8s.io"
LEASE_NAMESPACE = "kube-node-lease"
ZONE = "topology.kubernetes.io/zone"
SOON = 1e-9


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    """How long things take on a simulated node unless an annotation says otherwise, in seconds; and how
    many volumes of each CSI driver a node takes."""

    node_ready: float = 1.0
    pod_start: float = 1.0
    pod_stop: float = 1.0
    job_run: float = 10.0
    heartbeat: float = 10.0
    csi_limits: Mapping[str, int] = field(default_factory=lambda: {"ebs.csi.aws.com": 26})


class Kubelet(SimController):
    """All simulated kubelets at once. Keys: ("", node), and (namespace, pod)."""

    name = "kubelet"

    def __init__(self, manager: SimControllerManager, options: KubeletOptions | None = None) -> None:
        super().__init__(manager)
        self.options = options or KubeletOptions()
        self._ours: set[str] = set()
        self._silent: set[str] = set()
        self._first_seen: dict[str, float] = {}
        # Nodes whose status says all there is to say, as they were then.
        self._told: dict[str, Json] = {}
        self._bound_at: dict[str, float] = {}
        self._stopping_at: dict[str, float] = {}

    def list_handlers(self) -> Mapping[str, CommitHandler]:
        return {"nodes": self._handle_node, "pods": self._handle_pod}

    # Nodes

    def _handle_node(self, before: Json | None, after: Json | None) -> None:
        if after is None:
            name = before["metadata"]["name"] if before else ""
            self._ours.discard(name)
            self._silent.discard(name)
            self._first_seen.pop(name, None)
            self._told.pop(name, None)
            return
        name, notes = after["metadata"]["name"], after["metadata"].get("annotations") or {}
        new = name not in self._ours and _is_simulated(after)
        if new:
            self._ours.add(name)
            # One that has a lease was up before this process began: it does not start again.
            known = self.find_object(LEASES, (LEASE_NAMESPACE, name)) is not None
            self._first_seen[name] = float("-inf") if known else self.clock.monotonic()
        silent = notes.get(HEARTBEAT) == "stopped"
        woke = not silent and name in self._silent
        if silent:
            self._silent.add(name)
        else:
            self._silent.discard(name)
        if new or (woke and name in self._ours):
            self.enqueue(("", name))
            for pod in self.list_pods_on_node(name):
                self.enqueue(key_of(pod))

    def mark_started(self, name: str) -> None:
        """This node does not start: it was up before anybody looked."""
        self._first_seen[name] = float("-inf")

    def reconcile(self, key: Key) -> None:
        if key[0]:
            self._reconcile_pod(key)
        else:
            self._reconcile_node(key[1])

    def _reconcile_node(self, name: str) -> None:
        node = self.find_object("nodes", ("", name))
        if node is None or name not in self._ours or name in self._silent:
            return
        self._renew_lease(node)
        if self._told.get(name) is node:
            # It is as its kubelet left it, up and well: there is nothing new to say.
            self.enqueue(("", name), self.options.heartbeat)
            return
        wait = _parse_seconds(
            (node["metadata"].get("annotations") or {}).get(READY_AFTER), self.options.node_ready
        )
        left = self._first_seen[name] + wait - self.clock.monotonic()
        status = build_node_status(node, self.format_now(), is_ready=left <= SOON)
        if status is not None:
            self.api.report_status("nodes", node, status)
        elif left <= SOON:
            self._told[name] = node
        self.enqueue(("", name), min(left, self.options.heartbeat) if left > SOON else self.options.heartbeat)

    def _renew_lease(self, node: Json) -> None:
        name, now = node["metadata"]["name"], self.manager.format_micro_now()
        lease = self.find_object(LEASES, (LEASE_NAMESPACE, name))
        if lease is not None:
            spec = {**lease["spec"], "holderIdentity": name, "renewTime": now}
            self.api.amend(LEASES, (LEASE_NAMESPACE, name), spec=spec)
            return
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now}
        meta = {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}
        self.api.create(LEASES, {"metadata": meta, "spec": spec}, LEASE_NAMESPACE)
        self._register_drivers(node, owner)

    def _register_drivers(self, node: Json, owner: Json) -> None:
        name = node["metadata"]["name"]
        if self.find_object(CSI_NODES, ("", name)) is None and self.options.csi_limits:
            drivers = [
                {"name": driver, "nodeID": name, "topologyKeys": [ZONE], "allocatable": {"count": count}}
                for driver, count in sorted(self.options.csi_limits.items())
            ]
            meta = {"name": name, "ownerReferences": [owner]}
            self.api.create(CSI_NODES, {"metadata": meta, "spec": {"drivers": drivers}})

    # Pods

    def _handle_pod(self, before: Json | None, after: Json | None) -> None:
        pod = after or before
        assert pod is not None
        if pod["spec"].get("nodeName") not in self._ours:
            return
        if after is None:
            uid = pod["metadata"]["uid"]
            self._bound_at.pop(uid, None)
            self._stopping_at.pop(uid, None)
            return
        phase = (after.get("status") or {}).get("phase", "Pending")
        if phase == "Pending" or before is None or is_deleting(after):
            self.enqueue(key_of(after))

    def _reconcile_pod(self, key: Key) -> None:
        pod = self.find_object("pods", key)
        if pod is None:
            return
        node = pod["spec"].get("nodeName")
        if node not in self._ours or node in self._silent:
            return
        if is_deleting(pod):
            self._stop_pod(pod)
        elif (pod.get("status") or {}).get("phase", "Pending") == "Pending":
            self._start_pod(pod)
        elif not has_pod_ended(pod):
            self._keep_running(pod)

    def _start_pod(self, pod: Json) -> None:
        notes, uid = pod["metadata"].get("annotations") or {}, pod["metadata"]["uid"]
        bound = self._bound_at.setdefault(uid, self.clock.monotonic())
        left = bound + _parse_seconds(notes.get(START_AFTER), self.options.pod_start) - self.clock.monotonic()
        if left > SOON:
            self.enqueue(key_of(pod), left)
            return
        is_ready = notes.get(NEVER_READY) != "true"
        self.api.report_status("pods", pod, build_running_status(pod, self.format_now(), is_ready=is_ready))
        runs = self._find_run_seconds(pod)
        if runs is not None:
            self.enqueue(key_of(pod), runs)

    def _find_run_seconds(self, pod: Json) -> float | None:
        """Seconds until the pod is through; None if it runs for good."""
        text = (pod["metadata"].get("annotations") or {}).get(RUN_FOR)
        owner = controller_of(pod)
        of_job = owner is not None and owner["kind"] == "Job"
        if not text and not of_job:
            return None
        return _parse_seconds(text, self.options.job_run)

    def _keep_running(self, pod: Json) -> None:
        notes, runs = pod["metadata"].get("annotations") or {}, self._find_run_seconds(pod)
        if runs is not None:
            left = runs - (self.clock.now() - parse_time(pod["status"]["startTime"])).total_seconds()
            if left <= SOON:
                phase = "Failed" if notes.get(FAILS) == "true" else "Succeeded"
                self.api.report_status("pods", pod, build_ended_status(pod, phase, self.format_now()))
                return
            self.enqueue(key_of(pod), left)
        lost = find_condition(pod, "Ready") or {}
        if lost.get("reason") == "NodeNotReady" and notes.get(NEVER_READY) != "true":
            self.api.report_status("pods", pod, build_recovered_status(pod, self.format_now()))

    def _stop_pod(self, pod: Json) -> None:
        meta = pod["metadata"]
        started = self._stopping_at.setdefault(meta["uid"], self.clock.monotonic())
        takes = _parse_seconds((meta.get("annotations") or {}).get(STOP_AFTER), self.options.pod_stop)
        left = started + min(takes, meta.get("deletionGracePeriodSeconds") or 0) - self.clock.monotonic()
        if left > SOON:
            self.enqueue(key_of(pod), left)
            return
        # Whoever holds a finalizer sees how the pod ended; all others see it go.
        if meta.get("finalizers") and not has_pod_ended(pod):
            self.api.report_status("pods", pod, build_ended_status(pod, "Failed", self.format_now()))
        if meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds"):
            return
        try:
            self.api.delete("pods", meta["name"], meta["namespace"], grace_seconds=0, uid=meta["uid"])
        except ApiError as error:
            if error.code not in (404, 409):
                raise


def _is_simulated(node: Json) -> bool:
    meta = node["metadata"]
    said = (meta.get("labels") or {}).get(SIMULATED) or (meta.get("annotations") or {}).get(SIMULATED)
    return bool(said == "fake")


def _parse_seconds(text: str | None, default: float) -> float:
    if not text:
        return default
    try:
        return parse_duration(text).total_seconds()
    except ValueError:
        return default
