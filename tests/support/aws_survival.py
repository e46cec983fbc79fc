"""One seed, one story of trouble on AWS: EC2 throttles, lies, hangs and takes machines back; we are killed.

As in `survival`, trouble comes in the first minutes and ends. Then every pod must run again; machines, claims
and nodes must belong to each other; and once the Deployment is gone, nothing may be left of any of them.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from dovetail.api import labels
from dovetail.api.crds import build_manifests
from dovetail.app.controller import Dovetail
from dovetail.aws import Answer, Aws
from dovetail.errors import DovetailError
from dovetail.providers.aws.provider import AwsProvider
from dovetail.providers.aws.tags import NODECLAIMS_TAG
from dovetail.runtime.metrics import PANICS
from dovetail.settings import read_settings
from dovetail.sim.aws.ec2.instance_record import SimInstance
from dovetail.sim.aws.ec2.instances import InstanceChange
from dovetail.sim.aws.ec2.node_join import NodeJoiner
from dovetail.sim.aws.faults import AwsFaults
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.faults import FaultRule, FaultStorm
from dovetail.sim.kube.status import ApiError
from dovetail.sim.transport import LocalTransport
from dovetail.sim.world import World
from support.aws import CLUSTER
from support.aws_world import CLAIMS, CLASSES, POOLS, AwsObjects
from support.ec2 import Shop
from support.fault_costs import Budget, Costs, Ledger, Owner
from support.killable_process import Fate, MortalTransport
from support.survival import Lost

__all__ = ["TROUBLES", "Story", "tell"]

Json = dict[str, Any]
QUEUE = "interruptions"
TYPES = ("m5.large", "m5.xlarge", "c5.large")
LIMIT = 24
STEP, LATER_STEP = 5.0, 15.0
QUIET_AFTER = 60.0
# From a spot warning to the machine's end.
NOTICE = 120.0
# A claim that never registers is given up after 15 minutes, and what replaces it needs as long at worst.
PATIENCE, CLEARING, SLOWEST_END = 45 * 60.0, 30 * 60.0, 20 * 60.0
SWEEP = 20
CHANGING = ("Create", "Delete", "Terminate", "Add", "Remove")

TROUBLES = (
    "killed again and again",
    "throttled",
    "server faults",
    "seen late",
    "partial fleets",
    "no capacity",
    "credentials expire",
    "endpoint hangs",
    "lost answers",
    "spot takes back",
    "many messages",
    "impaired machine",
    "ended by hand",
    "never joins",
    "templates vanish",
    "launches denied",
    "queue away",
    "api away",
    "flaky api",
    "conflicts",
    "class deleted",
    "claim deleted at launch",
    "killed when warned",
)
# What keeps us from seeing or ending anything for minutes; what is lost meanwhile stays lost as long.
AWAY = frozenset(
    (
        *("api away", "flaky api", "credentials expire", "endpoint hangs", "server faults", "throttled"),
        *("seen late", "killed again and again", "queue away", "lost answers"),
    )
)
# Where machines go, or are given up, with pods on them, and where pods are stopped past their budgets.
MERCILESS = frozenset(
    ("spot takes back", "many messages", "impaired machine", "ended by hand", "killed when warned")
)


@dataclass
class Story:
    """What happens, decided by the seed before anything does."""

    seed: int
    trouble: str
    pods: int
    cpu: str
    second_trouble: str = ""
    death: tuple[int, bool] | None = None
    diary: list[str] = field(default_factory=list)
    revision: int = 0
    costs: Costs = field(default_factory=Costs)

    @property
    def budget(self) -> Budget:
        """What it may cost: a machine for each pod and one for each that trouble takes, twice at most."""
        away = bool(AWAY & {self.trouble, self.second_trouble})
        return Budget(
            leaked=1200.0 if away else 300.0,
            launches=2 * self.pods + 6,
            repair=40 * 60.0,
            unheard=9 if away else 0,
        )

    @classmethod
    def of(cls, seed: int) -> Story:
        """Every third is killed at one write after the other; the rest meet the other troubles in turn."""
        chance = Random(f"aws story {seed}")
        pods, cpu = chance.randint(1, 4), chance.choice(("500m", "1", "1800m"))
        turn = seed // 3
        if seed % 3 == 0:
            return cls(seed, "killed", pods, cpu, death=(turn // 2 % SWEEP + 1, turn % 2 == 0))
        also = chance.choice(("", "", "killed", "server faults"))
        death = (chance.randint(1, SWEEP), chance.random() < 0.5) if also == "killed" else None
        trouble = TROUBLES[(2 * turn + seed % 3 - 1) % len(TROUBLES)]
        return cls(seed, trouble, pods, cpu, "" if also == trouble else also, death)

    @property
    def merciless(self) -> bool:
        return bool(MERCILESS & {self.trouble, self.second_trouble})

    def __str__(self) -> str:
        troubles = " and ".join(each for each in (self.trouble, self.second_trouble) if each)
        when = f" {'before' if self.death[1] else 'after'} write {self.death[0]}" if self.death else ""
        return f"seed {self.seed}: {self.pods} pods of {self.cpu} cpu; {troubles}{when}"


class Stall(Shop):
    """A shop whose price list is as short as its shelf."""

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any], /, *, retried: bool = True
    ) -> Answer:
        if operation == "DescribeSpotPriceHistory":
            parameters = {**parameters, "InstanceTypes": list(self.sells)}
        if operation == "DescribeInstanceTypeOfferings":
            only = {"Name": "instance-type", "Values": list(self.sells)}
            parameters = {**parameters, "Filters": [only]}
        if operation == "GetProducts":
            metal = any(each["Value"] == "Dedicated" for each in parameters["Filters"])
            only = {
                "Type": "TERM_MATCH",
                "Field": "instanceType",
                "Value": "m5.metal" if metal else "m5.large",
            }
            parameters = {**parameters, "Filters": [*parameters["Filters"], only]}
        return await super().call(service, operation, parameters, retried=retried)


class MortalAws:
    """AWS as a process with a fate calls it."""

    def __init__(self, aws: Aws, fate: Fate, ending: Callable[[str], str]) -> None:
        self._aws, self._fate, self._ending = aws, fate, ending

    @property
    def region(self) -> str:
        return self._aws.region

    def scope_to(self, *, region: str = "", role: str = "", external_id: str = "") -> MortalAws:
        other = self._aws.scope_to(region=region, role=role, external_id=external_id)
        return MortalAws(other, self._fate, self._ending)

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any], /, *, retried: bool = True
    ) -> Answer:
        if not operation.startswith(CHANGING):
            if self._fate.dead.is_set():
                await asyncio.Event().wait()
            return await self._aws.call(service, operation, parameters, retried=retried)
        if operation == "TerminateInstances":
            sins = (self._ending(each) for each in parameters["InstanceIds"])
            self._fate.sins += [sin for sin in sins if sin]
        await self._fate.strikes(before=True)
        try:
            return await self._aws.call(service, operation, parameters, retried=retried)
        finally:
            await self._fate.strikes(before=False)


class Scene(AwsObjects):
    """A cluster on AWS whose Dovetail may be killed at any write."""

    def __init__(self, seed: int, ending: Callable[[str], str]) -> None:
        self.clock = VirtualClock()
        self.storm = FaultStorm(self.clock, seed=seed)
        self.world = World(self.clock, seed, faults=self.storm)
        super().__init__(self.world.server.build_local_client("someone"))
        for each in build_manifests("aws"):
            self.api.create("customresourcedefinitions.apiextensions.k8s.io", each)
        self.aws = Stall(self.clock, seed, cluster=CLUSTER)
        self.aws.sells = TYPES
        self.aws.add_interruption_queue(QUEUE)
        self.joining = NodeJoiner(self.aws, self.world, CLUSTER)
        self.fate = Fate()
        self._ending_sin, self._seed, self._lives = ending, seed, 0
        flags = (f"--interruption-queue={QUEUE}", "--batch-idle-duration=1s", "--eks-control-plane=true")
        self._settings = read_settings((f"--cluster-name={CLUSTER}", *flags), {}, provider="aws")
        self._running: asyncio.Task[None] | None = None

    def _made(self) -> Dovetail:
        self._lives += 1
        aws = MortalAws(self.aws, self.fate, self._ending_sin)
        return Dovetail(
            self._settings,
            MortalTransport(LocalTransport(self.world.server), self.fate),
            clock=self.clock,
            chance=Random(f"{self._seed}/{self._lives}"),
            provider="aws",
            make=partial(AwsProvider, aws=aws),
        )

    def reborn(self, fate: Fate) -> None:
        self.fate = fate
        self._running = asyncio.create_task(self._kept_trying())

    async def _kept_trying(self) -> None:
        """A process that cannot start says why and ends; Kubernetes starts it again."""
        while True:
            try:
                await self._made().run()
                return
            except DovetailError:
                await asyncio.sleep(10)

    async def kill(self) -> None:
        assert self._running is not None
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Scene]:
        async with self.world.running():
            try:
                yield self
            finally:
                await self.kill()


class Telling:
    """A story while it is told."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.chance = Random(f"aws telling {story.seed}")
        self.scene = Scene(story.seed, self._loses)
        self.aws = self.scene.aws
        self.aws.world.listen("instance", self._launched)
        self._launches: Counter[tuple[str, ...]] = Counter()
        self._deaths: list[tuple[int, bool]] = []
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._deleting_since: dict[str, float] = {}
        self._bugs_before = _bugs()
        self._quiet_after = QUIET_AFTER
        self._ledger = Ledger(story.costs)
        # Machines that were warned of, and when AWS takes them.
        self._warned: dict[str, float] = {}

    @property
    def now(self) -> float:
        return self.scene.clock.monotonic()

    @property
    def faults(self) -> AwsFaults:
        return self.aws.faults

    def at(self, second: float, act: Callable[[], None]) -> None:
        self._later.append((second, act))
        self._later.sort(key=lambda each: each[0])
        self._quiet_after = max(self._quiet_after, second + 30)

    def note(self, what: str) -> None:
        self.story.diary.append(f"{self.now:7.1f} s  {what}")

    async def tell(self) -> None:
        for trouble in (self.story.trouble, self.story.second_trouble):
            if trouble:
                getattr(self, "_" + trouble.replace(" ", "_"))()
        scene = self.scene
        async with scene.running():
            self._furnish()
            self._begin()
            supervisor = asyncio.create_task(self._supervise())
            try:
                await self._until(self._calm, self._quiet_after + PATIENCE)
                self.story.costs.repair = max(0.0, self.now - self._quiet_after)
                self.note("all is well; the Deployment goes")
                scene.scale(0)
                await self._until(self._empty, CLEARING)
            finally:
                supervisor.cancel()
                await asyncio.gather(supervisor, return_exceptions=True)
                self.story.revision = scene.world.server.store.revision

    def _furnish(self) -> None:
        ways = {"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["spot", "on-demand"]}
        self.scene.default(requirements=[ways])
        patch = {"spec": {"limits": {"cpu": str(LIMIT)}, "disruption": {"consolidateAfter": "20s"}}}
        self.scene.api.patch(POOLS, "default", patch)
        self.scene.pods(self.story.pods, cpu=self.story.cpu)
        self.scene.api.create(
            "poddisruptionbudgets.policy",
            {
                "metadata": {"name": "web", "namespace": "default"},
                "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
            },
        )

    def _begin(self) -> None:
        call, before = self._deaths.pop(0) if self._deaths else (None, True)
        self.scene.reborn(Fate(call, before=before))

    async def _supervise(self) -> None:
        while True:
            await self.scene.fate.dead.wait()
            self.note("killed")
            await self.scene.kill()
            await asyncio.sleep(self.chance.choice((0.5, 3.0, 20.0, 90.0)))
            self.note("started again")
            self._begin()

    async def _until(self, true: Callable[[], bool], within: float) -> None:
        end = self.now + within
        while self.now < end:
            await asyncio.sleep(STEP if self.now < self._quiet_after else LATER_STEP)
            while self._later and self._later[0][0] <= self.now:
                self._later.pop(0)[1]()
            self._check()
            if self.now > self._quiet_after and not self._later and true():
                return
        raise Lost(f"{true.__name__.lstrip('_')} not reached in {within:.0f} s: {self.scene.told()}")

    # What must hold

    def _launched(self, change: InstanceChange) -> None:
        """A machine starts; its tags say whom it is for."""
        if change.state == "pending":
            tags = change.machine.tags
            names = tags.get(labels.NODECLAIM_TAG) or tags.get(NODECLAIMS_TAG, "")
            self._launches[tuple(sorted(names.split()))] += 1
            self.story.costs.launches += 1
            self.note(f"{change.machine.id} starts for {names}")

    def _loses(self, instance: str) -> str:
        """Pods that would lose their machine while they run; a machine's end comes after its drain."""
        if self.story.merciless:
            return ""
        node = next((n for n in self.scene.nodes if n["spec"].get("providerID", "").endswith(instance)), None)
        if node is None or _condition(node, "Ready") != "True":
            return ""
        name = node["metadata"]["name"]
        running = [
            pod["metadata"]["name"]
            for pod in self.scene.listed("pods")
            if pod["spec"].get("nodeName") == name and "deletionTimestamp" not in pod["metadata"]
        ]
        return f"the machine of {name} was ended while {running} ran on it" if running else ""

    def _check(self) -> None:
        for sin in self.scene.fate.sins:
            if not (self.story.merciless and sin.startswith("deleted a pod")):
                raise Lost(sin)
        bugs = _bugs() - self._bugs_before
        if bugs:
            raise Lost(f"controllers hit {bugs:.0f} bugs; the log says where")
        for names, count in self._launches.items():
            if names and count > len(names):
                raise Lost(f"{count} machines were launched for {' '.join(names)}")
        claims = self.scene.claims
        self._check_costs(claims)
        ordered = sum(_cpu(claim) for claim in claims if not _deleting(claim))
        if ordered > LIMIT:
            raise Lost(f"the pool is limited to {LIMIT} cpu and has {ordered}")
        ending = {each["metadata"]["uid"]: each["metadata"]["name"] for each in claims if _deleting(each)}
        self._deleting_since = {uid: self._deleting_since.get(uid, self.now) for uid in ending}
        for uid, since in self._deleting_since.items():
            if self.now - since > SLOWEST_END:
                raise Lost(f"claim {ending[uid]} has been ending for {self.now - since:.0f} s")

    def _check_costs(self, claims: Sequence[Json]) -> None:
        running = {_provider_id(each): _names(each) for each in self.aws.list_running()}
        now = self.scene.clock.now()
        known = (
            each
            for each in self.aws.instances.by_id.values()
            if each.state != "terminated" and each.visible <= now
        )
        owners = [
            Owner(
                each["metadata"]["uid"],
                each["metadata"]["name"],
                each.get("status", {}).get("providerID", ""),
            )
            for each in claims
        ]
        for released in self._ledger.look(self.now, running, owners, set(map(_provider_id, known))):
            raise Lost(released)
        self._check_warnings(claims)
        if excess := self.story.costs.excess(self.story.budget):
            raise Lost(excess)

    def _check_warnings(self, claims: Sequence[Json]) -> None:
        """A warning is heard when its claim is on its way out before the machine is."""
        staying = {each.get("status", {}).get("providerID", "") for each in claims if not _deleting(each)}
        for instance, taken in tuple(self._warned.items()):
            if _provider_id(self.aws.instances.by_id[instance]) not in staying:
                del self._warned[instance]
            elif self.now >= taken:
                del self._warned[instance]
                self.story.costs.unheard += 1
                self.note(f"nothing was done about the warning of {instance}")

    def _reclaim(self, machine: SimInstance) -> None:
        """Spot takes a machine back in two minutes, and we must have heard of it by then."""
        self.aws.reclaim(machine.id)
        if machine.state == "running":
            self._warned.setdefault(machine.id, self.now + NOTICE)

    def _calm(self) -> bool:
        pods = [each for each in self.scene.listed("pods") if not _deleting(each)]
        running = [
            p for p in pods if p.get("status", {}).get("phase") == "Running" and p["spec"].get("nodeName")
        ]
        return len(running) == len(pods) == self.story.pods and self._matched()

    def _matched(self) -> bool:
        claims = self.scene.claims
        ids = Counter(claim.get("status", {}).get("providerID", "") for claim in claims)
        machines = Counter(f"aws:///{each.zone}/{each.id}" for each in self.aws.list_running())
        nodes = Counter(node["spec"].get("providerID", "") for node in self.scene.nodes)
        return ids == machines == nodes and not any(map(_deleting, claims))

    def _empty(self) -> bool:
        left = (self.scene.claims, self.aws.list_running(), self.scene.nodes, self.aws.templates.by_id)
        return not any(left) and not self.aws.queues.by_name[QUEUE].messages

    # Troubles

    def _killed(self) -> None:
        assert self.story.death is not None
        self._deaths.append(self.story.death)

    def _killed_again_and_again(self) -> None:
        for _ in range(4):
            self._deaths.append((self.chance.randint(1, 15), self.chance.random() < 0.5))

    def _mended(self, after: float) -> None:
        self.at(after, self.faults.clear)

    def _throttled(self) -> None:
        for operation in ("CreateFleet", "DescribeInstances", "TerminateInstances", "CreateLaunchTemplate"):
            self.faults.throttle(operation, 1, self.chance.choice((0.02, 0.1, 0.5)))
        self._mended(300)

    def _server_faults(self) -> None:
        codes = ("InternalError", "ServiceUnavailable", "RequestLimitExceeded")
        self.faults.refuse_sometimes(self.chance.choice((0.1, 0.3, 0.6)), codes)
        self._mended(300)

    def _seen_late(self) -> None:
        self.aws.instances.hidden_for = self.chance.choice((5.0, 20.0, 60.0))

    def _partial_fleets(self) -> None:
        for name in self.chance.sample(TYPES, 2):
            self.aws.restock(name, count=self.chance.randint(0, 1))
        for name in TYPES:
            self.at(240, partial(self.aws.restock, name))

    def _no_capacity(self) -> None:
        self.aws.exhaust()
        self.at(self.chance.choice((60, 240)), self.aws.restock)

    def _credentials_expire(self) -> None:
        start = self.chance.uniform(0, 60)

        def expire() -> None:
            self.faults.expired = True

        self.at(start, expire)
        self._mended(start + 150)

    def _endpoint_hangs(self) -> None:
        operation = self.chance.choice(("*", "ec2:*", "CreateFleet", "DescribeInstances", "ReceiveMessage"))
        start = self.chance.uniform(0, 60)
        self.at(start, lambda: self.faults.hang_requests(operation, self.chance.randint(1, 6)))
        self._mended(start + 300)

    def _lost_answers(self) -> None:
        for operation in ("CreateFleet", "TerminateInstances", "CreateLaunchTemplate", "CreateTags"):
            self.faults.lose_answers(operation, self.chance.randint(1, 2))
        self._mended(400)

    def _one(self, act: Callable[[SimInstance], None]) -> Callable[[], None]:
        def strike() -> None:
            machines = sorted(self.aws.list_running(), key=lambda each: each.id)
            if machines:
                chosen = self.chance.choice(machines)
                self.note(f"{chosen.id} is struck")
                act(chosen)

        return strike

    def _spot_takes_back(self) -> None:
        for _ in range(self.chance.randint(1, 3)):
            self.at(self.chance.uniform(30, 240), self._one(self._reclaim))

    def _killed_when_warned(self) -> None:
        """Spot takes a machine back, and we are killed at one of the writes that follow."""

        def strike(machine: SimInstance) -> None:
            self._reclaim(machine)
            self.scene.fate.strike_at(self.chance.randint(1, 3), before=self.chance.random() < 0.5)

        for second in (90, 300):
            self.at(second, self._one(strike))

    def _claim_deleted_at_launch(self) -> None:
        """A person deletes a claim whose machine has just been launched; and perhaps we are killed then."""
        left = [self.chance.randint(1, 2)]

        def delete(change: InstanceChange) -> None:
            names = [name for name in _names(change.machine) if self._there(name)]
            if change.state == "pending" and left[0] and names:
                left[0] -= 1
                self.note(f"{names[0]} is deleted while it is launched")
                self.scene.api.delete(CLAIMS, names[0])
                if self.chance.random() < 0.5:
                    self.scene.fate.strike_at(0, before=False)

        self.aws.world.listen("instance", delete)

    def _there(self, claim: str) -> bool:
        return any(each["metadata"]["name"] == claim and not _deleting(each) for each in self.scene.claims)

    def _many_messages(self) -> None:
        """Foreign, malformed and repeated ones, and among them two that matter."""
        bodies = [json.dumps({"version": "0", "source": "aws.ec2", "detail-type": "x"})] * 50
        queue = self.aws.queues.by_name[QUEUE]

        def strike(machine: SimInstance) -> None:
            for body in (*bodies, "{", *bodies):
                queue.send(body)
            self._reclaim(machine)
            self.aws.rebalance(machine.id)
            self.aws.reclaim(machine.id)

        for _ in range(2):
            self.at(self.chance.uniform(30, 200), self._one(strike))

    def _impaired_machine(self) -> None:
        check = self.chance.choice(("instance", "system"))
        self.at(self.chance.uniform(30, 200), self._one(lambda each: self.aws.impair(each.id, check)))
        self._quiet_after = max(self._quiet_after, 480)

    def _ended_by_hand(self) -> None:
        def end(machine: SimInstance) -> None:
            self.aws.instances.terminate(machine)

        self.at(self.chance.uniform(20, 200), self._one(end))

    def _never_joins(self) -> None:
        left = [self.chance.randint(1, 2)]

        def stillborn(change: InstanceChange) -> None:
            if change.state == "pending" and left[0]:
                left[0] -= 1
                self.scene.joining.lost.add(change.machine.id)

        self.aws.world.listen("instance", stillborn)

    def _templates_vanish(self) -> None:
        for _ in range(3):
            self.at(self.chance.uniform(2, 60), self._forget_templates)

    def _forget_templates(self) -> None:
        self.aws.templates.by_id.clear()
        self.aws.templates.by_name.clear()

    def _launches_denied(self) -> None:
        self.aws.refuse("UnauthorizedOperation", "CreateFleet", None)
        self._mended(150)

    def _queue_away(self) -> None:
        code = self.chance.choice(("AWS.SimpleQueueService.NonExistentQueue", "AccessDenied"))
        self.aws.refuse(code, "sqs:*", None)
        self._mended(200)

    def _rules(self, *rules: FaultRule) -> None:
        self.scene.storm.rules = (*self.scene.storm.rules, *rules)
        self._quiet_after = max(self._quiet_after, *(rule.end + 30 for rule in rules))

    def _api_away(self) -> None:
        start = self.chance.uniform(0, 60)
        self._rules(
            FaultRule(trouble="unreachable", start=start, end=start + 300, amount=30, clients=("karpenter",))
        )

    def _flaky_api(self) -> None:
        end, few, us = 240, 0.2, ("karpenter",)
        self._rules(
            self.chance.choice(
                (
                    FaultRule(trouble="throttled", end=end, probability=few, clients=us),
                    FaultRule(trouble="server-error", end=end, probability=few, clients=us),
                    FaultRule(trouble="unavailable", end=end, probability=few, clients=us),
                    FaultRule(trouble="reset", end=end, probability=few, clients=us),
                    FaultRule(trouble="stale", end=end, probability=few, clients=us),
                    FaultRule(trouble="lost-reply", end=end, probability=few, clients=us),
                )
            )
        )

    def _conflicts(self) -> None:
        start = self.chance.uniform(0, 30)
        self._rules(FaultRule(trouble="conflict", start=start, end=start + 120, clients=("karpenter",)))

    def _class_deleted(self) -> None:
        start = self.chance.uniform(0, 60)
        kept: list[Json] = []

        def delete() -> None:
            kept.append(self.scene.api.get(CLASSES, "default"))
            self.scene.api.delete(CLASSES, "default")

        def again() -> None:
            try:
                self.scene.api.get(CLASSES, "default")
            except ApiError:
                spec = {key: kept[0][key] for key in ("apiVersion", "kind", "spec")}
                self.scene.api.create(CLASSES, {**spec, "metadata": {"name": "default"}})
                self.scene.scale(self.story.pods)
                return
            # Claims hold it, and of a class that is going nothing can be had, nor told which nodes cost less.
            self.scene.scale(0)
            for claim in self.scene.claims:
                self.scene.api.delete(CLAIMS, claim["metadata"]["name"])
            self.at(self.now + 30, again)

        self.at(start, delete)
        self.at(start + 120, again)


def _provider_id(machine: SimInstance) -> str:
    return f"aws:///{machine.zone}/{machine.id}"


def _names(machine: SimInstance) -> list[str]:
    """The claims a machine was launched for, as its tags tell."""
    return (machine.tags.get(NODECLAIMS_TAG) or machine.tags.get(labels.NODECLAIM_TAG, "")).split()


def _bugs() -> float:
    """Exceptions that no controller meant to raise."""
    return sum(sample.value for metric in PANICS.collect() for sample in metric.samples)


def _condition(document: Json, kind: str) -> str:
    listed = document.get("status", {}).get("conditions", ())
    return next((each["status"] for each in listed if each["type"] == kind), "")


def _deleting(document: Json) -> bool:
    return "deletionTimestamp" in document["metadata"]


def _cpu(claim: Json) -> float:
    text = str(claim.get("status", {}).get("capacity", {}).get("cpu", "0"))
    return float(text.removesuffix("m")) / 1000 if text.endswith("m") else float(text)


def tell(seed: int) -> Story:
    """The whole story of a seed; Lost when it does not end well."""
    story = Story.of(seed)

    async def told() -> None:
        await Telling(story).tell()

    try:
        run_virtual(told())
    except Lost as lost:
        diary = "\n".join(story.diary)
        again = f"replay: python hack/survival.py --aws --seed {seed}"
        raise Lost(f"{story}\n{lost}\n{diary}\n{again}") from None
    return story
