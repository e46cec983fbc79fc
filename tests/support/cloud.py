"""A small cloud in memory: it launches and ends instances, and fails, dawdles and forgets on demand.

cloud.fail("create", Retry("busy"))            the next create raises this; several fail in turn
cloud.fail("delete", Retry("down"), always=True)
cloud.exhaust("m5.large", zone="a")            no capacity there until cloud.restock()
cloud.slow("get", 3.0)                         takes that long, in the test's time
cloud.forget(provider_id)                      the machine runs on, and the cloud denies it
cloud.lose_answer("create")                    does it, and the answer never arrives
cloud.on_launch = lambda claim, instance: …    make a Node join, say
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.labels import Flavour
from dovetail.api.meta import Kind
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.controllers.base import Controller
from dovetail.controllers.context import ControllerContext
from dovetail.controllers.provider_port import MakeProvider
from dovetail.errors import Gone, InsufficientCapacity, Retry
from dovetail.ports import Clock, Cloud, Instance, RegistrationHook, RepairPolicy
from dovetail.scheduling.model.instance_types import InstanceType, Offering
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.resources import convert_to_nano, fits_within
from support.worlds import FLAVOUR, default_types

__all__ = ["FakeCloud", "bare"]

KWOK = Kind("karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass", "kwoknodeclasses", namespaced=False)


class FakeCloud:
    """Fits the Cloud port. `ending` is how long an instance takes to go once its end was asked for."""

    name = "fake"
    flavour: Flavour = FLAVOUR
    node_classes: tuple[Kind, ...] = (KWOK,)

    def __init__(
        self,
        clock: Clock,
        types: Sequence[InstanceType] | None = None,
        *,
        policies: Sequence[RepairPolicy] = (),
        hooks: Sequence[RegistrationHook] = (),
        ending: float = 0.0,
    ) -> None:
        self.clock = clock
        self.types = default_types() if types is None else tuple(types)
        self.repair_policies: tuple[RepairPolicy, ...] = tuple(policies)
        self.hooks: Sequence[RegistrationHook] = tuple(hooks)
        self.ending = ending
        self.instances: dict[str, Instance] = {}
        self.calls: Counter[str] = Counter()
        self.refusals: list[tuple[str, str]] = []
        self.drift: dict[str, str] = {}
        self.on_launch: Callable[[NodeClaim, Instance], None] = lambda claim, instance: None
        self._made = 0
        self._failures: dict[str, list[Exception]] = {}
        self._broken: dict[str, Exception] = {}
        self._delays: dict[str, float] = {}
        self._unanswered: Counter[str] = Counter()
        self._exhausted: set[tuple[str, str, str]] = set()
        self._forgotten: set[str] = set()
        self._gone_at: dict[str, float] = {}

    # What a test may ask for

    def fail(self, call: str, *errors: Exception, always: bool = False) -> None:
        """Let the next calls of this name fail in turn; or every one of them, until `mend`."""
        if always:
            self._broken[call] = errors[0]
        else:
            self._failures.setdefault(call, []).extend(errors)

    def mend(self, call: str) -> None:
        self._broken.pop(call, None)
        self._failures.pop(call, None)

    def slow(self, call: str, seconds: float) -> None:
        self._delays[call] = seconds

    def lose_answer(self, call: str) -> None:
        """The next call does its work, and raises Retry."""
        self._unanswered[call] += 1

    def exhaust(self, instance_type: str = "", zone: str = "", capacity_type: str = "") -> None:
        """No more of these; what is left empty means any."""
        self._exhausted.add((instance_type, zone, capacity_type))

    def restock(self) -> None:
        self._exhausted.clear()

    def forget(self, provider_id: str) -> None:
        self._forgotten.add(provider_id)

    def remember(self, provider_id: str) -> None:
        self._forgotten.discard(provider_id)

    def adopt(self, claim: NodeClaim) -> Instance:
        """An instance for a claim that was launched before the test began."""
        instance = Instance(
            provider_id=claim.status.provider_id,
            image_id=claim.status.image_id,
            labels=claim.labels,
            capacity=claim.status.capacity,
            allocatable=claim.status.allocatable,
            claim=claim.name,
            created=self.clock.now(),
        )
        self.instances[instance.provider_id] = instance
        return instance

    def vanish(self, provider_id: str) -> None:
        """The machine is gone, without a word."""
        self.instances.pop(provider_id, None)

    # The port

    async def create(self, claim: NodeClaim) -> Instance:
        await self._meet("create")
        chosen, offering = self._choose(claim)
        self._made += 1
        instance = Instance(
            provider_id=f"fake://instance-{self._made:04d}",
            image_id="image-1",
            labels=_labels(chosen, offering),
            capacity=chosen.capacity,
            allocatable=chosen.allocatable(),
            claim=claim.name,
            created=self.clock.now(),
        )
        self.instances[instance.provider_id] = instance
        self.on_launch(claim, instance)
        self._answer("create")
        return instance

    async def delete(self, claim: NodeClaim) -> None:
        await self._meet("delete")
        provider_id = claim.status.provider_id
        instance = self._known(provider_id)
        if not instance.deleting:
            self._gone_at[provider_id] = self.clock.monotonic() + self.ending
            self.instances[provider_id] = replace(instance, deleting=True)
        self._answer("delete")

    async def get(self, provider_id: str) -> Instance:
        await self._meet("get")
        return self._known(provider_id)

    async def list(self) -> tuple[Instance, ...]:
        await self._meet("list")
        self._expire()
        return tuple(each for id, each in self.instances.items() if id not in self._forgotten)

    async def list_instance_types(self, nodepool: NodePool) -> tuple[InstanceType, ...]:
        await self._meet("instance_types")
        return tuple(self._stocked(each) for each in self.types)

    async def find_drift_reason(self, claim: NodeClaim) -> str:
        await self._meet("drifted")
        return self.drift.get(claim.name, "")

    # Inside

    async def _meet(self, call: str) -> None:
        self.calls[call] += 1
        if call in self._delays:
            await self.clock.sleep(self._delays[call])
        if call in self._broken:
            raise self._broken[call]
        if self._failures.get(call):
            raise self._failures[call].pop(0)

    def _answer(self, call: str) -> None:
        if self._unanswered[call]:
            self._unanswered[call] -= 1
            raise Retry(f"calling {call}: no answer in time")

    def _expire(self) -> None:
        now = self.clock.monotonic()
        for provider_id, at in tuple(self._gone_at.items()):
            if at <= now:
                del self._gone_at[provider_id]
                self.instances.pop(provider_id, None)

    def _known(self, provider_id: str) -> Instance:
        self._expire()
        if provider_id in self._forgotten or provider_id not in self.instances:
            raise Gone(f"reading instance {provider_id}: there is none")
        return self.instances[provider_id]

    def _choose(self, claim: NodeClaim) -> tuple[InstanceType, Offering]:
        wanted = Requirements.from_expressions(claim.spec.requirements)
        options: list[tuple[float, str, InstanceType, Offering]] = []
        for each in self.types:
            if not wanted.is_compatible(each.requirements, FLAVOUR.well_known):
                continue
            if not fits_within(
                convert_to_nano(claim.spec.resources.requests), convert_to_nano(each.allocatable())
            ):
                continue
            options += [
                (deal.price, each.name, each, deal)
                for deal in each.offerings
                if deal.available
                and wanted.is_compatible(deal.requirements, FLAVOUR.well_known)
                and self._in_stock(each, deal)
            ]
        if not options:
            raise InsufficientCapacity(f"launching {claim.name}: none of its offerings has capacity")
        _, _, chosen, offering = min(options, key=lambda option: option[:2])
        return chosen, offering

    def _in_stock(self, instance_type: InstanceType, offering: Offering) -> bool:
        described = (instance_type.name, offering.zone, offering.capacity_type)
        short = any(
            all(theirs in ("", mine) for mine, theirs in zip(described, rule, strict=True))
            for rule in self._exhausted
        )
        if short:
            self.refusals.append((instance_type.name, offering.zone))
        return not short

    def _stocked(self, instance_type: InstanceType) -> InstanceType:
        offerings = tuple(
            replace(each, available=each.available and self._in_stock(instance_type, each))
            for each in instance_type.offerings
        )
        return replace(instance_type, offerings=offerings)


def _labels(instance_type: InstanceType, offering: Offering) -> dict[str, str]:
    both = {**instance_type.requirements.by_key, **offering.requirements.by_key}
    known = {key: values.only for key, values in both.items() if values.only is not None}
    return known | {labels.INSTANCE_TYPE: instance_type.name}


def bare(cloud: Cloud) -> MakeProvider:
    """A provider that is this cloud and nothing more."""
    return lambda given: _Bare(cloud)


class _Bare:
    aws = None

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

    async def prepare(self) -> None:
        """Everything is known."""

    async def look_around(self) -> None:
        """Everything is known."""

    def list_assumptions(self) -> tuple[str, ...]:
        return ()

    def build_controllers(self, parts: ControllerContext) -> tuple[Controller, ...]:
        return ()

    def close(self) -> None:
        """Nothing is held."""
