"""What the API server takes for an EC2NodeClass, by the definitions we ship."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.sim.kube.status import ApiError
from support.nodeclasses import CLASSES, DISCOVERED, POOLS, ClassScene, node_class, pool_of
from support.stage import virtual

Spec = dict[str, Any]


@pytest.fixture(scope="module")
def scene() -> ClassScene:
    """One server for all: what it takes is deleted again."""
    return ClassScene()


def taken(scene: ClassScene, **spec: Any) -> bool:
    """Whether a class with these fields is admitted."""
    try:
        scene.apply(node_class("tried", **spec))
    except ApiError as error:
        if error.code != 422:
            raise
        return False
    scene.api.delete(CLASSES, "tried")
    return True


def amis(*terms: Spec, family: str | None = None) -> Spec:
    return {"amiSelectorTerms": list(terms), "amiFamily": family}


@pytest.mark.spec("aws-1", "aws-2", "aws-3", "aws-4")
def test_nodes_get_their_role_in_exactly_one_way(scene: ClassScene) -> None:
    assert taken(scene, role="r", instanceProfile=None)
    assert taken(scene, role=None, instanceProfile="p")
    assert not taken(scene, role="r", instanceProfile="p")
    assert not taken(scene, role=None)


@pytest.mark.spec("aws-5")
def test_the_role_may_change_and_give_way_to_a_profile(scene: ClassScene) -> None:
    scene.apply(node_class("moving", role="a"))
    assert scene.change("moving", role="b")["spec"]["role"] == "b"
    assert "role" not in scene.change("moving", role=None, instanceProfile="p")["spec"]
    assert scene.change("moving", role="c", instanceProfile=None)["spec"]["role"] == "c"


@pytest.mark.spec("aws-6", "aws-7", "aws-8")
def test_the_family_is_known_and_agrees_with_the_alias(scene: ClassScene) -> None:
    assert not taken(scene, **amis({"id": "ami-1"}, family="Ubuntu"))
    for family in (None, "AL2023", "Custom"):
        assert taken(scene, **amis({"alias": "al2023@latest"}, family=family))
    assert not taken(scene, **amis({"alias": "al2023@latest"}, family="Bottlerocket"))
    assert not taken(scene, **amis({"id": "ami-1"}))
    assert taken(scene, **amis({"id": "ami-1"}, family="AL2"))


@pytest.mark.spec("aws-9", "aws-10")
def test_an_alias_is_a_family_and_a_version(scene: ClassScene) -> None:
    for bad in ("@latest", "al2023", "al2023@", "al2023-latest", "ubuntu@latest", "windows2022@v1.0.0"):
        assert not taken(scene, **amis({"alias": bad})), bad
    for good in ("bottlerocket@1.10.0", "al2@v20240625", "windows2022@latest"):
        assert taken(scene, **amis({"alias": good})), good


@pytest.mark.spec("aws-11", "aws-12", "aws-13")
def test_an_image_is_selected_in_one_way(scene: ClassScene) -> None:
    alias, name = {"alias": "al2023@latest"}, {"name": "mine"}
    assert not taken(scene, **amis(alias, name))
    for more in ({"id": "ami-1"}, {"tags": {"a": "b"}}, name, {"owner": "self"}):
        assert not taken(scene, **amis({**alias, **more})), more
        if "id" not in more:
            assert not taken(scene, **amis({"id": "ami-1", **more}, family="AL2")), more
    assert not taken(scene, **amis({"owner": "self"}, family="AL2"))
    assert taken(scene, **amis({**name, "owner": "self"}, family="AL2"))
    assert taken(scene, **amis({"tags": {"a": "b"}, "owner": "self"}, family="AL2"))


@pytest.mark.spec("aws-14")
@pytest.mark.parametrize(
    "terms",
    [
        None,
        [],
        [{}],
        [{"tags": {"": "a"}}],
        [{"tags": {"a": ""}}],
        [{"tags": {"a": "b"}}, {"tags": {"a": ""}}],
    ],
)
def test_subnets_are_selected_by_something(scene: ClassScene, terms: list[Spec] | None) -> None:
    assert not taken(scene, subnetSelectorTerms=terms)


@pytest.mark.spec("aws-15")
def test_ids_and_names_stand_alone(scene: ClassScene) -> None:
    assert not taken(scene, subnetSelectorTerms=[{"id": "subnet-1", "tags": DISCOVERED}])
    for term in (
        {"id": "sg-1", "tags": DISCOVERED},
        {"id": "sg-1", "name": "n"},
        {"name": "n", "tags": DISCOVERED},
    ):
        assert not taken(scene, securityGroupSelectorTerms=[term]), term
    for term in ({"id": "sg-1"}, {"name": "n"}):
        assert taken(scene, securityGroupSelectorTerms=[term]), term


@pytest.mark.spec("aws-16")
def test_reservations_are_selected_by_id_tags_or_criteria(scene: ClassScene) -> None:
    tags, owner = {"tags": {"a": "b"}}, {"ownerID": "123456789012"}
    for bad in (
        {"id": "reservation"},
        {**tags, "ownerID": "12345678901"},
        owner,
        {"id": "cr-1", **tags},
        {"id": "cr-1", **owner},
        {"id": "cr-1", "instanceMatchCriteria": "open"},
        {"instanceMatchCriteria": "any"},
    ):
        assert not taken(scene, capacityReservationSelectorTerms=[bad]), bad
    assert taken(scene)
    for criteria in ("open", "targeted"):
        for more in ({}, tags, {**tags, **owner}, owner):
            term = {"instanceMatchCriteria": criteria, **more}
            assert taken(scene, capacityReservationSelectorTerms=[term]), term


@pytest.mark.spec("aws-17")
def test_tags_that_are_ours_cannot_be_set(scene: ClassScene) -> None:
    for key in (
        "karpenter.sh/nodepool",
        "kubernetes.io/cluster/test",
        "eks:eks-cluster-name",
        "karpenter.k8s.aws/ec2nodeclass",
        "karpenter.sh/nodeclaim",
    ):
        assert not taken(scene, tags={key: "x"}), key
    assert taken(scene, tags={})
    assert taken(scene, tags={"Name": "node"})


@pytest.mark.spec("aws-18")
def test_metadata_options_have_defaults_and_bounds(scene: ClassScene) -> None:
    for bad in (
        {"httpEndpoint": "maybe"},
        {"httpProtocolIPv6": "maybe"},
        {"httpTokens": "maybe"},
        {"httpPutResponseHopLimit": 0},
        {"httpPutResponseHopLimit": 65},
    ):
        assert not taken(scene, metadataOptions=bad), bad
    made = scene.apply(node_class("defaulted"))
    assert made["spec"]["metadataOptions"] == {
        "httpEndpoint": "enabled",
        "httpProtocolIPv6": "disabled",
        "httpPutResponseHopLimit": 1,
        "httpTokens": "required",
    }


def volume(**ebs: Any) -> Spec:
    return {"deviceName": "/dev/xvda", "ebs": ebs}


@pytest.mark.spec("aws-19", "aws-20", "aws-21")
def test_volumes_have_one_root_a_size_and_a_source(scene: ClassScene) -> None:
    root = {**volume(volumeSize="10Gi"), "rootVolume": True}
    other = {"deviceName": "/dev/xvdb", "ebs": {"volumeSize": "10Gi"}}
    assert not taken(scene, blockDeviceMappings=[root, {**other, "rootVolume": True}])
    assert taken(scene, blockDeviceMappings=[root, {**other, "rootVolume": False}])
    for size in ("100Gi", "64T", "5Ti"):
        assert taken(scene, blockDeviceMappings=[volume(volumeSize=size)]), size
    for size in ("0Gi", "65T", "111Ti", "111M", "foo"):
        assert not taken(scene, blockDeviceMappings=[volume(volumeSize=size)]), size
    assert not taken(scene, blockDeviceMappings=[volume(volumeSize="10Gi", volumeInitializationRate=100)])
    for rate, good in ((99, False), (100, True), (300, True), (301, False)):
        mapping = volume(snapshotID="snap-1", volumeInitializationRate=rate)
        assert taken(scene, blockDeviceMappings=[mapping]) is good, rate


def interface(card: int = 0, device: int = 0, kind: str = "interface") -> Spec:
    return {"networkCardIndex": card, "deviceIndex": device, "interfaceType": kind}


@pytest.mark.spec("aws-22")
def test_interfaces_begin_with_a_plain_one_and_do_not_collide(scene: ClassScene) -> None:
    first = interface()
    assert taken(scene, networkInterfaces=[])
    assert taken(scene, networkInterfaces=[first, interface(1, 1, "efa-only")])
    for bad in (
        [interface(kind="efa")],
        [first, interface(-1)],
        [first, interface(0, -1)],
        [first, interface()],
        [interface(1, 1)],
        [interface(kind="efa-only")],
        [first, interface(1, 1, "efa-only"), interface(1, 2, "efa-only")],
    ):
        assert not taken(scene, networkInterfaces=bad), bad


@pytest.mark.spec("aws-23", "aws-24")
def test_timeouts_and_processor_options_have_bounds(scene: ClassScene) -> None:
    for bad in (
        {},
        {"tcpEstablishedTimeout": 59},
        {"tcpEstablishedTimeout": 432001},
        {"udpStreamTimeout": 59},
        {"udpStreamTimeout": 181},
        {"udpTimeout": 29},
        {"udpTimeout": 61},
    ):
        assert not taken(scene, connectionTracking=bad), bad
    good = {"tcpEstablishedTimeout": 60, "udpStreamTimeout": 180, "udpTimeout": 30}
    assert taken(scene, connectionTracking=good)
    assert not taken(scene, cpuOptions={"nestedVirtualization": "maybe"})
    assert taken(scene, cpuOptions={})
    assert taken(scene, cpuOptions={"nestedVirtualization": "enabled"})


@pytest.mark.spec("aws-25")
def test_where_kubelet_settings_are_open_they_are_stored_as_written() -> None:
    kubelet = {"maxPods": "vcpus * 10", "anything": {"at": {"any": ["depth", 1, True]}}}
    made = ClassScene(open_kubelet=True).apply(node_class(kubelet=kubelet))
    assert made["spec"]["kubelet"] == kubelet


@pytest.mark.spec("aws-26")
@virtual
async def test_pools_may_ask_for_what_the_provider_labels() -> None:
    def asking(key: str, *values: str) -> Spec:
        return pool_of("tried", [{"key": key, "operator": "In", "values": list(values)}])

    async def judged(scene: ClassScene, *values: str) -> str:
        scene.apply(asking("karpenter.k8s.aws/instance-tenancy", *values))
        await scene.look("nodepool.validation", "tried")
        found = {c["type"]: c["status"] for c in scene.api.get(POOLS, "tried")["status"]["conditions"]}
        scene.api.delete(POOLS, "tried")
        return str(found["ValidationSucceeded"])

    async with ClassScene().still() as scene:
        scene.apply(asking("karpenter.k8s.aws/instance-cpu", "4"))
        scene.api.delete(POOLS, "tried")
        with pytest.raises(ApiError, match="reserved"):
            scene.apply(asking("karpenter.k8s.aws/foo", "4"))
        assert await judged(scene, "weird") == "False"
        assert await judged(scene, "weird", "default") == "True"
