"""Every field of an EC2NodeClass (karpenter.k8s.aws/v1), and what the schema asks of it."""

from __future__ import annotations

from dovetail.api.crds import patterns
from dovetail.api.crds.definition import Field, constrained, mounted
from dovetail.api.crds.kubelet import KUBELET
from dovetail.api.crds.parts import CONDITION, PLAIN_CONDITIONS

AMI_FAMILIES = ["AL2", "AL2023", "Bottlerocket", "Custom", "Windows2019", "Windows2022", "Windows2025"]
_TAGS = constrained(
    "Tags to match; a value of * means any, and * within a value is a wildcard.", maxProperties=20
)
_ON_OFF = ["enabled", "disabled"]

_SELECTORS: dict[str, Field] = {
    "subnetSelectorTerms": constrained("Where instances may be launched.", required=True, maxItems=30),
    "subnetSelectorTerms[].tags": _TAGS,
    "subnetSelectorTerms[].id": constrained("The id of one subnet.", pattern="subnet-[0-9a-z]+"),
    "securityGroupSelectorTerms": constrained(
        "The security groups of the instances; all that match are attached.", required=True, maxItems=30
    ),
    "securityGroupSelectorTerms[].tags": _TAGS,
    "securityGroupSelectorTerms[].id": constrained("The id of one group.", pattern="sg-[0-9a-z]+"),
    "securityGroupSelectorTerms[].name": constrained("The group's name, which is not its Name tag."),
    "capacityReservationSelectorTerms": constrained(
        "Capacity reservations that instances may use.", maxItems=30
    ),
    "capacityReservationSelectorTerms[].tags": _TAGS,
    "capacityReservationSelectorTerms[].id": constrained(
        "The id of one reservation.", pattern="^cr-[0-9a-z]+$"
    ),
    "capacityReservationSelectorTerms[].ownerID": constrained(
        "The account that owns the reservation.", pattern="^[0-9]{12}$"
    ),
    "capacityReservationSelectorTerms[].instanceMatchCriteria": constrained(
        "Which instances the reservation takes.", enum=["open", "targeted"]
    ),
    "placementGroupSelector": constrained("The placement group of the instances."),
    "placementGroupSelector.name": constrained("The group's name.", minLength=1),
    "placementGroupSelector.id": constrained("The group's id.", pattern="^pg-[0-9a-z]+$"),
    "amiSelectorTerms": constrained("The images to boot from.", required=True, minItems=1, maxItems=30),
    "amiSelectorTerms[].alias": constrained("An image family and version: al2023@latest.", maxLength=30),
    "amiSelectorTerms[].tags": _TAGS,
    "amiSelectorTerms[].id": constrained("The id of one image.", pattern="ami-[0-9a-z]+"),
    "amiSelectorTerms[].name": constrained("The image's name, which is not its Name tag."),
    "amiSelectorTerms[].owner": constrained("An account id, self, amazon or aws-marketplace."),
    "amiSelectorTerms[].ssmParameter": constrained(
        "The name or ARN of an SSM parameter that holds an image id."
    ),
}
_NETWORK: dict[str, Field] = {
    "associatePublicIPAddress": constrained("Whether instances get a public address."),
    "ipPrefixCount": constrained(
        "The number of address prefixes on the primary interface.", format="int32", minimum=0
    ),
    "networkInterfaces": constrained("The interfaces of the instances.", maxItems=150),
    "networkInterfaces[].networkCardIndex": constrained(
        "The card the interface is on.", required=True, format="int32", minimum=0
    ),
    "networkInterfaces[].deviceIndex": constrained(
        "The interface's place on its card.", required=True, format="int32", minimum=0
    ),
    "networkInterfaces[].interfaceType": constrained(
        "What the interface is for.", required=True, enum=["interface", "efa-only"]
    ),
    "connectionTracking": constrained("Idle timeouts of tracked connections."),
    "connectionTracking.tcpEstablishedTimeout": constrained(
        "For established TCP connections, in seconds.", format="int32", minimum=60, maximum=432000
    ),
    "connectionTracking.udpStreamTimeout": constrained(
        "For UDP flows with several exchanges, in seconds.", format="int32", minimum=60, maximum=180
    ),
    "connectionTracking.udpTimeout": constrained(
        "For UDP flows with one exchange, in seconds.", format="int32", minimum=30, maximum=60
    ),
}
_STORAGE: dict[str, Field] = {
    "blockDeviceMappings": constrained("The volumes of the instances.", maxItems=50),
    "blockDeviceMappings[].deviceName": constrained("The name the volume is attached under."),
    "blockDeviceMappings[].rootVolume": constrained("Whether the kubelet's files are on this volume."),
    "blockDeviceMappings[].ebs": constrained("The EBS volume."),
    "blockDeviceMappings[].ebs.volumeSize": constrained("The size.", pattern=patterns.VOLUME_SIZE),
    "blockDeviceMappings[].ebs.volumeType": constrained(
        "The type.", enum=["standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"]
    ),
    "blockDeviceMappings[].ebs.iops": constrained("Operations per second.", format="int64"),
    "blockDeviceMappings[].ebs.throughput": constrained("Throughput in MiB/s.", format="int64"),
    "blockDeviceMappings[].ebs.encrypted": constrained("Whether the volume is encrypted."),
    "blockDeviceMappings[].ebs.kmsKeyID": constrained("The key: its id, alias or ARN."),
    "blockDeviceMappings[].ebs.snapshotID": constrained("The snapshot the volume starts from."),
    "blockDeviceMappings[].ebs.deleteOnTermination": constrained(
        "Whether the volume goes with its instance."
    ),
    "blockDeviceMappings[].ebs.volumeInitializationRate": constrained(
        "How fast the snapshot is read, in MiB/s.", format="int32", minimum=100, maximum=300
    ),
    "instanceStorePolicy": constrained("What to do with local disks.", enum=["RAID0"]),
}
_COMPUTE: dict[str, Field] = {
    "role": constrained("The IAM role of the nodes; an instance profile is made for it."),
    "instanceProfile": constrained("An instance profile that exists already."),
    "amiFamily": constrained(
        "How nodes are bootstrapped; needed unless an alias says it.", enum=AMI_FAMILIES
    ),
    "userData": constrained("User data, merged with what the family needs."),
    "tags": constrained("Tags of everything that is created."),
    # Karpenter's next line opens this block; members only that line knows must outlive a read and a write.
    "kubelet": constrained("Kubelet settings of the nodes.", preserveUnknownFields=True),
    **mounted("kubelet", KUBELET),
    "detailedMonitoring": constrained("Whether instances report metrics every minute."),
    "metadataOptions": constrained(
        "How the instance metadata service answers.",
        default={
            "httpEndpoint": "enabled",
            "httpProtocolIPv6": "disabled",
            "httpPutResponseHopLimit": 1,
            "httpTokens": "required",
        },
    ),
    "metadataOptions.httpEndpoint": constrained(
        "Whether it answers at all.", default="enabled", enum=_ON_OFF
    ),
    "metadataOptions.httpProtocolIPv6": constrained(
        "Whether it answers over IPv6.", default="disabled", enum=_ON_OFF
    ),
    "metadataOptions.httpPutResponseHopLimit": constrained(
        "How many hops a token may travel.", default=1, format="int64", minimum=1, maximum=64
    ),
    "metadataOptions.httpTokens": constrained(
        "Whether a token is needed.", default="required", enum=["required", "optional"]
    ),
    "cpuOptions": constrained("Processor features."),
    "cpuOptions.nestedVirtualization": constrained("Whether instances can run guests.", enum=_ON_OFF),
    "context": constrained("A reserved EC2 fleet context."),
}
_STATUS: dict[str, Field] = {
    "subnets": constrained("The subnets that were found."),
    "subnets[].id": constrained("The subnet's id.", required=True),
    "subnets[].zone": constrained("The subnet's zone.", required=True),
    "subnets[].zoneID": constrained("The id of that zone."),
    "securityGroups": constrained("The security groups that were found."),
    "securityGroups[].id": constrained("The group's id.", required=True),
    "securityGroups[].name": constrained("The group's name."),
    "amis": constrained("The images that were found."),
    "amis[].id": constrained("The image's id.", required=True),
    "amis[].name": constrained("The image's name."),
    "amis[].deprecated": constrained("Whether the image's time is over."),
    "amis[].requirements": constrained("The nodes the image suits.", required=True),
    "amis[].requirements[].key": constrained("The label this is about.", required=True),
    "amis[].requirements[].operator": constrained("How the label relates to the values.", required=True),
    "amis[].requirements[].values": constrained("The values.", listType="atomic"),
    "capacityReservations": constrained("The capacity reservations that were found."),
    "capacityReservations[].id": constrained(
        "The reservation's id.", required=True, pattern="^cr-[0-9a-z]+$"
    ),
    "capacityReservations[].availabilityZone": constrained("Where it is.", required=True),
    "capacityReservations[].instanceMatchCriteria": constrained(
        "Which instances it takes.", required=True, enum=["open", "targeted"]
    ),
    "capacityReservations[].instanceType": constrained("What it reserves.", required=True),
    "capacityReservations[].ownerID": constrained(
        "The account that owns it.", required=True, pattern="^[0-9]{12}$"
    ),
    "capacityReservations[].endTime": constrained("When it ends."),
    "capacityReservations[].interruptible": constrained("Whether its instances can be reclaimed."),
    "capacityReservations[].reservationType": constrained(
        "The type of reservation.", default="default", enum=["default", "capacity-block"]
    ),
    "capacityReservations[].state": constrained(
        "Whether it is about to end.", default="active", enum=["active", "expiring"]
    ),
    "instanceProfile": constrained("The instance profile in use."),
    "conditions": PLAIN_CONDITIONS,
    **mounted("conditions[]", CONDITION),
}

EC2_FIELDS: dict[str, Field] = {
    "spec": constrained("How instances are made."),
    **mounted("spec", {**_SELECTORS, **_NETWORK, **_STORAGE, **_COMPUTE}),
    "status": constrained("What the class came to."),
    **mounted("status", _STATUS),
}
