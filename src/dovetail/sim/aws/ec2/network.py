"""VPCs, their subnets with addresses that are taken and come back, and security groups."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from itertools import islice
from typing import TypeVar
from zlib import crc32

from dovetail.providers.aws.instance_type_info import bundled_regions
from dovetail.sim.aws.filters import Values, apply_filters, tag_list, tags_for, take_page
from dovetail.sim.aws.service import AwsRequest, Json, ServiceState, operation

__all__ = ["FIRST_ACCOUNT", "Network", "SimSecurityGroup", "SimSubnet", "Vpc", "list_zones", "zone_ids"]

T = TypeVar("T")
FIRST_ACCOUNT = "111122223333"
# EC2 keeps the first four addresses of a subnet and its last one.
KEPT_FIRST, KEPT = 4, 5


def list_zones(region: str) -> tuple[str, ...]:
    known = bundled_regions().get(region)
    return known.zones if known else tuple(region + letter for letter in "abc")


def zone_ids(account: str, region: str) -> dict[str, str]:
    """Zone names to ids. The same name is another place in another account, as in AWS."""
    zones = list_zones(region)
    area, direction, number = [*region.split("-"), "", ""][:3]
    short = area + "".join(word[0] for word in _split_direction(direction)) + number
    turn = 0 if account == FIRST_ACCOUNT else crc32(account.encode()) % len(zones)
    return {zone: f"{short}-az{(at + turn) % len(zones) + 1}" for at, zone in enumerate(zones)}


def _split_direction(text: str) -> list[str]:
    for first in ("north", "south"):
        if text.startswith(first) and text != first:
            return [first, text.removeprefix(first)]
    return [text] if text else []


@dataclass(slots=True)
class Vpc:
    """A virtual network."""

    id: str
    cidr: str
    tags: dict[str, str] = field(default_factory=dict)
    default: bool = False


@dataclass(slots=True)
class SimSubnet:
    """A subnet, and which of its addresses are taken."""

    id: str
    vpc: str
    zone: str
    zone_id: str
    cidr: IPv4Network
    public: bool = False
    tags: dict[str, str] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)
    freed: deque[int] = field(default_factory=deque)
    following: int = KEPT_FIRST

    @property
    def free(self) -> int:
        return max(0, self.cidr.num_addresses - KEPT - len(self.taken))

    def take_addresses(self, count: int = 1) -> list[str] | None:
        """That many addresses; None when there are not enough."""
        if count > self.free:
            return None
        got = []
        for _ in range(count):
            # An address rests as long as there are others, so that a node's name does not come back at once.
            at = self._next_offset() if self.following < self.cidr.num_addresses - 1 else self.freed.popleft()
            self.taken.add(at)
            got.append(str(IPv4Address(int(self.cidr.network_address) + at)))
        return got

    def _next_offset(self) -> int:
        self.following += 1
        return self.following - 1

    def keep_address(self, address: str) -> tuple[str, ...]:
        """Take this very address; nothing when it is not one of this subnet's, or taken."""
        at = int(IPv4Address(address)) - int(self.cidr.network_address)
        if not KEPT_FIRST <= at < self.cidr.num_addresses - 1 or at in self.taken:
            return ()
        self.taken.add(at)
        self.following = max(self.following, at + 1)
        return (address,)

    def give_back(self, address: str) -> None:
        at = int(IPv4Address(address)) - int(self.cidr.network_address)
        if at in self.taken:
            self.taken.remove(at)
            self.freed.append(at)


@dataclass(slots=True)
class SimSecurityGroup:
    """A security group."""

    id: str
    name: str
    vpc: str
    description: str = ""
    tags: dict[str, str] = field(default_factory=dict)


class Network(ServiceState):
    """The virtual networks of an account in a region."""

    def init_state(self) -> None:
        self.vpcs: dict[str, Vpc] = {}
        self.subnets: dict[str, SimSubnet] = {}
        self.groups: dict[str, SimSecurityGroup] = {}
        self.zone_ids = zone_ids(self.account, self.region)

    def add_vpc(self, cidr: str = "10.0.0.0/16", tags: dict[str, str] | None = None) -> Vpc:
        made = Vpc(f"vpc-0{self.world.random_hex(16)}", cidr, dict(tags or {}))
        self.vpcs[made.id] = made
        self.add_group("default", made.id, description="default VPC security group")
        return made

    def add_subnet(
        self, vpc: str, zone: str, cidr: str, tags: dict[str, str] | None = None, *, public: bool = False
    ) -> SimSubnet:
        made = SimSubnet(
            f"subnet-0{self.world.random_hex(16)}",
            vpc,
            zone,
            self.zone_ids[zone],
            IPv4Network(cidr),
            public,
            dict(tags or {}),
        )
        self.subnets[made.id] = made
        return made

    def add_group(
        self, name: str, vpc: str, tags: dict[str, str] | None = None, description: str = ""
    ) -> SimSecurityGroup:
        made = SimSecurityGroup(
            f"sg-0{self.world.random_hex(16)}", name, vpc, description or name, dict(tags or {})
        )
        self.groups[made.id] = made
        return made

    def next_cidr(self, vpc: str, prefix: int = 19) -> str:
        """The first block of this size that no subnet of the VPC overlaps."""
        used = [each.cidr for each in self.subnets.values() if each.vpc == vpc]
        blocks = IPv4Network(self.vpcs[vpc].cidr).subnets(new_prefix=prefix)
        free = (block for block in blocks if not any(block.overlaps(other) for other in used))
        return str(next(islice(free, 1)))


@operation("ec2", "DescribeSubnets")
def describe_subnets(request: AwsRequest) -> Json:
    network = request.regional_state(Network)
    wanted = _by_id(request, network.subnets, "SubnetIds", "InvalidSubnetID.NotFound", "subnet ID")
    found = apply_filters(request, wanted, _subnet_values, lambda each: each.tags)
    shown, more = take_page(request, found, least=5)
    return {"Subnets": [_render_subnet(each, request) for each in shown], **more}


@operation("ec2", "DescribeSecurityGroups")
def describe_groups(request: AwsRequest) -> Json:
    network = request.regional_state(Network)
    wanted = _by_id(request, network.groups, "GroupIds", "InvalidGroup.NotFound", "security group")
    if names := request.get("GroupNames"):
        wanted = [each for each in wanted if each.name in names]
    found = apply_filters(request, wanted, _group_values, lambda each: each.tags)
    shown, more = take_page(request, found, least=5)
    return {"SecurityGroups": [_render_group(each, request) for each in shown], **more}


@operation("ec2", "DescribeVpcs")
def describe_vpcs(request: AwsRequest) -> Json:
    network = request.regional_state(Network)
    wanted = _by_id(request, network.vpcs, "VpcIds", "InvalidVpcID.NotFound", "vpc ID")
    found = apply_filters(request, wanted, _vpc_values, lambda each: each.tags)
    shown, more = take_page(request, found, least=5)
    return {"Vpcs": [_render_vpc(each, request) for each in shown], **more}


@operation("ec2", "DescribeAvailabilityZones")
def describe_zones(request: AwsRequest) -> Json:
    network = request.regional_state(Network)
    zones = [
        {
            "State": "available",
            "OptInStatus": "opt-in-not-required",
            "Messages": [],
            "RegionName": request.region,
            "ZoneName": zone,
            "ZoneId": zone_id,
            "GroupName": request.region,
            "NetworkBorderGroup": request.region,
            "ZoneType": "availability-zone",
        }
        for zone, zone_id in network.zone_ids.items()
        if not request.get("ZoneNames") or zone in request.get("ZoneNames")
    ]
    return {"AvailabilityZones": zones}


@operation("ec2", "CreateVpc")
def create_vpc(request: AwsRequest) -> Json:
    made = request.regional_state(Network).add_vpc(
        request.get("CidrBlock", "10.0.0.0/16"), tags_for(request, "vpc")
    )
    return {"Vpc": _render_vpc(made, request)}


@operation("ec2", "CreateSubnet")
def create_subnet(request: AwsRequest) -> Json:
    network, vpc = request.regional_state(Network), request.get_required("VpcId")
    if vpc not in network.vpcs:
        raise request.refuse("InvalidVpcID.NotFound", f"The vpc ID '{vpc}' does not exist")
    ids = {zone_id: zone for zone, zone_id in network.zone_ids.items()}
    zone = (
        request.get("AvailabilityZone")
        or ids.get(request.get("AvailabilityZoneId", ""))
        or next(iter(ids.values()))
    )
    if zone not in network.zone_ids:
        raise request.refuse(
            "InvalidParameterValue", f"Value ({zone}) for parameter availabilityZone is invalid."
        )
    cidr = request.get("CidrBlock") or network.next_cidr(vpc)
    made = network.add_subnet(vpc, zone, cidr, tags_for(request, "subnet"))
    return {"Subnet": _render_subnet(made, request)}


@operation("ec2", "CreateSecurityGroup")
def create_group(request: AwsRequest) -> Json:
    network = request.regional_state(Network)
    vpc = request.get("VpcId") or next(iter(network.vpcs), "")
    name = request.get_required("GroupName")
    if any(each.name == name and each.vpc == vpc for each in network.groups.values()):
        raise request.refuse(
            "InvalidGroup.Duplicate", f"The security group '{name}' already exists for VPC '{vpc}'"
        )
    made = network.add_group(name, vpc, tags_for(request, "security-group"), request.get("Description", ""))
    return {"GroupId": made.id, "Tags": tag_list(made.tags)}


@operation("ec2", "DeleteSubnet")
def delete_subnet(request: AwsRequest) -> Json:
    network, name = request.regional_state(Network), request.get_required("SubnetId")
    found = network.subnets.get(name)
    if found is None:
        raise request.refuse("InvalidSubnetID.NotFound", f"The subnet ID '{name}' does not exist")
    if found.taken:
        raise request.refuse(
            "DependencyViolation", f"The subnet '{name}' has dependencies and cannot be deleted."
        )
    del network.subnets[name]
    return {}


@operation("ec2", "DeleteSecurityGroup")
def delete_group(request: AwsRequest) -> Json:
    network, name = request.regional_state(Network), request.get_required("GroupId")
    if network.groups.pop(name, None) is None:
        raise request.refuse("InvalidGroup.NotFound", f"The security group '{name}' does not exist")
    return {"Return": True, "GroupId": name}


def _by_id(request: AwsRequest, kept: dict[str, T], name: str, code: str, what: str) -> list[T]:
    wanted = request.get(name)
    if not wanted:
        return list(kept.values())
    for each in wanted:
        if each not in kept:
            raise request.refuse(code, f"The {what} '{each}' does not exist")
    return [kept[each] for each in wanted]


def _subnet_values(each: SimSubnet) -> Values:
    return {
        "subnet-id": (each.id,),
        "vpc-id": (each.vpc,),
        "availability-zone": (each.zone,),
        "availabilityZone": (each.zone,),
        "availability-zone-id": (each.zone_id,),
        "cidr-block": (str(each.cidr),),
        "state": ("available",),
        "map-public-ip-on-launch": (str(each.public).lower(),),
        "available-ip-address-count": (str(each.free),),
    }


def _render_subnet(each: SimSubnet, request: AwsRequest) -> Json:
    return {
        "SubnetId": each.id,
        "SubnetArn": f"arn:aws:ec2:{request.region}:{request.account}:subnet/{each.id}",
        "VpcId": each.vpc,
        "OwnerId": request.account,
        "State": "available",
        "AvailabilityZone": each.zone,
        "AvailabilityZoneId": each.zone_id,
        "AvailableIpAddressCount": each.free,
        "CidrBlock": str(each.cidr),
        "DefaultForAz": False,
        "MapPublicIpOnLaunch": each.public,
        "AssignIpv6AddressOnCreation": False,
        "Ipv6CidrBlockAssociationSet": [],
        "Tags": tag_list(each.tags),
    }


def _group_values(each: SimSecurityGroup) -> Values:
    return {
        "group-id": (each.id,),
        "group-name": (each.name,),
        "vpc-id": (each.vpc,),
        "description": (each.description,),
    }


def _render_group(each: SimSecurityGroup, request: AwsRequest) -> Json:
    return {
        "GroupId": each.id,
        "GroupName": each.name,
        "SecurityGroupArn": f"arn:aws:ec2:{request.region}:{request.account}:security-group/{each.id}",
        "Description": each.description,
        "OwnerId": request.account,
        "VpcId": each.vpc,
        "IpPermissions": [],
        "IpPermissionsEgress": [],
        "Tags": tag_list(each.tags),
    }


def _vpc_values(each: Vpc) -> Values:
    return {
        "vpc-id": (each.id,),
        "cidr": (each.cidr,),
        "cidr-block-association.cidr-block": (each.cidr,),
        "is-default": (str(each.default).lower(),),
        "isDefault": (str(each.default).lower(),),
        "state": ("available",),
    }


def _render_vpc(each: Vpc, request: AwsRequest) -> Json:
    return {
        "VpcId": each.id,
        "CidrBlock": each.cidr,
        "State": "available",
        "IsDefault": each.default,
        "OwnerId": request.account,
        "InstanceTenancy": "default",
        "DhcpOptionsId": "dopt-0000000000000000f",
        "Tags": tag_list(each.tags),
    }
