"""The Lambda form against the controller: the same shift, the same objects at every stage, the same undo."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any, TypeVar

import pytest

from dovetail.errors import Misconfigured
from dovetail.settings import read_settings
from dovetail.zonal.lambda_entry import Function, function_options
from dovetail.zonal.model.shifts import STAND_ALONE
from support.aws import CLUSTER
from support.stage import virtual
from support.zonal import LEDGER, POOLS, A, B, C, entry
from support.zonal_stores import TABLE, Frozen, Kept

FLAGS = (
    f"--cluster-name={CLUSTER}",
    "--enable-zonal-shift",
    "-d",
    "--zonal-shift-store=DynamoDB",
    f"--zonal-shift-table={TABLE}",
)
TIMEOUT = 60.0
Json = dict[str, Any]
World = TypeVar("World", bound=Kept)


class Called(Kept):
    """A cluster without a controller, and a function that is called once a minute."""

    def __init__(self, *flags: str, cold: bool = False, **options: Any) -> None:
        super().__init__("DynamoDB", **options)
        self.cold, self.calls, self.flags = cold, 0, (*FLAGS, *flags)
        self.answers: list[Json] = []
        self.function = self.container()

    def container(self, owner: str = "") -> Function:
        self.calls += 1
        transport = Frozen(self.world.server)
        transport.world = self
        return Function(
            read_settings(self.flags, {}, provider="aws"),
            self.aws,
            transport,
            clock=self.clock,
            rng=Random(self.calls),
            owner=owner or f"container-{self.calls}",
        )

    async def call(self, event: Any = None, seconds: float = TIMEOUT) -> Json:
        if self.cold:
            self.function = self.container()
        self.answers.append(await self.function.handle(event or {}, seconds))
        return self.answers[-1]

    async def minutes(self, true: Any, within: int = 60) -> None:
        """A tick a minute until it is so."""
        for _ in range(within):
            began = self.clock.monotonic()
            await self.call({"detail-type": "Scheduled Event", "source": "aws.events"})
            if true():
                return
            await asyncio.sleep(max(60 - (self.clock.monotonic() - began), 1))
        raise AssertionError(f"not so after {within} minutes: {self.told()}")


def seen(world: Kept) -> Json:
    """Everything that was done, but for when."""
    pool = world.api.get(POOLS, "default")
    shifts = [
        (each["metadata"]["name"], each["spec"], each["status"]["phase"], each["status"].get("steps"))
        for each in world.shifts()
    ]
    return {
        "pool": (pool["spec"], pool["metadata"].get("annotations")),
        "nodes": {
            each["metadata"]["name"]: (
                each["metadata"].get("labels"),
                each["metadata"].get("annotations"),
                each["spec"],
            )
            for each in world.api.list("nodes")
        },
        "shifts": shifts,
    }


def furnished(world: World) -> World:
    world.pool("default", entry("In", A, B, C))
    return world


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold each time"])
@virtual
async def test_the_function_leaves_every_object_as_the_controller_does(cold: bool) -> None:
    controller = furnished(Kept("DynamoDB", owner=STAND_ALONE))
    async with controller.running():
        await controller.shift(A)
        await controller.until(lambda: controller.phase() == "Active", within=90)
        during = seen(controller)
        await controller.settle(300)
        await controller.cancel()
        await controller.restored()
        after = seen(controller)

    world = furnished(Called(cold=cold))
    await world.shift(A)
    await world.minutes(lambda: world.phase() == "Active", within=3)
    assert seen(world) == during
    await world.settle(300)
    await world.cancel()
    await world.minutes(lambda: world.phase() == "Restored")
    assert seen(world) == after
    assert LEDGER not in (after["pool"][1] or {})


@virtual
async def test_a_calm_cluster_takes_one_pass_and_no_write() -> None:
    world = furnished(Called())
    answer = await world.call()
    assert answer == {"batchItemFailures": [], "passes": 1}
    assert [each["sk"]["S"] for each in world.items()] == []


def message(world: Kept, **more: Any) -> Json:
    return {
        "id": "e-1",
        "detail-type": "Manual Shift Started",
        "source": "aws.arc-zonal-shift",
        "resources": [world.arn],
        "detail": {"metadata": {"awayFrom": world.ids(A)}},
        **more,
    }


@pytest.mark.parametrize("by", ["queue", "topic", "rule"])
@virtual
async def test_a_message_is_kept_and_acted_on_in_the_same_invocation(by: str) -> None:
    world = furnished(Called())
    await world.call()
    await world.shift(A)
    body = message(world)
    event = {
        "queue": {"Records": [{"messageId": "m-1", "body": json.dumps(body)}]},
        "topic": {"Records": [{"EventSource": "aws:sns", "Sns": {"Message": json.dumps(body)}}]},
        "rule": body,
    }[by]
    answer = await world.call(event)

    assert answer["batchItemFailures"] == []
    assert (world.phase(), world.away(), world.protected()) == ("Active", [A], ["a0", "a1"])
    assert len(world.items("SEEN#")) == 1
    assert world.items("LOCK") == []


@virtual
async def test_what_makes_no_sense_goes_back_to_its_queue_and_the_rest_is_kept() -> None:
    world = furnished(Called())
    records = [
        {"messageId": "bad", "body": "no json"},
        {"messageId": "good", "body": json.dumps(message(world))},
    ]
    answer = await world.call({"Records": records})
    assert answer["batchItemFailures"] == [{"itemIdentifier": "bad"}]
    assert len(world.items("SEEN#")) == 1
    with pytest.raises(RuntimeError, match="must come again"):
        await world.call(message(world, detail={}))


@virtual
async def test_of_two_at_once_one_acts_and_the_other_waits_its_turn() -> None:
    world = furnished(Called())
    await world.shift(A)
    other = world.container("other")
    one, two = await asyncio.gather(world.call(), other.handle({}, TIMEOUT))
    assert (one["passes"] > 0, two["passes"] > 0) == (True, True)
    assert (world.phase(), len(world.shifts())) == ("Active", 1)
    held = {each.parameters["Item"]["owner"]["S"] for each in world.aws.calls if _locks(each)}
    assert held == {"container-1", "other"}


def _locks(call: Any) -> bool:
    return call.operation == "PutItem" and not call.code and call.parameters["Item"]["sk"]["S"] == "LOCK"


@virtual
async def test_an_invocation_that_is_cut_off_is_finished_by_the_next_once_its_lease_is_over() -> None:
    world = furnished(Called(cold=True))
    before = world.wanted()
    await world.shift(A)
    world.mortal = True
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(TIMEOUT):
            await world.call()
    world.mortal = world.dead = False
    assert world.items("LOCK") != []
    await world.minutes(lambda: world.phase() == "Active", within=3)
    assert world.away() == [A]
    await world.settle(300)
    await world.cancel()
    await world.minutes(lambda: world.phase() == "Restored")
    assert world.wanted() == before


@virtual
async def test_while_the_table_does_not_answer_nothing_is_written() -> None:
    world = furnished(Called())
    await world.shift(A)
    del world.tables.by_name[TABLE]
    answer = await world.call()
    assert answer["passes"] == 0
    assert (world.away(), world.protected()) == ([], [])


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            ("--zonal-shift-store=Cluster",),
            'ZONAL_SHIFT_STORE is "Cluster", but a function keeps its shifts in',
        ),
        (
            ("--zonal-shift-mode=Offerings",),
            'ZONAL_SHIFT_MODE is "Offerings", but a function has no offerings',
        ),
    ],
)
def test_settings_a_function_cannot_follow_are_told(flags: tuple[str, ...], said: str) -> None:
    with pytest.raises(Misconfigured, match=said):
        function_options(read_settings((*FLAGS, *flags), {}, provider="aws"))
    assert function_options(read_settings(FLAGS, {}, provider="aws")).mode == "NodePoolEdit"


@virtual
async def test_the_function_reads_the_policy_at_every_call() -> None:
    world = Called("--zonal-shift-config-map=kube-system/policy")
    world.pool("default", entry("In", A, B, C))
    meta = {"name": "policy", "namespace": "kube-system"}
    await world.shift(A)
    await world.minutes(lambda: world.away() == [A])
    assert world.protected() == ["a0", "a1"]

    world.api.create("configmaps", {"metadata": meta, "data": {"policy": "manual=Observe", "min-hold": "1m"}})
    await world.minutes(lambda: world.away() == [] and world.protected() == [])
    assert world.function.zonal.options.pace.min_hold.total_seconds() == 60
    world.api.delete("configmaps", "policy", "kube-system")
    world.api.create("configmaps", {"metadata": meta, "data": {"policy": "manual=Enforce"}})
    await world.minutes(lambda: world.away() == [A])
    assert world.function.zonal.options.pace.min_hold.total_seconds() == 300
