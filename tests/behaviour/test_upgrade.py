"""From the release before: what it wrote under its own definitions is adopted, without drift or loss."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from dovetail.api.crds import build_manifests
from support.aws_world import CLASSES, POOLS
from support.controller_restart import WHILE, Changing, as_an_older_release_left_it, settled
from support.stage import virtual

Json = dict[str, Any]
DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
# Kinds and fields the release before did not have: placement groups came with 1.11, prefixes and interfaces
# later still, pools of a fixed size with 1.8.
NEW_KINDS = {"capacitybuffers.autoscaling.x-k8s.io", "nodeoverlays.karpenter.sh"}
NEW_FIELDS = {
    "ec2nodeclasses.karpenter.k8s.aws": {
        *("placementGroupSelector", "capacityReservationSelectorTerms", "ipPrefixCount"),
        *("networkInterfaces", "connectionTracking", "cpuOptions"),
    },
    "nodepools.karpenter.sh": {"replicas"},
}
NEW_STATUS = {
    "ec2nodeclasses.karpenter.k8s.aws": {"capacityReservations"},
    "nodepools.karpenter.sh": {"nodes", "nodeClassObservedGeneration"},
}


def without(schema: Json, names: set[str]) -> None:
    schema["properties"] = {key: each for key, each in schema["properties"].items() if key not in names}
    # Rules that speak of fields that are not there would not compile.
    rules = schema.get("x-kubernetes-validations", ())
    schema["x-kubernetes-validations"] = [
        rule for rule in rules if not any(f".{name}" in rule["rule"] for name in names)
    ]


def definitions_before() -> list[Json]:
    """The definitions as they were, as far as they say less than ours."""
    found = []
    for each in copy.deepcopy(list(build_manifests("aws"))):
        name = each["metadata"]["name"]
        if name in NEW_KINDS:
            continue
        for version in each["spec"]["versions"]:
            whole = version["schema"]["openAPIV3Schema"]
            for part, new in (("spec", NEW_FIELDS), ("status", NEW_STATUS)):
                without(whole["properties"][part], new.get(name, set()))
            # So would columns and counts of them.
            version["additionalPrinterColumns"] = []
            version["subresources"] = {"status": {}}
        found.append(each)
    return found


def defined(world: Changing, definitions: list[Json]) -> None:
    """Apply definitions over what is there, and drop the others, as a chart of definitions does."""
    there = {each["metadata"]["name"]: each for each in world.listed(DEFINITIONS)}
    wanted = {each["metadata"]["name"]: each for each in definitions}
    for name, each in wanted.items():
        if name in there:
            meta = {**each["metadata"], "resourceVersion": there[name]["metadata"]["resourceVersion"]}
            world.api.update(DEFINITIONS, {**each, "metadata": meta})
        else:
            world.api.create(DEFINITIONS, each)
    for name in set(there) - set(wanted):
        if name in NEW_KINDS:
            world.api.delete(DEFINITIONS, name)


@pytest.mark.spec("operations-18.9", "operations-16.4")
@virtual
async def test_what_the_release_before_wrote_is_adopted_without_drift_or_loss() -> None:
    world = Changing()
    defined(world, definitions_before())
    async with world.running():
        await settled(world)
        (pool,) = world.listed(POOLS)
        assert "nodes" not in pool["status"], "the older definition has no such field"
        await world.leave()
        as_an_older_release_left_it(world)
        before, asked = world.identities(), len(world.aws.calls)

        defined(world, list(build_manifests("aws")))
        world.come()
        await asyncio.sleep(2 * WHILE)

        assert world.identities() == before
        assert not [each for each in world.claims if world.says(each, "Drifted")]
        assert world.placed() == 5
        for resource in (POOLS, CLASSES):
            assert all(world.says(each, "Ready") == "True" for each in world.listed(resource))
        # What only the newer definitions can hold is filled in.
        (pool,) = world.listed(POOLS)
        assert pool["status"]["nodes"] == len(world.nodes)
        meant = [call for call in list(world.aws.calls)[asked:] if not call.parameters.get("DryRun")]
        changed = {call.operation for call in meant}
        assert not changed & {"CreateFleet", "TerminateInstances", "RunInstances"}
