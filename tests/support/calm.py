"""One seed, one cluster that is left alone: what disruption does to it, and what must hold all the while.

Workloads come up, then some shrink, a pool's template changes, a machine or two cannot be had. From then
on nobody does anything but Dovetail. It must keep every budget at every instant, must not touch what is
held, must leave no mark behind, must not raise the bill, and must come to rest and stay there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from dovetail.api import conditions, labels
from dovetail.api.conditions import DISRUPTION_REASON, INITIALIZED, INSTANCE_TERMINATING
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import Budget, NodePool
from dovetail.api.pod import Pod
from dovetail.api.taints import DISRUPTED, is_same_taint
from dovetail.disruption.budgets import count_allowed_or_zero
from dovetail.errors import InsufficientCapacity
from dovetail.runtime.metrics import PANICS
from dovetail.sim.clock import run_virtual
from support.builders import nodepool
from support.disruption import machine
from support.disruption_policies import asking
from support.world import POOLS, Scene

__all__ = ["Cluster", "Restless", "watch"]

Json = dict[str, Any]
DEPLOYMENTS, PDBS = "deployments.apps", "poddisruptionbudgets.policy"
STEP = 5.0
SETTLE, STILL, LONGEST = 240.0, 900.0, 4 * 3600.0
# A pod that was evicted must run again within this time: its place was there before its node went.
PENDING = 180.0
TYPES = (machine("t2", 2, 1.0), machine("t4", 4, 1.9), machine("t8", 8, 4.4), machine("t16", 16, 7.0))
PRICES = {each.name: each.offerings[0].price for each in TYPES}


class Restless(AssertionError):
    """Something that must hold did not."""


@dataclass
class Cluster:
    """What there is and what happens to it, decided by the seed before anything does."""

    seed: int
    pools: list[NodePool]
    workloads: list[tuple[str, int, int, str, bool, bool]]
    """Name, replicas before and after, cpu, guarded by a PDB, held by do-not-disrupt."""
    drifts: bool
    failures: int
    flags: tuple[str, ...]
    diary: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, seed: int) -> Cluster:
        chance = Random(f"calm {seed}")
        pools = [_pool(chance, name) for name in ("one", "two")[: chance.choice((1, 1, 2))]]
        workloads = []
        for i in range(chance.randint(2, 5)):
            before = chance.randint(1, 7)
            after = chance.randint(0, before)
            cpu = chance.choice(("300m", "500m", "900m", "1500m", "1800m", "3"))
            workloads.append((f"w{i}", before, after, cpu, chance.random() < 0.4, chance.random() < 0.12))
        flags = ("--consolidate-many=true",) if chance.random() < 0.4 else ()
        return cls(seed, pools, workloads, chance.random() < 0.4, chance.choice((0, 0, 1, 3)), flags)

    def __str__(self) -> str:
        words = [
            f"{n} {b}→{a} × {c}{' pdb' if p else ''}{' held' if h else ''}"
            for n, b, a, c, p, h in self.workloads
        ]
        pools = [
            f"{p.name} {[b.nodes for b in p.spec.disruption.budgets or ()]} {dict(p.annotations)}"
            for p in self.pools
        ]
        drift = ", drifts" if self.drifts else ""
        return f"seed {self.seed}: {pools}; {'; '.join(words)}{drift}, {self.failures} failures {self.flags}"


def _pool(chance: Random, name: str) -> NodePool:
    knobs = {
        "min_saving": chance.choice(("", "", "", "0.3")),
        "min_saving_percent": chance.choice(("", "", "", "10")),
        "max_payback": chance.choice(("", "", "", "1h")),
        "rest": chance.choice(("", "", "", "5m")),
        "rate": chance.choice(("", "", "", "2/10m")),
        "consolidation": chance.choice(("", "", "many")),
    }
    made = nodepool(
        name,
        budgets=(Budget(nodes=chance.choice(("1", "2", "3", "100%"))),),
        consolidate_after=chance.choice(("0s", "20s")),
        consolidation_policy=chance.choice(("WhenEmptyOrUnderutilized",) * 3 + ("Balanced",)),
    )
    return asking(made, **{key: value for key, value in knobs.items() if value})


class Watching:
    """A cluster while it is watched."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.scene = Scene(cluster.seed, flags=("--batch-idle-duration=1s", *cluster.flags))
        self._bugs_before = _bugs()
        self._pending_since: dict[str, float] = {}
        self._held: frozenset[str] = frozenset()
        self._broken = ""
        self._seen: frozenset[str] = frozenset()
        self._still_since = 0.0

    @property
    def now(self) -> float:
        return self.scene.true_clock.monotonic()

    def note(self, what: str) -> None:
        self.cluster.diary.append(f"{self.now:7.1f} s  {what}")

    async def watch(self) -> None:
        scene = self.scene
        scene.cloud.types = TYPES
        async with scene.running():
            scene.apply(*self.cluster.pools)
            for workload in self.cluster.workloads:
                self._create(*workload)
            await scene.sleep(SETTLE)
            self._disturb()
            await scene.sleep(10)  # workloads have ended those of their pods that are too many
            held = (p for p in scene.pods() if labels.DO_NOT_DISRUPT in p.annotations and not p.deleting)
            self._held = frozenset(p.uid for p in held)
            scene.dovetail.get_informer(NodeClaim).on_change(lambda before, after: self._budgets())
            begun, price = self.now, self._price()
            self._still_since = self.now
            while self.now - self._still_since < STILL:
                await scene.sleep(STEP)
                self._check()
                if self.now - begun > LONGEST:
                    raise Restless(f"it has not come to rest: {scene.told()}")
            self._at_rest(price)

    def _create(self, name: str, before: int, after: int, cpu: str, guarded: bool, held: bool) -> None:
        own = {"app": name}
        container = {"name": "app", "image": "app:1", "resources": {"requests": {"cpu": cpu}}}
        meta: Json = {"labels": own}
        if held:
            meta["annotations"] = {labels.DO_NOT_DISRUPT: "true"}
        template = {"metadata": meta, "spec": {"containers": [container]}}
        spec = {"replicas": before, "selector": {"matchLabels": own}, "template": template}
        self.scene.api.create(DEPLOYMENTS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
        if guarded:
            budget = {"maxUnavailable": 1, "selector": {"matchLabels": own}}
            self.scene.api.create(PDBS, {"metadata": {"name": name, "namespace": "default"}, "spec": budget})

    def _disturb(self) -> None:
        for name, before, after, *_ in self.cluster.workloads:
            if after != before:
                self.scene.api.patch(DEPLOYMENTS, name, {"spec": {"replicas": after}}, "default")
        if self.cluster.drifts:
            fresh = {"spec": {"template": {"metadata": {"labels": {"fresh": "yes"}}}}}
            self.scene.api.patch(POOLS, self.cluster.pools[0].name, fresh)
        errors = [InsufficientCapacity("none left") for _ in range(self.cluster.failures)]
        self.scene.cloud.fail("create", *errors)

    # What must hold at every instant

    def _check(self) -> None:
        if _bugs() > self._bugs_before:
            raise Restless("a controller hit a bug; the log says where")
        if self._broken:
            raise Restless(self._broken)
        self._pods()
        claims = self._claims()
        seen = frozenset(f"{claim.name} {claim.deleting}" for claim in claims)
        if seen != self._seen:
            for each in sorted(seen ^ self._seen):
                self.note(("now " if each in seen else "no longer ") + each)
            self._seen, self._still_since = seen, self.now

    def _claims(self) -> list[NodeClaim]:
        return list(self.scene.dovetail.get_informer(NodeClaim))

    def _budgets(self) -> None:
        """Asked at every change of any claim."""
        now, claims = self.scene.true_clock.now(), self._claims()
        for pool in self.cluster.pools:
            mine = [c for c in claims if c.labels.get(labels.NODEPOOL) == pool.name]
            counted = [c for c in mine if conditions.is_true(c, INITIALIZED)]
            counted = [c for c in counted if not conditions.is_true(c, INSTANCE_TERMINATING)]
            going = [
                c.name
                for c in counted
                if c.deleting or conditions.find_condition(c, DISRUPTION_REASON) is not None
            ]
            allowed = count_allowed_or_zero(pool.spec.disruption.budgets or (), "Drifted", now, len(counted))
            if len(going) > allowed:
                self._broken = f"pool {pool.name} may lose {allowed} at once, and {going} are going"

    def _pods(self) -> None:
        pods = list(self.scene.dovetail.get_informer(Pod))
        lost = self._held - {pod.uid for pod in pods if not pod.deleting}
        if lost:
            raise Restless(f"pods that must not be disrupted are gone: {sorted(lost)}")
        waiting = {pod.uid: pod.full_name for pod in pods if not pod.node_name and not pod.deleting}
        self._pending_since = {uid: self._pending_since.get(uid, self.now) for uid in waiting}
        for uid, since in self._pending_since.items():
            if self.now - since > PENDING and not self.cluster.failures:
                raise Restless(f"{waiting[uid]} has waited {self.now - since:.0f} s for a place")
        for name, _, after, _, guarded, _ in self.cluster.workloads:
            if guarded:
                self._guarded(name, after, pods)

    def _guarded(self, name: str, replicas: int, pods: list[Pod]) -> None:
        mine = [p for p in pods if p.labels.get("app") == name and not p.deleting]
        ready = [
            p for p in mine if (c := p.status.find_condition("Ready")) is not None and c.status == "True"
        ]
        if len(ready) < replicas - 1:
            raise Restless(f"{name} may miss one of {replicas} pods, and {len(ready)} are ready")

    # What must hold in the end

    def _at_rest(self, price: float) -> None:
        for node in self.scene.nodes():
            if any(is_same_taint(taint, DISRUPTED) for taint in node.spec.taints):
                raise Restless(f"{node.name} is still marked")
        for claim in self.scene.claims():
            if conditions.find_condition(claim, DISRUPTION_REASON) is not None:
                raise Restless(f"{claim.name} still has a reason to be disrupted")
            if (
                self.cluster.drifts
                and conditions.is_true(claim, conditions.DRIFTED)
                and not self._holds(claim)
            ):
                raise Restless(f"{claim.name} has drifted and stays")
        if not self.cluster.drifts and self._price() > price + 1e-9:
            raise Restless(f"it cost ${price:.2f} an hour and costs ${self._price():.2f} now")
        self.note(f"at rest, ${price:.2f} → ${self._price():.2f} an hour")

    def _holds(self, claim: NodeClaim) -> bool:
        return any(
            pod.node_name == claim.status.node_name and labels.DO_NOT_DISRUPT in pod.annotations
            for pod in self.scene.pods()
        )

    def _price(self) -> float:
        return sum(
            PRICES.get(c.labels.get(labels.INSTANCE_TYPE, ""), 0.0)
            for c in self.scene.claims()
            if not c.deleting
        )


def _bugs() -> float:
    return sum(sample.value for metric in PANICS.collect() for sample in metric.samples)


def watch(seed: int) -> Cluster:
    """Watch the cluster of a seed until it has come to rest; Restless when something is wrong with it."""
    cluster = Cluster.of(seed)

    async def watched() -> None:
        await Watching(cluster).watch()

    try:
        run_virtual(watched())
    except Restless as restless:
        diary = "\n".join(cluster.diary)
        raise Restless(f"{cluster}\n{restless}\n{diary}\nreplay: python hack/calm.py --seed {seed}") from None
    return cluster
