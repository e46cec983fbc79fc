"""Beside upstream: taking over a cluster it left, and leaving one that it can take back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dovetail.api import hashes, labels
from support.aws_world import CLAIMS, CLASSES, POOLS
from support.controller_restart import OLDER, WHILE, Changing, as_an_older_release_left_it, settled
from support.stage import virtual

Json = dict[str, Any]
# What upstream knows; anything else would be foreign to it.
FINALIZERS = {"karpenter.sh/termination", "karpenter.k8s.aws/termination"}
CONDITIONS = {
    CLAIMS: """Launched Registered Initialized Ready Consolidatable Drifted Drained VolumesDetached
        InstanceTerminating ConsistentStateFound DisruptionReason""",
    POOLS: "ValidationSucceeded NodeClassReady NodeRegistrationHealthy Ready",
    CLASSES: """SubnetsReady SecurityGroupsReady AMIsReady InstanceProfileReady CapacityReservationsReady
        PlacementGroupReady ValidationSucceeded Ready""",
}


@pytest.mark.spec("operations-18.9")
@pytest.mark.parametrize("older", [False, True], ids=["the same release", "an older release"])
@virtual
async def test_a_cluster_is_taken_over_without_drift_or_loss(older: bool) -> None:
    world = Changing()
    async with world.running():
        await settled(world)
        await world.leave()
        if older:
            as_an_older_release_left_it(world)
        before = world.identities()
        asked = len(world.aws.calls)

        world.come()
        await asyncio.sleep(2 * WHILE)

        assert world.dovetail.cluster.synced
        assert world.identities() == before
        assert not [each for each in world.claims if world.says(each, "Drifted")]
        assert all(world.says(each, "Ready") == "True" for each in world.listed(POOLS))
        # Classes are validated by asking without meaning it.
        meant = [call for call in list(world.aws.calls)[asked:] if not call.parameters.get("DryRun")]
        changed = {call.operation for call in meant}
        assert not changed & {"CreateFleet", "TerminateInstances", "RunInstances"}
        for each in (*world.claims, *world.listed(POOLS)):
            told = each["metadata"]["annotations"]
            assert told[labels.NODEPOOL_HASH_VERSION] == hashes.NODEPOOL_HASH_VERSION
            assert told[labels.NODEPOOL_HASH] != OLDER["nodepool"][1]
        for each in (*world.claims, *world.listed(CLASSES)):
            told = each["metadata"]["annotations"]
            assert told[labels.EC2_NODECLASS_HASH_VERSION] == hashes.NODECLASS_HASH_VERSION
            assert told[labels.EC2_NODECLASS_HASH] != OLDER["nodeclass"][1]


@virtual
async def test_a_claim_that_had_drifted_stays_drifted_when_it_is_taken_over() -> None:
    world = Changing()
    async with world.running():
        await settled(world)
        await world.leave()
        as_an_older_release_left_it(world)
        (first, *_) = world.claims
        condition = {
            "type": "Drifted",
            "status": "True",
            "reason": "NodePoolDrifted",
            "message": "NodePoolDrifted",
            "lastTransitionTime": "2030-01-01T00:00:00Z",
        }
        status = {"conditions": [*first["status"]["conditions"], condition]}
        world.api.patch(CLAIMS, first["metadata"]["name"], {"status": status}, subresource="status")

        world.come()
        await world.until(
            lambda: first["metadata"]["uid"] not in {each["metadata"]["uid"] for each in world.claims},
            within=3 * WHILE,
        )

        assert world.placed() == 5


@pytest.mark.spec("operations-18.9")
@virtual
async def test_what_is_left_behind_is_nothing_upstream_does_not_know() -> None:
    world = Changing()
    async with world.running():
        await settled(world)
        world.scale(2)
        await asyncio.sleep(WHILE)
        await world.leave()

        for resource, kinds in CONDITIONS.items():
            for each in world.listed(resource):
                assert set(each["metadata"].get("finalizers", ())) <= FINALIZERS
                told = {kind["type"] for kind in each.get("status", {}).get("conditions", ())}
                assert told <= set(kinds.split())
        for node in world.nodes:
            assert set(node["metadata"].get("finalizers", ())) <= FINALIZERS
            assert not [each for each in node["spec"].get("taints", ()) if "dovetail" in each["key"]]
            assert not [each for each in node["metadata"]["labels"] if "dovetail.sh" in each]
        # Pools may hold a note about what was taken away lately; it binds nobody.
        noted = {
            key
            for resource in (*CONDITIONS, "nodes")
            for each in world.listed(resource)
            for key in each["metadata"].get("annotations", {})
            if "dovetail.sh" in key
        }
        assert noted <= {labels.RECENT}
        world.come()
