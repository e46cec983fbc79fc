"""EC2NodeClasses: what they select is found and written into their status, or they say what is missing."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from dovetail.api import codec, labels
from dovetail.api.bad_items import reason_of
from dovetail.api.hashes import hash_nodeclass
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.nodepool import NodePool
from dovetail.controllers.base import Result
from dovetail.errors import InsufficientCapacity, Retry
from support.aws import CLUSTER
from support.nodeclasses import CLAIMS, CLASSES, ClassScene, claim_of, node_class, pool_of
from support.stage import virtual

READY, NOT_READY = ("True", "Ready"), ("False", "UnhealthyDependents")
CONDITIONS = (
    "AMIsReady",
    "InstanceProfileReady",
    "PlacementGroupReady",
    "Ready",
    "SecurityGroupsReady",
    "SubnetsReady",
    "ValidationSucceeded",
)


@pytest.mark.spec("aws-46", "aws-56")
@virtual
async def test_a_new_class_is_held_resolved_and_ready() -> None:
    async with ClassScene().still() as scene:
        scene.apply(node_class())
        result = await scene.resolve()
        made = scene.now()
        assert made.metadata.finalizers == ("karpenter.k8s.aws/termination",)
        known = {c.type: c.status for c in made.status.conditions}
        assert known == dict.fromkeys((*CONDITIONS, "CapacityReservationsReady"), "True")
        assert result == Result(after=timedelta(minutes=1))
        assert all(c.observed_generation == made.metadata.generation for c in made.status.conditions)


@pytest.mark.spec("aws-56")
@virtual
async def test_without_reservations_there_is_no_condition_about_them() -> None:
    async with ClassScene("--feature-gates=ReservedCapacity=false").still() as scene:
        scene.apply(node_class())
        await scene.resolve()
        assert {c.type for c in scene.now().status.conditions} == set(CONDITIONS)
        assert scene.says() == READY
        assert not scene.asked("DescribeCapacityReservations")


@virtual
async def test_a_condition_goes_with_its_gate() -> None:
    async with ClassScene().still() as scene:
        scene.apply(node_class())
        await scene.resolve()
        scene.settings = ClassScene("--feature-gates=ReservedCapacity=false").settings
        await scene.restart()
        await scene.resolve()
        assert {c.type for c in scene.now().status.conditions} == set(CONDITIONS)
        assert scene.says() == READY


@pytest.mark.spec("aws-47")
@virtual
async def test_a_class_without_subnets_says_so_until_its_selector_is_mended() -> None:
    async with ClassScene().still() as scene:
        scene.apply(node_class(subnetSelectorTerms=[{"tags": {"nobody": "here"}}]))
        result = await scene.resolve()
        assert scene.now().status.subnets == ()
        assert scene.says("SubnetsReady") == ("False", "SubnetsNotFound")
        assert "subnetSelectorTerms" in scene.why("SubnetsReady")
        assert scene.says() == NOT_READY
        assert result == Result(after=timedelta(minutes=1))
        scene.change(subnetSelectorTerms=[{"tags": {"karpenter.sh/discovery": "*"}}])
        await scene.resolve()
        assert len(scene.now().status.subnets) == len(scene.aws.network.zone_ids)
        assert scene.says() == READY


@pytest.mark.spec("aws-48")
@virtual
async def test_subnets_with_most_free_addresses_come_first() -> None:
    async with ClassScene().still() as scene:
        network = scene.aws.network
        vpc, zone = next(iter(network.vpcs.values())), next(iter(network.zone_ids))
        made = {
            free: [
                network.add_subnet(vpc.id, zone, network.next_cidr(vpc.id, 24), {"pick": "me"})
                for _ in range(2 if free == 50 else 1)
            ]
            for free in (20, 100, 50)
        }
        for free, subnets in made.items():
            for subnet in subnets:
                subnet.take_addresses(subnet.free - free)
        scene.apply(node_class(subnetSelectorTerms=[{"tags": {"pick": "me"}}]))
        await scene.resolve()
        wanted = [made[100][0].id, *sorted(s.id for s in made[50]), made[20][0].id]
        assert [subnet.id for subnet in scene.now().status.subnets] == wanted
        found = scene.now().status.subnets[0]
        assert (found.zone, found.zone_id) == (zone, network.zone_ids[zone])


@pytest.mark.spec("aws-49")
@virtual
async def test_security_groups_are_listed_by_id_with_their_names() -> None:
    async with ClassScene().still() as scene:
        network = scene.aws.network
        vpc = next(iter(network.vpcs))
        groups = [network.add_group(name, vpc) for name in ("one", "two", "three")]
        terms: list[dict[str, Any]] = [{"id": groups[0].id}, {"id": groups[1].id}, {"name": "three"}]
        scene.apply(node_class(securityGroupSelectorTerms=terms))
        await scene.resolve()
        wanted = sorted((group.id, group.name) for group in groups)
        assert [(each.id, each.name) for each in scene.now().status.security_groups] == wanted
        scene.change(securityGroupSelectorTerms=[{"name": "nobody"}])
        await scene.resolve()
        assert scene.says("SecurityGroupsReady") == ("False", "SecurityGroupsNotFound")
        assert scene.now().status.security_groups == ()


@pytest.mark.spec("aws-50")
@virtual
async def test_a_class_whose_images_are_nowhere_says_so() -> None:
    async with ClassScene().still() as scene:
        scene.apply(node_class(amiFamily="AL2023", amiSelectorTerms=[{"tags": {"nobody": "*"}}]))
        result = await scene.resolve()
        assert scene.says("AMIsReady") == ("False", "AMINotFound")
        assert scene.now().status.amis == ()
        assert "amis" not in scene.api.get(CLASSES, "default")["status"]
        assert result == Result(after=timedelta(minutes=1))


@pytest.mark.spec("aws-51")
@pytest.mark.parametrize(
    ("alias", "version", "there"),
    [
        ("al2@latest", "1.33", False),
        ("al2@latest", "1.32", True),
        ("windows2025@latest", "1.34", False),
        ("windows2025@latest", "1.35", True),
    ],
)
def test_an_alias_without_images_for_this_kubernetes_is_told_and_not_tried_again(
    alias: str, version: str, there: bool
) -> None:
    @virtual
    async def told() -> None:
        scene = ClassScene()
        scene.aws.eks.clusters[CLUSTER].version = version
        async with scene.still():
            scene.apply(node_class(amiSelectorTerms=[{"alias": alias}]))
            await scene.resolve()
            if there:
                assert scene.says("AMIsReady") == ("True", "AMIsReady")
                assert scene.now().status.amis
            else:
                assert scene.says("AMIsReady") == ("False", "UnsupportedAlias")
                assert version in scene.why("AMIsReady")
                assert scene.now().status.amis == ()

    told()


@virtual
async def test_an_alias_that_ends_with_an_upgrade_leaves_its_nodes_their_images() -> None:
    scene = ClassScene()
    scene.aws.eks.clusters[CLUSTER].version = "1.32"
    async with scene.still():
        scene.apply(node_class(amiSelectorTerms=[{"alias": "al2@latest"}]))
        await scene.resolve()
        before = scene.now().status.amis
        assert before
        scene.aws.eks.clusters[CLUSTER].version = "1.33"
        await scene.look("providers.version")
        await scene.resolve()
        assert scene.says("AMIsReady") == ("False", "UnsupportedAlias")
        assert scene.says() == NOT_READY
        assert scene.now().status.amis == before


@virtual
async def test_an_alias_beside_other_terms_is_ambiguous_and_told_so() -> None:
    async with ClassScene(unchecked=True).still() as scene:
        scene.apply(
            node_class(amiSelectorTerms=[{"alias": "al2023@latest"}, {"alias": "bottlerocket@latest"}])
        )
        await scene.resolve()
        assert scene.says("AMIsReady") == ("False", "UnsupportedAlias")
        assert "which images are meant" in scene.why("AMIsReady")


@pytest.mark.spec("aws-57")
@virtual
async def test_a_placement_group_is_found_or_missed() -> None:
    async with ClassScene().still() as scene:
        group = scene.aws.placement_groups.add("near", "cluster")
        scene.apply(node_class())
        await scene.resolve()
        assert scene.says("PlacementGroupReady") == ("True", "PlacementGroupReady")
        scene.change(placementGroupSelector={"name": "nowhere"})
        await scene.resolve()
        assert scene.says("PlacementGroupReady") == ("False", "PlacementGroupNotFound")
        assert "nowhere" in scene.why("PlacementGroupReady")
        group.state = "deleting"
        scene.change(placementGroupSelector={"name": "near"})
        await scene.resolve()
        assert scene.says("PlacementGroupReady") == ("False", "PlacementGroupNotFound")
        group.state = "available"
        await scene.pass_(61)
        await scene.resolve()
        assert scene.says("PlacementGroupReady") == ("True", "PlacementGroupReady")
        resolved = scene.provider.placement.find_known_group(scene.now())
        assert resolved is not None
        assert (resolved.id, resolved.strategy) == (group.id, "cluster")


@virtual
async def test_a_group_ec2_does_not_tell_of_is_said_to_be_unresolved() -> None:
    async with ClassScene().still() as scene:
        scene.apply(node_class(placementGroupSelector={"name": "near"}))
        scene.aws.refuse("UnauthorizedOperation", "DescribePlacementGroups", times=None)
        await scene.failing()
        assert scene.says("PlacementGroupReady") == ("False", "PlacementGroupResolutionFailed")
        assert scene.says("SubnetsReady")[0] == "True"  # one step that fails does not stop the others


@virtual
async def test_a_condition_nobody_could_decide_says_why() -> None:
    async with ClassScene().still() as scene:
        scene.apply(node_class())
        scene.aws.refuse("UnauthorizedOperation", "DescribeSubnets", times=1, message="may not describe")
        error = await scene.failing()
        assert isinstance(error, Retry)
        assert scene.says("SubnetsReady") == ("Unknown", "ResolutionFailed")
        assert "may not call ec2:DescribeSubnets" in scene.why("SubnetsReady")
        assert scene.says("ValidationSucceeded") == ("Unknown", "DependenciesNotReady")
        await scene.resolve()
        assert scene.says() == READY
        scene.aws.refuse("InternalError", "DescribeSubnets", times=1)
        await scene.pass_(61)
        await scene.failing()
        assert scene.says("SubnetsReady")[0] == "True"  # what was known stays
        assert scene.says() == READY


@virtual
async def test_a_step_that_fails_for_long_keeps_no_other_from_its_minute() -> None:
    async with ClassScene().running() as scene:
        scene.apply(node_class(placementGroupSelector={"name": "near"}))
        scene.aws.refuse("UnauthorizedOperation", "DescribePlacementGroups", times=None)
        await scene.pass_(3600)
        before = len(scene.asked("DescribeSubnets"))
        await scene.pass_(600)
        assert len(scene.asked("DescribeSubnets")) - before >= 5
        scene.aws.faults.clear()
        scene.aws.placement_groups.add("near", "cluster")
        await scene.pass_(130)
        assert scene.says() == READY


@pytest.mark.spec("aws-66")
@virtual
async def test_parts_that_are_missing_or_unknown_hold_back_validation() -> None:
    async with ClassScene().still() as scene:
        scene.apply(node_class(securityGroupSelectorTerms=[{"name": "nobody"}]))
        await scene.resolve()
        assert scene.says("ValidationSucceeded") == ("False", "DependenciesNotReady")
        assert "SecurityGroupsReady" in scene.why("ValidationSucceeded")
        scene.apply(node_class("unknown"))
        scene.aws.refuse("InternalError", "DescribeImages", times=1)
        await scene.failing("unknown")
        assert scene.says("ValidationSucceeded", "unknown") == ("Unknown", "DependenciesNotReady")
        assert not scene.asked("CreateLaunchTemplate")


@pytest.mark.spec("aws-90")
@virtual
async def test_tags_of_one_term_are_all_needed_and_of_several_terms_any() -> None:
    async with ClassScene().still() as scene:
        network = scene.aws.network
        vpc, zone = next(iter(network.vpcs.values())), next(iter(network.zone_ids))
        both, first, second = (
            network.add_subnet(vpc.id, zone, network.next_cidr(vpc.id, 24), tags).id
            for tags in ({"a": "1", "b": "2"}, {"a": "1"}, {"b": "2"})
        )
        scene.apply(node_class(subnetSelectorTerms=[{"tags": {"a": "1", "b": "2"}}]))
        await scene.resolve()
        assert {subnet.id for subnet in scene.now().status.subnets} == {both}
        scene.change(subnetSelectorTerms=[{"tags": {"a": "1"}}, {"tags": {"b": "2"}}])
        await scene.resolve()
        assert {subnet.id for subnet in scene.now().status.subnets} == {both, first, second}


@pytest.mark.spec("aws-14")
@virtual
async def test_a_term_of_no_tags_selects_nothing_rather_than_everything() -> None:
    async with ClassScene().still() as scene:
        scene.apply(node_class(subnetSelectorTerms=[{"tags": {}}], securityGroupSelectorTerms=[{"tags": {}}]))
        await scene.resolve()
        assert scene.says("SubnetsReady") == ("False", "SubnetsNotFound")
        assert scene.says("SecurityGroupsReady") == ("False", "SecurityGroupsNotFound")


# Hashes


@pytest.mark.spec("aws-82")
@virtual
async def test_the_hash_follows_what_instances_get_from_their_class() -> None:
    async with ClassScene().still() as scene:
        scene.apply(node_class())
        await scene.look("nodeclass.hash", "default")
        seen = [_hash(scene)]
        assert seen[0] == hash_nodeclass(scene.now(), scene.provider.discovery.facts.ca_bundle)
        assert scene.now().annotations[labels.EC2_NODECLASS_HASH_VERSION] == "v5"
        changes: list[dict[str, Any]] = [
            {"userData": "echo"},
            {"tags": {"team": "a"}},
            {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "30Gi"}}]},
            {"detailedMonitoring": True},
            {"metadataOptions": {"httpTokens": "optional"}},
            {"context": "here"},
            {"cpuOptions": {"nestedVirtualization": "enabled"}},
        ]
        for change in changes:
            scene.change(**change)
            await scene.look("nodeclass.hash", "default")
            assert _hash(scene) not in seen, change
            seen.append(_hash(scene))
        scene.change(
            subnetSelectorTerms=[{"id": "subnet-1"}],
            securityGroupSelectorTerms=[{"id": "sg-1"}],
            amiSelectorTerms=[{"alias": "al2023@v20251209"}],
        )
        await scene.look("nodeclass.hash", "default")
        assert _hash(scene) == seen[-1]
        scene.settings = ClassScene("--cluster-ca-bundle=b3RoZXI=").settings
        await scene.restart()
        await scene.look("nodeclass.hash", "default")
        assert _hash(scene) not in seen


@virtual
async def test_a_class_that_cannot_be_read_keeps_its_hash_and_nothing_is_launched_from_what_is_left() -> None:
    """Without its tags it would hash to something else, and every node of it would drift."""
    async with ClassScene().still() as scene:
        scene.apply(node_class(tags={"team": "a"}))
        scene.apply(pool_of())
        await scene.resolve()
        await scene.look("nodeclass.hash", "default")
        await scene.look("nodepool.readiness", "default")
        before, pool = _hash(scene), scene.dovetail.get_informer(NodePool).get("default")
        assert before
        assert pool is not None
        assert await scene.provider.cloud.list_instance_types(pool)
        await scene.heard()
        _hear_unreadable(scene, tags=["team"])
        await scene.resolve()
        await scene.look("nodeclass.hash", "default")
        await scene.look("nodepool.readiness", "default")
        assert (
            scene.api.get(CLASSES, "default")["metadata"]["annotations"][labels.EC2_NODECLASS_HASH] == before
        )
        with pytest.raises(InsufficientCapacity, match="cannot be read"):
            await scene.provider.cloud.create(codec.convert(NodeClaim, claim_of()))
        told = scene.api.get("nodepools.karpenter.sh", "default")["status"]["conditions"]
        (ready,) = [each for each in told if each["type"] == "NodeClassReady"]
        assert ready["status"] == "False"
        assert ready["message"].startswith("NodeClass is set aside: spec.tags cannot be read")
        assert not scene.aws.list_running()


def _hear_unreadable(scene: ClassScene, **spec: Any) -> None:
    """The class changes to what definitions of another version let pass."""
    document = scene.api.get(CLASSES, "default")
    metadata = {**document["metadata"], "resourceVersion": "999999"}
    changed = {**document, "metadata": metadata, "spec": {**document["spec"], **spec}}
    heard = codec.decode_or_salvage(EC2NodeClass, json.dumps(changed).encode())
    assert heard is not None
    assert reason_of(heard)
    scene.dovetail.get_informer(EC2NodeClass).apply_change(heard)


def _hash(scene: ClassScene) -> str:
    return scene.now().annotations.get(labels.EC2_NODECLASS_HASH, "")


@pytest.mark.spec("aws-83")
@virtual
async def test_another_way_of_hashing_restamps_claims_without_drifting_them() -> None:
    async with ClassScene().still() as scene:
        old = {labels.EC2_NODECLASS_HASH: "1", labels.EC2_NODECLASS_HASH_VERSION: "v4"}
        made = node_class()
        made["metadata"]["annotations"] = old
        scene.apply(made)
        scene.apply(claim_of("fresh", annotations=old))
        scene.apply(claim_of("drifted", annotations=old))
        scene.apply(claim_of("stranger", class_name="other", annotations=old))
        now = scene.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        drifted = {
            "type": "Drifted",
            "status": "True",
            "reason": "x",
            "message": "",
            "lastTransitionTime": now,
        }
        scene.api.patch(CLAIMS, "drifted", {"status": {"conditions": [drifted]}}, subresource="status")
        await scene.look("nodeclass.hash", "default")
        current = _hash(scene)

        def stamped(name: str) -> tuple[str, str]:
            marks = scene.claim_now(name).annotations
            return marks[labels.EC2_NODECLASS_HASH], marks[labels.EC2_NODECLASS_HASH_VERSION]

        assert stamped("fresh") == (current, "v5")
        assert stamped("drifted") == ("1", "v5")
        assert stamped("stranger") == ("1", "v4")
