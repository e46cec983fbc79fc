"""A whole Dovetail beside a large, quiet cluster, in a process of its own and in virtual time.

Run as `python -m tests.bench.hold_cluster NODES PODS [FOLDER]`: prints what it holds, what idling takes, and
how long the decision for one new pod takes. With a folder, every feature that remembers or tells is on and
writes there: the decision log, notifications and a recording. The cluster is canned: objects are made when
they are listed and then forgotten, so that the memory is Dovetail's own.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[1]))

from dovetail.api import codec, labels
from dovetail.api.nodepool import NodePool, NodePoolStatus
from dovetail.app.controller import Dovetail
from dovetail.controllers.ordering import hash_annotations
from dovetail.runtime.transport import ApiReply, ApiRequest, Lines
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.snapshot import StateNode
from dovetail.settings import read_settings
from dovetail.sim.clock import VirtualClock, run_virtual
from support.builders import NOW, condition, requirement
from support.cloud import FakeCloud, bare
from support.disruption import pool, state
from support.peer_workloads import catalogue

from .workload import MARK, workload
from .workload import pod as pod_of

SETTLE_SECONDS = 660
IDLE_SECONDS = 600
LISTED = ("nodes", "nodeclaims", "nodepools")
SIZE = "m6a.2xlarge"
OLD = "2026-05-01T00:00:00Z"
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")


def _pool() -> NodePool:
    kinds = (labels.CAPACITY_TYPE, "on-demand"), (labels.INSTANCE_TYPE, SIZE)
    made = pool(requirements=[requirement(key, "In", value) for key, value in kinds])
    ready = tuple(condition(kind) for kind in ("Ready", "ValidationSucceeded"))
    about = replace(made.metadata, annotations=hash_annotations(made))
    return replace(made, metadata=about, status=NodePoolStatus(conditions=ready))


class Large:
    """Every object of the cluster, made when asked for."""

    def __init__(self, nodes: int, pods: int) -> None:
        self.nodes, self.pods = nodes, pods
        self.pool = _pool()
        self.of = next(each for each in catalogue() if each.name == SIZE)

    def state(self, number: int) -> StateNode:
        name = f"node-{number:05d}"
        made = state(name, of=self.of, zone=ZONES[number % 3])
        assert made.claim is not None
        about = replace(made.claim.metadata, annotations=hash_annotations(self.pool))
        known = made.claim.status
        sound = condition("ConsistentStateFound")
        status = replace(known, conditions=(*known.conditions, sound), last_pod_event_time=NOW)
        return replace(made, claim=replace(made.claim, metadata=about, status=status))

    def documents(self, plural: str) -> Iterator[bytes]:
        match plural:
            case "nodepools":
                yield codec.encode(self.pool)
            case "nodes" | "nodeclaims":
                for number in range(self.nodes):
                    made = self.state(number)
                    record = made.node if plural == "nodes" else made.claim
                    assert record is not None
                    yield codec.encode(record)
            case "pods":
                yield from self._pods()
            case "kwoknodeclasses":
                ready = {"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": OLD}
                about = {"name": "default", "uid": "class", "creationTimestamp": OLD, "generation": 1}
                yield msgspec.json.encode({"metadata": about, "status": {"conditions": [ready]}})
            case "namespaces":
                for number in range(40):
                    yield msgspec.json.encode({"metadata": {"name": f"team-{number}", "uid": f"ns-{number}"}})
            case _:
                return

    def _pods(self) -> Iterator[bytes]:
        chance = Random(1)
        kinds = [workload(chance, number) for number in range(2_000)]
        for each in kinds:
            # Twenty of them fill a node, so that there is nothing to consolidate.
            each |= {"cpu": "390m", "memory": "512Mi", "arch": False, "daemon": False, "kind": "ReplicaSet"}
        for number in range(self.pods):
            made = pod_of(chance, chance.choice(kinds), number)
            made["metadata"]["name"] = made["metadata"]["name"].replace(MARK, f"{number:06d}")
            made["metadata"]["uid"] = made["metadata"]["uid"].replace(MARK, f"{number:06d}")
            made["spec"]["nodeName"] = f"node-{number % self.nodes:05d}"
            yield msgspec.json.encode(made)


class Canned:
    """The API server of a world where nothing happens but what `tell` says, and what is written to it."""

    def __init__(self, large: Large) -> None:
        self.large = large
        self.writes: Counter[str] = Counter()
        self._open: dict[str, asyncio.Queue[bytes]] = {}
        self._written: dict[tuple[str, str], bytes] = {}
        self._lists: dict[str, bytes] = {}

    def _list(self, plural: str) -> bytes:
        """Made once and kept packed: what the server does is not what is measured."""
        if plural not in self._lists:
            every = b",".join(self.large.documents(plural))
            page = b'{"metadata":{"resourceVersion":"1"},"items":[%s]}' % every
            self._lists[plural] = zlib.compress(page, 1)
        return zlib.decompress(self._lists[plural])

    def tell(self, plural: str, document: dict[str, Any]) -> None:
        line = msgspec.json.encode({"type": "MODIFIED", "object": document})
        self._open[plural].put_nowait(line)

    def _patched(self, plural: str, name: str, patch: bytes) -> ApiReply:
        every = self.large.documents(plural)
        known = self._written.get((plural, name))
        if known is None:
            known = next(each for each in every if b'"name":"%s"' % name.encode() in each)
        document = _merged(msgspec.json.decode(known), msgspec.json.decode(patch))
        document["metadata"]["resourceVersion"] = str(
            int(document["metadata"].get("resourceVersion") or 1) + 1
        )
        self._written[plural, name] = msgspec.json.encode(document)
        self.tell(plural, document)
        return ApiReply(200, self._written[plural, name])

    async def send(self, request: ApiRequest) -> ApiReply:
        plural = request.path.rstrip("/").rsplit("/", 1)[-1]
        if request.method == "GET" and plural in LISTED:
            return ApiReply(200, self._list(plural))
        if request.method == "GET":
            return ApiReply(404, b'{"kind":"Status","code":404}')
        self.writes[f"{request.method} {request.path}"] += 1
        if request.method == "PATCH" and "/events/" not in request.path:
            plural, name = request.path.removesuffix("/status").split("/")[-2:]
            return self._patched(plural, name, request.body or b"{}")
        document = msgspec.json.decode(request.body or b"{}")
        document.setdefault("metadata", {}).update(uid=f"made-{plural}", resourceVersion="2")
        return ApiReply(201, msgspec.json.encode(document))

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[Lines]:
        plural = request.path.rsplit("/", 1)[-1]
        queue = self._open.setdefault(plural, asyncio.Queue())
        listing = "sendInitialEvents" in request.query
        yield _Stream(self.large.documents(plural) if listing else None, queue)

    async def close(self) -> None:
        """Nothing is held."""


class _Stream:
    status = 200
    headers: Mapping[str, str] = {}

    def __init__(self, documents: Iterator[bytes] | None, later: asyncio.Queue[bytes]) -> None:
        self._documents, self._later = documents, later

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        if self._documents is not None:
            for each in self._documents:
                yield [b'{"type":"ADDED","object":%s}' % each]
            yield [_mark("1")]
        while True:
            try:
                yield [await asyncio.wait_for(self._later.get(), 60)]
            except TimeoutError:
                yield [_bookmark("1")]

    async def read(self) -> bytes:
        return b"{}"


def _merged(document: Any, patch: Any) -> Any:
    """A JSON merge patch."""
    if not isinstance(patch, dict):
        return patch
    made = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = _merged(made.get(key), value)
    return made


def _mark(version: str) -> bytes:
    meta = {"resourceVersion": version, "annotations": {"k8s.io/initial-events-end": "true"}}
    return msgspec.json.encode({"type": "BOOKMARK", "object": {"metadata": meta}})


def _bookmark(version: str) -> bytes:
    return msgspec.json.encode({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}})


class Calm(FakeCloud):
    """A cloud whose catalogue is what it was the last time, as providers keep theirs."""

    async def list_instance_types(self, nodepool: NodePool) -> tuple[InstanceType, ...]:
        return self.types


def _list_features(folder: Path) -> dict[str, str]:
    """Settings that turn on whatever remembers or tells, into files of a folder."""
    notify = folder / "notify.yaml"
    sink = {"name": "file", "to": f"file:{folder / 'told'}", "digest": "5m"}
    document = {"apiVersion": "dovetail.sh/v1alpha1", "kind": "Notify", "sinks": [sink]}
    notify.write_bytes(msgspec.json.encode(document))
    return {
        "DECISION_LOG": f"file:{folder / 'decisions'}",
        "NOTIFY_FILE": str(notify),
        "RECORDING": f"file:{folder / 'recording'}",
        "METRICS_DETAIL": "full",
        "FEATURE_GATES": "NodeRepair=true,SpotToSpotConsolidation=true,NodeOverlay=true",
    }


async def story(nodes: int, pods: int, folder: Path | None) -> dict[str, Any]:
    clock, large = VirtualClock(NOW + timedelta(days=1)), Large(nodes, pods)
    cloud = Calm(clock, types=catalogue())
    cloud.flavour = labels.AWS
    server = Canned(large)
    features = _list_features(folder) if folder is not None else {}
    settings = read_settings((), features, provider="kwok")
    dovetail = Dovetail(settings, server, clock=clock, chance=Random(1), make=bare(cloud))
    for number in range(nodes):
        claim = large.state(number).claim
        assert claim is not None
        cloud.adopt(claim)
    empty = _now_resident()
    begun = time.process_time()
    running = asyncio.create_task(dovetail.run())
    while not dovetail.synced:
        await clock.sleep(1)
    filled = time.process_time() - begun
    # What the beginning brings on is over after a while; what is measured is an ordinary hour.
    await clock.sleep(SETTLE_SECONDS)
    settled = time.process_time() - begun - filled
    writes, begun = sum(server.writes.values()), time.process_time()
    await clock.sleep(IDLE_SECONDS)
    idle = time.process_time() - begun
    gc.collect()
    found = {
        "filling": filled,
        "settling": settled,
        "idle_share": idle / IDLE_SECONDS,
        "resident": _now_resident(),
        "peak": _peak(),
        "empty": empty,
        "places": len(dovetail.cluster),
        "pods": sum(len(place.pods) for place in dovetail.cluster),
        "writes": dict(Counter(w.rsplit("/", 1)[0] for w in server.writes.elements()).most_common(8)),
        "idle_writes": sum(server.writes.values()) - writes,
    }
    found["decision"] = await _decided(dovetail, server, clock)
    dovetail.stop()
    await running
    return found


async def _decided(dovetail: Dovetail, server: Canned, clock: VirtualClock) -> float:
    """Processor seconds from when the batch closes until the decision for one new pod is there."""
    chance = Random(2)
    made = pod_of(chance, workload(chance, 1), 1)
    made["metadata"]["name"] = "newcomer"
    made["metadata"]["uid"] = "newcomer"
    del made["spec"]["nodeName"]
    made["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
    }
    name = f"{made['metadata']['namespace']}/newcomer"
    server.tell("pods", made)
    await clock.sleep(0)
    # Nothing else happens in the second until the batch closes, so that what is counted is the decision.
    await clock.sleep(0.9)
    begun = time.process_time()
    while f"pod/{name}" not in dovetail.history.verdicts:
        await clock.sleep(0.01)
    return time.process_time() - begun


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    [kilobytes] = [line.split()[1] for line in lines if line.startswith(f"{field}:")]
    return int(kilobytes) * 1024


def _peak() -> int:
    return _status("VmHWM")


def _now_resident() -> int:
    return _status("VmRSS")


if __name__ == "__main__":
    place = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    print(json.dumps(run_virtual(story(int(sys.argv[1]), int(sys.argv[2]), place))))
