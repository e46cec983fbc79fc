"""Client tokens: the same for every process, and another for claims that may not share a fleet."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.providers.aws.launch_tokens import LaunchAttempts, launch_group
from support.builders import NOW, nodeclaim, owner

CLUSTER = "shop"


def claim(name: str = "one", *, zone: str = "us-west-2a", pool_uid: str = "pool-uid") -> NodeClaim:
    made = nodeclaim(name, requirements=[(labels.ZONE, "In", zone)], true=())
    owners = (replace(owner("NodePool", "default"), uid=pool_uid),)
    return replace(made, metadata=replace(made.metadata, owner_references=owners, generation=1))


def later(given: NodeClaim) -> NodeClaim:
    return replace(given, metadata=replace(given.metadata, creation_timestamp=NOW + timedelta(seconds=1)))


def changed(given: NodeClaim) -> NodeClaim:
    return replace(given, metadata=replace(given.metadata, generation=2))


def test_claims_of_one_order_have_one_token_in_every_process() -> None:
    one, two = launch_group(claim("one"), CLUSTER), launch_group(claim("two"), CLUSTER)
    assert one == two
    assert LaunchAttempts().next_token(one) == LaunchAttempts().next_token(two)
    assert len(LaunchAttempts().next_token(one)) <= 64


@pytest.mark.parametrize(
    "other",
    [
        lambda: changed(claim()),
        lambda: later(claim()),
        lambda: claim(zone="us-west-2b"),
        lambda: claim(pool_uid="namesake-uid"),
    ],
    ids=["another generation", "created later", "another zone", "a pool of the same name"],
)
def test_claims_that_may_not_share_a_fleet_share_no_token(other: Callable[[], NodeClaim]) -> None:
    assert launch_group(other(), CLUSTER) != launch_group(claim(), CLUSTER)


def test_clusters_of_one_account_share_no_token() -> None:
    assert launch_group(claim(), "other") != launch_group(claim(), CLUSTER)
