"""What a launch template holds, as EC2 takes it. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from dovetail.api import labels
from dovetail.api.hashes import ami_family
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import (
    BlockDevice,
    BlockDeviceMapping,
    EC2NodeClass,
    EC2NodeClassSpec,
    MetadataOptions,
    NetworkInterface,
)
from dovetail.api.quantity import Quantity
from dovetail.providers.aws.catalog import EFA_ONLY
from dovetail.providers.aws.placement_groups import PlacementGroup
from dovetail.providers.aws.template_groups import ReservationTarget, TemplateGroup

__all__ = ["LaunchOrder", "block_devices", "build_launch_data", "metadata_options", "tag_list"]

GIB: Final = 1 << 30
IPV6: Final = "ipv6"
CAPACITY_BLOCK: Final = "capacity-block"
INTERRUPTIBLE: Final = "interruptible-capacity-reservation"
# The released line asks for the first, the next one for the second; both mean an enclave.
NITRO_RESOURCES: Final = (labels.NITRO_SLOTS, "eks.amazonaws.com/nitro-sandbox")
# EC2 has no IPv6 metadata endpoint there, and refuses to hear of one.
REGIONS_WITHOUT_IPV6: Final = frozenset(
    (
        *("us-iso-east-1", "us-iso-west-1", "us-isob-east-1", "us-isob-west-1"),
        *("us-isof-south-1", "us-isof-east-1"),
    )
)
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """One launch, as far as it decides what is in a template."""

    node_class: EC2NodeClass
    claim: NodeClaim
    capacity_type: str
    tags: Mapping[str, str]
    region: str
    ip_family: str = "ipv4"
    tenancy: str = "default"
    placement: PlacementGroup | None = None
    partition: str = ""
    # Whether capacity reservations are ours to use; then all others are left alone.
    reserving: bool = True


def build_launch_data(order: LaunchOrder, group: TemplateGroup, user_data: str) -> Json:
    """The contents of a template for a group."""
    spec, status = order.node_class.spec, order.node_class.status
    resources = ("network-interface", *(["spot-instances-request"] * (order.capacity_type == labels.SPOT)))
    requests = order.claim.spec.resources.requests
    data: Json = {
        "ImageId": group.image.id,
        "IamInstanceProfile": {"Name": status.instance_profile or ""},
        "Monitoring": {"Enabled": bool(spec.detailed_monitoring)},
        "MetadataOptions": _build_metadata_options(metadata_options(spec, order.region, order.ip_family)),
        "NetworkInterfaces": list(_list_interfaces(order, group)),
        "Placement": _build_placement(order),
        "EnclaveOptions": {"Enabled": any(name in requests for name in NITRO_RESOURCES)},
        "UserData": b64encode(user_data.encode()).decode(),
        "TagSpecifications": [{"ResourceType": each, "Tags": tag_list(order.tags)} for each in resources],
    }
    if mappings := block_devices(spec):
        data["BlockDeviceMappings"] = [_build_mapping(each) for each in mappings]
    if spec.cpu_options is not None and spec.cpu_options.nested_virtualization:
        data["CpuOptions"] = {"NestedVirtualization": spec.cpu_options.nested_virtualization}
    if order.reserving:
        data |= _build_reservation(group.reservation)
    return data


def tag_list(tags: Mapping[str, str]) -> list[Json]:
    """Tags as EC2 takes them."""
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


def metadata_options(spec: EC2NodeClassSpec, region: str, ip_family: str) -> MetadataOptions:
    """What the class says; or for a class that went past the API server's defaults, what is safe."""
    options = spec.metadata_options or MetadataOptions(
        http_endpoint="disabled",
        http_protocol_ipv6="enabled" if ip_family == IPV6 else "disabled",
        http_put_response_hop_limit=2,
        http_tokens="required",
    )
    if region not in REGIONS_WITHOUT_IPV6:
        return options
    return MetadataOptions(
        http_endpoint=options.http_endpoint,
        http_put_response_hop_limit=options.http_put_response_hop_limit,
        http_tokens=options.http_tokens,
    )


def _build_metadata_options(options: MetadataOptions) -> Json:
    return _drop_none(
        {
            "HttpEndpoint": options.http_endpoint,
            "HttpProtocolIpv6": options.http_protocol_ipv6,
            "HttpPutResponseHopLimit": options.http_put_response_hop_limit,
            "HttpTokens": options.http_tokens,
            # Keys of our tags have slashes, which the metadata service cannot serve.
            "InstanceMetadataTags": "disabled",
        }
    )


def block_devices(spec: EC2NodeClassSpec) -> Sequence[BlockDeviceMapping]:
    """The class's own volumes, or else those of the family; a custom image brings its own."""
    return spec.block_device_mappings or DEFAULT_DEVICES.get(ami_family(spec), ())


def _default_mapping(device: str, size: str) -> BlockDeviceMapping:
    return BlockDeviceMapping(
        device_name=device, ebs=BlockDevice(encrypted=True, volume_type="gp3", volume_size=size)
    )


_LINUX = (_default_mapping("/dev/xvda", "20Gi"),)
_WINDOWS = (_default_mapping("/dev/sda1", "50Gi"),)
DEFAULT_DEVICES: Final[Mapping[str, Sequence[BlockDeviceMapping]]] = {
    "AL2": _LINUX,
    "AL2023": _LINUX,
    "Bottlerocket": (_default_mapping("/dev/xvda", "4Gi"), _default_mapping("/dev/xvdb", "20Gi")),
    "Windows2019": _WINDOWS,
    "Windows2022": _WINDOWS,
    "Windows2025": _WINDOWS,
}


def _build_mapping(mapping: BlockDeviceMapping) -> Json:
    ebs = None if mapping.ebs is None else _build_volume(mapping.ebs)
    return _drop_none({"DeviceName": mapping.device_name, "Ebs": ebs})


def _build_volume(volume: BlockDevice) -> Json:
    size = None if volume.volume_size is None else ceil(Quantity.parse(volume.volume_size).value / GIB)
    return _drop_none(
        {
            "DeleteOnTermination": volume.delete_on_termination,
            "Encrypted": volume.encrypted,
            "Iops": volume.iops or None,
            "KmsKeyId": volume.kms_key_id,
            "SnapshotId": volume.snapshot_id,
            "Throughput": volume.throughput or None,
            "VolumeInitializationRate": volume.volume_initialization_rate,
            "VolumeSize": size,
            "VolumeType": volume.volume_type,
        }
    )


def _build_placement(order: LaunchOrder) -> Json:
    placement: Json = {"Tenancy": order.tenancy}
    if order.placement is not None:
        placement["GroupId"] = order.placement.id
        if order.partition:
            placement["PartitionNumber"] = int(order.partition)
    return placement


def _build_reservation(reservation: ReservationTarget) -> Json:
    if not reservation.id:
        return {"CapacityReservationSpecification": {"CapacityReservationPreference": "none"}}
    data: Json = {
        "CapacityReservationSpecification": {
            "CapacityReservationPreference": "capacity-reservations-only",
            "CapacityReservationTarget": {"CapacityReservationId": reservation.id},
        }
    }
    market_type = (
        CAPACITY_BLOCK if reservation.type == CAPACITY_BLOCK else INTERRUPTIBLE * reservation.interruptible
    )
    return data | ({"InstanceMarketOptions": {"MarketType": market_type}} if market_type else {})


def _list_interfaces(order: LaunchOrder, group: TemplateGroup) -> Iterator[Json]:
    """The class's own interfaces; or one on every card where EFA was asked for; or the first alone."""
    # Sorted: their order means nothing to EC2 and must make no other template.
    groups = sorted(each.id for each in order.node_class.status.security_groups)
    addressed = _build_addresses(order)
    listed: Sequence[NetworkInterface] = order.node_class.spec.network_interfaces
    for each in listed:
        made: Json = {"NetworkCardIndex": each.network_card_index, "DeviceIndex": each.device_index}
        made |= {"InterfaceType": each.interface_type} if each.interface_type else {}
        yield {**made, "Groups": groups, **({} if each.interface_type == EFA_ONLY else addressed)}
    if listed:
        return
    for card in range(group.efas):
        made = {"NetworkCardIndex": card, "DeviceIndex": min(card, 1), "InterfaceType": "efa"}
        yield {**made, "Groups": groups, **addressed}
    if not group.efas:
        yield {"DeviceIndex": 0, "Groups": groups, **addressed}


def _build_addresses(order: LaunchOrder) -> Json:
    """What an interface with addresses has; one that carries EFA traffic alone has none."""
    spec = order.node_class.spec
    six = order.ip_family == IPV6
    tracking = spec.connection_tracking
    return _drop_none(
        {
            "AssociatePublicIpAddress": spec.associate_public_ip_address,
            "Ipv6PrefixCount" if six else "Ipv4PrefixCount": spec.ip_prefix_count,
            "PrimaryIpv6": True if six else None,
            "Ipv6AddressCount": 1 if six else None,
            "ConnectionTrackingSpecification": tracking
            and _drop_none(
                {
                    "TcpEstablishedTimeout": tracking.tcp_established_timeout,
                    "UdpStreamTimeout": tracking.udp_stream_timeout,
                    "UdpTimeout": tracking.udp_timeout,
                }
            ),
        }
    )


def _drop_none(values: Json) -> Json:
    return {name: value for name, value in values.items() if value is not None}
