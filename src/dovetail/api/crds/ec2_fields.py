"""Every field of an EC2NodeClass (karpenter.k8s.aws/v1), and what the schema asks of it."""

from __future__ import annotations

from typing import Any

from dovetail.api.crds import patterns
from dovetail.api.crds.definition import (
    CONDITION,
    PLAIN_CONDITIONS,
    AdmissionRule,
    FieldSchema,
    cel_list,
    constrain_field,
    mount_fields,
)

RESERVABLE = ("cpu", "memory", "ephemeral-storage", "pid")
SIGNALS = (
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
)
_KEYS = {
    "systemReserved": RESERVABLE,
    "kubeReserved": RESERVABLE,
    "evictionHard": SIGNALS,
    "evictionSoft": SIGNALS,
    "evictionSoftGracePeriod": SIGNALS,
}
_RESERVED = {"pattern": patterns.QUANTITY}
_THRESHOLD = {"pattern": patterns.EVICTION_THRESHOLD}

KUBELET: dict[str, FieldSchema] = {
    "clusterDNS": constrain_field("Addresses of the cluster's DNS servers."),
    "maxPods": constrain_field("The most pods a node may run.", type="integer", format="int32", minimum=0),
    "podsPerCore": constrain_field("The most pods a node may run for each core.", format="int32", minimum=0),
    "systemReserved": constrain_field("What is kept for the operating system.", inner=_RESERVED),
    "kubeReserved": constrain_field("What is kept for Kubernetes itself.", inner=_RESERVED),
    "evictionHard": constrain_field("Thresholds at which pods are evicted at once.", inner=_THRESHOLD),
    "evictionSoft": constrain_field("Thresholds at which pods are evicted after a while.", inner=_THRESHOLD),
    "evictionSoftGracePeriod": constrain_field("How long each soft threshold may be crossed."),
    "evictionMaxPodGracePeriod": constrain_field(
        "The longest grace, in seconds, given to pods evicted softly.", format="int32"
    ),
    "imageGCHighThresholdPercent": constrain_field(
        "Disk use above which images are always collected.", format="int32", minimum=0, maximum=100
    ),
    "imageGCLowThresholdPercent": constrain_field(
        "Disk use below which images are never collected.", format="int32", minimum=0, maximum=100
    ),
    "cpuCFSQuota": constrain_field("Whether CPU limits are enforced with CFS quotas."),
}


def _thresholds_are_ordered(kubelet: Any, _: Any) -> bool:
    high, low = kubelet.get("imageGCHighThresholdPercent"), kubelet.get("imageGCLowThresholdPercent")
    return high is None or low is None or high > low


def _soft_has_grace(kubelet: Any, _: Any) -> bool:
    return set(kubelet.get("evictionSoft", ())) <= set(kubelet.get("evictionSoftGracePeriod", ()))


def _grace_has_soft(kubelet: Any, _: Any) -> bool:
    return set(kubelet.get("evictionSoftGracePeriod", ())) <= set(kubelet.get("evictionSoft", ()))


def _known_keys(name: str, known: tuple[str, ...]) -> AdmissionRule:
    return AdmissionRule(
        f"KU-4:{name}",
        name,
        f"{name} knows only {', '.join(known)}",
        # Counting the known keys costs the same however many keys there are; the maps have no bound.
        f"self.size() == {cel_list(known)}.filter(k, k in self).size()",
        lambda value, _: all(key in known for key in value),
    )


def _not_negative(name: str) -> AdmissionRule:
    return AdmissionRule(
        f"KU-5:{name}",
        name,
        f"{name} holds no negative amounts",
        "self.all(k, !self[k].startsWith('-'))",
        lambda value, _: not any(amount.startswith("-") for amount in value.values()),
    )


KUBELET_RULES: tuple[AdmissionRule, ...] = (
    AdmissionRule(
        "KU-1",
        "",
        "imageGCHighThresholdPercent must be greater than imageGCLowThresholdPercent",
        "!has(self.imageGCHighThresholdPercent) || !has(self.imageGCLowThresholdPercent) || "
        "self.imageGCHighThresholdPercent > self.imageGCLowThresholdPercent",
        _thresholds_are_ordered,
    ),
    AdmissionRule(
        "KU-2",
        "",
        "every evictionSoft signal needs an evictionSoftGracePeriod",
        "!has(self.evictionSoft) || self.evictionSoft.all(k, "
        "has(self.evictionSoftGracePeriod) && k in self.evictionSoftGracePeriod)",
        _soft_has_grace,
    ),
    AdmissionRule(
        "KU-3",
        "",
        "every evictionSoftGracePeriod signal needs an evictionSoft threshold",
        "!has(self.evictionSoftGracePeriod) || self.evictionSoftGracePeriod.all(k, "
        "has(self.evictionSoft) && k in self.evictionSoft)",
        _grace_has_soft,
    ),
    *(_known_keys(name, known) for name, known in _KEYS.items()),
    _not_negative("systemReserved"),
    _not_negative("kubeReserved"),
)


AMI_FAMILIES = ["AL2", "AL2023", "Bottlerocket", "Custom", "Windows2019", "Windows2022", "Windows2025"]
_TAGS = constrain_field(
    "Tags to match; a value of * means any, and * within a value is a wildcard.", maxProperties=20
)
_ON_OFF = ["enabled", "disabled"]

_SELECTORS: dict[str, FieldSchema] = {
    "subnetSelectorTerms": constrain_field("Where instances may be launched.", required=True, maxItems=30),
    "subnetSelectorTerms[].tags": _TAGS,
    "subnetSelectorTerms[].id": constrain_field("The id of one subnet.", pattern="subnet-[0-9a-z]+"),
    "securityGroupSelectorTerms": constrain_field(
        "The security groups of the instances; all that match are attached.", required=True, maxItems=30
    ),
    "securityGroupSelectorTerms[].tags": _TAGS,
    "securityGroupSelectorTerms[].id": constrain_field("The id of one group.", pattern="sg-[0-9a-z]+"),
    "securityGroupSelectorTerms[].name": constrain_field("The group's name, which is not its Name tag."),
    "capacityReservationSelectorTerms": constrain_field(
        "Capacity reservations that instances may use.", maxItems=30
    ),
    "capacityReservationSelectorTerms[].tags": _TAGS,
    "capacityReservationSelectorTerms[].id": constrain_field(
        "The id of one reservation.", pattern="^cr-[0-9a-z]+$"
    ),
    "capacityReservationSelectorTerms[].ownerID": constrain_field(
        "The account that owns the reservation.", pattern="^[0-9]{12}$"
    ),
    "capacityReservationSelectorTerms[].instanceMatchCriteria": constrain_field(
        "Which instances the reservation takes.", enum=["open", "targeted"]
    ),
    "placementGroupSelector": constrain_field("The placement group of the instances."),
    "placementGroupSelector.name": constrain_field("The group's name.", minLength=1),
    "placementGroupSelector.id": constrain_field("The group's id.", pattern="^pg-[0-9a-z]+$"),
    "amiSelectorTerms": constrain_field("The images to boot from.", required=True, minItems=1, maxItems=30),
    "amiSelectorTerms[].alias": constrain_field("An image family and version: al2023@latest.", maxLength=30),
    "amiSelectorTerms[].tags": _TAGS,
    "amiSelectorTerms[].id": constrain_field("The id of one image.", pattern="ami-[0-9a-z]+"),
    "amiSelectorTerms[].name": constrain_field("The image's name, which is not its Name tag."),
    "amiSelectorTerms[].owner": constrain_field("An account id, self, amazon or aws-marketplace."),
    "amiSelectorTerms[].ssmParameter": constrain_field(
        "The name or ARN of an SSM parameter that holds an image id."
    ),
}
_NETWORK: dict[str, FieldSchema] = {
    "associatePublicIPAddress": constrain_field("Whether instances get a public address."),
    "ipPrefixCount": constrain_field(
        "The number of address prefixes on the primary interface.", format="int32", minimum=0
    ),
    "networkInterfaces": constrain_field("The interfaces of the instances.", maxItems=150),
    "networkInterfaces[].networkCardIndex": constrain_field(
        "The card the interface is on.", required=True, format="int32", minimum=0
    ),
    "networkInterfaces[].deviceIndex": constrain_field(
        "The interface's place on its card.", required=True, format="int32", minimum=0
    ),
    "networkInterfaces[].interfaceType": constrain_field(
        "What the interface is for.", required=True, enum=["interface", "efa-only"]
    ),
    "connectionTracking": constrain_field("Idle timeouts of tracked connections."),
    "connectionTracking.tcpEstablishedTimeout": constrain_field(
        "For established TCP connections, in seconds.", format="int32", minimum=60, maximum=432000
    ),
    "connectionTracking.udpStreamTimeout": constrain_field(
        "For UDP flows with several exchanges, in seconds.", format="int32", minimum=60, maximum=180
    ),
    "connectionTracking.udpTimeout": constrain_field(
        "For UDP flows with one exchange, in seconds.", format="int32", minimum=30, maximum=60
    ),
}
_STORAGE: dict[str, FieldSchema] = {
    "blockDeviceMappings": constrain_field("The volumes of the instances.", maxItems=50),
    "blockDeviceMappings[].deviceName": constrain_field("The name the volume is attached under."),
    "blockDeviceMappings[].rootVolume": constrain_field("Whether the kubelet's files are on this volume."),
    "blockDeviceMappings[].ebs": constrain_field("The EBS volume."),
    "blockDeviceMappings[].ebs.volumeSize": constrain_field("The size.", pattern=patterns.VOLUME_SIZE),
    "blockDeviceMappings[].ebs.volumeType": constrain_field(
        "The type.", enum=["standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"]
    ),
    "blockDeviceMappings[].ebs.iops": constrain_field("Operations per second.", format="int64"),
    "blockDeviceMappings[].ebs.throughput": constrain_field("Throughput in MiB/s.", format="int64"),
    "blockDeviceMappings[].ebs.encrypted": constrain_field("Whether the volume is encrypted."),
    "blockDeviceMappings[].ebs.kmsKeyID": constrain_field("The key: its id, alias or ARN."),
    "blockDeviceMappings[].ebs.snapshotID": constrain_field("The snapshot the volume starts from."),
    "blockDeviceMappings[].ebs.deleteOnTermination": constrain_field(
        "Whether the volume goes with its instance."
    ),
    "blockDeviceMappings[].ebs.volumeInitializationRate": constrain_field(
        "How fast the snapshot is read, in MiB/s.", format="int32", minimum=100, maximum=300
    ),
    "instanceStorePolicy": constrain_field("What to do with local disks.", enum=["RAID0"]),
}
_COMPUTE: dict[str, FieldSchema] = {
    "role": constrain_field("The IAM role of the nodes; an instance profile is made for it."),
    "instanceProfile": constrain_field("An instance profile that exists already."),
    "amiFamily": constrain_field(
        "How nodes are bootstrapped; needed unless an alias says it.", enum=AMI_FAMILIES
    ),
    "userData": constrain_field("User data, merged with what the family needs."),
    "tags": constrain_field("Tags of everything that is created."),
    # Karpenter's next line opens this block; members only that line knows must outlive a read and a write.
    "kubelet": constrain_field("Kubelet settings of the nodes.", preserveUnknownFields=True),
    **mount_fields("kubelet", KUBELET),
    "detailedMonitoring": constrain_field("Whether instances report metrics every minute."),
    "metadataOptions": constrain_field(
        "How the instance metadata service answers.",
        default={
            "httpEndpoint": "enabled",
            "httpProtocolIPv6": "disabled",
            "httpPutResponseHopLimit": 1,
            "httpTokens": "required",
        },
    ),
    "metadataOptions.httpEndpoint": constrain_field(
        "Whether it answers at all.", default="enabled", enum=_ON_OFF
    ),
    "metadataOptions.httpProtocolIPv6": constrain_field(
        "Whether it answers over IPv6.", default="disabled", enum=_ON_OFF
    ),
    "metadataOptions.httpPutResponseHopLimit": constrain_field(
        "How many hops a token may travel.", default=1, format="int64", minimum=1, maximum=64
    ),
    "metadataOptions.httpTokens": constrain_field(
        "Whether a token is needed.", default="required", enum=["required", "optional"]
    ),
    "cpuOptions": constrain_field("Processor features."),
    "cpuOptions.nestedVirtualization": constrain_field("Whether instances can run guests.", enum=_ON_OFF),
    "context": constrain_field("A reserved EC2 fleet context."),
}
_STATUS: dict[str, FieldSchema] = {
    "subnets": constrain_field("The subnets that were found."),
    "subnets[].id": constrain_field("The subnet's id.", required=True),
    "subnets[].zone": constrain_field("The subnet's zone.", required=True),
    "subnets[].zoneID": constrain_field("The id of that zone."),
    "securityGroups": constrain_field("The security groups that were found."),
    "securityGroups[].id": constrain_field("The group's id.", required=True),
    "securityGroups[].name": constrain_field("The group's name."),
    "amis": constrain_field("The images that were found."),
    "amis[].id": constrain_field("The image's id.", required=True),
    "amis[].name": constrain_field("The image's name."),
    "amis[].deprecated": constrain_field("Whether the image's time is over."),
    "amis[].requirements": constrain_field("The nodes the image suits.", required=True),
    "amis[].requirements[].key": constrain_field("The label this is about.", required=True),
    "amis[].requirements[].operator": constrain_field("How the label relates to the values.", required=True),
    "amis[].requirements[].values": constrain_field("The values.", listType="atomic"),
    "capacityReservations": constrain_field("The capacity reservations that were found."),
    "capacityReservations[].id": constrain_field(
        "The reservation's id.", required=True, pattern="^cr-[0-9a-z]+$"
    ),
    "capacityReservations[].availabilityZone": constrain_field("Where it is.", required=True),
    "capacityReservations[].instanceMatchCriteria": constrain_field(
        "Which instances it takes.", required=True, enum=["open", "targeted"]
    ),
    "capacityReservations[].instanceType": constrain_field("What it reserves.", required=True),
    "capacityReservations[].ownerID": constrain_field(
        "The account that owns it.", required=True, pattern="^[0-9]{12}$"
    ),
    "capacityReservations[].endTime": constrain_field("When it ends."),
    "capacityReservations[].interruptible": constrain_field("Whether its instances can be reclaimed."),
    "capacityReservations[].reservationType": constrain_field(
        "The type of reservation.", default="default", enum=["default", "capacity-block"]
    ),
    "capacityReservations[].state": constrain_field(
        "Whether it is about to end.", default="active", enum=["active", "expiring"]
    ),
    "instanceProfile": constrain_field("The instance profile in use."),
    "conditions": PLAIN_CONDITIONS,
    **mount_fields("conditions[]", CONDITION),
}

EC2_FIELDS: dict[str, FieldSchema] = {
    "spec": constrain_field("How instances are made."),
    **mount_fields("spec", {**_SELECTORS, **_NETWORK, **_STORAGE, **_COMPUTE}),
    "status": constrain_field("What the class came to."),
    **mount_fields("status", _STATUS),
}
