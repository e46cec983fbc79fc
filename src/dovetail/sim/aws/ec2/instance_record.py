"""One EC2 instance, and how DescribeInstances shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dovetail.sim.aws.filters import Values, tag_list
from dovetail.sim.aws.service import Json

__all__ = ["CODES", "SimInstance", "SimNetworkInterface", "instance_filter_values", "render_instance"]

CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}


@dataclass(slots=True)
class SimNetworkInterface:
    """A network interface of an instance."""

    id: str
    card: int
    device: int
    kind: str
    address: str
    prefixes: tuple[str, ...]
    groups: tuple[tuple[str, str], ...]
    # Every address it holds in its subnet, prefixes included.
    held: tuple[str, ...] = ()
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class SimInstance:
    """An instance. It is changed in place, by `Fleet` and `SimInstances` only."""

    id: str
    type: str
    zone: str
    zone_id: str
    subnet: str
    vpc: str
    image: str
    architecture: str
    launched: datetime
    visible: datetime
    # "spot", "on-demand" or "reserved" for pools; the lifecycle is what EC2 shows, empty for on-demand.
    capacity_type: str
    lifecycle: str = ""
    state: str = "pending"
    windows: bool = False
    tags: dict[str, str] = field(default_factory=dict)
    volume_tags: dict[str, str] = field(default_factory=dict)
    profile: tuple[str, str] | None = None
    groups: tuple[tuple[str, str], ...] = ()
    interfaces: list[SimNetworkInterface] = field(default_factory=list)
    devices: list[Mapping[str, Any]] = field(default_factory=list)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    monitoring: bool = False
    placement: Mapping[str, Any] = field(default_factory=dict)
    reservation: str = ""
    capacity_reservation: str = ""
    capacity_preference: Mapping[str, Any] = field(default_factory=dict)
    spot_request: str = ""
    user_data: str = ""
    template: tuple[str, str, int] | None = None
    cpu_options: Mapping[str, Any] = field(default_factory=dict)
    enclave: bool = False
    vcpus: int = 0
    root_device: str = "/dev/xvda"
    reason: tuple[str, str] = ("", "")
    # When a check failed, by name ("instance", "system", "ebs"), and events that are scheduled for it.
    impaired: dict[str, datetime] = field(default_factory=dict)
    scheduled: list[Json] = field(default_factory=list)
    region: str = ""
    account: str = ""

    @property
    def address(self) -> str:
        return self.interfaces[0].address if self.interfaces else ""

    @property
    def dns_name(self) -> str:
        if not self.address:
            return ""
        suffix = "ec2.internal" if self.region == "us-east-1" else f"{self.region}.compute.internal"
        return f"ip-{self.address.replace('.', '-')}.{suffix}"

    @property
    def alive(self) -> bool:
        return self.state in ("pending", "running", "stopping", "stopped")

    @property
    def arn(self) -> str:
        return f"arn:aws:ec2:{self.region}:{self.account}:instance/{self.id}"


def instance_filter_values(each: SimInstance) -> Values:
    """What DescribeInstances filters by."""
    return {
        "instance-id": (each.id,),
        "instance-state-name": (each.state,),
        "instance-state-code": (str(CODES[each.state]),),
        "instance-type": (each.type,),
        "availability-zone": (each.zone,),
        "availability-zone-id": (each.zone_id,),
        "subnet-id": (each.subnet,),
        "vpc-id": (each.vpc,),
        "image-id": (each.image,),
        "architecture": (each.architecture,),
        "instance-lifecycle": (each.lifecycle,) if each.lifecycle else (),
        "spot-instance-request-id": (each.spot_request,) if each.spot_request else (),
        "private-dns-name": (each.dns_name,),
        "private-ip-address": (each.address,),
        "placement-group-name": (each.placement.get("GroupName", ""),),
        "placement-partition-number": (str(each.placement.get("PartitionNumber", "")),),
        "capacity-reservation-id": (each.capacity_reservation,),
        "instance.group-id": tuple(group for group, _ in each.groups),
        "reservation-id": (each.reservation,),
        "owner-id": (each.account,),
    }


def render_instance(each: SimInstance) -> Json:
    """As DescribeInstances has it."""
    gone = each.state == "terminated"
    answer: Json = {
        "InstanceId": each.id,
        "InstanceType": each.type,
        "ImageId": each.image,
        "Architecture": each.architecture,
        "State": {"Code": CODES[each.state], "Name": each.state},
        "LaunchTime": each.launched,
        "Placement": {
            "AvailabilityZone": each.zone,
            "AvailabilityZoneId": each.zone_id,
            "GroupName": "",
            "Tenancy": "default",
            **each.placement,
        },
        "PrivateDnsName": "" if gone else each.dns_name,
        "PublicDnsName": "",
        "StateTransitionReason": each.reason[1] and f"{each.reason[1]}",
        "AmiLaunchIndex": 0,
        "ProductCodes": [],
        "Monitoring": {"State": "enabled" if each.monitoring else "disabled"},
        "VirtualizationType": "hvm",
        "Hypervisor": "xen",
        "EnaSupport": True,
        "EbsOptimized": False,
        "RootDeviceName": each.root_device,
        "RootDeviceType": "ebs",
        "MetadataOptions": {"State": "applied", **each.metadata},
        "EnclaveOptions": {"Enabled": each.enclave},
        "CapacityReservationSpecification": dict(each.capacity_preference)
        or {"CapacityReservationPreference": "open"},
        "PlatformDetails": "Windows" if each.windows else "Linux/UNIX",
        "NetworkInterfaces": [] if gone else [_render_interface(one, each) for one in each.interfaces],
        "SecurityGroups": [] if gone else _render_groups(each.groups),
        "BlockDeviceMappings": [] if gone else [_render_device(one, each) for one in each.devices],
        "Tags": tag_list(each.tags),
    }
    if not gone:
        answer |= {"SubnetId": each.subnet, "VpcId": each.vpc, "PrivateIpAddress": each.address}
    return answer | _render_optional(each)


def _render_optional(each: SimInstance) -> Json:
    answer: Json = {}
    if each.windows:
        answer["Platform"] = "windows"
    if each.lifecycle:
        answer["InstanceLifecycle"] = each.lifecycle
    if each.spot_request:
        answer["SpotInstanceRequestId"] = each.spot_request
    if each.capacity_reservation:
        answer["CapacityReservationId"] = each.capacity_reservation
    if each.profile:
        answer["IamInstanceProfile"] = {"Arn": each.profile[0], "Id": each.profile[1]}
    if each.reason[0]:
        answer["StateReason"] = {"Code": each.reason[0], "Message": each.reason[1]}
    if each.cpu_options:
        answer["CpuOptions"] = dict(each.cpu_options)
    return answer


def _render_groups(groups: tuple[tuple[str, str], ...]) -> list[Json]:
    return [{"GroupId": group, "GroupName": name} for group, name in groups]


def _render_interface(one: SimNetworkInterface, each: SimInstance) -> Json:
    return {
        "NetworkInterfaceId": one.id,
        "InterfaceType": one.kind,
        "SubnetId": each.subnet,
        "VpcId": each.vpc,
        "OwnerId": each.account,
        "Status": "in-use",
        "PrivateIpAddress": one.address,
        "PrivateIpAddresses": [{"Primary": True, "PrivateIpAddress": one.address}] if one.address else [],
        "Ipv4Prefixes": [{"Ipv4Prefix": prefix} for prefix in one.prefixes],
        "Groups": _render_groups(one.groups),
        "Attachment": {
            "AttachmentId": f"eni-attach-{one.id[4:]}",
            "DeviceIndex": one.device,
            "NetworkCardIndex": one.card,
            "Status": "attached",
            "DeleteOnTermination": True,
            "AttachTime": each.launched,
        },
        "SourceDestCheck": True,
    }


def _render_device(one: Mapping[str, Any], each: SimInstance) -> Json:
    ebs = one.get("Ebs", {})
    return {
        "DeviceName": one.get("DeviceName", each.root_device),
        "Ebs": {
            "VolumeId": one["VolumeId"],
            "Status": "attached",
            "AttachTime": each.launched,
            "DeleteOnTermination": ebs.get("DeleteOnTermination", True),
        },
    }
