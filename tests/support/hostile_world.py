"""A Dovetail with every feature on, objects that use a bad one, and what is decided for the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from random import Random
from typing import Any, cast

from dovetail.api import codec, core
from dovetail.api.bad_items import reason_of
from dovetail.api.buffers import CapacityBuffer
from dovetail.api.crds import PROVIDER_APIS
from dovetail.api.meta import Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass, KWOKNodeClass
from dovetail.api.nodepool import NodeClassReference, NodePool
from dovetail.api.overlay import NodeOverlay
from dovetail.api.pod import Pod
from dovetail.app.controller import Dovetail
from dovetail.controllers.base import Controller
from dovetail.controllers.disruption import DisruptionController
from dovetail.controllers.provisioning import Provisioner
from dovetail.scheduling.model.device_objects import DeviceClass, ResourceClaim, ResourceSlice
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.settings import GATES, read_settings
from dovetail.sim.clock import VirtualClock
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.transport import LocalTransport
from support.builders import NOW, daemonset, nodepool, owner, pod
from support.cloud import FakeCloud, bare
from support.disruption import SIZES, pdb, pool, state
from support.disruption import machine as machine_type
from support.hostile_values import Json, read_all

__all__ = ["COMPANIONS", "decide", "feed", "kinds_read", "make_dovetail", "others", "victim_of", "victims"]

RS = owner("ReplicaSet")
TINY = machine_type("tiny", 0.2, 0.1)
MINE = {"victim": "true"}
"""What bad items carry, so that they have to do with nobody else unless a bad value makes them."""
POOL = "victims"
EVERYTHING = (
    f"--feature-gates={','.join(f'{gate.name}=true' for gate in GATES)}",
    "--ignore-dra-requests=false",
)


class _TwoShops(FakeCloud):
    """Sells tiny machines to the pools of bad items, and useful ones to the others."""

    async def list_instance_types(self, nodepool: NodePool) -> tuple[InstanceType, ...]:
        return (TINY,) if nodepool.name.startswith(POOL) else SIZES


def make_dovetail(provider: str = "kwok") -> Dovetail:
    """A Dovetail that follows every kind any Dovetail follows; its API server is empty."""
    clock = VirtualClock(NOW)
    server = ApiServer(clock, Random(0))
    settings = read_settings(EVERYTHING, {}, provider="kwok")
    make = bare(_TwoShops(clock))
    return Dovetail(
        settings, LocalTransport(server), clock=clock, chance=Random(0), provider=provider, make=make
    )


@cache
def kinds_read() -> Mapping[type[Object], str]:
    """Every kind that a Dovetail follows, with a provider that makes it do so."""
    return {kind: provider for provider in PROVIDER_APIS for kind in make_dovetail(provider).informers}


def feed(dovetail: Dovetail, documents: Mapping[type[Object], Iterable[Json]]) -> None:
    """Let every informer hear a list, as its follower reads it from the API server."""
    found = read_all(documents)
    for kind, informer in dovetail.informers.items():
        informer.begin_list()
        informer.add_listed(found.get(kind, ()))
        informer.end_list()


# What is decided


async def decide(
    documents: Mapping[type[Object], Iterable[Json]], names: set[str], provider: str
) -> list[Any]:
    """Everything that is decided for the objects of these names: their nodes, and which of them go."""
    dovetail = make_dovetail(provider)
    feed(dovetail, documents)
    assert dovetail.buffers is not None
    await _controller(dovetail, "nodeoverlay.controller").reconcile("")
    dovetail.buffers.resolve_all()
    assert not [claim.name for claim in _held_up_by(dovetail)], "a claim nobody can read is waited for"
    provisioner = cast(Provisioner, _controller(dovetail, "provisioner"))
    plan = await provisioner.make_plan()
    assert plan is not None
    provisioner._report_plan(plan)
    provisioner._bad.report_all(plan.set_aside)
    found: list[Any] = [
        sorted(
            (n.pool, n.instance_types, sorted(names & {*n.pods}), n.price)
            for n in plan.new_nodes
            if names & {*n.pods}
        ),
        {name: sorted(names & {*pods}) for name, pods in plan.existing.items() if names & {*pods}},
        {name: why for name, why in plan.unschedulable.items() if name in names},
    ]
    return found + [each async for each in _disrupted(dovetail, names)]


async def _disrupted(dovetail: Dovetail, names: set[str]) -> Any:
    disruption = cast(DisruptionController, _controller(dovetail, "disruption"))
    inputs = await disruption.build_input()
    disruption._events.report_budgets(inputs)
    await disruption._gate.settle_pools(inputs)
    await disruption._losses.settle_pools()
    for method, ask in disruption._list_methods():
        choice = await disruption._run_method(method, ask, inputs)
        for command in choice.commands:
            going = sorted(names & {each.name for each in command.candidates})
            bought = [(each.pool, each.instance_types, each.price) for each in command.replacements]
            if going:
                yield going, bought


def _held_up_by(dovetail: Dovetail) -> Iterator[NodeClaim]:
    """Claims that nothing is decided before they are launched, and that nobody can launch."""
    for claim in dovetail.get_informer(NodeClaim):
        if reason_of(claim) and claim.name in dovetail.cluster._unlaunched:
            yield claim


def _controller(dovetail: Dovetail, name: str) -> Controller:
    return next(each for each in dovetail.controllers if each.name == name)


# The others


def others() -> list[Object]:
    """A cluster in which there is something to do: pods wait, nodes are empty, drifted or too large."""
    states = [
        state("idle", pool="plain"),
        state("drifted", pod("d", cpu="1", owned_by=RS), pool="plain", drifted=NOW),
        state("roomy", pod("r", cpu="500m", owned_by=RS), pool="plain"),
        state("held", pod("h", labels={"app": "web"}, owned_by=RS), pool="plain"),
    ]
    waiting = [pod(f"waiting-{i}", cpu="9", labels={"app": "waiting"}) for i in range(6)]
    found: list[Object] = [pool("plain"), pool("spare", weight=1), pdb("web"), daemonset("logs"), *waiting]
    for each in states:
        found += [one for one in (each.node, each.claim, *each.pods) if one is not None]
    return [*found, *(_made(kind, document) for kind, document in OTHERS)]


def _made(kind: type[Object], document: Json) -> Object:
    return codec.convert(kind, document)


def _named(name: str, namespace: str = "", **more: Any) -> Json:
    where = {"namespace": namespace} if namespace else {}
    return {"metadata": {"name": name, **where, "uid": f"uid-{name}", "resourceVersion": "1", **more}}


def _template(cpu: str = "9", **spec: Any) -> Json:
    container = {"name": "app", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"labels": {"app": "like"}}, "spec": {"containers": [container], **spec}}


def _waiting(name: str, namespace: str = "default", cpu: str = "9", **spec: Any) -> tuple[type[Object], Json]:
    """A pod that waits, with further fields of its spec as the wire spells them."""
    made = codec.to_dict(pod(name, namespace=namespace, cpu=cpu))
    return Pod, {**made, "spec": {**made["spec"], **spec}}


def _with_volume(name: str, claim: str, namespace: str = "default", **spec: Any) -> tuple[type[Object], Json]:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    return _waiting(name, namespace, volumes=[volume], **spec)


def _asking(name: str, device_class: str, namespace: str = "default") -> tuple[type[Object], Json]:
    request = {"name": "one", "exactly": {"deviceClassName": device_class, "count": 1}}
    return ResourceClaim, {**_named(name, namespace), "spec": {"devices": {"requests": [request]}}}


def _with_device(name: str, claim: str, namespace: str = "default", **spec: Any) -> tuple[type[Object], Json]:
    claims = [{"name": "gpu", "resourceClaimName": claim}]
    return _waiting(name, namespace, **{"cpu": "100m", "resourceClaims": claims, **spec})


def _slice(name: str, driver: str, **where: Any) -> tuple[type[Object], Json]:
    device = {
        "name": "gpu-0",
        "attributes": {"model": {"string": "a100"}},
        "capacity": {"memory": {"value": "40Gi"}},
    }
    return ResourceSlice, {
        **_named(name),
        "spec": {
            "driver": driver,
            "pool": {"name": name, "resourceSliceCount": 1},
            "devices": [device],
            **where,
        },
    }


def _class(name: str, driver: str) -> tuple[type[Object], Json]:
    return DeviceClass, {
        **_named(name),
        "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]},
    }


ZONE = {"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["test-zone-1"]}]}
OTHERS: tuple[tuple[type[Object], Json], ...] = (
    (core.Namespace, _named("default")),
    (core.Service, {**_named("waiting", "default"), "spec": {"selector": {"app": "waiting"}}}),
    (
        core.LimitRange,
        {
            **_named("small", "kube-system"),
            "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "100m"}}]},
        },
    ),
    (
        core.StorageClass,
        {
            **_named("gp3"),
            "provisioner": "ebs.csi.aws.com",
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": [ZONE],
        },
    ),
    (core.PersistentVolumeClaim, {**_named("data", "default"), "spec": {"storageClassName": "gp3"}}),
    _with_volume("with-volume", "data"),
    (
        core.CSINode,
        {
            **_named("roomy"),
            "spec": {"drivers": [{"name": "ebs.csi.aws.com", "nodeID": "i-1", "allocatable": {"count": 25}}]},
        },
    ),
    _class("gpu", "gpu.example.com"),
    _slice("roomy-gpu", "gpu.example.com", nodeName="roomy"),
    _asking("one-gpu", "gpu"),
    _with_device("with-device", "one-gpu"),
    (KWOKNodeClass, _named("default")),
    (
        NodeOverlay,
        {
            **_named("dearer"),
            "spec": {
                "requirements": [{"key": "karpenter.sh/nodepool", "operator": "In", "values": ["spare"]}],
                "priceAdjustment": "+10%",
                "weight": 10,
            },
        },
    ),
    (core.PodTemplateObject, {**_named("room", "default"), "template": _template()}),
    (
        CapacityBuffer,
        {**_named("room", "default"), "spec": {"podTemplateRef": {"name": "room"}, "replicas": 2}},
    ),
)


# The bad ones, before they are


@cache
def victims() -> Mapping[type[Object], Object]:
    """One object of each kind, sound and of no concern to the others."""
    machine = state("v-node", pool=POOL, labels=MINE, of=TINY)
    assert machine.node is not None
    assert machine.claim is not None
    own: list[Object] = [
        # So small that it takes no room from anybody, wherever a bad value lets it go.
        pod("v-waiting", namespace="victim", node_selector=MINE, labels=MINE, cpu="1m", memory="1Ki"),
        machine.node,
        machine.claim,
        nodepool(POOL, labels=MINE),
        daemonset("v-daemon", namespace="victim", node_selector=MINE),
        pdb("v-pdb", namespace="victim"),
        *(_made(kind, document) for kind, document in _VICTIMS),
    ]
    made = {type(each): each for each in own}
    return made | {kind: _plain(kind) for kind in kinds_read() if kind not in made}


def victim_of(kind: type[Object]) -> Object:
    """A sound object of any kind, also of one that no controller follows."""
    return victims().get(kind) or _plain(kind)


def _plain(kind: type[Object]) -> Object:
    return codec.convert(kind, _named("v-object", "victim" if kind.KIND.namespaced else ""))


_SELECTED = {"nodeSelector": MINE}
_OWN_POOL = {"key": "karpenter.sh/nodepool", "operator": "In", "values": [POOL]}
_VICTIMS: tuple[tuple[type[Object], Json], ...] = (
    (
        NodeOverlay,
        {**_named("v-overlay"), "spec": {"requirements": [_OWN_POOL], "capacity": {"example.com/x": "1"}}},
    ),
    (
        CapacityBuffer,
        {**_named("v-buffer", "victim"), "spec": {"podTemplateRef": {"name": "v-like"}, "replicas": 1}},
    ),
    (core.PodTemplateObject, {**_named("v-like", "victim"), "template": _template("1m", **_SELECTED)}),
    _asking("v-claim", "v-devices", "victim"),
    _slice("v-slice", "v.example.com", nodeName="v-node"),
    _class("v-devices", "v.example.com"),
    *(
        (
            kind,
            {**_named("v-work", "victim"), "spec": {"replicas": 1, "template": _template("1m", **_SELECTED)}},
        )
        for kind in (core.Deployment, core.ReplicaSet, core.StatefulSet)
    ),
)


def _buffered(kind: str) -> Any:
    def made(name: str) -> list[tuple[type[Object], Json]]:
        to = {"podTemplateRef": {"name": name}}
        if kind:
            to = {"scalableRef": {"apiGroup": "apps", "kind": kind, "name": name}}
        return [(CapacityBuffer, {**_named(f"b-{name}", "victim"), "spec": {**to, "replicas": 1}})]

    return made


def _bound(name: str, **spec: Any) -> list[tuple[type[Object], Json]]:
    claim = {**_named(f"p-{name}", "victim"), "spec": spec}
    user = _with_volume(f"u-{name}", f"p-{name}", "victim", cpu="1m", nodeSelector=MINE)
    return [(core.PersistentVolumeClaim, claim), user]


def _pooled(group: str, kind: str) -> Any:
    def made(name: str) -> list[tuple[type[Object], Json]]:
        reference = NodeClassReference(group=group, kind=kind, name=name)
        made = nodepool(f"{POOL}-of-{name}", labels=MINE, node_class=reference)
        return [(NodePool, codec.to_dict(made))]

    return made


COMPANIONS: Mapping[type[Object], Any] = {
    core.PodTemplateObject: _buffered(""),
    core.Deployment: _buffered("Deployment"),
    core.ReplicaSet: _buffered("ReplicaSet"),
    core.StatefulSet: _buffered("StatefulSet"),
    core.PersistentVolumeClaim: lambda name: [
        _with_volume(f"u-{name}", name, "victim", cpu="1m", nodeSelector=MINE)
    ],
    core.PersistentVolume: lambda name: _bound(name, volumeName=name),
    core.StorageClass: lambda name: _bound(name, storageClassName=name),
    ResourceClaim: lambda name: [_with_device(f"u-{name}", name, "victim", cpu="1m", nodeSelector=MINE)],
    DeviceClass: lambda name: [
        _asking(f"c-{name}", name, "victim"),
        _with_device(f"u-{name}", f"c-{name}", "victim", cpu="1m", nodeSelector=MINE),
    ],
    KWOKNodeClass: _pooled("karpenter.kwok.sh", "KWOKNodeClass"),
    EC2NodeClass: _pooled("karpenter.k8s.aws", "EC2NodeClass"),
}
"""What makes use of an object of this name, for kinds that nobody looks at for their own sake."""
