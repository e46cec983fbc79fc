"""Every field of every kind we read, found by looking at the records, and values nobody should put there."""

from __future__ import annotations

import copy
import json
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec

from dovetail.api import codec, core
from dovetail.api.meta import Object, Record
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.scheduling.snapshot import Options, Snapshot
from dovetail.sim.clock import VirtualClock
from dovetail.state import Capture, Cluster, Shelves
from support.builders import NOW, daemonset, nodepool, owner, pod
from support.disruption import SIZES, pdb, pool, state
from support.disruption import machine as machine_type
from support.worlds import FLAVOUR

Json = dict[str, Any]
Path = tuple[str | int, ...]

LONG = "9" * 5_000
VALUES: tuple[Any, ...] = (
    LONG,
    "-" + LONG,
    "1e400",
    "-1e400",
    "1e30",
    "-1",
    "NaN",
    "Infinity",
    "",
    " ",
    "x" * 100_000,
    "\ud800",
    "\u202e\u0000\x1b[31m",
    "٣",
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59-14:00",
    "0001-01-01T00:00:00+14:00",
    "2562047h47m16.854775807s",
    "100000000000%",
    "@every 292y",
    "In",
    "Gt",
    0,
    -1,
    2**31,
    2**63 - 1,
    -(2**63),
    10**400,
    1e308,
    True,
    False,
    [],
    {},
    [[[[[[[[[[[[]]]]]]]]]]]],
    {"a": {"a": {"a": {"a": {}}}}},
    ["x"] * 2_000,
    {str(i): str(i) for i in range(2_000)},
)
"""Absurd for one type of field or the other; each is put into all of them."""


def fields_of(kind: type[Record], depth: int = 0) -> Iterator[Path]:
    """The path to every field of a record, those of records inside it too, as the wire spells it."""
    for each in msgspec.structs.fields(kind):
        for path in _paths(each.type, depth + 1):
            yield (each.encode_name, *path)


def _paths(hint: Any, depth: int) -> Iterator[Path]:
    yield ()
    if depth > 12:
        return
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and issubclass(hint, Record):
        yield from fields_of(hint, depth)
    elif origin in (types.UnionType, typing.Union):
        for each in inner:
            yield from (path for path in _paths(each, depth) if path)
    elif origin is tuple:
        yield from ((0, *path) for path in _paths(inner[0], depth + 1))
    elif origin is Mapping:
        yield from (("example.com/key", *path) for path in _paths(inner[1], depth + 1))


def spoil(document: Json, path: Path, value: Any) -> Json:
    """The document with this value at this place; what leads there is made if it is missing."""
    spoiled = copy.deepcopy(document)
    at: Any = spoiled
    for step, following in pairwise(path):
        at = _step(at, step, [] if isinstance(following, int) else {})
    _set(at, path[-1], value)
    return spoiled


def _step(at: Any, step: str | int, empty: Any) -> Any:
    known = at[step] if isinstance(step, int) and len(at) > step else None
    known = at.get(step) if isinstance(step, str) else known
    if not isinstance(known, type(empty)):
        _set(at, step, known := empty)
    return known


def _set(at: Any, step: str | int, value: Any) -> None:
    if isinstance(step, int) and len(at) <= step:
        at.append(value)
    else:
        at[step] = value


def on_the_wire(path: Path, kind: type[Object]) -> Path:
    """Where a field is in a document; a pod's node is named in its spec."""
    return ("spec", "nodeName") if kind is Pod and path == ("nodeName",) else path


@dataclass
class Shelved:
    """The objects of a kind, as an informer keeps them."""

    objects: list[Any] = field(default_factory=list)
    revision: int = 1

    def __iter__(self) -> Iterator[Any]:
        return iter(self.objects)


RS = owner("ReplicaSet")
TINY = machine_type("tiny", 0.2, 0.1)
MINE = {"victim": "true"}
"""What bad items carry, so that they have to do with nobody else unless a bad value makes them."""


def others() -> list[Object]:
    """A cluster in which there is something to do: pods wait, nodes are empty, drifted or too large."""
    states = [
        state("idle", pool="plain"),
        state("drifted", pod("d", cpu="1", owned_by=RS), pool="plain", drifted=NOW),
        state("roomy", pod("r", cpu="500m", owned_by=RS), pool="plain"),
        state("held", pod("h", labels={"app": "web"}, owned_by=RS), pool="plain"),
    ]
    spread = [pod(f"waiting-{i}", cpu="9", labels={"app": "waiting"}) for i in range(6)]
    found: list[Object] = [pool("plain"), pool("spare", weight=1), pdb("web"), daemonset("logs"), *spread]
    for each in states:
        found += [one for one in (each.node, each.claim, *each.pods) if one is not None]
    return found


def victims() -> dict[type[Object], Object]:
    """One object of each kind, sound and of no concern to the others."""
    mine = pod("v-waiting", namespace="victim", node_selector=MINE, labels=MINE)
    # Too small for anybody else, whatever becomes of its labels and taints.
    machine = state("v-node", pool="victims", labels=MINE, of=TINY)
    assert machine.node is not None
    assert machine.claim is not None
    kinds = {each.KIND.kind: each for each in _plain_kinds()}
    found: dict[type[Object], Object] = {
        Pod: mine,
        core.Node: machine.node,
        NodeClaim: machine.claim,
        NodePool: nodepool("victims", labels=MINE),
        core.DaemonSet: daemonset("v-daemon", namespace="victim", node_selector=MINE),
        core.PodDisruptionBudget: pdb("v-pdb", namespace="victim"),
    }
    return found | {type(each): each for each in kinds.values() if type(each) not in found}


def _plain_kinds() -> Iterator[Object]:
    for name in core.__all__:
        kind = getattr(core, name)
        if isinstance(kind, type) and issubclass(kind, Object):
            namespace = "victim" if kind.KIND.namespaced else ""
            document = {"metadata": {"name": "v-object", "namespace": namespace, "uid": "v-object"}}
            yield codec.convert(kind, document)


def read_all(documents: Mapping[type[Object], Iterable[Json]]) -> dict[type[Object], list[Any]]:
    """Documents as lists of the API server bring them."""
    return {
        kind: codec.decode_list(kind, json.dumps({"metadata": {}, "items": list(listed)}).encode()).items
        for kind, listed in documents.items()
    }


def snapshot_of(objects: Mapping[type[Object], list[Any]]) -> Snapshot:
    """The world the controllers would see, through the same state."""
    cluster = Cluster(VirtualClock())
    for each in objects.get(core.CSINode, ()):
        cluster.csi_node_changed(None, each)
    for each in objects.get(core.Node, ()):
        cluster.node_changed(None, each)
    for each in objects.get(NodeClaim, ()):
        cluster.claim_changed(None, each)
    for each in objects.get(Pod, ()):
        cluster.pod_changed(None, each)

    def shelf(kind: type[Object]) -> Shelved:
        return Shelved(list(objects.get(kind, ())))

    shelves = Shelves(
        daemonsets=shelf(core.DaemonSet),
        limit_ranges=shelf(core.LimitRange),
        namespaces=shelf(core.Namespace),
        claims=shelf(core.PersistentVolumeClaim),
        volumes=shelf(core.PersistentVolume),
        classes=shelf(core.StorageClass),
        budgets=shelf(core.PodDisruptionBudget),
        services=shelf(core.Service),
        replicasets=shelf(core.ReplicaSet),
        statefulsets=shelf(core.StatefulSet),
    )
    offers = [(each, SIZES) for each in objects.get(NodePool, ())]
    options = Options(now=NOW, flavour=FLAVOUR, reservation_label="fake.com/reservation-id")
    return Capture(cluster, shelves).snapshot(offers, options)
