"""The AWS provider over a simulated AWS, one class and one pool ready, in virtual time.

    ec2 = await provided()
    machine = await ec2.cloud.create(ec2.claim(cpu="1"))
    assert ec2.aws.running()

Nothing of ours is stood in for but Kubernetes: caches are what a test puts into them, events are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from dovetail.api import conditions
from dovetail.api.meta import Object, ObjectMeta
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import (
    AMISelectorTerm,
    EC2NodeClass,
    EC2NodeClassSpec,
    SecurityGroupSelectorTerm,
    SubnetSelectorTerm,
)
from dovetail.api.nodepool import NodeClassReference, NodePool
from dovetail.api.overlay import NodeOverlay
from dovetail.aws import Answer
from dovetail.controllers.provider_port import ProviderContext
from dovetail.ports import Instance
from dovetail.providers.aws.cloud import AwsCloud
from dovetail.providers.aws.provider import AwsProvider
from dovetail.runtime.kube import KubeClient
from dovetail.scheduling.model.instance_types import InstanceType, Offering
from dovetail.settings import read_settings
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.clock import VirtualClock
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.transport import LocalTransport
from support.aws import CLUSTER
from support.builders import RequirementLike, nodeclaim, nodepool

__all__ = ["CLASS_REF", "FEW", "ZONES", "Ec2", "Kept", "Noted", "filled", "node_class", "provided"]

T = TypeVar("T", bound=Object)
CLASS_REF = NodeClassReference(group="karpenter.k8s.aws", kind="EC2NodeClass", name="default")
DISCOVERED = {"karpenter.sh/discovery": CLUSTER}
ZONES = ("us-west-2a", "us-west-2b", "us-west-2c")
FEW = (
    *("t3.large", "m5.large", "m5.xlarge", "m5.2xlarge", "m7i-flex.large", "m5.metal", "m6idn.32xlarge"),
    *("c6g.large", "t4g.small", "t4g.medium", "t4g.xlarge", "c5.large", "c5.xlarge", "r5.large"),
    *("g4dn.8xlarge", "g5.12xlarge", "p5.48xlarge", "inf2.xlarge", "trn1.2xlarge"),
    *("a1.medium", "a1.large", "m4.large", "m7i.large"),
)
BASIC = (f"--cluster-name={CLUSTER}", "--eks-control-plane=true")


class Shop(SimulatedAws):
    """An AWS that sells few types, so that a test does not wait for a thousand others."""

    sells: Sequence[str] = ()
    # How long the answer to an operation is on its way, in seconds; what was asked for is done before.
    answers_take: Mapping[str, float] = {}

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any], /, *, retried: bool = True
    ) -> Answer:
        if operation == "DescribeInstanceTypes" and self.sells and not parameters.get("DryRun"):
            parameters = {"InstanceTypes": list(self.sells)}
        answer = await super().call(service, operation, parameters, retried=retried)
        if operation == "DescribeInstanceTypeOfferings" and self.sells:
            kept = [each for each in answer["InstanceTypeOfferings"] if each["InstanceType"] in self.sells]
            answer = {**answer, "InstanceTypeOfferings": kept}
        if operation in self.answers_take:
            await self.clock.sleep(self.answers_take[operation])
        return answer


class Kept(Generic[T]):
    """A cache of what a test puts there."""

    def __init__(self, objects: Iterable[T] = ()) -> None:
        self._by_name = {each.name: each for each in objects}

    def put(self, *objects: T) -> None:
        self._by_name |= {each.name: each for each in objects}

    def drop(self, name: str) -> None:
        self._by_name.pop(name, None)

    def get(self, name: str, namespace: str = "") -> T | None:
        return self._by_name.get(name)

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._by_name.values()))

    def by(self, index: str, value: str) -> tuple[T, ...]:
        return ()


@dataclass
class Noted:
    """A recorder that keeps what it is told."""

    events: list[tuple[str, str, str]] = field(default_factory=list)

    def publish_event(
        self,
        obj: Object,
        reason: str,
        note: str,
        *,
        warning: bool = False,
        dedupe: tuple[str, ...] = (),
        window: float = 120.0,
    ) -> None:
        self.events.append((obj.name, reason, note))

    @property
    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.events]


@dataclass
class Ec2:
    """The provider and its world."""

    aws: SimulatedAws
    clock: VirtualClock
    provider: AwsProvider
    classes: Kept[EC2NodeClass]
    pools: Kept[NodePool]
    claims: Kept[NodeClaim]
    overlays: Kept[NodeOverlay]
    noted: Noted
    shifted: set[str]

    @property
    def cloud(self) -> AwsCloud:
        return self.provider.cloud

    @property
    def node_class(self) -> EC2NodeClass:
        found = self.classes.get("default")
        assert found is not None
        return found

    @property
    def pool(self) -> NodePool:
        found = self.pools.get("default")
        assert found is not None
        return found

    async def apply(self, wanted: EC2NodeClass | None = None, **spec: Any) -> EC2NodeClass:
        """A class as its controller would have it: resolved by the provider's own parts, and ready."""
        made = wanted or self.classes.get("default") or node_class()
        if spec:
            generation = made.metadata.generation + 1
            made = replace(
                made,
                spec=replace(made.spec, **spec),
                metadata=replace(made.metadata, generation=generation),
            )
        provider = self.provider
        await provider.placement.find_group(made)
        status = replace(
            made.status,
            subnets=await provider.subnets.list_subnets(made),
            security_groups=await provider.security_groups.list_groups(made),
            amis=await provider.images.list_images(made),
            capacity_reservations=await provider.reservations.list_reservations(made),
            instance_profile=await provider.profiles.resolve_profile(made),
        )
        made = ready(replace(made, status=status), self.clock)
        self.classes.put(made)
        return made

    def change(self, **status: Any) -> EC2NodeClass:
        """Another status than the resolved one."""
        made = replace(self.node_class, status=replace(self.node_class.status, **status))
        self.classes.put(made)
        return made

    def claim(
        self,
        *requirements: RequirementLike,
        name: str = "default-abcde",
        annotations: Mapping[str, str] | None = None,
        **requests: str,
    ) -> NodeClaim:
        """A claim nobody has launched; `cpu="1"` and the like are its requests."""
        asked = {key.replace("__", "/").replace("_", "."): amount for key, amount in requests.items()}
        return nodeclaim(
            name,
            node_class=CLASS_REF,
            requirements=requirements,
            requests=asked,
            annotations=annotations,
            true=(),
        )

    async def launched(self, *requirements: RequirementLike, **more: Any) -> tuple[NodeClaim, Instance]:
        """A claim with what its launch came to written on it."""
        claim = self.claim(*requirements, **more)
        instance = await self.cloud.create(claim)
        return filled(claim, instance), instance

    async def offerings(self, name: str) -> list[Offering]:
        """The available offerings of a type."""
        return [offering for offering in (await self.type(name)).offerings if offering.available]

    async def type(self, name: str) -> InstanceType:
        types = await self.cloud.list_instance_types(self.pool)
        return next(each for each in types if each.name == name)

    def asked(self, operation: str) -> list[Mapping[str, Any]]:
        """The parameters of every request for an operation so far."""
        return [call.parameters for call in self.aws.calls if call.operation == operation]

    def overrides(self) -> list[Mapping[str, Any]]:
        """What the last fleet was offered."""
        configured = self.asked("CreateFleet")[-1]["LaunchTemplateConfigs"]
        return [override for each in configured for override in each["Overrides"]]


def filled(claim: NodeClaim, instance: Instance) -> NodeClaim:
    """A claim after its launch."""
    return replace(
        claim,
        metadata=replace(
            claim.metadata,
            labels={**instance.labels, **claim.labels},
            annotations={**claim.annotations, **instance.annotations},
        ),
        status=replace(claim.status, provider_id=instance.provider_id, image_id=instance.image_id),
    )


def ready(made: EC2NodeClass, clock: VirtualClock) -> EC2NodeClass:
    now = clock.now()
    made = conditions.open_conditions(made, now)
    for kind in conditions.EC2_NODECLASS.dependents:
        made = conditions.set_true(made, kind, now)
    return made


def node_class(name: str = "default", **spec: Any) -> EC2NodeClass:
    """A class that finds the simulated cluster's things by their tags."""
    usual: dict[str, Any] = {
        "ami_selector_terms": (AMISelectorTerm(alias="al2023@latest"),),
        "subnet_selector_terms": (SubnetSelectorTerm(tags=DISCOVERED),),
        "security_group_selector_terms": (SecurityGroupSelectorTerm(tags=DISCOVERED),),
        "role": f"KarpenterNodeRole-{CLUSTER}",
    }
    metadata = ObjectMeta(name=name, uid=f"uid-{name}", generation=1)
    return EC2NodeClass(metadata=metadata, spec=EC2NodeClassSpec(**{**usual, **spec}))


async def provided(
    flags: Sequence[str] = (),
    *,
    seed: int = 0,
    types: Sequence[str] = FEW,
    zones: Sequence[str] = ZONES,
    prices: bool = False,
    **spec: Any,
) -> Ec2:
    """Everything ready: AWS furnished, the provider prepared, a class and a pool there.

    Without `types` all that EC2 sells is for sale. Without `prices` the built-in ones hold and spot costs
    as much as on-demand. The class has a subnet in each of the `zones`.
    """
    clock = VirtualClock()
    aws = Shop(clock, seed, cluster=CLUSTER)
    aws.sells = types
    classes: Kept[EC2NodeClass] = Kept()
    pools = Kept([nodepool(node_class=CLASS_REF)])
    overlays: Kept[NodeOverlay] = Kept()
    claims: Kept[NodeClaim] = Kept()
    caches: dict[type[Any], Any] = {
        EC2NodeClass: classes,
        NodePool: pools,
        NodeOverlay: overlays,
        NodeClaim: claims,
    }
    noted, server = Noted(), ApiServer(clock, Random(seed))
    given = ProviderContext(
        settings=read_settings((*BASIC, *flags), {}, provider="aws"),
        kube=KubeClient(LocalTransport(server), clock),
        clock=clock,
        chance=Random(seed),
        recorder=noted,
        cache=caches.__getitem__,
    )
    shifted: set[str] = set()
    provider = AwsProvider(given, aws, shifted=shifted.__contains__)
    ec2 = Ec2(aws, clock, provider, classes, pools, claims, overlays, noted, shifted)
    await provider.prepare()
    if prices:
        await provider.prices.refresh()
    subnets = [each.id for each in aws.network.subnets.values() if each.zone in zones]
    spec = {"subnet_selector_terms": tuple(SubnetSelectorTerm(id=each) for each in subnets), **spec}
    await ec2.apply(node_class(**spec))
    return ec2
