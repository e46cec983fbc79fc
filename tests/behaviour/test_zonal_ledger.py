"""Shifts kept in the cluster, in a table, or in both: followed alike, and through deaths at every write."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from dovetail.sim.clock import run_virtual
from dovetail.zonal.model.events import parse_signal
from dovetail.zonal.model.state_machine import ShiftTiming
from support.stage import virtual
from support.zonal import LEDGER, POOLS, SHIFTS, A, B, C, entry
from support.zonal_stores import TABLE, Kept, mortal

STORES = ("Cluster", "DynamoDB", "Mirror")


async def active(world: Kept) -> None:
    await world.shift(A)
    await world.until(lambda: world.phase() == "Active", within=90)


@pytest.mark.parametrize("store", STORES)
@virtual
async def test_a_shift_is_followed_and_undone_whatever_keeps_it(store: str) -> None:
    world = Kept(store)
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        before = world.wanted()
        await active(world)
        assert (world.away(), world.protected()) == ([A], ["a0", "a1"])
        assert len(world.items("POOL#")) == (0 if store == "Cluster" else 1)
        await world.settle(300)
        await world.cancel()
        await world.restored()

        assert (world.wanted(), world.protected()) == (before, [])
        assert world.items("POOL#") == []
        objects = [each["status"]["phase"] for each in world.api.list(SHIFTS)]
        copies = [each["status"]["phase"] for each in world.kept()]
        assert (objects, copies) == {
            "Cluster": (["Restored"], []),
            "DynamoDB": ([], ["Restored"]),
            "Mirror": (["Restored"], ["Restored"]),
        }[store]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.spec("zonal-E13")
@virtual
async def test_processes_that_die_after_every_single_write_finish_the_same_shift(store: str) -> None:
    world = Kept(store, nodes={A: 1, B: 1}, restore_interval=1.0)
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        before = world.wanted()
        await world.shift(A)
        await mortal(world, lambda: world.phase() == "Active")
        born = world.lives
        assert (world.away(), world.protected()) == ([A], ["a0"])
        await world.settle(300)
        await world.cancel()
        await mortal(world, lambda: world.phase() == "Restored")

        assert (world.wanted(), world.protected()) == (before, [])
        assert world.items("POOL#") == []
        assert born > 4
        assert world.lives > born + 4
        assert len(world.shifts()) == 1


@pytest.mark.parametrize("store", ["DynamoDB", "Mirror"])
@virtual
async def test_a_ledger_that_somebody_stripped_is_put_back_from_the_table(store: str) -> None:
    world = Kept(store)
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        before = world.wanted()
        await active(world)
        world.api.patch(POOLS, "default", {"metadata": {"annotations": {LEDGER: None}}})
        await world.settle(60)
        assert LEDGER in world.api.get(POOLS, "default")["metadata"]["annotations"]
        world.api.patch(POOLS, "default", {"metadata": {"annotations": {LEDGER: None}}})
        await world.settle(240)
        await world.cancel()
        await world.restored()
        assert world.wanted() == before


@virtual
async def test_a_pool_that_goes_takes_its_copy_along() -> None:
    world = Kept("DynamoDB")
    world.pool("default", entry("In", A, B, C))
    world.pool("other", entry("In", A, B))
    async with world.running():
        await active(world)
        assert len(world.items("POOL#")) == 2
        world.api.delete(POOLS, "other")
        await world.settle(60)
        assert [each["name"]["S"] for each in world.items("POOL#")] == ["default"]


@virtual
async def test_an_operators_own_shift_works_beside_a_table() -> None:
    world = Kept("DynamoDB")
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        before = world.wanted()
        world.local(A)
        await world.until(lambda: world.phase() == "Active", within=60)
        assert world.away() == [A]
        world.api.delete(SHIFTS, f"local-{world.ids(A)}")
        await world.until(lambda: not world.api.list(SHIFTS), within=1800)
        assert (world.wanted(), world.kept()) == (before, [])


@virtual
async def test_a_message_in_the_table_makes_the_leader_look_within_seconds() -> None:
    world = Kept("DynamoDB", queue=True)
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        await world.settle(40)
        await world.shift(A)
        took = await world.until(lambda: world.gates.is_disruption_closed(A), within=60)
        assert took <= 5
        assert len(world.items("SEEN#")) == 1


@virtual
async def test_another_replicas_message_is_heard_through_the_table_within_seconds() -> None:
    world = Kept("DynamoDB")
    async with world.running():
        await world.settle(5)
        looked = len([each for each in world.aws.calls if each.operation == "GetManagedResource"])
        body = {
            "id": "e",
            "detail-type": "Autoshift In Progress",
            "source": "aws.arc-zonal-shift",
            "resources": [world.arn],
            "detail": {"metadata": {"awayFrom": world.ids(A)}},
        }
        elsewhere = Kept("DynamoDB")
        elsewhere.aws.call = world.aws.call  # type: ignore[method-assign]  # one account for both
        assert await elsewhere.zonal.signals.put_signal(parse_signal(json.dumps(body), "sns")) == "stored"
        await world.settle(5)
        again = len([each for each in world.aws.calls if each.operation == "GetManagedResource"])
        assert again == looked + 1


@virtual
async def test_objects_that_vanish_are_put_back_from_the_mirror_and_the_shift_is_undone() -> None:
    world = Kept("Mirror")
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        before = world.wanted()
        await active(world)
        (name,) = [each["metadata"]["name"] for each in world.api.list(SHIFTS)]
        await world.killed()
        world.api.patch(SHIFTS, name, {"metadata": {"finalizers": None}})
        world.api.delete(SHIFTS, name)
        await world.until(lambda: world.phase() == "Active", within=60)
        assert [each["metadata"]["name"] for each in world.api.list(SHIFTS)] == [name]
        await world.settle(300)
        await world.cancel()
        await world.restored()
        assert world.wanted() == before


@virtual
async def test_with_the_api_server_away_the_mirror_closes_the_gates() -> None:
    world = Kept("Mirror")
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        await active(world)
        await world.killed()
        fresh = Kept("Mirror")
        fresh.aws.call = world.aws.call  # type: ignore[method-assign]  # the account outlives the cluster
        fresh.away_from_api = True
        await fresh.zonal.prepare()
        assert fresh.gates.is_disruption_closed(A)


@pytest.mark.parametrize("store", ["DynamoDB", "Mirror"])
@virtual
async def test_a_table_that_is_missing_is_told_or_done_without(store: str) -> None:
    world = Kept(store)
    world.pool("default", entry("In", A, B, C))
    del world.tables.by_name[TABLE]
    async with world.running():
        await world.shift(A)
        await world.settle(120)
        assert world.gates.is_disruption_closed(A)
        assert world.away() == ([] if store == "DynamoDB" else [A])
        world.tables.add(TABLE)
        await world.until(lambda: world.away() == [A], within=120)
        await world.until(lambda: world.kept(), within=120)


BRIEF = ShiftTiming(min_hold=timedelta(), settle=timedelta(seconds=20))


async def one_life_long(world: Kept, die_at: int) -> tuple[bytes, list[str], int]:
    """A whole shift, with one death right after that write: how the cluster stands then, and all writes."""
    world.pool("default", entry("In", A, B, C))
    async with world.running():
        world.die_at = die_at
        await world.shift(A)
        await world.survived(lambda: world.phase() == "Active")
        assert (world.away(), world.protected()) == ([A], ["a0"])
        await world.cancel()
        await world.survived(lambda: world.phase() == "Restored")
        assert world.items("POOL#") == []
        assert len(world.shifts()) == 1
        return world.wanted(), world.protected(), world.writes


@pytest.mark.parametrize("store", STORES)
@pytest.mark.spec("zonal-E13")
def test_a_death_at_any_one_write_changes_nothing_in_the_end(store: str) -> None:
    def lived(die_at: int) -> tuple[bytes, list[str], int]:
        async def whole() -> tuple[bytes, list[str], int]:
            world = Kept(store, nodes={A: 1, B: 1}, restore_interval=1.0, pace=BRIEF)
            return await one_life_long(world, die_at)

        return run_virtual(whole())

    standing, protected, writes = lived(0)
    assert writes > 8
    for number in range(1, writes + 1):
        after = lived(number)
        assert after[:2] == (standing, protected), f"after a death at write {number}"
