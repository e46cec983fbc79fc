"""The subnets and security groups of a class: which there are, and which subnet of a zone a launch uses.

EC2 tells how many addresses a subnet has left, but only when asked, and launches take them meanwhile. So what
was counted is kept beside what launches in flight will use, and the next launch goes where more is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from dovetail.api import labels
from dovetail.api.nodeclass import EC2NodeClass, SecurityGroup, Subnet
from dovetail.aws import Answer, Aws
from dovetail.errors import CreateFailed
from dovetail.ports import Clock
from dovetail.providers.aws.queries import Filter, describe_all, filter_by, filter_by_tags, key_of
from dovetail.providers.aws.ttl_cache import TtlCache
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.settings import Settings

__all__ = ["AddressDebit", "SecurityGroupProvider", "SubnetChoice", "SubnetProvider"]

PAGE: Final = 500
LEAST_MEMORY: Final = timedelta(minutes=5)
BEYOND_REFRESH: Final = timedelta(minutes=4)
GROUPS_KEPT: Final = timedelta(minutes=1)
SUBNET_RESOLUTION_FAILED: Final = "SubnetResolutionFailed"


@dataclass(frozen=True, slots=True)
class AddressDebit:
    """Addresses a launch may take from a subnet, and how many were counted there when it was chosen."""

    subnet_id: str
    predicted: int
    counted: int | None


@dataclass(frozen=True, slots=True)
class SubnetChoice:
    """One subnet for each zone, and what each was debited."""

    by_zone: Mapping[str, Subnet]
    debits: tuple[AddressDebit, ...] = ()


class SubnetProvider:
    """Finds the subnets of classes and keeps account of their free addresses."""

    def __init__(self, aws: Aws, clock: Clock, settings: Settings) -> None:
        self._aws = aws
        refresh = settings.subnet_refresh_interval
        self._found: TtlCache[tuple[str, int], tuple[Subnet, ...]] = TtlCache(clock, refresh)
        self._counted: TtlCache[str, int] = TtlCache(clock, max(LEAST_MEMORY, refresh + BEYOND_REFRESH))
        self._in_flight: dict[str, int] = {}
        self._zone_ids: dict[str, str] = {}
        self._public: set[str] = set()

    async def list_subnets(self, node_class: EC2NodeClass) -> tuple[Subnet, ...]:
        """The subnets the class selects, those with most free addresses first."""
        key = key_of(node_class)
        known = self._found.get(key)
        if known is not None:
            return known
        by_id = {each["SubnetId"]: each for each in await self._describe_subnets(node_class)}
        ordered = sorted(by_id.values(), key=lambda each: (-_read_free(each), each["SubnetId"]))
        for each in ordered:
            self._count_addresses(each)
        found = tuple(
            Subnet(
                id=each["SubnetId"], zone=each["AvailabilityZone"], zone_id=each.get("AvailabilityZoneId", "")
            )
            for each in ordered
        )
        self._found.put(key, found)
        return found

    async def _describe_subnets(self, node_class: EC2NodeClass) -> list[Answer]:
        found: list[Answer] = []
        for filters in subnet_queries(node_class):
            asked = {"Filters": filters, "MaxResults": PAGE}
            found += await describe_all(self._aws, "DescribeSubnets", asked, "Subnets")
        return found

    def _count_addresses(self, subnet: Answer) -> None:
        """EC2's own count is fresh: it already has the launches we were waiting for."""
        self._counted.put(subnet["SubnetId"], _read_free(subnet))
        self._in_flight.pop(subnet["SubnetId"], None)
        self._zone_ids[subnet["AvailabilityZone"]] = subnet.get("AvailabilityZoneId", "")
        (self._public.add if subnet.get("MapPublicIpOnLaunch") else self._public.discard)(subnet["SubnetId"])

    def zone_id(self, zone: str) -> str:
        """The ID behind a zone's name; empty while no subnet there was seen."""
        return self._zone_ids.get(zone, "")

    def gives_address(self, subnet_id: str) -> bool:
        """Whether the subnet gives public IPv4 addresses to what is launched in it, as last seen."""
        return subnet_id in self._public

    def choose_subnets(
        self, node_class: EC2NodeClass, types: Collection[InstanceType], capacity_type: str
    ) -> SubnetChoice:
        """For each zone the subnet with most room, debited with what the launch may take there."""
        if not node_class.status.subnets:
            raise CreateFailed(
                SUBNET_RESOLUTION_FAILED,
                f"EC2NodeClass {node_class.name} has no subnets; check its subnetSelectorTerms",
            )
        best: dict[str, Subnet] = {}
        for subnet in node_class.status.subnets:
            held = best.get(subnet.zone)
            if held is None or self.count_free(subnet.id) > self.count_free(held.id):
                best[subnet.zone] = subnet
        debits = tuple(
            self._debit_subnet(subnet.id, predict_addresses(types, subnet.zone, capacity_type))
            for subnet in best.values()
        )
        return SubnetChoice(best, debits)

    def count_free(self, subnet_id: str) -> int:
        """Addresses left, as far as we know: launches in flight are already taken off."""
        if subnet_id in self._in_flight:
            return self._in_flight[subnet_id]
        return self._counted.get(subnet_id) or 0

    def _debit_subnet(self, subnet_id: str, predicted: int) -> AddressDebit:
        self._in_flight[subnet_id] = self.count_free(subnet_id) - predicted
        return AddressDebit(subnet_id, predicted, self._counted.get(subnet_id))

    def settle_launch(self, choice: SubnetChoice, used: AbstractSet[str]) -> None:
        """A launch is over: give back what it took where it did not go, unless the count is newer."""
        for debit in choice.debits:
            if debit.subnet_id in used or debit.subnet_id not in self._in_flight:
                continue
            if self._counted.get(debit.subnet_id) == debit.counted:
                self._in_flight[debit.subnet_id] += debit.predicted

    def mark_exhausted(self, subnet_id: str) -> None:
        """EC2 found no address there."""
        self._counted.put(subnet_id, 0)
        self._in_flight.pop(subnet_id, None)


class SecurityGroupProvider:
    """Finds the security groups of classes."""

    def __init__(self, aws: Aws, clock: Clock) -> None:
        self._aws = aws
        self._found: TtlCache[tuple[str, int], tuple[SecurityGroup, ...]] = TtlCache(clock, GROUPS_KEPT)

    async def list_groups(self, node_class: EC2NodeClass) -> tuple[SecurityGroup, ...]:
        """The groups the class selects, by id."""
        key = key_of(node_class)
        known = self._found.get(key)
        if known is not None:
            return known
        names: dict[str, str] = {}
        for filters in group_queries(node_class):
            asked = {"Filters": filters, "MaxResults": PAGE}
            for each in await describe_all(self._aws, "DescribeSecurityGroups", asked, "SecurityGroups"):
                names[each["GroupId"]] = each.get("GroupName", "")
        found = tuple(SecurityGroup(id=group, name=name) for group, name in sorted(names.items()))
        self._found.put(key, found)
        return found


def subnet_queries(node_class: EC2NodeClass) -> list[list[Filter]]:
    """One query for all ids, and one for each term of tags. A term that says nothing selects nothing."""
    terms = node_class.spec.subnet_selector_terms
    ids = [term.id for term in terms if term.id]
    return _by_value("subnet-id", ids) + [
        filter_by_tags(term.tags) for term in terms if term.tags and not term.id
    ]


def group_queries(node_class: EC2NodeClass) -> list[list[Filter]]:
    """One query for all ids, one for all names, and one for each term of tags."""
    terms = node_class.spec.security_group_selector_terms
    ids = [term.id for term in terms if term.id]
    names = [term.name for term in terms if term.name and not term.id]
    by_tags = [filter_by_tags(term.tags) for term in terms if term.tags and not term.id and not term.name]
    return _by_value("group-id", ids) + _by_value("group-name", names) + by_tags


def predict_addresses(types: Iterable[InstanceType], zone: str, capacity_type: str) -> int:
    """The fewest addresses a node of these types could use in a zone; none when none is for sale there."""
    pods = (
        each.capacity[labels.PODS].value
        for each in types
        if labels.PODS in each.capacity
        and any(o.available and o.zone == zone and o.capacity_type == capacity_type for o in each.offerings)
    )
    return min(pods, default=0)


def _by_value(name: str, values: list[str]) -> list[list[Filter]]:
    return [[filter_by(name, values)]] if values else []


def _read_free(subnet: Answer) -> int:
    return int(subnet.get("AvailableIpAddressCount") or 0)
