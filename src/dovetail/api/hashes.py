"""The static hashes of pools and node classes, bit for bit as Karpenter writes them.

A claim whose hash differs from its pool's or class's was made from an older template and is drifted. The
numbers are those of Karpenter's own structural hash, so that taking over a cluster replaces no node.

The hash walks Go structures: type and field names take part in it, lists are sets, and what is zero in
Go is left out. A pointer to zero is not zero, and a list written `[]` is not an absent one; None and the
`Absent` defaults of the records stand for what is nil there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeAlias, TypeVar

from dovetail.api.core import Taint
from dovetail.api.meta import AbsentList, AbsentMap
from dovetail.api.nodeclass import (
    BlockDevice,
    BlockDeviceMapping,
    ConnectionTracking,
    CPUOptions,
    EC2NodeClass,
    EC2NodeClassSpec,
    KubeletConfiguration,
    MetadataOptions,
    NetworkInterface,
    PlacementGroupSelector,
)
from dovetail.api.nodepool import NodeClassReference, NodePool
from dovetail.api.quantity import print_as_go
from dovetail.settings import durations

__all__ = [
    "NODECLASS_HASH_VERSION",
    "NODEPOOL_HASH_VERSION",
    "Int32",
    "Struct",
    "Value",
    "ami_family",
    "hash_nodeclass",
    "hash_nodepool",
    "legacy_instance_profile",
    "structural_hash",
]

_OFFSET: Final = 0xCBF29CE484222325
_PRIME: Final = 0x100000001B3
_MASK: Final = (1 << 64) - 1


class Int32(NamedTuple):
    """A Go int32: it hashes as four bytes where a plain int takes eight."""

    value: int


class Struct(NamedTuple):
    """A Go structure: its type's name and its fields in order; a field that is None is zero."""

    name: str
    fields: Sequence[tuple[str, Value]]


Value: TypeAlias = (
    str | bool | int | Int32 | datetime | Struct | Mapping[str, "Value"] | Sequence["Value"] | None
)


def structural_hash(value: Value) -> int:
    """The 64-bit hash of a value."""
    match value:
        case Struct():
            return _hash_struct(value)
        case Int32():
            return _hash_bytes(value.value.to_bytes(4, "little", signed=True))
        case str():
            return _hash_bytes(value.encode())
        case bool():
            return _hash_bytes(bytes([value]))
        case int():
            return _hash_bytes(value.to_bytes(8, "little", signed=True))
        case datetime():
            return _hash_bytes(_go_time(value))
        case Mapping():
            return _hash_map(value)
        case None:
            return structural_hash(0)
    total = 0
    for item in value:
        total ^= structural_hash(item)
    return total


def _hash_struct(struct: Struct) -> int:
    total = structural_hash(struct.name)
    for name, value in struct.fields:
        if value is not None:
            total = _hash_number(total ^ _hash_pair(structural_hash(name), structural_hash(value)))
    return total


def _hash_map(values: Mapping[str, Value]) -> int:
    total = 0
    for key, value in values.items():
        total ^= _hash_pair(structural_hash(key), structural_hash(value))
    return _hash_number(total)


def _hash_pair(first: int, second: int) -> int:
    return _hash_bytes(first.to_bytes(8, "little") + second.to_bytes(8, "little"))


def _hash_number(number: int) -> int:
    return _hash_bytes(number.to_bytes(8, "little"))


def _hash_bytes(data: bytes) -> int:
    """64-bit FNV-1: multiply, then xor."""
    number = _OFFSET
    for byte in data:
        number = (number * _PRIME & _MASK) ^ byte
    return number


_YEAR_ONE: Final = datetime(1, 1, 1, tzinfo=UTC)


def _go_time(time: datetime) -> bytes:
    """A UTC time as Go stores it in binary: version, seconds, nanoseconds, and -1 for the zone."""
    since = time.astimezone(UTC) - _YEAR_ONE
    seconds = since.days * 86_400 + since.seconds
    nanoseconds = since.microseconds * 1_000
    return b"\x01" + seconds.to_bytes(8, "big") + nanoseconds.to_bytes(4, "big") + b"\xff\xff"


NODEPOOL_HASH_VERSION: Final = "v3"
NODECLASS_HASH_VERSION: Final = "v5"

T = TypeVar("T")


def hash_nodepool(nodepool: NodePool) -> str:
    """The hash of everything a NodeClaim gets from its pool, requirements aside."""
    template = nodepool.spec.template
    labels, annotations = _map_or_nil(template.metadata.labels), _map_or_nil(template.metadata.annotations)
    metadata = Struct("ObjectMeta", [("Labels", labels), ("Annotations", annotations)])
    spec = Struct(
        "NodeClaimTemplateSpec",
        [
            ("Taints", _convert_items(template.spec.taints, _taint_struct)),
            ("StartupTaints", _convert_items(template.spec.startup_taints, _taint_struct)),
            ("NodeClassRef", _class_reference(template.spec.node_class_ref)),
            ("TerminationGracePeriod", _duration_struct(template.spec.termination_grace_period)),
            ("ExpireAfter", _nillable_duration(template.spec.expire_after)),
        ],
    )
    # A structure is left out only when all of it is zero, and an ignored field still counts there.
    hashed_spec = spec if template.spec.requirements is not None else _unless_zero(spec)
    parts = [("ObjectMeta", _unless_zero(metadata)), ("Spec", hashed_spec)]
    return str(structural_hash(Struct("NodeClaimTemplate", parts)))


def hash_nodeclass(nodeclass: EC2NodeClass, ca_bundle: str | None) -> str:
    """The hash of everything an instance gets from its class, selectors aside."""
    family = ami_family(nodeclass.spec)
    spec = structural_hash(_nodeclass_spec(nodeclass.spec))
    return str(spec ^ structural_hash(family) ^ structural_hash(ca_bundle or ""))


def ami_family(spec: EC2NodeClassSpec) -> str:
    """The family that bootstraps the nodes: as written, or as the alias implies, or Custom."""
    if spec.ami_family is not None:
        return spec.ami_family
    alias = next((term.alias for term in spec.ami_selector_terms if term.alias), None)
    return FAMILIES.get(alias.partition("@")[0].lower(), CUSTOM) if alias else CUSTOM


CUSTOM: Final = "Custom"
FAMILIES: Final = {
    family.lower(): family
    for family in ("AL2", "AL2023", "Bottlerocket", "Windows2019", "Windows2022", "Windows2025")
}


def legacy_instance_profile(cluster: str, region: str, nodeclass: str) -> str:
    """The name Karpenter once gave a class's instance profile."""
    return f"{cluster}_{structural_hash(region + nodeclass)}"


def _taint_struct(taint: Taint) -> Struct:
    added = Struct("Time", [("Time", taint.time_added)]) if taint.time_added else None
    fields = [("Key", taint.key), ("Value", taint.value), ("Effect", taint.effect)]
    return Struct("Taint", [*((name, text or None) for name, text in fields), ("TimeAdded", added)])


def _class_reference(reference: NodeClassReference) -> Value:
    fields = [("Kind", reference.kind), ("Name", reference.name), ("Group", reference.group)]
    return _unless_zero(Struct("NodeClassReference", [(name, text or None) for name, text in fields]))


def _duration_struct(text: str | None) -> Value:
    if text is None:
        return None
    return Struct("Duration", [("Duration", durations.parse_nanoseconds(text) or None)])


def _nillable_duration(text: str | None) -> Value:
    if text is None or text == durations.NEVER:
        return None
    return Struct("NillableDuration", [("Duration", durations.parse_nanoseconds(text))])


def _nodeclass_spec(spec: EC2NodeClassSpec) -> Struct:
    return Struct(
        "EC2NodeClassSpec",
        [
            ("PlacementGroupSelector", _convert_optional(spec.placement_group_selector, _placement_group)),
            ("AssociatePublicIPAddress", spec.associate_public_ip_address),
            ("UserData", spec.user_data),
            ("Role", spec.role or None),
            ("InstanceProfile", spec.instance_profile),
            ("Tags", _map_or_nil(spec.tags)),
            ("Kubelet", _convert_optional(spec.kubelet, _kubelet_struct)),
            ("BlockDeviceMappings", _convert_items(spec.block_device_mappings, _block_device_mapping)),
            ("InstanceStorePolicy", spec.instance_store_policy),
            ("NetworkInterfaces", _convert_items(spec.network_interfaces, _network_interface)),
            ("DetailedMonitoring", spec.detailed_monitoring),
            ("MetadataOptions", _convert_optional(spec.metadata_options, _metadata_options)),
            ("ConnectionTracking", _convert_optional(spec.connection_tracking, _tracking_struct)),
            ("Context", spec.context),
            ("CPUOptions", _convert_optional(spec.cpu_options, _cpu_options)),
        ],
    )


def _placement_group(selector: PlacementGroupSelector) -> Struct:
    return Struct("PlacementGroupSelector", [("Name", selector.name), ("ID", selector.id)])


def _cpu_options(options: CPUOptions) -> Struct:
    return Struct("CPUOptions", [("NestedVirtualization", options.nested_virtualization)])


def _kubelet_struct(kubelet: KubeletConfiguration) -> Struct:
    grace = _map_or_nil(kubelet.eviction_soft_grace_period)
    periods = None if grace is None else {signal: _duration_struct(text) for signal, text in grace.items()}
    max_pods = kubelet.max_pods if isinstance(kubelet.max_pods, int) else None
    return Struct(
        "KubeletConfiguration",
        [
            ("ClusterDNS", _convert_items(kubelet.cluster_dns, str)),
            ("MaxPods", _to_int32(max_pods)),
            ("PodsPerCore", _to_int32(kubelet.pods_per_core)),
            ("SystemReserved", _map_or_nil(kubelet.system_reserved)),
            ("KubeReserved", _map_or_nil(kubelet.kube_reserved)),
            ("EvictionHard", _map_or_nil(kubelet.eviction_hard)),
            ("EvictionSoft", _map_or_nil(kubelet.eviction_soft)),
            ("EvictionSoftGracePeriod", periods),
            ("EvictionMaxPodGracePeriod", _to_int32(kubelet.eviction_max_pod_grace_period)),
            ("ImageGCHighThresholdPercent", _to_int32(kubelet.image_gc_high_threshold_percent)),
            ("ImageGCLowThresholdPercent", _to_int32(kubelet.image_gc_low_threshold_percent)),
            ("CPUCFSQuota", kubelet.cpu_cfs_quota),
        ],
    )


def _block_device_mapping(mapping: BlockDeviceMapping) -> Struct:
    return Struct(
        "BlockDeviceMapping",
        [
            ("DeviceName", mapping.device_name),
            ("EBS", _convert_optional(mapping.ebs, _block_device)),
            ("RootVolume", mapping.root_volume or None),
        ],
    )


def _block_device(device: BlockDevice) -> Struct:
    return Struct(
        "BlockDevice",
        [
            ("DeleteOnTermination", device.delete_on_termination),
            ("Encrypted", device.encrypted),
            ("IOPS", device.iops),
            ("KMSKeyID", device.kms_key_id),
            ("SnapshotID", device.snapshot_id),
            ("Throughput", device.throughput),
            ("VolumeInitializationRate", _to_int32(device.volume_initialization_rate)),
            ("VolumeSize", None if device.volume_size is None else print_as_go(device.volume_size)),
            ("VolumeType", device.volume_type),
        ],
    )


def _network_interface(interface: NetworkInterface) -> Struct:
    return Struct(
        "NetworkInterface",
        [
            ("NetworkCardIndex", _to_int32(interface.network_card_index or None)),
            ("DeviceIndex", _to_int32(interface.device_index or None)),
            ("InterfaceType", interface.interface_type or None),
        ],
    )


def _metadata_options(options: MetadataOptions) -> Struct:
    return Struct(
        "MetadataOptions",
        [
            ("HTTPEndpoint", options.http_endpoint),
            ("HTTPProtocolIPv6", options.http_protocol_ipv6),
            ("HTTPPutResponseHopLimit", options.http_put_response_hop_limit),
            ("HTTPTokens", options.http_tokens),
        ],
    )


def _tracking_struct(tracking: ConnectionTracking) -> Struct:
    return Struct(
        "ConnectionTracking",
        [
            ("TCPEstablishedTimeout", _to_int32(tracking.tcp_established_timeout)),
            ("UDPStreamTimeout", _to_int32(tracking.udp_stream_timeout)),
            ("UDPTimeout", _to_int32(tracking.udp_timeout)),
        ],
    )


def _to_int32(value: int | None) -> Int32 | None:
    return None if value is None else Int32(value)


def _map_or_nil(values: Mapping[str, str]) -> Mapping[str, str] | None:
    return None if isinstance(values, AbsentMap) else values


def _convert_optional(value: T | None, shape: Callable[[T], Value]) -> Value:
    return None if value is None else shape(value)


def _convert_items(items: Sequence[T], shape: Callable[[T], Value]) -> list[Value] | None:
    return None if isinstance(items, AbsentList) else [shape(item) for item in items]


def _unless_zero(struct: Struct) -> Struct | None:
    return struct if any(value is not None for _, value in struct.fields) else None
