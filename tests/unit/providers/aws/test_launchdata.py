"""What a launch template holds: volumes, interfaces, placement, reservations, tags."""

from __future__ import annotations

from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.errors import CreateFailed
from dovetail.providers.aws.placement_groups import PlacementGroup
from dovetail.providers.aws.template_groups import build_groups
from dovetail.scheduling.model.instance_types import Overhead
from support.builders import amounts
from support.launches import AMD, ARM, claim_for, data, ec2_class, image, instance_types, reserved

FLAT_CLASS = ec2_class()
SHAPE = botocore.session.get_session().get_service_model("ec2").shape_for("RequestLaunchTemplateData")
EFA_ONLY = {"networkCardIndex": 1, "deviceIndex": 0, "interfaceType": "efa-only"}
PLAIN = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}
ADDRESSES = (
    "AssociatePublicIpAddress",
    "Ipv4PrefixCount",
    "Ipv6PrefixCount",
    "PrimaryIpv6",
    "Ipv6AddressCount",
    "ConnectionTrackingSpecification",
)


def volumes(**spec: Any) -> list[tuple[str, dict[str, Any]]]:
    family = spec.pop("family", "AL2023")
    return [
        (each["DeviceName"], each["Ebs"]) for each in data(ec2_class(family, **spec))["BlockDeviceMappings"]
    ]


def sized(size: str, **ebs: Any) -> dict[str, Any]:
    return {"deviceName": "/dev/xvda", "ebs": {"volumeSize": size, **ebs}}


def test_everything_at_once_is_what_ec2s_own_model_takes() -> None:
    node_class = ec2_class(
        userData="echo hi",
        detailedMonitoring=True,
        cpuOptions={"nestedVirtualization": "enabled"},
        associatePublicIPAddress=True,
        ipPrefixCount=3,
        connectionTracking={"tcpEstablishedTimeout": 60, "udpStreamTimeout": 60, "udpTimeout": 30},
        networkInterfaces=[PLAIN, EFA_ONLY],
        blockDeviceMappings=[
            sized("100Gi", iops=3000, throughput=125, encrypted=True, kmsKeyID="k", deleteOnTermination=True)
        ],
    )
    made = data(
        node_class,
        types=[
            reserved(instance_types(node_class, "m5.large")[0], ("cr-1", "us-west-2a"), interruptible=True)
        ],
        capacity_type=labels.RESERVED,
        placement=PlacementGroup("pg-1", strategy="partition", partitions=3),
        partition="2",
        ip_family="ipv6",
    )
    report = ParamValidator().validate(made, SHAPE)
    assert not report.has_errors(), report.generate_report()
    assert made["CpuOptions"] == {"NestedVirtualization": "enabled"}
    assert made["Monitoring"] == {"Enabled": True}
    assert made["Placement"] == {"Tenancy": "default", "GroupId": "pg-1", "PartitionNumber": 2}


@pytest.mark.spec("aws-124")
def test_sizes_are_rounded_up_to_whole_gibibytes() -> None:
    written = {"4G": 4, "2G": 2, "100G": 94, "4T": 3726, "20Gi": 20, "1Ti": 1024}
    made = {size: volumes(blockDeviceMappings=[sized(size)])[0][1]["VolumeSize"] for size in written}
    assert made == written


@pytest.mark.spec("aws-125")
def test_each_family_has_volumes_of_its_own() -> None:
    root = {"VolumeType": "gp3", "Encrypted": True}
    assert volumes(family="Bottlerocket") == [
        ("/dev/xvda", {**root, "VolumeSize": 4}),
        ("/dev/xvdb", {**root, "VolumeSize": 20}),
    ]
    assert volumes(family="AL2") == [("/dev/xvda", {**root, "VolumeSize": 20})]
    assert volumes(family="Windows2022") == [("/dev/sda1", {**root, "VolumeSize": 50})]
    assert "BlockDeviceMappings" not in data(ec2_class("Custom"))


def test_volumes_of_the_class_replace_those_of_its_family() -> None:
    given = sized("8Gi", iops=0, throughput=0, snapshotID="snap-1", volumeInitializationRate=200)
    assert volumes(family="Bottlerocket", blockDeviceMappings=[given]) == [
        ("/dev/xvda", {"VolumeSize": 8, "SnapshotId": "snap-1", "VolumeInitializationRate": 200})
    ]


@pytest.mark.spec("aws-126")
@pytest.mark.parametrize(
    ("way", "tagged"),
    [
        (labels.SPOT, ["network-interface", "spot-instances-request"]),
        (labels.ON_DEMAND, ["network-interface"]),
    ],
)
def test_what_ec2_makes_besides_the_instance_carries_its_tags(way: str, tagged: list[str]) -> None:
    specifications = data(FLAT_CLASS, capacity_type=way)["TagSpecifications"]
    assert [each["ResourceType"] for each in specifications] == tagged
    assert all(each["Tags"] == [{"Key": "team", "Value": "shop"}] for each in specifications)


@pytest.mark.spec("aws-127")
def test_a_name_given_by_the_class_is_on_what_the_launch_makes() -> None:
    made = data(FLAT_CLASS, tags={"Name": "foo"})
    assert made["TagSpecifications"][0]["Tags"] == [{"Key": "Name", "Value": "foo"}]


@pytest.mark.spec("aws-128")
@pytest.mark.parametrize("asked", [True, False, None])
@pytest.mark.parametrize(("of", "requests"), [("m5.large", {}), ("p5.48xlarge", {labels.EFA: 1})])
def test_a_public_address_is_asked_for_as_the_class_says(
    asked: bool | None, of: str, requests: dict[str, int]
) -> None:
    made = data(ec2_class(associatePublicIPAddress=asked), claim_for(requests=requests), of)
    found = [each.get("AssociatePublicIpAddress") for each in made["NetworkInterfaces"]]
    assert found == [asked] * len(made["NetworkInterfaces"])


@pytest.mark.spec("aws-129")
def test_prefixes_are_of_the_clusters_address_family() -> None:
    node_class = ec2_class(ipPrefixCount=10)
    (four,) = data(node_class)["NetworkInterfaces"]
    (six,) = data(node_class, ip_family="ipv6")["NetworkInterfaces"]
    base = {"DeviceIndex": 0, "Groups": ["sg-1", "sg-2"]}
    assert four == {**base, "Ipv4PrefixCount": 10}
    assert six == {**base, "Ipv6PrefixCount": 10, "PrimaryIpv6": True, "Ipv6AddressCount": 1}


@pytest.mark.spec("aws-129", "aws-130")
def test_an_interface_for_efa_alone_has_no_addresses_and_tracks_nothing() -> None:
    node_class = ec2_class(
        ipPrefixCount=10,
        associatePublicIPAddress=True,
        connectionTracking={"udpTimeout": 30},
        networkInterfaces=[PLAIN, EFA_ONLY],
    )
    plain, bare = data(node_class, ip_family="ipv6")["NetworkInterfaces"]
    assert not [name for name in ADDRESSES if name in bare]
    assert bare["Groups"] == ["sg-1", "sg-2"]
    assert plain["ConnectionTrackingSpecification"] == {"UdpTimeout": 30}
    assert {name for name in ADDRESSES if name in plain} == set(ADDRESSES) - {"Ipv4PrefixCount"}


@pytest.mark.spec("aws-130")
def test_connections_are_tracked_as_usual_unless_the_class_says_otherwise() -> None:
    efa = claim_for(requests={labels.EFA: 1})
    tracked = ec2_class(connectionTracking={"tcpEstablishedTimeout": 350})
    made = data(tracked, efa, "p5.48xlarge")["NetworkInterfaces"]
    assert [each["ConnectionTrackingSpecification"] for each in made] == [{"TcpEstablishedTimeout": 350}] * 32
    assert "ConnectionTrackingSpecification" not in data(FLAT_CLASS)["NetworkInterfaces"][0]


@pytest.mark.spec("aws-131")
def test_a_claim_for_efa_has_an_interface_on_every_card() -> None:
    made = data(FLAT_CLASS, claim_for(requests={labels.EFA: 1}), "p5.48xlarge")["NetworkInterfaces"]
    assert [each["NetworkCardIndex"] for each in made] == list(range(32))
    assert [each["DeviceIndex"] for each in made] == [0] + [1] * 31
    assert {each["InterfaceType"] for each in made} == {"efa"}
    assert len(data(FLAT_CLASS, of="p5.48xlarge")["NetworkInterfaces"]) == 1


@pytest.mark.spec("aws-131")
def test_interfaces_of_the_class_come_before_what_a_claim_asks_for() -> None:
    node_class = ec2_class(networkInterfaces=[PLAIN, EFA_ONLY])
    made = data(node_class, claim_for(requests={labels.EFA: 1}), "p5.48xlarge")["NetworkInterfaces"]
    assert [(each["NetworkCardIndex"], each["InterfaceType"]) for each in made] == [
        (0, "interface"),
        (1, "efa-only"),
    ]


@pytest.mark.spec("aws-132")
@pytest.mark.parametrize("tenancy", ["default", "dedicated"])
def test_the_hardware_is_shared_or_not_as_the_launch_says(tenancy: str) -> None:
    assert data(FLAT_CLASS, tenancy=tenancy)["Placement"] == {"Tenancy": tenancy}


@pytest.mark.spec("aws-133")
@pytest.mark.parametrize("resource", ["eks.amazonaws.com/nitro-sandbox", "eks.amazonaws.com/nip-slots"])
def test_a_claim_for_an_enclave_gets_one(resource: str) -> None:
    assert data(FLAT_CLASS, claim_for(requests={resource: 1}))["EnclaveOptions"] == {"Enabled": True}
    assert data(FLAT_CLASS)["EnclaveOptions"] == {"Enabled": False}


@pytest.mark.spec("aws-134")
def test_open_reservations_of_others_are_left_alone() -> None:
    assert data(FLAT_CLASS)["CapacityReservationSpecification"] == {"CapacityReservationPreference": "none"}
    assert "CapacityReservationSpecification" not in data(FLAT_CLASS, reserving=False)


@pytest.mark.spec("aws-135")
def test_every_reservation_has_a_template_of_its_own() -> None:
    large, extra = instance_types(FLAT_CLASS, "m5.large", "m5.xlarge")
    types = (reserved(large, ("cr-15", "z1a"), ("cr-b", "z1b")), reserved(extra, ("cr-x", "z1b")))
    made = build_groups(FLAT_CLASS, claim_for(), types, labels.RESERVED)
    assert [(group.reservation.id, [each.name for each in group.types]) for group in made] == [
        ("cr-15", ["m5.large"]),
        ("cr-b", ["m5.large"]),
        ("cr-x", ["m5.xlarge"]),
    ]
    held = data(FLAT_CLASS, types=types[1:], capacity_type=labels.RESERVED)
    assert held["CapacityReservationSpecification"] == {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationId": "cr-x"},
    }
    assert "InstanceMarketOptions" not in held


@pytest.mark.spec("aws-135")
def test_a_reservation_with_nothing_left_has_no_template() -> None:
    made = reserved(instance_types(FLAT_CLASS, "m5.large")[0], ("cr-1", "z1a"), ("cr-2", "z1b"))
    spent = replace(made, offerings=(replace(made.offerings[0], available=False), made.offerings[1]))
    found = build_groups(FLAT_CLASS, claim_for(), [spent], labels.RESERVED)
    assert [group.reservation.id for group in found] == ["cr-2"]


def test_an_expression_has_the_value_the_scheduler_counted_with() -> None:
    node_class = ec2_class(kubelet={"kubeReserved": {"cpu": "vcpus * 100", "memory": "1Gi", "pid": "vcpus"}})
    types = [
        replace(each, overhead=Overhead(kube_reserved=amounts({"cpu": cpu, "memory": "1Gi"})))
        for each, cpu in zip(
            instance_types(FLAT_CLASS, "m5.large", "c5.large"), ("200m", "210m"), strict=True
        )
    ]
    made = build_groups(node_class, claim_for(), types, labels.ON_DEMAND)
    assert [dict(group.kubelet.kube_reserved) for group in made] == [
        {"cpu": "200m", "memory": "1Gi"},
        {"cpu": "210m", "memory": "1Gi"},
    ]


@pytest.mark.spec("aws-136")
@pytest.mark.parametrize(
    ("kind", "interruptible", "market"),
    [
        ("default", True, "interruptible-capacity-reservation"),
        ("capacity-block", False, "capacity-block"),
    ],
)
def test_reservations_that_end_are_bought_in_their_own_market(
    kind: str, interruptible: bool, market: str
) -> None:
    made = instance_types(FLAT_CLASS, "m5.large")[0]
    types = [reserved(made, ("cr-1", "z1a"), kind=kind, interruptible=interruptible)]
    assert data(FLAT_CLASS, types=types, capacity_type=labels.RESERVED)["InstanceMarketOptions"] == {
        "MarketType": market
    }


@pytest.mark.spec("aws-138")
def test_the_instance_profile_is_the_one_the_class_came_to() -> None:
    assert data(ec2_class(profile="X"))["IamInstanceProfile"] == {"Name": "X"}


@pytest.mark.spec("aws-139")
def test_images_of_two_architectures_make_two_templates() -> None:
    types = instance_types(FLAT_CLASS, "m5.large", "m6g.large", "c5.large")
    made = build_groups(FLAT_CLASS, claim_for(), types, labels.ON_DEMAND)
    assert {group.image.id: [each.name for each in group.types] for group in made} == {
        AMD: ["m5.large", "c5.large"],
        ARM: ["m6g.large"],
    }


@pytest.mark.spec("aws-139")
def test_the_first_of_several_images_that_suit_is_used() -> None:
    node_class = ec2_class(images=[image("ami-new", "amd64"), image("ami-old", "amd64")])
    (group,) = build_groups(node_class, claim_for(), instance_types(node_class, "m5.large"), labels.ON_DEMAND)
    assert group.image.id == "ami-new"


@pytest.mark.spec("aws-139")
def test_types_that_no_image_suits_end_the_launch() -> None:
    node_class = ec2_class(images=[image(ARM, "arm64")])
    with pytest.raises(CreateFailed, match=f"no instance type suits an image of the class \\({ARM}\\)"):
        build_groups(node_class, claim_for(), instance_types(node_class, "m5.large"), labels.ON_DEMAND)


def test_types_with_room_for_different_numbers_of_pods_do_not_share() -> None:
    types = instance_types(FLAT_CLASS, "m5.large", "c5.large", "m5.xlarge")
    made = build_groups(FLAT_CLASS, claim_for(), types, labels.ON_DEMAND)
    assert [(group.kubelet.max_pods, [each.name for each in group.types]) for group in made] == [
        (29, ["m5.large", "c5.large"]),
        (58, ["m5.xlarge"]),
    ]


@pytest.mark.spec("aws-101")
def test_metadata_is_served_as_the_class_says_and_without_tags() -> None:
    options = {"httpEndpoint": "enabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 1}
    made = data(ec2_class(metadataOptions={**options, "httpTokens": "optional"}))["MetadataOptions"]
    assert made == {
        "HttpEndpoint": "enabled",
        "HttpProtocolIpv6": "disabled",
        "HttpPutResponseHopLimit": 1,
        "HttpTokens": "optional",
        "InstanceMetadataTags": "disabled",
    }
    assert "HttpProtocolIpv6" not in data(FLAT_CLASS, region="us-iso-east-1")["MetadataOptions"]
    assert data(FLAT_CLASS, ip_family="ipv6")["MetadataOptions"]["HttpProtocolIpv6"] == "enabled"
