"""Launch templates in EC2: made once, found again, deleted when nobody asks."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from msgspec.structs import replace as changed

from dovetail.api import labels
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.aws import AwsDenied, AwsError, AwsTrouble
from dovetail.errors import ClassNotReady, CreateFailed
from dovetail.metrics import REGISTRY
from dovetail.ports import Kube
from dovetail.providers.aws.cluster_discovery import ClusterDiscovery, ClusterFacts
from dovetail.providers.aws.launch_templates import LaunchTemplate, LaunchTemplateProvider
from dovetail.settings import FeatureGates, Settings
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.clock import VirtualClock
from support.launches import CLUSTER, CLUSTER_FACTS, claim_for, ec2_class, instance_types
from support.stage import virtual

SETTINGS = Settings(cluster_name=CLUSTER)
TAKEN = "InvalidLaunchTemplateName.AlreadyExistsException"


class Known(ClusterDiscovery):
    """A discovery that has learned everything but what is asked of EKS."""

    def learn(self, facts: ClusterFacts) -> None:
        self._facts = facts


class Room:
    """LaunchTemplates on a simulated EC2, and what can be seen of it from outside."""

    def __init__(self, settings: Settings = SETTINGS, aws: SimulatedAws | None = None) -> None:
        self.clock = VirtualClock()
        self.aws = aws or SimulatedAws(self.clock, 1, cluster=CLUSTER)
        self.discovery = Known(settings, self.aws, cast(Kube, None))
        self.discovery.learn(replace(CLUSTER_FACTS, service_cidr=""))
        self.templates = LaunchTemplateProvider(self.aws, self.clock, self.discovery, settings)

    async def ensure(
        self, node_class: EC2NodeClass | None = None, *names: str, way: str = labels.SPOT, **more: Any
    ) -> tuple[LaunchTemplate, ...]:
        node_class = node_class or ec2_class()
        types = instance_types(node_class, *(names or ("m5.large",)))
        claim = more.pop("claim", None) or claim_for()
        tags = more.pop("tags", None) or tags_of(node_class)
        return await self.templates.ensure_templates(node_class, claim, types, way, tags, **more)

    @property
    def names(self) -> set[str]:
        return set(self.aws.templates.by_name)

    def count(self, operation: str) -> int:
        return sum(call.operation == operation for call in self.aws.calls)

    def held(self, name: str) -> Mapping[str, Any]:
        return self.aws.templates.by_name[name].versions[-1]


def tags_of(node_class: EC2NodeClass) -> dict[str, str]:
    return {
        f"{labels.CLUSTER_TAG_PREFIX}{CLUSTER}": "owned",
        labels.EKS_CLUSTER_TAG: CLUSTER,
        labels.NODEPOOL: "web",
        labels.EC2_NODECLASS: node_class.name,
    }


def size_of(class_name: str) -> float | None:
    return REGISTRY.get_sample_value("karpenter_ec2nodeclasses_userdata_bytes", {"nodeclass": class_name})


@pytest.mark.spec("aws-120")
@virtual
async def test_launches_alike_share_their_templates() -> None:
    room = Room()
    first = await room.ensure(None, "m5.large", "m5.xlarge")
    again = await room.ensure(None, "m5.large", "m5.xlarge")
    assert [each.name for each in first] == [each.name for each in again]
    assert len(room.names) == room.count("CreateLaunchTemplate") == 2
    assert all(name.startswith("karpenter.k8s.aws/") and name[18:].isdigit() for name in room.names)


@virtual
async def test_launches_at_the_same_moment_make_a_template_once() -> None:
    room = Room()
    room.aws.faults.latency = (1.0, 1.0)
    await asyncio.gather(*(room.ensure() for _ in range(10)))
    assert room.count("CreateLaunchTemplate") == room.count("DescribeLaunchTemplates") == 1


@pytest.mark.spec("aws-122")
@virtual
async def test_what_a_node_is_told_makes_another_template_and_its_types_do_not() -> None:
    room = Room()
    (plain,) = await room.ensure()
    (other_type,) = await room.ensure(None, "c5.large")
    (labelled,) = await room.ensure(claim=claim_for(labelled={"team": "shop"}))
    room.discovery.learn(replace(CLUSTER_FACTS, ca_bundle="b3RoZXI="))
    (trusting,) = await room.ensure()
    assert plain.name == other_type.name
    assert len({plain.name, labelled.name, trusting.name}) == 3


@pytest.mark.spec("aws-122")
@virtual
async def test_the_order_of_lists_makes_no_other_template() -> None:
    room = Room()
    node_class = ec2_class()
    groups = tuple(reversed(node_class.status.security_groups))
    turned = changed(node_class, status=changed(node_class.status, security_groups=groups))
    assert [each.name for each in await room.ensure(node_class)] == [
        each.name for each in await room.ensure(turned)
    ]


@pytest.mark.spec("aws-123")
@virtual
async def test_two_classes_never_share_a_template() -> None:
    room = Room()
    (one,) = await room.ensure(ec2_class(name="one"), tags={"team": "shop"})
    (two,) = await room.ensure(ec2_class(name="two"), tags={"team": "shop"})
    assert one.name != two.name


@pytest.mark.parametrize("family", ["AL2023", "Custom"])
@virtual
async def test_each_way_of_buying_has_its_template(family: str) -> None:
    room = Room()
    made = [
        (await room.ensure(ec2_class(family), way=way))[0].name for way in (labels.SPOT, labels.ON_DEMAND)
    ]
    assert len(set(made)) == 2


@pytest.mark.spec("aws-126")
@virtual
async def test_a_template_carries_the_tags_of_its_launch() -> None:
    room = Room()
    (made,) = await room.ensure()
    assert room.aws.templates.by_name[made.name].tags == tags_of(ec2_class())


@virtual
async def test_a_template_that_another_leader_made_is_used() -> None:
    before = Room()
    (made,) = await before.ensure()
    after = Room(aws=before.aws)
    assert (await after.ensure())[0].name == made.name
    assert after.count("CreateLaunchTemplate") == 1


@virtual
async def test_a_template_that_appears_between_looking_and_making_is_used() -> None:
    room = Room()
    (made,) = await room.ensure()
    room.templates.forget_template(made.name)
    room.aws.refuse("InvalidLaunchTemplateName.NotFoundException", "DescribeLaunchTemplates")
    assert (await room.ensure())[0].name == made.name
    assert [call.code for call in room.aws.calls if call.operation == "CreateLaunchTemplate"] == ["", TAKEN]


@virtual
async def test_a_refusal_of_ec2_is_handed_on_as_it_is() -> None:
    room = Room()
    room.aws.refuse("UnauthorizedOperation", "CreateLaunchTemplate", times=None)
    with pytest.raises(AwsDenied):
        await room.ensure(None, "m5.large", "m5.xlarge")
    assert not room.names


@pytest.mark.spec("aws-121")
@virtual
async def test_a_forgotten_template_is_looked_for_and_made_again() -> None:
    room = Room()
    (made,) = await room.ensure()
    await room.aws.call("ec2", "DeleteLaunchTemplate", {"LaunchTemplateName": made.name})
    assert (await room.ensure())[0].name not in room.names  # the cache still vouches for it
    room.templates.forget_template(made.name)
    await room.ensure()
    assert made.name in room.names


@virtual
async def test_a_template_nobody_asks_for_is_deleted_after_a_minute() -> None:
    room = Room()
    await room.ensure()
    await room.clock.sleep(59)
    await room.templates.delete_expired()
    assert len(room.names) == 1
    await room.clock.sleep(1)
    await room.templates.delete_expired()
    assert not room.names


@virtual
async def test_every_use_gives_a_template_another_minute() -> None:
    room = Room()
    for _ in range(5):
        await room.ensure()
        await room.clock.sleep(45)
        await room.templates.delete_expired()
    assert len(room.names) == room.count("CreateLaunchTemplate") == 1


@virtual
async def test_a_template_already_gone_is_no_matter_to_the_sweep() -> None:
    room = Room()
    (made,) = await room.ensure()
    await room.aws.call("ec2", "DeleteLaunchTemplate", {"LaunchTemplateName": made.name})
    await room.clock.sleep(61)
    await room.templates.delete_expired()
    await room.ensure()
    assert room.names == {made.name}


@virtual
async def test_a_template_that_ec2_will_not_delete_is_tried_again() -> None:
    room = Room()
    await room.ensure()
    await room.clock.sleep(61)
    room.aws.refuse("InternalError", "DeleteLaunchTemplate")
    with pytest.raises(AwsTrouble):
        await room.templates.delete_expired()
    await room.templates.delete_expired()
    assert not room.names


@virtual
async def test_a_template_whose_time_is_over_is_looked_for_before_it_is_used() -> None:
    room = Room()
    (made,) = await room.ensure()
    await room.aws.call("ec2", "DeleteLaunchTemplate", {"LaunchTemplateName": made.name})
    await room.clock.sleep(61)
    await room.ensure()
    assert made.name in room.names


@virtual
async def test_a_sweep_during_a_launch_leaves_its_template() -> None:
    room = Room()
    (made,) = await room.ensure()
    await room.clock.sleep(61)
    room.aws.faults.latency = (1.0, 1.0)
    launching = asyncio.create_task(room.ensure())
    await asyncio.sleep(0)
    await asyncio.gather(launching, room.templates.delete_expired())
    assert made.name in room.names
    assert room.count("DeleteLaunchTemplate") == 0


@virtual
async def test_a_launch_during_the_sweep_ends_with_a_template_that_is_there() -> None:
    room = Room()
    await room.ensure()
    await room.clock.sleep(61)
    room.aws.faults.latency = (1.0, 1.0)
    sweeping = asyncio.create_task(room.templates.delete_expired())
    await asyncio.sleep(0)
    (made,) = await room.ensure()
    await sweeping
    assert made.name in room.names


@virtual
async def test_what_an_earlier_leader_left_is_swept_too() -> None:
    before = Room()
    await before.ensure(ec2_class(name="one"))
    await before.ensure(ec2_class(name="two"))
    (kept,) = await before.ensure(ec2_class(name="kept"))
    await stranger(before.aws, "karpenter.k8s.aws/1", {labels.EKS_CLUSTER_TAG: "elsewhere"})
    after = Room(aws=before.aws)
    await after.templates.adopt_templates()
    await after.clock.sleep(40)
    await after.ensure(ec2_class(name="kept"))
    await after.clock.sleep(30)
    await after.templates.delete_expired()
    assert after.names == {kept.name, "karpenter.k8s.aws/1"}


@virtual
async def test_many_pages_of_templates_are_adopted() -> None:
    room = Room()
    for place in range(450):
        await stranger(room.aws, f"karpenter.k8s.aws/{place}", {labels.EKS_CLUSTER_TAG: CLUSTER})
    await room.templates.adopt_templates()
    await room.clock.sleep(60)
    await room.templates.delete_expired()
    assert not room.names
    assert room.count("DescribeLaunchTemplates") == 3


@virtual
async def test_a_class_that_goes_takes_its_templates_with_it() -> None:
    room = Room()
    await room.ensure(ec2_class(name="going"), "m5.large", "m5.xlarge")
    (kept,) = await room.ensure(ec2_class(name="staying"))
    await room.templates.delete_for("going")
    assert room.names == {kept.name}
    await room.ensure(ec2_class(name="going"))
    assert len(room.names) == 2


@virtual
async def test_what_cannot_be_deleted_holds_up_a_class_that_goes() -> None:
    room = Room()
    await room.ensure(ec2_class(name="going"))
    room.aws.refuse("UnauthorizedOperation", "DeleteLaunchTemplate")
    with pytest.raises(AwsError):
        await room.templates.delete_for("going")
    assert len(room.names) == 1


@pytest.mark.spec("aws-119")
@virtual
async def test_the_size_of_user_data_is_told_while_the_class_is_there() -> None:
    room = Room()
    (made,) = await room.ensure(ec2_class(name="measured"))
    assert size_of("measured") == len(b64decode(room.held(made.name)["UserData"]))
    await room.templates.delete_for("measured")
    assert size_of("measured") is None


@virtual
async def test_user_data_near_the_limit_is_remarked_on(caplog: pytest.LogCaptureFixture) -> None:
    room = Room()
    await room.ensure(ec2_class(name="wordy", userData="#" + "x" * 14745))
    assert "user data is near EC2's limit" in caplog.text
    assert "wordy" in caplog.text


@pytest.mark.spec("aws-114")
@virtual
async def test_without_a_service_cidr_there_is_no_template_for_al2023() -> None:
    room = Room()
    room.aws.eks.clusters.clear()
    with pytest.raises(ClassNotReady, match="service CIDR"):
        await room.ensure(ec2_class("AL2023"))
    assert not room.names
    await room.ensure(ec2_class("AL2"))
    assert len(room.names) == 1


@pytest.mark.spec("aws-114")
@virtual
async def test_the_service_cidr_is_asked_of_eks() -> None:
    room = Room()
    (made,) = await room.ensure(ec2_class("AL2023"))
    assert b"cidr: 10.100.0.0/16" in b64decode(room.held(made.name)["UserData"])


@pytest.mark.spec("aws-111")
@virtual
async def test_unusable_user_data_makes_no_template() -> None:
    room = Room()
    with pytest.raises(CreateFailed, match="TOML"):
        await room.ensure(ec2_class("Bottlerocket", userData="not toml"), "m5.large", "m5.xlarge")
    assert not room.names


@pytest.mark.spec("aws-134")
@virtual
async def test_reservations_are_mentioned_only_while_their_gate_is_on() -> None:
    off = replace(SETTINGS, feature_gates=FeatureGates(reserved_capacity=False))
    room, closed = Room(), Room(off)
    (one,) = await room.ensure(way=labels.ON_DEMAND)
    (other,) = await closed.ensure(way=labels.ON_DEMAND)
    preference = room.held(one.name)["CapacityReservationSpecification"]
    assert preference == {"CapacityReservationPreference": "none"}
    assert "CapacityReservationSpecification" not in closed.held(other.name)


async def stranger(aws: SimulatedAws, name: str, tags: Mapping[str, str]) -> None:
    listed = [{"Key": key, "Value": value} for key, value in tags.items()]
    request = {
        "LaunchTemplateName": name,
        "LaunchTemplateData": {"ImageId": "ami-1"},
        "TagSpecifications": [{"ResourceType": "launch-template", "Tags": listed}],
    }
    await aws.call("ec2", "CreateLaunchTemplate", request)
