"""Parts of the zonal controller by themselves: messages, gates, ledgers, stand-ins and the queue."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from dovetail.api import labels
from dovetail.errors import BadInput, Retry
from dovetail.sim.clock import VirtualClock
from dovetail.zonal.controller.node_protection import count_protected_by_zone
from dovetail.zonal.controller.zone_map import ZoneMap
from dovetail.zonal.ingest.signals import ShiftQueueReader, SignalStore
from dovetail.zonal.model import clone
from dovetail.zonal.model.events import parse_signal
from dovetail.zonal.model.gates import ZoneGates
from dovetail.zonal.model.ledgers import parse_node_ledger, parse_pool_ledger, render_ledger
from dovetail.zonal.model.nodes import NodeLedger
from support.aws import simulated
from support.builders import node
from support.stage import virtual

EVENT: dict[str, Any] = {
    "id": "e-1",
    "detail-type": "Practice Run Interrupted",
    "source": "aws.arc-zonal-shift",
    "time": "2026-02-03T10:15:00Z",
    "resources": ["arn:cluster"],
    "detail": {"data": {"additionalFailureInfo": "…"}, "metadata": {"awayFrom": "use1-az2"}},
}


@pytest.mark.parametrize(
    ("named", "kind", "moment"),
    [
        ("Autoshift In Progress", "ZONAL_AUTOSHIFT", "start"),
        ("Autoshift Completed", "ZONAL_AUTOSHIFT", "end"),
        ("Practice Run Started", "PRACTICE_RUN", "start"),
        ("Practice Run Succeeded", "PRACTICE_RUN", "end"),
        ("Practice Run Interrupted", "PRACTICE_RUN", "end"),
        ("Practice Run Failed", "PRACTICE_RUN", "end"),
        ("FIS Experiment Autoshift In Progress", "FIS_EXPERIMENT", "start"),
        ("FIS Experiment Autoshift Completed", "FIS_EXPERIMENT", "end"),
        ("FIS Experiment Autoshift Canceled", "FIS_EXPERIMENT", "end"),
        ("Manual Shift Started", "ZONAL_SHIFT", "start"),
        ("Manual Shift Updated", "ZONAL_SHIFT", "update"),
        ("Manual Shift Canceled", "ZONAL_SHIFT", "end"),
        ("Something New", None, "unknown"),
    ],
)
def test_every_kind_of_message_is_known_and_a_new_one_is_no_error(named: str, kind: Any, moment: str) -> None:
    found = parse_signal(json.dumps({**EVENT, "detail-type": named}), "sqs")
    assert (found.kind, found.moment, found.zone_id, found.cluster) == (
        kind,
        moment,
        "use1-az2",
        "arn:cluster",
    )


def test_a_message_is_the_same_however_it_came() -> None:
    bare = json.dumps(EVENT)
    wrapped = json.dumps({"Type": "Notification", "TopicArn": "arn:t", "Message": bare})
    assert parse_signal(bare, "sqs").key == parse_signal(wrapped, "sns").key
    assert parse_signal(json.dumps({**EVENT, "id": "e-2"}), "sqs").key != parse_signal(bare, "sqs").key


@pytest.mark.parametrize(
    "body", ["", "[]", "{}", "nonsense", '{"source": "aws.ec2"}', json.dumps({**EVENT, "detail": []})]
)
def test_what_makes_no_sense_is_said(body: str) -> None:
    with pytest.raises(BadInput):
        parse_signal(body, "sqs")


@virtual
async def test_a_queue_keeps_what_it_cannot_read_for_its_dead_letters() -> None:
    clock = VirtualClock()
    aws = simulated(clock)
    queue = aws.queues.add("zonal", {})
    url = (await aws.call("sqs", "GetQueueUrl", {"QueueName": "zonal"}))["QueueUrl"]
    for body in (json.dumps(EVENT), "nonsense"):
        await aws.call("sqs", "SendMessage", {"QueueUrl": url, "MessageBody": body})
    woken: list[str] = []
    store = SignalStore(None, arn=lambda: "arn:cluster", woken=lambda: woken.append("woken"))
    reader = ShiftQueueReader(aws, "zonal", store, clock)

    assert await reader.read_batch() == 1
    assert woken == ["woken"]
    assert [each.body for each in queue.messages.values()] == ["nonsense"]


@virtual
async def test_a_message_is_deleted_only_after_it_was_kept() -> None:
    aws = simulated(VirtualClock())
    queue = aws.queues.add("zonal", {})
    queue.send(json.dumps(EVENT))
    queue.send(json.dumps({**EVENT, "id": "e-2"}))

    class FailsOnce(SignalStore):
        failures = 1

        async def put_signal(self, signal: Any) -> str:
            if self.failures:
                self.failures -= 1
                raise ValueError("no room")
            return await super().put_signal(signal)

    reader = ShiftQueueReader(
        aws,
        "zonal",
        FailsOnce(None, arn=lambda: "arn:cluster", woken=lambda: None),
        aws.clock,
    )
    assert await reader.read_batch() == 1
    assert [json.loads(each.body)["id"] for each in queue.messages.values()] == [EVENT["id"]]
    await aws.clock.sleep(61)
    assert await reader.read_batch() == 1
    assert not queue.messages


@virtual
async def test_a_message_that_was_kept_and_not_deleted_comes_again_as_a_duplicate() -> None:
    aws = simulated(VirtualClock())
    queue = aws.queues.add("zonal", {})
    queue.send(json.dumps(EVENT))
    woken: list[str] = []
    store = SignalStore(None, arn=lambda: "arn:cluster", woken=lambda: woken.append("woken"))
    reader = ShiftQueueReader(aws, "zonal", store, aws.clock)
    aws.faults.refuse("ServiceUnavailable", "sqs:DeleteMessageBatch", 1)
    with pytest.raises(Retry):
        await reader.read_batch()
    await aws.clock.sleep(61)
    assert await reader.read_batch() == 1
    assert (woken, dict(queue.messages)) == (["woken"], {})


@virtual
async def test_what_was_put_off_is_spread_over_half_an_hour_after_the_end() -> None:
    clock = VirtualClock()
    gates = ZoneGates(clock)
    now = clock.now()
    due = now - timedelta(hours=1)
    assert gates.delay_for_shift("a", "uid", due) == 0
    gates.set_closed(frozenset(("use1-az1",)), frozenset("a"), {})
    assert gates.delay_for_shift("a", "uid", due) > 0
    assert gates.delay_for_shift("b", "uid", due) == 0
    gates.set_closed(frozenset(), frozenset(), {"a": now})
    waits = [gates.delay_for_shift("a", f"uid-{n}", due) for n in range(200)]
    assert 0 <= min(waits) < 120
    assert 1680 < max(waits) <= 1800
    assert gates.delay_for_shift("a", "uid", now + timedelta(seconds=1)) == 0, "due only after the shift"


def test_a_ledger_says_its_version_and_a_damaged_one_is_told() -> None:
    text = render_ledger(NodeLedger(("a/1",), {"cordon": False}, "u"))
    assert json.loads(text)["v"] == 2
    assert parse_node_ledger(text) == NodeLedger(("a/1",), {"cordon": False}, "u")
    for bad in ("{", "[]", '{"v": 3}', '{"v": 2, "shifts": 7}'):
        with pytest.raises(BadInput):
            parse_node_ledger(bad)
        with pytest.raises(BadInput):
            parse_pool_ledger(bad, "u")


def test_a_stand_in_is_only_for_clusters_with_nothing_but_built_in_pools() -> None:
    assert clone.has_only_managed_pools(["general-purpose", "system"], ["general-purpose", "system"])
    assert not clone.has_only_managed_pools(["general-purpose", "mine"], ["general-purpose", "system"])
    assert not clone.has_only_managed_pools(["general-purpose"], [])
    spec: dict[str, Any] = {"template": {"spec": {"requirements": []}}, "limits": {"memory": "1Ti"}}
    made = clone.build_clone({"metadata": {"name": "general-purpose"}, "spec": spec}, ["b"], ["k"])
    assert (made["spec"]["weight"], made["spec"]["limits"]) == (100, {"memory": "1Ti"})
    assert clone.retire_spec(made["spec"])["limits"] == {"memory": "1Ti", "cpu": "0"}
    assert spec["template"]["spec"]["requirements"] == []


@virtual
async def test_a_message_stays_hidden_for_as_long_as_the_store_takes() -> None:
    aws = simulated(VirtualClock())
    queue = aws.queues.add("zonal", {})
    queue.send(json.dumps(EVENT))
    queue.send(json.dumps({**EVENT, "id": "e-2"}))

    class Slow(SignalStore):
        async def put_signal(self, signal: Any) -> str:
            await aws.clock.sleep(100)
            return await super().put_signal(signal)

    woken: list[str] = []
    store = Slow(None, arn=lambda: "arn:cluster", woken=lambda: woken.append("woken"))
    assert await ShiftQueueReader(aws, "zonal", store, aws.clock).read_batch() == 2
    assert woken == ["woken", "woken"]
    extended = [each for each in aws.calls if each.operation == "ChangeMessageVisibilityBatch"]
    assert len(extended) >= 6
    assert not [each for each in aws.calls if each.code]


def test_only_nodes_with_a_ledger_are_counted_as_protected() -> None:
    ledger = {labels.ZONE_LEDGER: "{}"}
    nodes = [
        node("a", zone="us-west-2a", annotations=ledger),
        node("b", zone="us-west-2a"),
        node("c", zone="us-west-2b", annotations=ledger),
        node("d", zone="us-west-2b", annotations=ledger),
    ]
    ground = ZoneMap(ids={"us-west-2a": "usw2-az1", "us-west-2b": "usw2-az2"})
    assert count_protected_by_zone(nodes, ground) == {"usw2-az1": 1, "usw2-az2": 2}
