"""One seed, one story: a small cluster, a Deployment, some trouble, and what must hold all the while.

Trouble comes in the first minutes and ends. Then every pod must run again, machines, claims and nodes
must belong to each other, and once the Deployment is gone, nothing may be left of any of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from dovetail.api.nodeclaim import NodeClaim
from dovetail.app.controller import Dovetail
from dovetail.errors import InsufficientCapacity, Retry
from dovetail.history.record import DecisionRecord
from dovetail.ports import Instance
from dovetail.runtime.metrics import PANICS
from dovetail.sim.clock import run_virtual
from dovetail.sim.faults import ClockFault, FaultRule, WrongClock
from dovetail.sim.kube.status import ApiError
from dovetail.sim.transport import LocalTransport
from support.builders import nodepool
from support.claim_chains import ClaimLog
from support.fault_costs import Budget, Costs, Ledger, Owner
from support.killable_process import Fate, MortalCloud, MortalTransport
from support.world import POOLS, Scene

__all__ = ["TROUBLES", "Lost", "Story", "tell"]

Json = dict[str, Any]
DEPLOYMENTS, CLASSES = "deployments.apps", "kwoknodeclasses.karpenter.kwok.sh"
HEARTBEAT = "sim.dovetail.dev/heartbeat"
STEP, LATER_STEP = 5.0, 15.0
# Nothing is expected to be well before this; troubles that last longer say so.
QUIET_AFTER = 60.0
# A claim that never registers is given up after 15 minutes, and what replaces it needs as long at worst.
PATIENCE, CLEARING = 45 * 60.0, 30 * 60.0
LIMIT = 24
# How many writes the sweep of deaths goes through; a story of a few pods has about as many.
SWEEP = 50
# How long a claim may take to go once nothing stands in its way.
SLOWEST_END = 20 * 60.0

TROUBLES = (
    "killed again and again",
    "api away",
    "conflicts",
    "flaky api",
    "lost replies",
    "slow cloud",
    "failing cloud",
    "lost answers",
    "forgetful cloud",
    "vanishing machine",
    "never registers",
    "registers twice",
    "comes back",
    "pool deleted",
    "class deleted",
    "clock jumps",
    "no capacity",
    "claim deleted at launch",
    "late events",
)
# What keeps us from seeing or ending anything for minutes; what is lost meanwhile stays lost as long.
AWAY = frozenset(
    ("api away", "failing cloud", "slow cloud", "killed again and again", "flaky api", "clock jumps")
)
# How many machines a trouble takes or makes useless, each of which may be launched again.
TAKEN = {
    "forgetful cloud": 2,
    "vanishing machine": 1,
    "never registers": 2,
    "registers twice": 1,
    "comes back": 1,
    "claim deleted at launch": 2,
}
# Where every machine goes, and each pod needs another.
ALL_TAKEN = frozenset(("pool deleted", "class deleted", "clock jumps"))


class Lost(AssertionError):
    """Something that must hold did not."""


@dataclass
class Story:
    """What happens, decided by the seed before anything does."""

    seed: int
    trouble: str
    pods: int
    cpu: str
    second_trouble: str = ""
    death: tuple[int, bool] | None = None
    """Killed at its n-th write: before it is sent, or after it was done and before the answer is heard."""
    revision: int = 0
    diary: list[str] = field(default_factory=list)
    costs: Costs = field(default_factory=Costs)
    records: list[DecisionRecord] = field(default_factory=list)
    """What every process recorded, as a log would hold it; each begins with what those before recorded."""

    @property
    def budget(self) -> Budget:
        """What it may cost: a machine for each pod and one for each that trouble takes."""
        away = bool(AWAY & {self.trouble, self.second_trouble})
        taken = self.pods if self.trouble in ALL_TAKEN else TAKEN.get(self.trouble, 0)
        return Budget(leaked=1200.0 if away else 300.0, launches=self.pods + taken, repair=40 * 60.0)

    @classmethod
    def of(cls, seed: int) -> Story:
        """Even seeds are killed at one write after the other; odd ones meet the other troubles in turn."""
        chance = Random(f"story {seed}")
        pods, cpu = chance.randint(1, 4), chance.choice(("500m", "1", "2"))
        turn = seed // 2
        if seed % 2 == 0:
            return cls(seed, "killed", pods, cpu, death=(turn // 2 % SWEEP + 1, turn % 2 == 0))
        also = chance.choice(("", "", "killed", "flaky api"))
        death = (chance.randint(1, SWEEP), chance.random() < 0.5) if also == "killed" else None
        return cls(seed, TROUBLES[turn % len(TROUBLES)], pods, cpu, also, death)

    def __str__(self) -> str:
        troubles = " and ".join(each for each in (self.trouble, self.second_trouble) if each)
        when = f" {'before' if self.death[1] else 'after'} write {self.death[0]}" if self.death else ""
        return f"seed {self.seed}: {self.pods} pods of {self.cpu} cpu; {troubles}{when}"


class Telling:
    """A story while it is told."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.chance = Random(f"telling {story.seed}")
        self.scene = Scene(story.seed, flags=("--batch-idle-duration=1s",), clock=None)
        self.fate = Fate()
        self.launched: Counter[str] = Counter()
        self.forgetful = False
        self._deleting_since: dict[str, float] = {}
        self._machineless_since: dict[str, float] = {}
        self._deaths: list[tuple[int, bool]] = []
        self._later: list[tuple[float, Any]] = []
        self._bugs_before = _bugs()
        self._quiet_after = QUIET_AFTER
        self._ledger = Ledger(story.costs)
        self._claims = ClaimLog(self.scene.world.server.store)
        self.scene.on_made = self._keep_records

    # The parts

    @property
    def now(self) -> float:
        return self.scene.true_clock.monotonic()

    def at(self, second: float, act: Any) -> None:
        self._later.append((second, act))
        self._later.sort(key=lambda each: each[0])

    def note(self, what: str) -> None:
        self.story.diary.append(f"{self.now:7.1f} s  {what}")

    async def tell(self) -> None:
        scene = self.scene
        for trouble in (self.story.trouble, self.story.second_trouble):
            if trouble:
                getattr(self, "_" + trouble.replace(" ", "_"))()
        scene.cloud.on_launch = self._joins
        async with scene.world.running():
            scene.apply(nodepool(limits={"cpu": LIMIT}, consolidate_after="20s"))
            scene.api.create(DEPLOYMENTS, _deployment(self.story))
            scene.api.create("poddisruptionbudgets.policy", _budget())
            await self._begin()
            supervisor = asyncio.create_task(self._supervise())
            try:
                await self._until(self._calm, self._quiet_after + PATIENCE)
                self.story.costs.repair = max(0.0, self.now - self._quiet_after)
                self.note("all is well; the Deployment goes")
                scene.api.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 0}}, "default")
                await self._until(self._empty, CLEARING)
                await self.scene.sleep(LATER_STEP)
                for gap in self._claims.find_gaps(self.story.records):
                    raise Lost(gap)
            finally:
                supervisor.cancel()
                await asyncio.gather(supervisor, return_exceptions=True)
                await scene.kill()
                self.story.revision = scene.world.server.store.revision

    def _keep_records(self, dovetail: Dovetail) -> None:
        dovetail.history.restore_records(tuple(self.story.records))
        dovetail.history.add_listener(self.story.records.append)

    async def _begin(self) -> None:
        call, before = self._deaths.pop(0) if self._deaths else (None, True)
        self.fate = Fate(call, before=before)
        mortal = MortalTransport(LocalTransport(self.scene.world.server), self.fate)
        transport = self._claims.listen_to(mortal)
        cloud = MortalCloud(self.scene.cloud, self.fate, self.launched, self._loses)
        await self.scene.restart(transport, cloud)

    async def _supervise(self) -> None:
        """Whoever dies is replaced, sooner or later."""
        while True:
            await self.fate.dead.wait()
            self.note("killed")
            await self.scene.kill()
            await self.scene.sleep(self.chance.choice((0.5, 3.0, 20.0, 90.0)))
            self.note("started again")
            await self._begin()

    async def _until(self, true: Any, within: float) -> None:
        end = self.now + within
        while self.now < end:
            await self.scene.sleep(STEP if self.now < self._quiet_after else LATER_STEP)
            while self._later and self._later[0][0] <= self.now:
                self._later.pop(0)[1]()
            self._cloud_controller()
            self._check()
            if self.now > self._quiet_after and not self._later and true():
                return
        why = f"{true.__name__.lstrip('_')} not reached in {within:.0f} s: {self.scene.told()}"
        raise Lost(why)

    def _loses(self, claim: NodeClaim) -> str:
        """Pods that would lose their machine while they run; a machine's end comes after its drain."""
        node = next((n for n in self.scene.nodes() if n.spec.provider_id == claim.status.provider_id), None)
        ready = node.status.find_condition("Ready") if node is not None else None
        if node is None or ready is None or ready.status != "True":
            return ""
        running = [p.name for p in self.scene.pods() if p.node_name == node.name and not p.deleting]
        return f"the machine of {node.name} was ended while {running} ran on it" if running else ""

    # What must hold at every step

    def _check(self) -> None:
        for sin in self.fate.sins:
            raise Lost(sin)
        bugs = _bugs() - self._bugs_before
        if bugs:
            raise Lost(f"controllers hit {bugs:.0f} bugs; the log says where")
        twice = [name for name, count in self.launched.items() if count > 1]
        if twice and not self.forgetful:
            raise Lost(f"launched twice for {twice}")
        claims = self.scene.claims()
        self._check_costs(claims)
        ordered = sum(
            c.status.capacity["cpu"].value for c in claims if "cpu" in c.status.capacity and not c.deleting
        )
        if ordered > LIMIT:
            raise Lost(f"the pool is limited to {LIMIT} cpu and has {ordered}")
        ending = {claim.uid: claim.name for claim in claims if claim.deleting}
        self._deleting_since = {uid: self._deleting_since.get(uid, self.now) for uid in ending}
        for uid, since in self._deleting_since.items():
            if self.now - since > SLOWEST_END:
                raise Lost(f"claim {ending[uid]} has been ending for {self.now - since:.0f} s")

    def _check_costs(self, claims: Sequence[NodeClaim]) -> None:
        machines = {each.provider_id: (each.claim,) for each in self._machines()}
        owners = [Owner(each.uid, each.name, each.status.provider_id) for each in claims]
        self.story.costs.launches = sum(self.launched.values())
        for released in self._ledger.look(self.now, machines, owners, machines):
            raise Lost(released)
        if excess := self.story.costs.excess(self.story.budget):
            raise Lost(excess)

    def _calm(self) -> bool:
        """Every pod runs, and machines, claims and nodes belong to each other."""
        pods = [p for p in self.scene.pods() if not p.deleting]
        running = [p for p in pods if p.status.phase == "Running" and p.node_name]
        return len(running) == len(pods) == self.story.pods and self._matched()

    def _empty(self) -> bool:
        return not self.scene.claims() and not self._machines() and not self.scene.nodes()

    def _matched(self) -> bool:
        claims = self.scene.claims()
        ids = Counter(claim.status.provider_id for claim in claims)
        machines = Counter(machine.provider_id for machine in self._machines())
        nodes = Counter(node.spec.provider_id for node in self.scene.nodes())
        return ids == machines == nodes and not any(claim.deleting for claim in claims)

    def _machines(self) -> list[Instance]:
        self.scene.cloud._expire()
        return list(self.scene.cloud.instances.values())

    # The rest of the world

    def _joins(self, claim: Any, instance: Instance) -> None:
        self.scene.join(claim, instance, name=f"node-{instance.provider_id.removeprefix('fake://')}")

    def _cloud_controller(self) -> None:
        """As a cloud's own controller does: Nodes whose machine is gone fall silent, and are deleted."""
        alive = {machine.provider_id for machine in self._machines()}
        for node in self.scene.nodes():
            if node.spec.provider_id in alive:
                self._machineless_since.pop(node.name, None)
                continue
            if node.name not in self._machineless_since:
                self._machineless_since[node.name] = self.now
                self._silence(node.name)
            elif self.now - self._machineless_since[node.name] > 60 and not node.deleting:
                self._delete("nodes", node.name)

    def _silence(self, node: str, stopped: bool = True) -> None:
        mark = {"metadata": {"annotations": {HEARTBEAT: "stopped" if stopped else None}}}
        try:
            self.scene.api.patch("nodes", node, mark)
        except ApiError as error:
            self.note(f"{node} could not be silenced: {error}")

    def _delete(self, resource: str, name: str) -> None:
        try:
            self.scene.api.delete(resource, name)
        except ApiError as error:
            self.note(f"{name} could not be deleted: {error}")

    # Troubles

    def _killed(self) -> None:
        assert self.story.death is not None
        self._deaths.append(self.story.death)

    def _killed_again_and_again(self) -> None:
        for _ in range(4):
            self._deaths.append((self.chance.randint(1, 15), self.chance.random() < 0.5))

    def _rules(self, *rules: FaultRule) -> None:
        self.scene.trouble(*self.scene.storm.rules, *rules)
        self._quiet_after = max(self._quiet_after, *(rule.end + 30 for rule in rules))

    def _api_away(self) -> None:
        start = self.chance.uniform(0, 60)
        self._rules(FaultRule(trouble="unreachable", start=start, end=start + 300, amount=30))

    def _conflicts(self) -> None:
        start = self.chance.uniform(0, 30)
        self._rules(FaultRule(trouble="conflict", start=start, end=start + 120))

    def _flaky_api(self) -> None:
        self._rules(
            self.chance.choice(
                (
                    FaultRule(trouble="throttled", end=240, probability=0.2),
                    FaultRule(trouble="server-error", end=240, probability=0.2),
                    FaultRule(trouble="unavailable", end=240, probability=0.2),
                    FaultRule(trouble="reset", end=240, probability=0.2),
                    FaultRule(trouble="stale", end=240, probability=0.2),
                    FaultRule(trouble="watch-reset", end=240, probability=0.2),
                )
            )
        )

    def _late_events(self) -> None:
        """What we watch is told late: longer than it takes to plan again."""
        seconds = self.chance.choice((15.0, 30.0, 60.0))
        self._rules(FaultRule(trouble="watch-delay", end=240, amount=seconds))

    def _lost_replies(self) -> None:
        self._rules(
            FaultRule(trouble="lost-reply", end=180, probability=0.3),
            FaultRule(trouble="late-reply", end=180, probability=0.3, amount=2),
        )

    def _slow_cloud(self) -> None:
        for call in ("create", "delete", "list", "get"):
            self.scene.cloud.slow(call, self.chance.choice((5.0, 30.0, 70.0)))
        self.at(300, self._quick)

    def _quick(self) -> None:
        for call in ("create", "delete", "list", "get"):
            self.scene.cloud.slow(call, 0.0)

    def _failing_cloud(self) -> None:
        for call in ("create", "delete", "list", "get"):
            if self.chance.random() < 0.7:
                self.scene.cloud.fail(call, Retry("the cloud is down"), always=True)
                self.at(self.chance.uniform(60, 300), lambda call=call: self.scene.cloud.mend(call))

    def _lost_answers(self) -> None:
        for _ in range(self.chance.randint(1, 3)):
            self.scene.cloud.lose_answer("create")
        self.scene.cloud.lose_answer("delete")

    def _forgetful_cloud(self) -> None:
        """It says yes, and the machine never was."""
        self.forgetful = True
        made = self.scene.cloud.create
        left = [self.chance.randint(1, 2)]

        async def create(claim: Any) -> Instance:
            instance = await made(claim)
            if left[0]:
                left[0] -= 1
                self.scene.cloud.vanish(instance.provider_id)
                for node in self.scene.nodes():
                    if node.spec.provider_id == instance.provider_id:
                        self._delete("nodes", node.name)
            return instance

        self.scene.cloud.create = create  # type: ignore[method-assign]

    def _claim_deleted_at_launch(self) -> None:
        """A person deletes a claim whose machine has just been launched; and perhaps we are killed then."""
        left = [self.chance.randint(1, 2)]
        join = self._joins

        def joins(claim: Any, instance: Instance) -> None:
            if left[0]:
                left[0] -= 1
                self.note(f"{claim.name} is deleted while it is launched")
                self._delete("nodeclaims.karpenter.sh", claim.name)
                if self.chance.random() < 0.5:
                    self.fate.strike_at(0, before=False)
            join(claim, instance)

        self._joins = joins  # type: ignore[method-assign]

    def _vanishing_machine(self) -> None:
        self.at(self.chance.uniform(10, 200), self._vanish)

    def _vanish(self) -> None:
        machines = sorted(self.scene.cloud.instances)
        if machines:
            gone = self.chance.choice(machines)
            self.note(f"{gone} vanishes")
            self.scene.cloud.vanish(gone)

    def _never_registers(self) -> None:
        left = [self.chance.randint(1, 2)]
        join = self._joins

        def joins(claim: Any, instance: Instance) -> None:
            if left[0]:
                left[0] -= 1
                return
            join(claim, instance)

        self._joins = joins  # type: ignore[method-assign]

    def _registers_twice(self) -> None:
        left = [1]
        join = self._joins

        def joins(claim: Any, instance: Instance) -> None:
            join(claim, instance)
            if left[0]:
                left[0] -= 1
                self.scene.join(claim, instance, name="twin")

        self._joins = joins  # type: ignore[method-assign]

    def _comes_back(self) -> None:
        start = self.chance.uniform(10, 60)
        silent: list[str] = []

        def fall() -> None:
            nodes = [node.name for node in self.scene.nodes()]
            if nodes:
                silent.append(self.chance.choice(nodes))
                self._silence(silent[0])

        def rise() -> None:
            if silent and self.scene.has("nodes", silent[0]):
                self._silence(silent[0], stopped=False)

        self.at(start, fall)
        self.at(start + self.chance.choice((40, 120, 340)), rise)

    def _pool_deleted(self) -> None:
        start = self.chance.uniform(0, 90)

        def again() -> None:
            if self.scene.has(POOLS, "default"):
                self.at(self.now + 30, again)
            else:
                self.scene.apply(nodepool(limits={"cpu": LIMIT}, consolidate_after="20s"))

        self.at(start, lambda: self._delete(POOLS, "default"))
        self.at(start + 120, again)

    def _class_deleted(self) -> None:
        start = self.chance.uniform(0, 60)

        def again() -> None:
            if not self.scene.has(CLASSES, "default"):
                self.scene.node_class()

        self.at(start, lambda: self._delete(CLASSES, "default"))
        self.at(start + 120, again)

    def _clock_jumps(self) -> None:
        by = self.chance.choice((-7200.0, -90.0, 90.0, 1200.0, 7200.0))
        start = self.chance.uniform(5, 60)
        faults = (ClockFault(at=start, by=by), ClockFault(at=start + 180, by=-by))
        self.scene.clock = WrongClock(self.scene.true_clock, faults)
        self._quiet_after = max(self._quiet_after, start + 200)

    def _no_capacity(self) -> None:
        errors = [InsufficientCapacity("none left") for _ in range(self.chance.randint(1, 6))]
        self.scene.cloud.fail("create", *errors)


def _bugs() -> float:
    """Exceptions that no controller meant to raise."""
    return sum(sample.value for metric in PANICS.collect() for sample in metric.samples)


def _deployment(story: Story) -> Json:
    container = {"name": "app", "image": "app:1", "resources": {"requests": {"cpu": story.cpu}}}
    return {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": story.pods,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}},
        },
    }


def _budget() -> Json:
    return {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }


def tell(seed: int) -> Story:
    """The whole story of a seed; Lost when it does not end well."""
    story = Story.of(seed)

    async def told() -> None:
        await Telling(story).tell()

    try:
        run_virtual(told())
    except Lost as lost:
        diary = "\n".join(story.diary)
        raise Lost(f"{story}\n{lost}\n{diary}\nreplay: python hack/survival.py --seed {seed}") from None
    return story
