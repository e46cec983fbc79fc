"""Where shifts are kept: the same promises of the cluster, of a table in memory or over HTTP, and of both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from itertools import count

import pytest
from msgspec.structs import replace

from dovetail.api.crds import build_zonal_manifest
from dovetail.api.meta import ObjectMeta
from dovetail.api.zoneshift import RESTORE_FINALIZER, ZoneShift, ZoneShiftSpec, ZoneShiftStatus
from dovetail.aws import AwsAbsent, AwsDenied, AwsInvalid
from dovetail.errors import AlreadyExists, Conflict, Refused, Retry
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.transport import ApiReply, ApiRequest
from dovetail.sim.aws.dynamodb import DynamoTables
from dovetail.sim.clock import VirtualClock
from dovetail.sim.transport import LocalTransport
from dovetail.sim.world import World
from dovetail.zonal.model.pools import PoolLedger, RequirementDelta
from dovetail.zonal.model.records import SIGNAL
from dovetail.zonal.store.cluster_store import ClusterStore, ShiftStore
from dovetail.zonal.store.mirror_store import MirrorStore, TableAndClusterStore
from dovetail.zonal.store.table_store import KEPT, TableLock, TableStore
from support.aws_clients import Door, opened

ARN, ZONE = "arn:aws:eks:us-west-2:111122223333:cluster/test", "usw2-az1"
NUMBERS = count()
KEYS = {
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "pk", "AttributeType": "S"},
        {"AttributeName": "sk", "AttributeType": "S"},
    ],
    "BillingMode": "PAY_PER_REQUEST",
}
ENTRY = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-west-2a", "us-west-2b"]}
LESS = {**ENTRY, "values": ["us-west-2b"]}
LEDGER = PoolLedger(
    uid="u-1", base=(ENTRY,), ours=(LESS,), deltas=(RequirementDelta(LESS, ENTRY),), shifts=(f"{ZONE}/aa",)
)


async def named() -> str:
    return ARN


class Cuttable(LocalTransport):
    """An API server that may be out of reach."""

    cut = False

    async def send(self, request: ApiRequest) -> ApiReply:
        if self.cut:
            raise Retry("the API server does not answer")
        return await super().send(request)


class Place:
    """One kind of store, and what is behind it."""

    def __init__(self, kind: str, door: Door) -> None:
        self.kind, self.door, self.clock = kind, door, VirtualClock()
        # Moto's tables outlive a test.
        self.name = f"shifts-{next(NUMBERS)}"
        world = World(self.clock, 0)
        self.api = world.server.build_local_client("someone")
        self.api.create("customresourcedefinitions.apiextensions.k8s.io", build_zonal_manifest())
        self.transport = Cuttable(world.server)
        self.cluster = ClusterStore(KubeClient(self.transport, self.clock))
        self.table = self.another_table()
        self.store: ShiftStore = self.made()

    def another_table(self) -> TableStore:
        return TableStore(self.door.aws, self.name, named, self.clock)

    def made(self) -> ShiftStore:
        """As another process would see it."""
        table = self.another_table()
        match self.kind.partition(" ")[0]:
            case "cluster":
                return self.cluster
            case "table":
                return table
            case "beside":
                return TableAndClusterStore(self.cluster, table)
            case _:
                return MirrorStore(self.cluster, table)


KINDS = ("cluster", "table memory", "table http", "beside memory", "mirror memory")


async def opened_place(kind: str, stack: AsyncExitStack) -> Place:
    door = await stack.enter_async_context(opened(kind.partition(" ")[2] or "memory", moto=True))
    place = Place(kind, door)
    await door.aws.call("dynamodb", "CreateTable", {"TableName": place.name, **KEYS})
    return place


@pytest.fixture(params=KINDS)
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        yield await opened_place(request.param, stack)


@pytest.fixture(params=[kind for kind in KINDS if kind.startswith("table")])
async def tabled(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        yield await opened_place(request.param, stack)


def shift(tail: str = "3f2a9c", phase: str = "Active", **spec: str) -> ZoneShift:
    return ZoneShift(
        metadata=ObjectMeta(name=f"{ZONE}-{tail}", finalizers=(RESTORE_FINALIZER,)),
        spec=ZoneShiftSpec(**{"zone_id": ZONE, "kind": "ZONAL_SHIFT", "shift_id": f"id-{tail}", **spec}),  # type: ignore[arg-type]
        status=ZoneShiftStatus(phase=phase, zone_name="us-west-2a"),
    )


def signal(key: str = "f" * 64) -> ZoneShift:
    spec = ZoneShiftSpec(zone_id=ZONE, kind=SIGNAL, shift_id=key, comment="Manual Shift Started")
    meta = ObjectMeta(name=f"signal-{key[:16]}", annotations={"zonalshift.dovetail.sh/starts": "true"})
    return ZoneShift(metadata=meta, spec=spec)


def moved(obj: ZoneShift, phase: str) -> ZoneShift:
    return replace(obj, status=replace(obj.status, phase=phase))


async def test_what_is_kept_is_read_again_by_anybody(place: Place) -> None:
    made = await place.store.create(shift())

    (found,) = await place.made().list()
    assert (found.name, found.spec, found.status) == (made.name, shift().spec, shift().status)
    assert found.metadata.resource_version == made.metadata.resource_version
    assert isinstance(found.metadata.creation_timestamp, datetime)


async def test_what_is_there_is_not_made_twice(place: Place) -> None:
    await place.store.create(shift())
    with pytest.raises(AlreadyExists):
        await place.made().create(shift())
    assert len(await place.store.list()) == 1


async def test_two_shifts_of_a_zone_stand_side_by_side_and_go_one_by_one(place: Place) -> None:
    first, second = await place.store.create(shift("aa")), await place.store.create(shift("bb"))
    await place.store.remove(first)
    assert [each.name for each in await place.made().list()] == [second.name]


async def test_a_written_status_is_the_one_that_is_read_and_nothing_changed_is_no_write(place: Place) -> None:
    made = await place.store.create(shift())
    done = await place.store.write(made, moved(made, "Restoring"))
    again = await place.store.write(done, done)

    (found,) = await place.made().list()
    assert found.status.phase == "Restoring"
    assert again.metadata.resource_version == done.metadata.resource_version


async def test_the_spec_and_the_status_change_in_one_write(place: Place) -> None:
    made = await place.store.create(shift())
    after = moved(replace(made, spec=replace(made.spec, kind="ZONAL_AUTOSHIFT")), "Applying")
    await place.store.write(made, after)

    (found,) = await place.made().list()
    assert (found.spec.kind, found.status.phase, found.name) == ("ZONAL_AUTOSHIFT", "Applying", made.name)


async def test_a_message_is_kept_once_however_many_bring_it(place: Place) -> None:
    await place.store.create(signal())
    with pytest.raises(AlreadyExists):
        await place.made().create(signal())
    (found,) = await place.made().list()
    assert found.annotations == signal().annotations

    await place.store.remove(found)
    assert await place.store.list() == ()


async def test_removing_what_is_gone_is_no_error(place: Place) -> None:
    made = await place.store.create(shift())
    await place.store.remove(made)
    await place.store.remove(made)
    assert await place.store.list() == ()


# Of tables


async def test_whoever_read_an_older_version_looks_again(tabled: Place) -> None:
    table, other = tabled.table, tabled.another_table()
    made = await table.create(shift())
    await other.write(made, moved(made, "Restoring"))

    with pytest.raises(Conflict):
        await table.write(made, moved(made, "Applying"))
    await table.remove(made)  # not the version that was read, so it stays
    (found,) = await table.list()
    assert found.status.phase == "Restoring"


async def test_a_message_that_was_heard_is_still_known_for_a_week(tabled: Place) -> None:
    table = tabled.table
    await table.remove(await table.create(signal()))

    assert await table.list() == ()
    with pytest.raises(AlreadyExists):
        await table.create(signal())
    tabled.clock = VirtualClock(tabled.clock.now() + KEPT + timedelta(seconds=2))
    later = tabled.another_table()
    await later.create(signal())
    assert len(await later.list()) == 1


async def test_what_the_table_ought_to_have_forgotten_is_not_listed(tabled: Place) -> None:
    await tabled.table.create(signal())
    tabled.clock = VirtualClock(tabled.clock.now() + KEPT + timedelta(seconds=2))
    assert await tabled.another_table().list() == ()


async def test_copies_of_ledgers_are_versioned_too(tabled: Place) -> None:
    table, other = tabled.table, tabled.another_table()
    await table.save_ledger("u-1", "default", LEDGER)
    with pytest.raises(Conflict):
        await other.save_ledger("u-1", "default", LEDGER)  # has not looked, and would overwrite
    await other.list()
    assert other.ledgers == {"u-1": LEDGER}
    await other.save_ledger("u-1", "default", replace(LEDGER, shifts=(f"{ZONE}/bb",)))
    with pytest.raises(Conflict):
        await table.save_ledger("u-1", "default", None)
    await table.list()
    await table.save_ledger("u-1", "default", None)
    await other.list()
    assert other.ledgers == {}


async def test_an_item_says_to_people_what_was_done(tabled: Place) -> None:
    await tabled.table.save_ledger("u-1", "default", LEDGER)
    await tabled.table.create(shift())
    asked = {
        "TableName": tabled.name,
        "KeyConditionExpression": "pk = :pk",
        "ExpressionAttributeValues": {":pk": {"S": f"CLUSTER#{ARN}"}},
    }
    pool, kept = (await tabled.door.aws.call("dynamodb", "Query", asked))["Items"]
    assert (pool["sk"], pool["removed"]) == ({"S": "POOL#u-1"}, {"S": '["us-west-2a"]'})
    assert (kept["sk"], kept["zoneName"], kept["phase"], kept["version"]) == (
        {"S": f"SHIFT#{ZONE}#3f2a9c"},
        {"S": "us-west-2a"},
        {"S": "Active"},
        {"N": "1"},
    )


@pytest.mark.parametrize("document", ['{"spec": "of a later version"}', "no json", None])
async def test_an_item_nobody_can_read_is_let_be_and_hides_no_other(
    tabled: Place, document: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    await tabled.table.create(shift())
    odd = {"pk": {"S": f"CLUSTER#{ARN}"}, "sk": {"S": "SHIFT#usw2-az2#ffffff"}, "version": {"N": "1"}}
    item = odd if document is None else odd | {"document": {"S": document}}
    await tabled.door.aws.call("dynamodb", "PutItem", {"TableName": tabled.name, "Item": item})

    for _ in range(2):
        assert [each.name for each in await tabled.table.list()] == [shift().name]
    assert caplog.text.count("makes no sense and is let be item=SHIFT#usw2-az2#ffffff") == 1


async def test_one_at_a_time_holds_the_lock_and_a_dead_one_loses_it(tabled: Place) -> None:
    aws, clock, minute = tabled.door.aws, tabled.clock, timedelta(minutes=1)
    one, two = (TableLock(aws, tabled.name, named, clock, owner) for owner in ("one", "two"))
    assert (await one.take_lock(minute), await two.take_lock(minute), await one.take_lock(minute)) == (
        True,
        False,
        True,
    )
    assert await two.find_owner() == "one"
    await two.release_lock()  # not its own
    assert not await two.take_lock(minute)
    later = TableLock(aws, tabled.name, named, VirtualClock(clock.now() + 2 * minute), "three")
    assert await later.take_lock(minute)
    await one.release_lock()
    assert await one.find_owner() == "three"
    await later.release_lock()
    assert await two.take_lock(minute)


async def test_many_items_come_in_pages() -> None:
    async with opened("memory") as door:
        place = Place("table memory", door)
        table = place.table
        await door.aws.call("dynamodb", "CreateTable", {"TableName": place.name, **KEYS})
        for number in range(30):
            big = replace(shift(f"{number:06x}"), spec=replace(shift().spec, comment="x" * 60_000))
            await table.create(big)
        before = len(door.world.calls)
        assert len(await table.list()) == 30
        assert len(door.world.calls) - before == 2


async def test_a_condition_that_makes_no_sense_is_refused() -> None:
    async with opened("memory") as door:
        door.world.world.get_state(DynamoTables, door.world.account, door.world.region).add("shifts")
        key = {"pk": {"S": "a"}, "sk": {"S": "b"}}
        with pytest.raises(AwsInvalid) as found:
            await door.aws.call(
                "dynamodb",
                "DeleteItem",
                {"TableName": "shifts", "Key": key, "ConditionExpression": "nonsense("},
            )
        assert found.value.code == "ValidationException"


async def test_a_table_that_is_missing_is_told_by_its_name() -> None:
    async with opened("memory") as door:
        place = Place("table memory", door)
        with pytest.raises(AwsAbsent):
            await place.table.list()
        assert place.table.advice.startswith(f"create the DynamoDB table {place.name} (keys pk and sk)")


# The table beside the cluster, and the table that follows it


@pytest.fixture
async def beside() -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        yield await opened_place("beside memory", stack)


@pytest.fixture
async def mirror() -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        yield await opened_place("mirror memory", stack)


async def test_an_operators_own_shift_stays_an_object(beside: Place) -> None:
    wish = replace(shift("local"), metadata=ObjectMeta(name="local"), spec=ZoneShiftSpec(zone_id=ZONE))
    made = await beside.cluster.create(wish)
    await beside.store.create(shift())

    assert {each.name for each in await beside.store.list()} == {"local", shift().name}
    await beside.store.write(made, moved(made, "Restoring"))
    assert [each.status.phase for each in await beside.cluster.list()] == ["Restoring"]
    assert [each.name for each in await beside.table.list()] == [shift().name]


async def test_without_the_kind_nobody_wishes_and_the_table_goes_on(beside: Place) -> None:
    await beside.store.create(shift())
    beside.api.delete("customresourcedefinitions.apiextensions.k8s.io", "zoneshifts.dovetail.sh")
    assert [each.name for each in await beside.store.list()] == [shift().name]


async def test_who_does_not_lead_sees_everything_and_writes_nothing(mirror: Place) -> None:
    lost, there = await mirror.store.create(shift("aa")), await mirror.store.create(shift("bb"))
    await mirror.cluster.remove(lost)
    await mirror.cluster.write(there, moved(there, "Restoring"))
    waiting = TableStore(mirror.door.aws, mirror.name, named, mirror.clock, lambda: False)
    second = MirrorStore(mirror.cluster, waiting, lambda: False)

    assert {each.name: each.status.phase for each in await second.list()} == {
        lost.name: "Active",
        there.name: "Restoring",
    }
    assert [each.name for each in await mirror.cluster.list()] == [there.name]
    assert {each.status.phase for each in await mirror.table.list()} == {"Active"}
    with pytest.raises(Refused, match="no longer leads"):
        await waiting.create(shift("cc"))
    with pytest.raises(Refused, match="no longer leads"):
        await waiting.save_ledger("u-1", "default", LEDGER)
    assert (await waiting.create(signal())).spec.kind == SIGNAL


async def test_the_table_follows_every_write(mirror: Place) -> None:
    made = await mirror.store.create(shift())
    done = await mirror.store.write(made, moved(made, "Restoring"))
    assert [each.status.phase for each in await mirror.table.list()] == ["Restoring"]
    await mirror.store.remove(done)
    assert await mirror.table.list() == ()


async def test_the_table_speaks_while_the_cluster_cannot(mirror: Place) -> None:
    await mirror.store.create(shift())
    mirror.transport.cut = True
    assert [each.name for each in await mirror.made().list()] == [shift().name]


async def test_with_neither_the_trouble_is_told(mirror: Place) -> None:
    mirror.transport.cut = True
    with pytest.raises(Retry):
        await mirror.made().list()


async def test_a_message_is_kept_in_the_table_while_the_cluster_cannot_be_reached(mirror: Place) -> None:
    mirror.transport.cut = True
    await mirror.store.create(signal())
    mirror.transport.cut = False

    (found,) = await mirror.store.list()
    assert found.spec.kind == SIGNAL
    await mirror.store.remove(found)
    assert await mirror.store.list() == ()


async def test_what_the_cluster_lost_is_put_back_from_the_table(mirror: Place) -> None:
    made = await mirror.store.create(shift())
    await mirror.cluster.remove(made)

    (found,) = await mirror.made().list()
    assert (found.status.phase, found.metadata.finalizers) == ("Active", (RESTORE_FINALIZER,))
    assert [each.name for each in await mirror.cluster.list()] == [made.name]


async def test_what_was_over_when_the_cluster_lost_it_is_forgotten(mirror: Place) -> None:
    made = await mirror.store.create(shift(phase="Restored"))
    await mirror.cluster.remove(made)
    assert (await mirror.made().list(), await mirror.table.list()) == ((), ())


async def test_a_table_in_trouble_stops_nothing_and_catches_up(
    mirror: Place, caplog: pytest.LogCaptureFixture
) -> None:
    class Denied:
        allowed, why = False, "no"

        def evaluate_need(self, need: object) -> object:
            return self

        arn = "arn:nobody"

    made = await mirror.store.create(shift())
    mirror.door.world.principal = Denied()  # type: ignore[assignment]
    done = await mirror.store.write(made, moved(made, "Restoring"))
    await mirror.store.write(done, moved(done, "Restored"))
    assert [each.status.phase for each in await mirror.store.list()] == ["Restored"]
    assert len([each for each in caplog.records if "does not follow" in each.message]) == 1
    with pytest.raises(AwsDenied):
        await mirror.table.list()

    mirror.door.world.principal = None
    await mirror.store.list()
    assert [each.status.phase for each in await mirror.table.list()] == ["Restored"]
