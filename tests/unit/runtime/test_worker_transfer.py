"""Work spread over processes that share one world: the same answers, whoever gives them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from dovetail.disruption.command import ConsolidationVerdict
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.consolidation import evaluate_nodes, list_single_node_queue
from dovetail.runtime import compute
from dovetail.runtime.compute import WorkerPool, inline
from dovetail.runtime.worker_transfer import ParcelSender, serve_parcel
from support.sweeps import random_world, where


def told(found: Sequence[ConsolidationVerdict]) -> list[tuple[str, str, float]]:
    return [(v.why, str(v.command), v.command.savings if v.command else 0.0) for v in found]


def again(scene: DisruptionInput) -> DisruptionInput:
    return scene


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_any_number_of_workers_sees_what_one_would(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "FEW", 1)
    workers = WorkerPool(count)
    try:
        for seed in (3, 4):
            world = random_world(seed, most=20)
            keys = list_single_node_queue(world)
            alone = await inline.map_items(evaluate_nodes, world, keys)
            assert told(await workers.map_items(evaluate_nodes, world, keys)) == told(alone)
        results = await workers.map_items(where, "w", range(60))
        assert [item for _, item, _ in results] == list(range(60))
        assert len({pid for _, _, pid in results}) == count
        # Another order, one item more: each goes to the worker that knows it.
        again = await workers.map_items(where, "w", [60, *reversed(range(60))])
        assert set(results) < set(again)
    finally:
        workers.close()


def test_what_was_sent_once_is_only_named_afterwards() -> None:
    sender, world = ParcelSender(), random_world(5, most=20)
    told_first = list(sender.pack((again, (world,), {})))
    first = [serve_parcel(parcel) for parcel in told_first]
    back = sender.unpack(first[-1])
    assert all(a is b for a, b in zip(back.snapshot.nodes, world.snapshot.nodes, strict=True))
    assert len(first) > 1
    nodes = (replace(world.snapshot.nodes[0], marked=True), *world.snapshot.nodes[1:])
    parcels = list(sender.pack((again, (DisruptionInput(replace(world.snapshot, nodes=nodes)),), {})))
    assert b"n0" in b"".join(part for parcel in parcels for part in parcel.parts)
    assert b"kwok://n1" not in b"".join(part for parcel in parcels for part in parcel.parts)
    changed = [serve_parcel(parcel) for parcel in parcels]
    assert sender.unpack(changed[-1]).snapshot.nodes[0].marked


GIVEN = [ConsolidationVerdict(why=f"reason {i}") for i in range(3)]


def give(numbers: Sequence[int]) -> list[ConsolidationVerdict]:
    return [GIVEN[i] for i in numbers]


def test_an_answer_that_was_given_is_only_named_afterwards_and_forgotten_in_time() -> None:
    sender = ParcelSender()

    def ask(*numbers: int) -> tuple[bytes, list[ConsolidationVerdict]]:
        (parcel,) = sender.pack((give, (numbers,), {}))
        packed = serve_parcel(parcel)
        return packed, sender.unpack(packed)

    packed, first = ask(0, 1, 0)
    assert [each.why for each in first] == ["reason 0", "reason 1", "reason 0"]
    assert b"reason 1" in packed
    packed, second = ask(1, 2)
    assert second[0] is first[1], "the very same on this side too"
    assert second[1].why == "reason 2"
    assert b"reason 1" not in packed
    held = len(sender._held)
    for _ in range(10):
        ask(1)
    assert len(sender._held) == held - 2, "what nobody spoke of for long is kept on neither side"
    packed, third = ask(0)
    assert third[0].why == "reason 0"
    assert b"reason 0" in packed
