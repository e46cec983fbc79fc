"""Which subnet of a zone a launch uses, and how free addresses are accounted for meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.meta import ObjectMeta
from dovetail.api.nodeclass import (
    EC2NodeClass,
    EC2NodeClassSpec,
    SecurityGroupSelectorTerm,
    SubnetSelectorTerm,
)
from dovetail.api.quantity import Quantity
from dovetail.errors import CreateFailed
from dovetail.providers.aws.network import (
    SecurityGroupProvider,
    SubnetChoice,
    SubnetProvider,
    group_queries,
    predict_addresses,
    subnet_queries,
)
from dovetail.scheduling.model.instance_types import InstanceType, Offering
from dovetail.scheduling.model.requirements import Requirements
from dovetail.settings import read_settings
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.clock import VirtualClock
from support.stage import virtual

SETTINGS = read_settings(("--cluster-name=test",), {}, provider="aws")
A, B = "us-west-2a", "us-west-2b"
PICK = {"pick": "me"}


def offering(zone: str, way: str = labels.ON_DEMAND, available: bool = True) -> Offering:
    known = Requirements.from_labels({labels.ZONE: zone, labels.CAPACITY_TYPE: way})
    return Offering(requirements=known, available=available, price=1.0)


def kind(pods: int, *zones: str, name: str = "m5.large", available: bool = True) -> InstanceType:
    offerings = tuple(offering(zone, available=available) for zone in zones)
    return InstanceType(name=name, capacity={labels.PODS: Quantity.parse(pods)}, offerings=offerings)


class Network:
    """Subnets with so many free addresses, found for one class."""

    def __init__(self, *free: tuple[str, int]) -> None:
        self.clock = VirtualClock()
        self.aws = SimulatedAws(self.clock, 0)
        self.subnets = SubnetProvider(self.aws, self.clock, SETTINGS)
        network = self.aws.network
        vpc = network.add_vpc()
        self.made = [
            network.add_subnet(vpc.id, zone, network.next_cidr(vpc.id, 24), PICK) for zone, _ in free
        ]
        for subnet, (_, count) in zip(self.made, free, strict=True):
            subnet.take_addresses(subnet.free - count)
        spec = EC2NodeClassSpec(subnet_selector_terms=(SubnetSelectorTerm(tags=PICK),))
        self.written = EC2NodeClass(metadata=ObjectMeta(name="c", uid="1", generation=1), spec=spec)

    @property
    def ids(self) -> list[str]:
        return [subnet.id for subnet in self.made]

    async def find(self) -> None:
        found = await self.subnets.list_subnets(self.written)
        self.written = replace(self.written, status=replace(self.written.status, subnets=found))

    def choose(self, *types: InstanceType) -> SubnetChoice:
        return self.subnets.choose_subnets(self.written, types or (kind(1, A, B),), labels.ON_DEMAND)

    def chosen(self, types: Sequence[InstanceType] = (), zone: str = A) -> str:
        return self.choose(*types).by_zone[zone].id


@pytest.mark.spec("aws-84")
@virtual
async def test_of_two_subnets_in_a_zone_the_one_with_more_room_is_used() -> None:
    network = Network((A, 10), (A, 100), (B, 5))
    await network.find()
    choice = network.choose()
    assert {zone: subnet.id for zone, subnet in choice.by_zone.items()} == {
        A: network.ids[1],
        B: network.ids[2],
    }


@pytest.mark.spec("aws-85")
@virtual
async def test_launches_in_flight_count_before_ec2_does() -> None:
    network = Network((A, 10), (A, 11))
    await network.find()
    one_pod = (kind(1, A),)
    assert network.chosen(one_pod) == network.ids[1]  # 11 against 10
    assert network.chosen(one_pod) == network.ids[1]  # 10 against 10: the first stays
    assert network.chosen(one_pod) == network.ids[0]


@pytest.mark.spec("aws-86")
@virtual
async def test_a_launch_that_came_to_nothing_gives_back_its_addresses() -> None:
    network = Network((A, 100), (B, 50))
    await network.find()
    choice = network.choose(kind(29, A, B))
    assert [network.subnets.count_free(each) for each in network.ids] == [71, 21]
    network.subnets.settle_launch(choice, set())
    assert [network.subnets.count_free(each) for each in network.ids] == [100, 50]
    choice = network.choose(kind(29, A, B))
    network.subnets.settle_launch(choice, {network.ids[0]})  # one instance, in the first
    assert [network.subnets.count_free(each) for each in network.ids] == [71, 50]


@virtual
async def test_a_count_made_meanwhile_is_not_added_to() -> None:
    network = Network((A, 100))
    await network.find()
    choice = network.choose(kind(29, A))
    network.made[0].take_addresses(29)
    await network.clock.sleep(61)
    await network.find()
    assert network.subnets.count_free(network.ids[0]) == 71
    network.subnets.settle_launch(choice, set())
    assert network.subnets.count_free(network.ids[0]) == 71


@pytest.mark.spec("aws-87", "aws-88")
@virtual
async def test_a_subnet_without_addresses_gives_way_to_another() -> None:
    network = Network((A, 50), (A, 200))
    await network.find()
    assert network.chosen() == network.ids[1]
    network.subnets.mark_exhausted(network.ids[1])
    assert network.subnets.count_free(network.ids[1]) == 0
    assert network.chosen() == network.ids[0]
    await network.clock.sleep(61)
    await network.find()
    assert network.chosen() == network.ids[1]


@pytest.mark.spec("aws-89")
@virtual
async def test_a_class_without_subnets_is_a_launch_error() -> None:
    network = Network((A, 50))
    with pytest.raises(CreateFailed, match="subnetSelectorTerms") as told:
        network.choose()
    assert told.value.reason == "SubnetResolutionFailed"


def test_the_fewest_pods_of_what_is_for_sale_in_the_zone_are_predicted() -> None:
    types = (kind(29, A), kind(58, A, B), kind(8, A, available=False), kind(4, B))
    assert predict_addresses(types, A, labels.ON_DEMAND) == 29
    assert predict_addresses(types, B, labels.ON_DEMAND) == 4
    assert predict_addresses(types, A, labels.SPOT) == 0
    assert predict_addresses(types, "elsewhere", labels.ON_DEMAND) == 0


@virtual
async def test_counts_outlive_the_list_they_came_with_and_then_are_forgotten() -> None:
    network = Network((A, 50))
    await network.find()
    assert network.subnets.zone_id(A) == "usw2-az1"
    await network.clock.sleep(299)
    assert network.subnets.count_free(network.ids[0]) == 50
    await network.clock.sleep(2)
    assert network.subnets.count_free(network.ids[0]) == 0


@pytest.mark.spec("aws-90")
def test_ids_share_a_query_and_each_term_of_tags_has_its_own() -> None:
    terms = (
        SubnetSelectorTerm(id="subnet-1"),
        SubnetSelectorTerm(tags={"a": "1", "b": "*"}),
        SubnetSelectorTerm(id="subnet-2", tags={"ignored": "x"}),
        SubnetSelectorTerm(tags={"c": "x*"}),
    )
    groups = (
        SecurityGroupSelectorTerm(name="n"),
        SecurityGroupSelectorTerm(id="sg-1"),
        SecurityGroupSelectorTerm(tags={"a": "1"}),
    )
    spec = EC2NodeClassSpec(subnet_selector_terms=terms, security_group_selector_terms=groups)
    written = EC2NodeClass(spec=spec)
    assert subnet_queries(written) == [
        [{"Name": "subnet-id", "Values": ["subnet-1", "subnet-2"]}],
        [{"Name": "tag:a", "Values": ["1"]}, {"Name": "tag-key", "Values": ["b"]}],
        [{"Name": "tag:c", "Values": ["x*"]}],
    ]
    assert group_queries(written) == [
        [{"Name": "group-id", "Values": ["sg-1"]}],
        [{"Name": "group-name", "Values": ["n"]}],
        [{"Name": "tag:a", "Values": ["1"]}],
    ]


@virtual
async def test_groups_that_two_terms_select_are_listed_once_and_kept_for_a_minute() -> None:
    clock = VirtualClock()
    aws = SimulatedAws(clock, 0)
    vpc = aws.network.add_vpc()
    group = aws.network.add_group("n", vpc.id, PICK)
    terms = (SecurityGroupSelectorTerm(name="n"), SecurityGroupSelectorTerm(tags=PICK))
    spec = EC2NodeClassSpec(security_group_selector_terms=terms)
    written = EC2NodeClass(metadata=ObjectMeta(uid="1", generation=1), spec=spec)
    groups = SecurityGroupProvider(aws, clock)
    assert [each.id for each in await groups.list_groups(written)] == [group.id]
    other = aws.network.add_group("m", vpc.id, PICK)
    assert len(await groups.list_groups(written)) == 1
    await clock.sleep(61)
    assert {each.id for each in await groups.list_groups(written)} == {group.id, other.id}
