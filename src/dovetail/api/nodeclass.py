"""The node classes: EC2NodeClass (karpenter.k8s.aws/v1) and KWOKNodeClass (karpenter.kwok.sh/v1alpha1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, ClassVar

import msgspec

from dovetail.api.meta import ABSENT_LIST, ABSENT_MAP, Condition, Kind, Object, Record
from dovetail.api.pod import NodeSelectorRequirement

__all__ = [
    "EC2NodeClass",
    "EC2NodeClassSpec",
    "EC2NodeClassStatus",
    "KWOKNodeClass",
    "KubeletConfiguration",
]


class SubnetSelectorTerm(Record, frozen=True):
    """Subnets by tag or id."""

    tags: Mapping[str, str] = {}
    id: str | None = None


class SecurityGroupSelectorTerm(Record, frozen=True):
    """Security groups by tag, id or name."""

    tags: Mapping[str, str] = {}
    id: str | None = None
    name: str | None = None


class CapacityReservationSelectorTerm(
    Record, frozen=True, rename={"owner_id": "ownerID", "instance_match_criteria": "instanceMatchCriteria"}
):
    """Capacity reservations by tag, id, owner or match criteria."""

    tags: Mapping[str, str] = {}
    id: str | None = None
    owner_id: str | None = None
    instance_match_criteria: str | None = None


class AMISelectorTerm(Record, frozen=True):
    """Images by alias, tag, id, name, owner or SSM parameter."""

    alias: str | None = None
    tags: Mapping[str, str] = {}
    id: str | None = None
    name: str | None = None
    owner: str | None = None
    ssm_parameter: str | None = None


class NetworkInterface(Record, frozen=True):
    """One interface of the instance."""

    ALWAYS_WRITTEN: ClassVar[tuple[str, ...]] = ("network_card_index", "device_index")

    network_card_index: int = 0
    device_index: int = 0
    interface_type: str = ""


class ConnectionTracking(Record, frozen=True):
    """Idle timeouts of tracked connections, in seconds."""

    tcp_established_timeout: int | None = None
    udp_stream_timeout: int | None = None
    udp_timeout: int | None = None


class PlacementGroupSelector(Record, frozen=True):
    """A placement group by name or id."""

    name: str | None = None
    id: str | None = None


class KubeletConfiguration(
    Record,
    frozen=True,
    rename={
        "cluster_dns": "clusterDNS",
        "max_pods": "maxPods",
        "pods_per_core": "podsPerCore",
        "system_reserved": "systemReserved",
        "kube_reserved": "kubeReserved",
        "eviction_hard": "evictionHard",
        "eviction_soft": "evictionSoft",
        "eviction_soft_grace_period": "evictionSoftGracePeriod",
        "eviction_max_pod_grace_period": "evictionMaxPodGracePeriod",
        "image_gc_high_threshold_percent": "imageGCHighThresholdPercent",
        "image_gc_low_threshold_percent": "imageGCLowThresholdPercent",
        "cpu_cfs_quota": "cpuCFSQuota",
    },
):
    """The kubelet settings that nodes of this class start with."""

    cluster_dns: tuple[str, ...] = ABSENT_LIST
    # A text is an expression, which Karpenter's next line admits; we only carry it through.
    max_pods: int | str | None = None
    pods_per_core: int | None = None
    system_reserved: Mapping[str, str] = ABSENT_MAP
    kube_reserved: Mapping[str, str] = ABSENT_MAP
    eviction_hard: Mapping[str, str] = ABSENT_MAP
    eviction_soft: Mapping[str, str] = ABSENT_MAP
    eviction_soft_grace_period: Mapping[str, str] = ABSENT_MAP
    eviction_max_pod_grace_period: int | None = None
    image_gc_high_threshold_percent: int | None = None
    image_gc_low_threshold_percent: int | None = None
    cpu_cfs_quota: bool | None = None


class BlockDevice(
    Record,
    frozen=True,
    rename={
        "volume_size": "volumeSize",
        "volume_type": "volumeType",
        "kms_key_id": "kmsKeyID",
        "snapshot_id": "snapshotID",
        "delete_on_termination": "deleteOnTermination",
        "volume_initialization_rate": "volumeInitializationRate",
    },
):
    """One EBS volume. The size keeps its text, which the hash is made of."""

    volume_size: str | None = None
    volume_type: str | None = None
    iops: int | None = None
    throughput: int | None = None
    encrypted: bool | None = None
    kms_key_id: str | None = None
    snapshot_id: str | None = None
    delete_on_termination: bool | None = None
    volume_initialization_rate: int | None = None


class BlockDeviceMapping(Record, frozen=True):
    """A volume and the name it is attached under."""

    device_name: str | None = None
    ebs: BlockDevice | None = None
    root_volume: bool = False


class MetadataOptions(
    Record,
    frozen=True,
    rename={
        "http_endpoint": "httpEndpoint",
        "http_protocol_ipv6": "httpProtocolIPv6",
        "http_put_response_hop_limit": "httpPutResponseHopLimit",
        "http_tokens": "httpTokens",
    },
):
    """How the instance metadata service answers."""

    http_endpoint: str | None = None
    http_protocol_ipv6: str | None = None
    http_put_response_hop_limit: int | None = None
    http_tokens: str | None = None


class CPUOptions(Record, frozen=True):
    """Processor features."""

    nested_virtualization: str | None = None


class EC2NodeClassSpec(
    Record,
    frozen=True,
    rename={
        "associate_public_ip_address": "associatePublicIPAddress",
        "subnet_selector_terms": "subnetSelectorTerms",
        "security_group_selector_terms": "securityGroupSelectorTerms",
        "capacity_reservation_selector_terms": "capacityReservationSelectorTerms",
        "placement_group_selector": "placementGroupSelector",
        "ami_selector_terms": "amiSelectorTerms",
        "ami_family": "amiFamily",
        "user_data": "userData",
        "instance_profile": "instanceProfile",
        "block_device_mappings": "blockDeviceMappings",
        "instance_store_policy": "instanceStorePolicy",
        "detailed_monitoring": "detailedMonitoring",
        "metadata_options": "metadataOptions",
        "cpu_options": "cpuOptions",
        "ip_prefix_count": "ipPrefixCount",
        "network_interfaces": "networkInterfaces",
        "connection_tracking": "connectionTracking",
    },
):
    """How instances are made."""

    subnet_selector_terms: tuple[SubnetSelectorTerm, ...] = ()
    security_group_selector_terms: tuple[SecurityGroupSelectorTerm, ...] = ()
    capacity_reservation_selector_terms: tuple[CapacityReservationSelectorTerm, ...] = ()
    placement_group_selector: PlacementGroupSelector | None = None
    associate_public_ip_address: bool | None = None
    ip_prefix_count: int | None = None
    network_interfaces: tuple[NetworkInterface, ...] = ABSENT_LIST
    connection_tracking: ConnectionTracking | None = None
    ami_selector_terms: tuple[AMISelectorTerm, ...] = ()
    ami_family: str | None = None
    user_data: str | None = None
    role: str | None = None
    instance_profile: str | None = None
    tags: Mapping[str, str] = ABSENT_MAP
    kubelet: KubeletConfiguration | None = None
    block_device_mappings: tuple[BlockDeviceMapping, ...] = ABSENT_LIST
    instance_store_policy: str | None = None
    detailed_monitoring: bool | None = None
    metadata_options: MetadataOptions | None = None
    cpu_options: CPUOptions | None = None
    context: str | None = None


class Subnet(Record, frozen=True, rename={"zone_id": "zoneID"}):
    """A subnet that was found."""

    id: str = ""
    zone: str = ""
    zone_id: str = ""


class SecurityGroup(Record, frozen=True):
    """A security group that was found."""

    id: str = ""
    name: str = ""


class AMI(Record, frozen=True):
    """An image that was found, and which nodes it suits."""

    ALWAYS_WRITTEN: ClassVar[tuple[str, ...]] = ("requirements",)

    id: str = ""
    name: str = ""
    deprecated: bool = False
    requirements: tuple[NodeSelectorRequirement, ...] = ()


class CapacityReservation(
    Record,
    frozen=True,
    rename={
        "availability_zone": "availabilityZone",
        "instance_match_criteria": "instanceMatchCriteria",
        "instance_type": "instanceType",
        "owner_id": "ownerID",
        "end_time": "endTime",
        "reservation_type": "reservationType",
    },
):
    """A capacity reservation that was found."""

    id: str = ""
    availability_zone: str = ""
    instance_match_criteria: str = ""
    instance_type: str = ""
    owner_id: str = ""
    end_time: datetime | None = None
    interruptible: bool | None = None
    reservation_type: str = "default"
    state: str = "active"


class EC2NodeClassStatus(Record, frozen=True):
    """What the class came to."""

    subnets: tuple[Subnet, ...] = ()
    security_groups: tuple[SecurityGroup, ...] = ()
    amis: tuple[AMI, ...] = ()
    capacity_reservations: tuple[CapacityReservation, ...] = ()
    instance_profile: str | None = None
    conditions: tuple[Condition, ...] = ()


def without_unreadable_kubelet(document: Any) -> Any:
    """A class without those kubelet settings that have another type than they should.

    Karpenter's next line admits anything there. The controller of classes reads the settings as they are
    written, and calls the class invalid.
    """
    spec = document.get("spec") if isinstance(document, dict) else None
    kubelet = spec.get("kubelet") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(kubelet, dict):
        return document
    kept = {name: value for name, value in kubelet.items() if _is_readable(name, value)}
    return {**document, "spec": {**spec, "kubelet": kept}}


def _is_readable(name: str, value: Any) -> bool:
    try:
        msgspec.convert({name: value}, KubeletConfiguration)
    except msgspec.ValidationError:
        return False
    return True


class EC2NodeClass(Object, frozen=True):
    """How EC2 instances are made."""

    KIND: ClassVar[Kind] = Kind("karpenter.k8s.aws", "v1", "EC2NodeClass", "ec2nodeclasses", namespaced=False)
    MENDED: ClassVar[Callable[[Any], Any] | None] = without_unreadable_kubelet

    spec: EC2NodeClassSpec = EC2NodeClassSpec()
    status: EC2NodeClassStatus = EC2NodeClassStatus()


class KWOKNodeClassSpec(Record, frozen=True):
    """How simulated nodes are made."""

    node_registration_delay: str | None = None


class KWOKNodeClassStatus(Record, frozen=True):
    """Whether the class can be used."""

    conditions: tuple[Condition, ...] = ()


class KWOKNodeClass(Object, frozen=True):
    """How simulated nodes are made."""

    KIND: ClassVar[Kind] = Kind(
        "karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass", "kwoknodeclasses", namespaced=False
    )

    spec: KWOKNodeClassSpec = KWOKNodeClassSpec()
    status: KWOKNodeClassStatus = KWOKNodeClassStatus()
