"""With the permissions of its own documents and no others nothing that is needed is denied."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dovetail.settings import read_settings
from dovetail.zonal.lambda_entry import Function
from support.aws import CLUSTER
from support.deployed_stack import Watched
from support.policy_documents import Where
from support.stage import virtual
from support.zonal import A, B, C, entry
from support.zonal_stores import TABLE, Frozen, Kept

ROOT = Path(__file__).resolve().parents[2]
DENIED = ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException")
Json = dict[str, Any]
# What only the function asks of the table, and what a mirror leaves to the cluster.
ELSEWHERE = {
    "Cluster": (),
    "DynamoDB": ("dynamodb:GetItem",),
    "Mirror": ("dynamodb:GetItem", "dynamodb:UpdateItem"),
}


def documents(world: Kept, *parts: str) -> list[Json]:
    """Statements as the Terraform module takes them, for this cluster."""
    known = json.loads((ROOT / "deploy" / "terraform" / "documents" / "documents.json").read_text())
    at = f"{world.aws.region}:{world.aws.account}"
    places = {
        **Where("aws", world.aws.region, world.aws.account, CLUSTER).places,
        "ClusterArn": world.arn,
        "QueueArn": f"arn:aws:sqs:{at}:zonal",
        "TableArn": f"arn:aws:dynamodb:{at}:table/{TABLE}",
    }
    found = []
    for part in parts:
        text = json.dumps(known["zonalShift"][part])
        for name, value in places.items():
            text = text.replace(f"${{{name}}}", str(value))
        found.append({"Statement": json.loads(text)})
    return found


def judged(world: Kept) -> Watched:
    """From now on every request is."""
    tables = () if world.options.store == "Cluster" else ("tablePolicy",)
    world.aws.principal = Watched(documents(world, "policy", "sqsPolicy", *tables))  # type: ignore[assignment]
    found: Any = world.aws.principal
    assert isinstance(found, Watched)
    return found


async def followed(world: Kept, act: Callable[[], Any] | None = None) -> None:
    """A shift from its start to its last trace; only what an operator does is not judged."""
    before, principal = world.wanted(), world.aws.principal

    async def minutes(count: int) -> None:
        world.aws.principal = principal
        for _ in range(count):
            if act is not None:
                await act()
            await world.settle(60)
        world.aws.principal = None

    world.aws.principal = None
    await world.shift(A)
    await minutes(6)
    assert (world.phase(), world.away()) == ("Active", [A])
    await world.cancel()
    # Messages are crossed off after two hours.
    await minutes(150)
    assert (world.phase(), world.wanted()) == ("Restored", before)


def denied(world: Kept) -> set[str]:
    return {call.action for call in world.aws.calls if call.code in DENIED}


@pytest.mark.parametrize("store", ["Cluster", "DynamoDB", "Mirror"])
@virtual
async def test_a_shift_is_followed_with_its_own_permissions_alone(store: str) -> None:
    world = Kept(store, queue=True)
    world.pool("default", entry("In", A, B, C))
    watched = judged(world)
    async with world.running():
        await followed(world)
    assert denied(world) == set()
    unused = {action for _, action in watched.unused}
    lists = {
        f"arc-zonal-shift:{each}" for each in ("ListAutoshifts", "ListZonalShifts", "ListManagedResources")
    }
    # Lists are asked for by commands and observers, and more time for a message by a slow store.
    assert unused - lists <= {"sqs:ChangeMessageVisibility", "sqs:GetQueueAttributes", *ELSEWHERE[store]}
    assert any(action.startswith("dynamodb:") for action in world.aws.actions) == (store != "Cluster")


@virtual
async def test_without_the_tables_permissions_a_mirror_goes_on_and_says_so() -> None:
    world = Kept("Mirror", queue=True)
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        world.aws.principal = Watched(documents(world, "policy", "sqsPolicy"))  # type: ignore[assignment]
        world.local(A)
        await world.until(lambda: world.away() == [A], within=120)
    assert denied(world) == {"dynamodb:Query", "dynamodb:PutItem"}


@virtual
async def test_the_function_needs_no_more_than_the_table_and_the_rest() -> None:
    world = Kept("DynamoDB")
    world.pool("default", entry("In", A, B, C))
    transport = Frozen(world.world.server)
    transport.world = world
    flags = (
        f"--cluster-name={CLUSTER}",
        "--enable-zonal-shift",
        "-d",
        "--zonal-shift-store=DynamoDB",
        f"--zonal-shift-table={TABLE}",
    )
    settings = read_settings(flags, {}, provider="aws")
    function = Function(settings, world.aws, transport, clock=world.clock, rng=Random(1), owner="one")
    judged(world)
    await followed(world, lambda: function.handle({}, 60))
    assert denied(world) == set()
