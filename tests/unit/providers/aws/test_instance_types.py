"""What a node of each instance type has, keeps and is called, under the settings of its class."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from dovetail.api import codec, labels
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.providers.aws.catalog import NodeClassTerms, build_instance_type
from dovetail.providers.aws.instance_type_info import (
    InstanceTypeInfo,
    InstanceTypeTables,
    bundled_facts,
    bundled_tables,
)
from dovetail.providers.aws.offline_catalog import list_offline_types
from dovetail.scheduling.model.instance_types import InstanceType
from support.builders import pod
from support.worlds import World

REGION = "us-west-2"
FAMILIES = ("AL2", "AL2023", "Bottlerocket", "Windows2022", "Custom")
# As the original computes them: name → pods, memory, kube-reserved cpu and memory, allocatable both.
FIGURES = """
t3.large       35  7577Mi     70m   640Mi   1930m   6837Mi
m5.large       29  7577Mi     70m   574Mi   1930m   6903Mi
m7i-flex.large 29  7577Mi     70m   574Mi   1930m   6903Mi
m5.xlarge      58  15155Mi    80m   893Mi   3920m   14162Mi
inf2.xlarge    58  15155Mi    80m   893Mi   3920m   14162Mi
c6g.large      29  3729Mi     70m   574Mi   1930m   3055Mi
t4g.small      11  1835Mi     70m   376Mi   1930m   1359Mi
t4g.medium     17  3729Mi     70m   442Mi   1930m   3187Mi
t4g.xlarge     58  15096Mi    80m   893Mi   3920m   14103Mi
trn1.2xlarge   58  30310Mi    90m   893Mi   7910m   29317Mi
g4dn.8xlarge   58  121241Mi   150m  893Mi   31850m  120248Mi
g5.12xlarge    737 181862Mi   190m  8362Mi  47810m  173400Mi
g4ad.16xlarge  234 242483Mi   230m  2829Mi  63770m  239554Mi
m5.metal       737 363724Mi   310m  8362Mi  95690m  355262Mi
inf2.24xlarge  737 363724Mi   310m  8362Mi  95690m  355262Mi
m6idn.32xlarge 394 484966Mi   390m  4589Mi  127610m 480277Mi
p5.48xlarge    100 1939865Mi  550m  1355Mi  191450m 1938410Mi
"""
NAMES = tuple(line.split()[0] for line in FIGURES.split("\n") if line)


@cache
def facts() -> dict[str, InstanceTypeInfo]:
    return {each.name: each for each in bundled_facts()}


def node_class(family: str = "AL2023", **spec: Any) -> EC2NodeClass:
    return codec.convert(EC2NodeClass, {"metadata": {"name": "web"}, "spec": {"amiFamily": family, **spec}})


def made(name: str, family: str = "AL2023", reserved_enis: int = 0, **spec: Any) -> InstanceType:
    """A type as a class of this family and spec has it."""
    terms = NodeClassTerms.from_node_class(node_class(family, **spec), REGION, reserved_enis)
    return build_instance_type(facts()[name], terms, ("us-west-2a",), bundled_tables())


def has(found: InstanceType, resource: str) -> str:
    return str(found.capacity[resource])


def keeps(found: InstanceType, resource: str = labels.MEMORY) -> str:
    return str(found.overhead.kube_reserved[resource])


def mebibytes(found: InstanceType) -> int:
    """All memory a node keeps from pods."""
    return found.overhead.total()[labels.MEMORY].value >> 20


def world(family: str = "AL2023", *names: str, **spec: Any) -> World:
    """A cluster that may buy these types, or those of the table above."""
    known = {
        each.name: each
        for each in list_offline_types(REGION, node_class(family, **spec), assumed_region="us-east-1")
    }
    types = [known[name] for name in names or NAMES if name in known]
    return World(types=types, flavour=labels.AWS, reservation_label=labels.CAPACITY_RESERVATION_ID)


@pytest.mark.spec("aws-140", "aws-153")
@pytest.mark.parametrize("line", [line for line in FIGURES.split("\n") if line])
def test_a_plain_class_gives_every_type_the_figures_of_the_original(line: str) -> None:
    name, pods, memory, kube_cpu, kube_memory, cpu, left = line.split()
    found = made(name)
    free = found.allocatable()
    ours = has(found, labels.PODS), has(found, labels.MEMORY), keeps(found, labels.CPU), keeps(found)
    assert ours == (pods, memory, kube_cpu, kube_memory)
    assert (str(free[labels.CPU]), str(free[labels.MEMORY])) == (cpu, left)
    assert str(free[labels.EPHEMERAL_STORAGE]) == "17Gi"


@pytest.mark.spec("aws-141")
@pytest.mark.parametrize("name", NAMES)
def test_pods_do_not_follow_interfaces_on_windows_or_where_the_class_counts(name: str) -> None:
    assert has(made(name, "Windows2022"), labels.PODS) == "110"
    assert {has(made(name, family, kubelet={"maxPods": 10}), labels.PODS) for family in FAMILIES} == {"10"}


@pytest.mark.spec("aws-142")
@pytest.mark.parametrize(
    ("family", "memory"),
    [
        ("AL2", "640Mi"),
        ("AL2023", "640Mi"),
        ("Custom", "640Mi"),
        ("Bottlerocket", "365Mi"),
        ("Windows2022", "365Mi"),
    ],
)
def test_what_the_kubelet_keeps_follows_the_images_own_script(family: str, memory: str) -> None:
    assert keeps(made("t3.large", family, kubelet={"maxPods": 10})) == memory


@pytest.mark.spec("aws-143")
@pytest.mark.parametrize(
    ("family", "pods", "memory"),
    [
        ("AL2", "24", "640Mi"),
        ("AL2023", "24", "640Mi"),
        ("Custom", "24", "640Mi"),
        ("Bottlerocket", "24", "519Mi"),
        ("Windows2022", "110", "1465Mi"),
    ],
)
def test_interfaces_set_aside_leave_room_for_fewer_pods(family: str, pods: str, memory: str) -> None:
    found = made("t3.large", family, reserved_enis=1)
    assert (has(found, labels.PODS), keeps(found)) == (pods, memory)


@pytest.mark.spec("aws-143")
def test_more_interfaces_set_aside_than_there_are_leave_no_pods() -> None:
    assert has(made("t3.large", reserved_enis=1_000_000), labels.PODS) == "0"


@pytest.mark.spec("aws-144")
@pytest.mark.parametrize("name", NAMES)
def test_pods_per_core_is_a_second_limit(name: str) -> None:
    cores = facts()[name].vcpus
    assert has(made(name, kubelet={"podsPerCore": 1}), labels.PODS) == str(
        min(cores, int(has(made(name), labels.PODS)))
    )
    both = made(name, kubelet={"podsPerCore": 4, "maxPods": 20})
    assert has(both, labels.PODS) == str(min(20, 4 * cores))
    assert has(made(name, kubelet={"podsPerCore": 0}), labels.PODS) == has(made(name), labels.PODS)
    ignored = made(name, "Bottlerocket", kubelet={"podsPerCore": 1})
    assert has(ignored, labels.PODS) == has(made(name, "Bottlerocket"), labels.PODS)


@pytest.mark.spec("aws-145")
def test_a_node_keeps_something_for_itself_unasked() -> None:
    overhead = made("m5.xlarge").overhead
    assert {name: str(amount) for name, amount in overhead.kube_reserved.items()} == {
        labels.CPU: "80m",
        labels.MEMORY: "893Mi",
        labels.EPHEMERAL_STORAGE: "1Gi",
    }
    assert not overhead.system_reserved
    assert str(overhead.eviction_threshold[labels.MEMORY]) == "100Mi"


@pytest.mark.spec("aws-146")
def test_a_node_keeps_what_the_class_says() -> None:
    wanted = {"cpu": "2", "memory": "10Gi", "ephemeral-storage": "2Gi"}
    found = made("m5.xlarge", kubelet={"kubeReserved": wanted, "systemReserved": wanted})
    assert {name: str(amount) for name, amount in found.overhead.kube_reserved.items()} == wanted
    assert {name: str(amount) for name, amount in found.overhead.system_reserved.items()} == wanted


@pytest.mark.spec("aws-147")
@pytest.mark.parametrize(
    ("kubelet", "bytes_kept"),
    [
        ({"evictionHard": {"memory.available": "500Mi"}}, 500 << 20),
        ({"evictionHard": {"memory.available": "10%"}}, -(-(15155 << 20) // 10)),
        ({"evictionHard": {"memory.available": "100%"}}, 0),
        ({"evictionSoft": {"memory.available": "10%"}}, 100 << 20),
    ],
)
def test_memory_below_the_threshold_of_eviction_is_no_pods(kubelet: dict[str, Any], bytes_kept: int) -> None:
    found = made("m5.xlarge", kubelet=kubelet)
    assert found.overhead.eviction_threshold[labels.MEMORY].value == bytes_kept


@pytest.mark.spec("aws-148")
def test_bottlerocket_keeps_memory_by_the_pods_it_is_told() -> None:
    assert mebibytes(made("m5.xlarge", "Bottlerocket", kubelet={"maxPods": 110})) == 1565
    assert mebibytes(made("m5.xlarge", "Bottlerocket")) == 993


@pytest.mark.spec("aws-149")
@pytest.mark.parametrize(("card", "pods"), [(0, "345"), (1, "394")])
def test_an_interface_for_efa_alone_costs_pods_on_the_first_card_only(card: int, pods: str) -> None:
    interfaces = [
        {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
        {"networkCardIndex": card, "deviceIndex": 1, "interfaceType": "efa-only"},
    ]
    assert has(made("m6idn.32xlarge", networkInterfaces=interfaces), labels.PODS) == pods


@pytest.mark.spec("aws-150")
def test_local_disks_that_are_joined_are_where_pods_write() -> None:
    assert has(made("m6idn.32xlarge", instanceStorePolicy="RAID0"), labels.EPHEMERAL_STORAGE) == "7600G"
    large = pod("large", requests={labels.EPHEMERAL_STORAGE: "5000Gi"})
    assert not world(instanceStorePolicy="RAID0").solve(large).unschedulable
    assert world().solve(large).unschedulable


@pytest.mark.spec("aws-151")
def test_pods_write_to_what_the_root_volume_leaves_them() -> None:
    def writing(name: str, size: str) -> Any:
        return pod(name, cpu="100m", memory="64Mi", requests={labels.EPHEMERAL_STORAGE: size})

    assert not world().solve(writing("one", "10Gi")).unschedulable
    assert world().solve(writing("one", "19Gi")).unschedulable
    assert len(world().solve(writing("one", "10Gi"), writing("two", "10Gi")).new_nodes) == 2


@pytest.mark.spec("aws-152")
@pytest.mark.parametrize(
    ("mappings", "size"),
    [
        ([("/dev/a", "20G", False), ("/dev/b", "40G", False)], "40G"),
        ([("/dev/a", "20G", False), ("/dev/b", "40G", True), ("/dev/c", "60G", False)], "40G"),
        ([("/dev/a", None, False)], "20Gi"),
        ([], "20Gi"),
    ],
)
def test_a_custom_images_volume_is_the_flagged_or_else_the_last(
    mappings: list[tuple[str, str | None, bool]], size: str
) -> None:
    written = [
        {
            "deviceName": name,
            "rootVolume": root,
            "ebs": {"volumeSize": volume} if volume else {"snapshotID": "s"},
        }
        for name, volume, root in mappings
    ]
    assert has(made("m5.large", "Custom", blockDeviceMappings=written), labels.EPHEMERAL_STORAGE) == size


@pytest.mark.spec("aws-154")
@pytest.mark.parametrize(
    ("name", "devices"),
    [
        ("inf2.xlarge", {labels.NEURON: 1, labels.NEURON_CORE: 2}),
        ("inf2.24xlarge", {labels.NEURON: 6, labels.NEURON_CORE: 12}),
        ("trn1.2xlarge", {labels.NEURON: 1, labels.NEURON_CORE: 2}),
        ("p5.48xlarge", {labels.NVIDIA_GPU: 8, labels.EFA: 32}),
        ("g4ad.16xlarge", {labels.AMD_GPU: 4}),
        ("m5.large", {}),
    ],
)
def test_devices_are_counted(name: str, devices: dict[str, int]) -> None:
    counted = (labels.NEURON, labels.NEURON_CORE, labels.NVIDIA_GPU, labels.AMD_GPU, labels.GAUDI, labels.EFA)
    found = made(name)
    assert {each: found.capacity[each].value for each in counted if found.capacity[each]} == devices


@pytest.mark.spec("aws-155")
def test_pods_with_an_interface_of_their_own_need_a_type_that_can_branch() -> None:
    asking = pod("own", requests={labels.POD_ENI: 1})
    assert world("AL2023", "t3.large").solve(asking).unschedulable
    (node,) = world("AL2023", "t3.large", "m5.large").solve(asking).new_nodes
    assert node.instance_types == ("m5.large",)


@pytest.mark.spec("aws-155")
def test_addresses_are_a_resource_on_windows_alone() -> None:
    assert has(made("m5.large", "Windows2022"), labels.PRIVATE_IPV4) == "9"
    assert labels.PRIVATE_IPV4 not in made("m5.large").capacity
    unknown = NodeClassTerms.from_node_class(node_class("Windows2022"), REGION)
    found = build_instance_type(facts()["m5.large"], unknown, ("us-west-2a",), InstanceTypeTables())
    assert has(found, labels.PRIVATE_IPV4) == "0"


@pytest.mark.spec("aws-156")
def test_a_type_is_called_by_everything_known_of_it() -> None:
    wanted = {
        labels.INSTANCE_CATEGORY: "g",
        labels.INSTANCE_GENERATION: "4",
        labels.INSTANCE_FAMILY: "g4dn",
        labels.INSTANCE_SIZE: "8xlarge",
        labels.INSTANCE_CPU: "32",
        labels.INSTANCE_MEMORY: "131072",
        labels.INSTANCE_EBS_BANDWIDTH: "9500",
        labels.INSTANCE_NETWORK_BANDWIDTH: "50000",
        labels.INSTANCE_GPU_NAME: "t4",
        labels.INSTANCE_GPU_MANUFACTURER: "nvidia",
        labels.INSTANCE_GPU_COUNT: "1",
        labels.INSTANCE_GPU_MEMORY: "16384",
        labels.INSTANCE_LOCAL_NVME: "900",
        labels.INSTANCE_CPU_CLOCK_SPEED: "2500",
        labels.INSTANCE_HYPERVISOR: "nitro",
    }
    found = made("g4dn.8xlarge").requirements
    assert {name: found[name].only for name in wanted} == wanted


@pytest.mark.spec("aws-157")
def test_flexible_types_are_told_apart() -> None:
    flexible = [
        name for name in NAMES if made(name).requirements[labels.INSTANCE_CAPABILITY_FLEX].only == "true"
    ]
    assert flexible == ["m7i-flex.large"]
    for wanted, name in (("true", "m7i-flex.large"), ("false", "m5.large")):
        asking = pod("picky", cpu="500m", node_selector={labels.INSTANCE_CAPABILITY_FLEX: wanted})
        (node,) = world("AL2023", "m7i-flex.large", "m5.large").solve(asking).new_nodes
        assert node.instance_types == (name,)


@pytest.mark.spec("aws-158")
def test_the_released_line_knows_no_label_for_enclaves() -> None:
    # The line after it labels types by whether Nitro Enclaves work there.
    assert not [name for name in NAMES if labels.NITRO_SANDBOX in made(name).requirements]
    assert labels.NITRO_SANDBOX not in labels.WELL_KNOWN_AWS
