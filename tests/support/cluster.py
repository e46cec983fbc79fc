"""A simulated cluster in virtual time, and short ways to write the manifests that live in it."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ParamSpec

from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.cluster.controllers import SimClusterOptions
from dovetail.sim.kube.faults import ApiFaults
from dovetail.sim.world import World

Json = dict[str, Any]
P = ParamSpec("P")
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test where waiting costs nothing."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtual(test(*args, **kwargs))

    return run


@asynccontextmanager
async def cluster(
    nodes: int = 0,
    *,
    seed: int = 0,
    faults: ApiFaults | None = None,
    options: SimClusterOptions | None = None,
    bad_items: bool = False,
    **size: str,
) -> AsyncIterator[World]:
    """A world at work with this many nodes, a, b, c… in zones 1, 2, 3, 1…, all of them ready.

    An object that a neighbour could not cope with is a fault of ours, unless the test brings `bad_items`.
    """
    world = World(VirtualClock(), seed, faults=faults, options=options)
    async with world.running():
        for number in range(nodes):
            world.add_node("abcdefghij"[number], {ZONE: f"zone-{number % 3 + 1}"}, **size)
        if nodes:
            await world.settle(3)
        yield world
    assert not world.manager.set_aside or bad_items, world.manager.set_aside


def container(**requests: str) -> Json:
    return {"name": "main", "image": "example.com/app:1", "resources": {"requests": requests}}


def template(labels: dict[str, str], annotations: dict[str, str] | None = None, **spec: Any) -> Json:
    requests = spec.pop("requests", {})
    body = {"containers": [container(**requests)], **spec}
    return {"metadata": {"labels": labels, "annotations": annotations or {}}, "spec": body}


def pod(name: str, requests: dict[str, str] | None = None, **parts: Any) -> Json:
    """A pod; labels, annotations and namespace go to its metadata, everything else to its spec."""
    meta = {
        key: parts.pop(key) for key in ("labels", "annotations", "namespace", "finalizers") if key in parts
    }
    spec = {"containers": [container(**(requests or {}))], **parts}
    return {"metadata": {"name": name, "namespace": "default", **meta}, "spec": spec}


def workload(name: str, replicas: int | None = 1, **spec: Any) -> Json:
    """The body of a Deployment, ReplicaSet, StatefulSet or DaemonSet whose pods are labelled app=name."""
    labels = {"app": name}
    inner = {k: spec.pop(k) for k in ("requests", "annotations") if k in spec}
    pods = spec.pop("pods", {})
    body = {"selector": {"matchLabels": labels}, "template": template(labels, **inner, **pods), **spec}
    if replicas is not None:
        body["replicas"] = replicas
    return {"metadata": {"name": name, "namespace": "default", "labels": labels}, "spec": body}


def pods_of(world: World, name: str = "") -> list[Json]:
    """The pods of an app, or all of them."""
    return world.api.list("pods", "default", f"app={name}" if name else "")


def names(objects: list[Json]) -> list[str]:
    return [obj["metadata"]["name"] for obj in objects]


def running(pods: list[Json]) -> list[Json]:
    return [
        p for p in pods if p["status"]["phase"] == "Running" and not p["metadata"].get("deletionTimestamp")
    ]


def node_of(world: World, name: str, namespace: str = "default") -> str:
    """Where a pod is; empty when it is nowhere."""
    return str(world.api.get("pods", name, namespace)["spec"].get("nodeName", ""))


def condition(obj: Json, kind: str) -> Json:
    """A condition of an object; empty when it has none of the type."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c["type"] == kind), {})


def refusal(world: World, name: str, namespace: str = "default") -> str:
    """Why a pod is unschedulable; empty when it is not."""
    found = condition(world.api.get("pods", name, namespace), "PodScheduled")
    return str(found.get("message", "")) if found.get("reason") == "Unschedulable" else ""


def annotate(world: World, resource: str, name: str, namespace: str = "", **notes: str | None) -> None:
    """Set annotations; dashes are written as underscores, under sim.dovetail.dev."""
    keyed = {f"sim.dovetail.dev/{key.replace('_', '-')}": value for key, value in notes.items()}
    world.api.patch(resource, name, {"metadata": {"annotations": keyed}}, namespace)
