"""Launching one instance: what a request means with its template, and if EC2 takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from dovetail.aws import AwsError
from dovetail.sim.aws.ec2.capacity import Ec2Capacity, Shortage
from dovetail.sim.aws.ec2.images import SimImage, SimImages
from dovetail.sim.aws.ec2.instance_record import SimInstance, SimNetworkInterface
from dovetail.sim.aws.ec2.instances import SimInstances
from dovetail.sim.aws.ec2.launch_targets import (
    SPREAD_MOST,
    SimPlacementGroup,
    SimPlacementGroups,
    SimReservation,
    SimReservations,
)
from dovetail.sim.aws.ec2.network import Network, SimSubnet
from dovetail.sim.aws.ec2.templates import check_user_data
from dovetail.sim.aws.ec2.types import list_zones_by_type, load_facts
from dovetail.sim.aws.filters import tags_of
from dovetail.sim.aws.iam.roles import Iam, IamProfile
from dovetail.sim.aws.service import AwsRequest

__all__ = ["CheckedLaunch", "check_launch", "find_shortage", "launch_instance"]

PREFIX_SIZE = 16
SPREAD_LIMIT = (
    f"You have reached the maximum number of instances ({SPREAD_MOST}) for the spread placement group "
    "'{name}' in this Availability Zone"
)


@dataclass(frozen=True, slots=True)
class CheckedLaunch:
    """One instance as a request means it, every part found and checked."""

    type: str
    subnet: SimSubnet
    image: SimImage
    capacity_type: str
    lifecycle: str
    data: Mapping[str, Any]
    groups: tuple[tuple[str, str], ...]
    profile: IamProfile | None = None
    reservation: SimReservation | None = None
    placement: SimPlacementGroup | None = None
    template: tuple[str, str, int] | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    volume_tags: Mapping[str, str] = field(default_factory=dict)
    # Which override of a fleet it came from, and EC2's own choice of its place in the order.
    override: Mapping[str, Any] = field(default_factory=dict)
    specification: Mapping[str, Any] = field(default_factory=dict)

    @property
    def zone(self) -> str:
        return self.subnet.zone

    @property
    def interfaces(self) -> list[Mapping[str, Any]]:
        return list(self.data.get("NetworkInterfaces") or [{"DeviceIndex": 0}])

    @property
    def addresses(self) -> int:
        """How many addresses it takes from its subnet."""
        return sum(
            1 + PREFIX_SIZE * one.get("Ipv4PrefixCount", 0)
            for one in self.interfaces
            if one.get("InterfaceType") != "efa-only"
        )


def check_launch(
    request: AwsRequest, data: Mapping[str, Any], capacity_type: str, lifecycle: str = "", **more: Any
) -> CheckedLaunch:
    """Every part a launch names, found; refused as EC2 refuses it when one is not there or does not fit."""
    name = data.get("InstanceType", "m1.small")
    if name not in load_facts():
        raise request.refuse(
            "InvalidParameterValue", f"The following supplied instance types do not exist: [{name}]"
        )
    image = _find_image(request, data, name)
    subnet = _find_subnet(request, data)
    check_user_data(request, data.get("UserData"))
    return CheckedLaunch(
        type=name,
        subnet=subnet,
        image=image,
        capacity_type=capacity_type,
        lifecycle=lifecycle,
        data=data,
        groups=_find_groups(request, data, subnet),
        profile=_find_profile(request, data),
        reservation=_find_reservation(request, data),
        placement=_find_placement_group(request, data),
        **more,
    )


def _find_image(request: AwsRequest, data: Mapping[str, Any], name: str) -> SimImage:
    wanted = data.get("ImageId", "")
    if not wanted.startswith("ami-"):
        raise request.refuse("InvalidAMIID.Malformed", f'Invalid id: "{wanted}" (expecting "ami-...")')
    image = request.regional_state(SimImages).known.get(wanted)
    if image is None:
        raise request.refuse("InvalidAMIID.NotFound", f"The image id '[{wanted}]' does not exist")
    if not image.public and image.owner != request.account:
        raise request.refuse("AuthFailure", f"Not authorized for images: [{wanted}]", 403)
    facts = load_facts()[name]
    if image.architecture not in facts.architectures:
        raise request.refuse(
            "InvalidParameterValue",
            f"The architecture '{','.join(facts.architectures)}' of the specified instance type does not "
            f"match the architecture '{image.architecture}' of the specified AMI. Specify an instance type "
            "and an AMI that have matching architectures, and try again.",
        )
    return image


def _find_subnet(request: AwsRequest, data: Mapping[str, Any]) -> SimSubnet:
    network = request.regional_state(Network)
    first: Mapping[str, Any] = next(iter(data.get("NetworkInterfaces") or ()), {})
    name = data.get("SubnetId") or first.get("SubnetId")
    if name is None:
        zone = (data.get("Placement") or {}).get("AvailabilityZone")
        found = next((each for each in network.subnets.values() if zone in (None, each.zone)), None)
        if found is None:
            raise request.refuse(
                "MissingInput", "No subnets found for the default VPC. Please specify a subnet."
            )
        return found
    if name not in network.subnets:
        raise request.refuse("InvalidSubnetID.NotFound", f"The subnet ID '{name}' does not exist")
    return network.subnets[name]


def _find_groups(
    request: AwsRequest, data: Mapping[str, Any], subnet: SimSubnet
) -> tuple[tuple[str, str], ...]:
    network = request.regional_state(Network)
    first: Mapping[str, Any] = next(iter(data.get("NetworkInterfaces") or ()), {})
    ids = first.get("Groups") or data.get("SecurityGroupIds")
    if not ids:
        ids = [
            each.id for each in network.groups.values() if each.vpc == subnet.vpc and each.name == "default"
        ]
    for each in ids:
        if each not in network.groups:
            raise request.refuse("InvalidGroup.NotFound", f"The security group '{each}' does not exist")
        if network.groups[each].vpc != subnet.vpc:
            raise request.refuse(
                "InvalidParameter",
                f"Security group {each} and subnet {subnet.id} belong to different networks.",
            )
    return tuple((each, network.groups[each].name) for each in ids)


def _find_profile(request: AwsRequest, data: Mapping[str, Any]) -> IamProfile | None:
    given = data.get("IamInstanceProfile") or {}
    if not given:
        return None
    iam, name, arn = request.global_state(Iam), given.get("Name", ""), given.get("Arn", "")
    found = iam.profiles.get(name) or next((each for each in iam.profiles.values() if each.arn == arn), None)
    known = found is not None and (request.world.clock.now() - found.created).total_seconds() >= iam.lag
    if found is None or not known:
        which = f"Value ({name}) for parameter iamInstanceProfile.name is invalid."
        raise request.refuse("InvalidParameterValue", f"{which} Invalid IAM Instance Profile name")
    return found


def _find_reservation(request: AwsRequest, data: Mapping[str, Any]) -> SimReservation | None:
    given = (data.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget") or {}
    name = given.get("CapacityReservationId")
    if not name:
        return None
    found = request.regional_state(SimReservations).by_id.get(name)
    if found is None:
        raise request.refuse(
            "InvalidCapacityReservationId.NotFound", f"The capacity reservation ID '{name}' does not exist"
        )
    return found


def _find_placement_group(request: AwsRequest, data: Mapping[str, Any]) -> SimPlacementGroup | None:
    given = data.get("Placement") or {}
    group_id, name = given.get("GroupId", ""), given.get("GroupName", "")
    if not group_id and not name:
        return None
    found = request.regional_state(SimPlacementGroups).find(group_id, name)
    if found is None:
        raise request.refuse(
            "InvalidPlacementGroup.Unknown", f"The Placement Group '{name or group_id}' is unknown."
        )
    return found


def find_shortage(request: AwsRequest, wanted: CheckedLaunch) -> Shortage | None:
    """Why there is no instance of this kind now, though the request is right."""
    facts = load_facts()[wanted.type]
    if wanted.zone not in list_zones_by_type(request.region).get(wanted.type, ()):
        return Shortage(
            "Unsupported",
            f"Your requested instance type ({wanted.type}) is not supported in your requested Availability "
            f"Zone ({wanted.zone}). Please retry your request by not specifying an Availability Zone.",
        )
    if wanted.capacity_type == "spot" and "spot" not in facts.usage_classes:
        return Shortage("Unsupported", f"The instance type {wanted.type} cannot be launched as spot.")
    if wanted.reservation is not None:
        found = wanted.reservation
        if found.state_at(request.world.clock.now()) != "active" or found.available < 1:
            return Shortage(
                "ReservationCapacityExceeded",
                "The requested reservation does not have sufficient compatible and available capacity for "
                f"this request: {found.id}",
            )
    elif missing := request.regional_state(Ec2Capacity).find_shortage(
        wanted.type, wanted.zone, wanted.capacity_type, facts.vcpus
    ):
        return missing
    if wanted.subnet.free < wanted.addresses:
        return Shortage(
            "InsufficientFreeAddressesInSubnet",
            f"There are not enough free addresses in subnet '{wanted.subnet.id}' to satisfy the requested "
            "number of instances.",
        )
    return _find_spread_shortage(wanted)


def _find_spread_shortage(wanted: CheckedLaunch) -> Shortage | None:
    group = wanted.placement
    if group is not None and group.strategy == "spread" and group.count_in_zone(wanted.zone) >= SPREAD_MOST:
        return Shortage("PlacementGroupInstanceLimitExceeded", SPREAD_LIMIT.format(name=group.name))
    return None


def launch_instance(request: AwsRequest, wanted: CheckedLaunch, reservation: str) -> SimInstance:
    """Make it. What it needs is there: whether there is enough was asked before."""
    world, instances, data = request.world, request.regional_state(SimInstances), wanted.data
    now, facts = world.clock.now(), load_facts()[wanted.type]
    machine = SimInstance(
        id=f"i-0{world.random_hex(16)}",
        type=wanted.type,
        zone=wanted.zone,
        zone_id=wanted.subnet.zone_id,
        subnet=wanted.subnet.id,
        vpc=wanted.subnet.vpc,
        image=wanted.image.id,
        architecture=wanted.image.architecture,
        launched=now,
        visible=now + timedelta(seconds=instances.hidden_for),
        capacity_type="reserved" if wanted.reservation else wanted.capacity_type,
        lifecycle=wanted.lifecycle,
        windows=wanted.image.windows,
        tags=dict(wanted.tags),
        volume_tags=dict(wanted.volume_tags),
        profile=(wanted.profile.arn, wanted.profile.id) if wanted.profile else None,
        groups=wanted.groups,
        metadata=dict(data.get("MetadataOptions") or {}),
        monitoring=bool((data.get("Monitoring") or {}).get("Enabled")),
        placement=_build_placement(wanted),
        reservation=reservation,
        capacity_reservation=wanted.reservation.id if wanted.reservation else "",
        capacity_preference=_render_preference(data),
        spot_request=f"sir-{world.random_hex(8)}" if wanted.lifecycle == "spot" else "",
        user_data=data.get("UserData") or "",
        template=wanted.template,
        cpu_options=dict(data.get("CpuOptions") or {}),
        enclave=bool((data.get("EnclaveOptions") or {}).get("Enabled")),
        vcpus=facts.vcpus,
        root_device=wanted.image.root,
        region=request.region,
        account=request.account,
    )
    machine.interfaces = [_build_interface(request, wanted, one) for one in wanted.interfaces]
    machine.devices = _build_devices(request, wanted)
    _record_use(request, wanted, machine)
    instances.add(machine)
    return machine


def _record_use(request: AwsRequest, wanted: CheckedLaunch, machine: SimInstance) -> None:
    if wanted.reservation is not None:
        wanted.reservation.used.add(machine.id)
    request.regional_state(Ec2Capacity).take(machine.type, machine.zone, machine.capacity_type, machine.vcpus)
    if wanted.placement is not None:
        wanted.placement.members[machine.id] = machine


def _build_placement(wanted: CheckedLaunch) -> dict[str, Any]:
    given = wanted.data.get("Placement") or {}
    place: dict[str, Any] = {"Tenancy": given.get("Tenancy") or "default"}
    if wanted.placement is not None:
        place |= {"GroupName": wanted.placement.name, "GroupId": wanted.placement.id}
        if wanted.placement.strategy == "partition":
            place["PartitionNumber"] = given.get("PartitionNumber") or wanted.placement.choose_partition()
    return place


def _render_preference(data: Mapping[str, Any]) -> dict[str, Any]:
    """What DescribeInstances shows of the reservation a launch asked for."""
    given = data.get("CapacityReservationSpecification") or {}
    preference = given.get("CapacityReservationPreference")
    target = given.get("CapacityReservationTarget")
    shown: dict[str, Any] = {"CapacityReservationPreference": preference} if preference else {}
    return shown | ({"CapacityReservationTarget": dict(target)} if target else {})


def _build_interface(
    request: AwsRequest, wanted: CheckedLaunch, one: Mapping[str, Any]
) -> SimNetworkInterface:
    world, prefixes = request.world, one.get("Ipv4PrefixCount", 0)
    kind = one.get("InterfaceType") or "interface"
    without = kind == "efa-only"
    held = [] if without else wanted.subnet.take_addresses(1 + PREFIX_SIZE * prefixes) or []
    network = request.regional_state(Network)
    groups = tuple((each, network.groups[each].name) for each in one.get("Groups") or ()) or wanted.groups
    tags: dict[str, str] = {}
    for specification in wanted.data.get("TagSpecifications") or ():
        if specification.get("ResourceType") == "network-interface":
            tags |= tags_of(specification.get("Tags"))
    return SimNetworkInterface(
        id=f"eni-0{world.random_hex(16)}",
        card=one.get("NetworkCardIndex") or 0,
        device=one.get("DeviceIndex") or 0,
        kind=kind,
        address=held[0] if held else "",
        prefixes=tuple(f"{held[1 + PREFIX_SIZE * at]}/28" for at in range(prefixes if held else 0)),
        groups=groups,
        held=tuple(held),
        tags=tags,
    )


def _build_devices(request: AwsRequest, wanted: CheckedLaunch) -> list[Mapping[str, Any]]:
    given = list(wanted.data.get("BlockDeviceMappings") or ())
    if not any(one.get("DeviceName") == wanted.image.root for one in given):
        size = 50 if wanted.image.windows else 20
        given.insert(0, {"DeviceName": wanted.image.root, "Ebs": {"VolumeSize": size, "VolumeType": "gp3"}})
    return [{**one, "VolumeId": f"vol-0{request.world.random_hex(16)}"} for one in given if "Ebs" in one]


def shortage_from_error(error: AwsError) -> Shortage:
    """A refusal as a fleet lists it among its errors."""
    return Shortage(error.code, error.message)
