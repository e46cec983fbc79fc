"""Whose an instance is, when nobody lived to write it down."""

from __future__ import annotations

import asyncio

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.providers.aws.instances import Ec2Instance, match_claims
from dovetail.providers.aws.tags import NODECLAIMS_TAG, tag_for_claims
from support.ec2 import Ec2, filled, provided
from support.stage import virtual

M5 = (labels.INSTANCE_TYPE, "In", "m5.large")


async def burst(ec2: Ec2, count: int) -> list[NodeClaim]:
    """So many claims launched at once, none of which has heard of it."""
    claims = [ec2.claim(M5, name=f"default-{at:05}") for at in range(count)]
    ec2.claims.put(*claims)
    await asyncio.gather(*(ec2.cloud.create(claim) for claim in claims))
    await asyncio.sleep(60)
    return claims


@virtual
async def test_a_launch_for_one_claim_is_tagged_with_it() -> None:
    ec2 = await provided()
    (claim,) = await burst(ec2, 1)
    (machine,) = ec2.aws.list_running()
    assert machine.tags[labels.NODECLAIM_TAG] == claim.name
    assert labels.NODECLAIM_TAG not in machine.volume_tags
    assert [each.claim for each in await ec2.cloud.list()] == [claim.name]


@virtual
async def test_claims_that_shared_a_fleet_each_find_one_of_its_instances() -> None:
    ec2 = await provided()
    claims = await burst(ec2, 3)
    assert len(ec2.asked("CreateFleet")) == 1, "whose a request is does not keep it from being merged"
    found = {each.claim: each for each in await ec2.cloud.list()}
    assert set(found) == {claim.name for claim in claims}
    # One of them takes what it found; the others keep theirs.
    ec2.claims.put(filled(claims[1], found[claims[1].name]))
    again = {each.provider_id: each.claim for each in await ec2.cloud.list()}
    for name in (claims[0].name, claims[2].name):
        assert again[found[name].provider_id] == name


@virtual
async def test_what_is_left_over_is_nobodys() -> None:
    ec2 = await provided()
    claims = await burst(ec2, 2)
    found = {each.claim: each for each in await ec2.cloud.list()}
    ec2.claims.put(filled(claims[0], found[claims[0].name]))
    ec2.claims.drop(claims[1].name)
    stray = found[claims[1].name]
    told = {each.provider_id: each.claim for each in await ec2.cloud.list()}
    assert told[stray.provider_id] == stray.provider_id.rpartition("/")[2]


@virtual
async def test_more_claims_than_a_tag_can_name_find_their_instances_by_their_group() -> None:
    ec2 = await provided()
    claims = await burst(ec2, 40)
    stranger = ec2.claim(M5, (labels.ARCH, "In", "amd64"), name="default-stranger")
    ec2.claims.put(stranger)
    assert len(ec2.asked("CreateFleet")) == 1
    assert all(len(machine.tags[NODECLAIMS_TAG]) <= 256 for machine in ec2.aws.list_running())
    assert sorted(each.claim for each in await ec2.cloud.list()) == [claim.name for claim in claims]


def test_an_instance_that_ends_or_is_taken_is_not_given_away() -> None:
    tags = {NODECLAIMS_TAG: "a b c"}
    instances = [
        Ec2Instance("i-1", zone="z", tags=tags, state="shutting-down"),
        Ec2Instance("i-2", zone="z", tags=tags),
        Ec2Instance("i-3", zone="z", tags=tags),
        Ec2Instance("i-4", zone="z", tags={labels.NODECLAIM_TAG: "d"}),
    ]
    assert match_claims(instances, {"b": "", "c": ""}, {"aws:///z/i-3"}) == {"i-2": "b", "i-4": "d"}
    assert match_claims(instances, {}, ()) == {"i-4": "d"}


def test_a_request_without_a_claim_is_as_it_was() -> None:
    request = {"TagSpecifications": [{"ResourceType": "instance", "Tags": []}]}
    assert tag_for_claims(request, [""]) == request
    assert tag_for_claims(request, ["a"]) != request
