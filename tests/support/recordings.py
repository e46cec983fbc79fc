"""Recordings as tests need them: random looks at random clusters, and their segments."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any

from msgspec.structs import replace

from dovetail.api.core import PersistentVolumeClaim, PersistentVolumeClaimSpec, Service, ServiceSpec
from dovetail.api.meta import LabelSelector, ObjectMeta
from dovetail.disruption.situation import Situation
from dovetail.history.recording.reader import RecordingReader, SegmentSource
from dovetail.history.recording.segment import FORMAT, RenameLine, SegmentHead, SegmentWriter
from dovetail.scheduling.model.annotations import strip_annotations
from dovetail.scheduling.model.daemonsets import build_daemon_pod
from dovetail.scheduling.model.snapshot import Snapshot, Storage
from support.builders import NOW, daemonset, pod
from support.disruption import pdb
from support.sweeps import TYPES, changed, random_world

__all__ = [
    "Look",
    "begin_segment",
    "different_looks",
    "random_looks",
    "read_back",
    "strip",
    "unzip",
    "write_segments",
]

Look = tuple[datetime, Situation]
ZONES = ("test-zone-1", "test-zone-2")


def random_looks(seed: int, count: int = 8) -> list[Look]:
    """So many looks at one cluster; what did not change between two of them is the very same."""
    chance, world = Random(f"looks {seed}"), random_world(seed)
    situation, at = Situation(snapshot=world.snapshot), NOW
    looks = []
    for _ in range(count):
        at += timedelta(seconds=chance.choice((0.5, 10, 3600.25)))
        options = replace(situation.snapshot.options, now=at)
        situation = replace(situation, snapshot=replace(situation.snapshot, options=options))
        looks.append((at, situation))
        situation = _next_look(situation, chance)
    return looks


def different_looks(seed: int, count: int) -> list[Situation]:
    """So many Situations, each of which differs from the one before."""
    return [
        replace(situation, unseen=frozenset((str(number),)))
        for number, (_, situation) in enumerate(random_looks(seed, count))
    ]


def _next_look(situation: Situation, chance: Random) -> Situation:
    match chance.randrange(4):
        case 0:
            world = random_world(0)
            inputs = type(world)(situation.snapshot)
            for _ in range(chance.randrange(4)):
                inputs = changed(inputs, chance)
            return replace(situation, snapshot=inputs.snapshot)
        case 1:
            return replace(situation, **_change_facts(situation, chance))
        case _:
            return replace(situation, snapshot=_change_snapshot(situation.snapshot, chance))


def _change_facts(situation: Situation, chance: Random) -> dict[str, Any]:
    names = frozenset(chance.sample(("n0", "n1", "n2", "n3"), chance.randrange(3)))
    changes: list[dict[str, Any]] = [
        {"queued": names},
        {"buffered": names},
        {"nominated": names},
        {"excluded_zones": frozenset(chance.sample(ZONES, 1))},
        {"closed_zones": {zone: f"id-{zone}" for zone in ZONES[: chance.randrange(3)]}},
        {"returned_zones": frozenset(ZONES[:1])},
        {"unseen": frozenset(("default",))},
        {"spot_to_spot": not situation.spot_to_spot},
    ]
    return chance.choice(changes)


def _change_snapshot(snapshot: Snapshot, chance: Random) -> Snapshot:
    """The snapshot with one of its other parts exchanged, or some of its lists in another order."""
    price = chance.choice((0.1, 0.2, 0.30000000000000004))
    dearer = tuple(
        replace(each, offerings=tuple(replace(o, price=o.price * (1 + price)) for o in each.offerings))
        if chance.random() < 0.5
        else each
        for each in TYPES
    )
    claim = PersistentVolumeClaim(
        metadata=ObjectMeta(name="data", namespace="default", annotations={"secret/of": "hunter2"}),
        spec=PersistentVolumeClaimSpec(storage_class_name=chance.choice(("a", "b"))),
    )
    claims = {"default/data": claim, **{f"default/d{n}": claim for n in range(chance.randrange(3))}}
    service = Service(
        metadata=ObjectMeta(name="web", namespace="default"),
        spec=ServiceSpec(selector={"app": chance.choice("ab")}),
    )
    fields: dict[str, Any] = {
        "catalogs": chance.choice(((dearer,), (TYPES, dearer), snapshot.catalogs)),
        "nodes": tuple(chance.sample(snapshot.nodes, len(snapshot.nodes))),
        "moving": tuple(each for state in snapshot.nodes[:2] for each in state.pods),
        "virtual": tuple(pod(f"room-{n}", cpu="1") for n in range(chance.randrange(3))),
        "daemons": (build_daemon_pod(daemonset(cpu=chance.choice(("1", "1500m")), memory="1Mi"), None),),
        "namespaces": {f"space-{n}": {"team": chance.choice("xy")} for n in range(chance.randrange(4))},
        "storage": Storage(claims=claims),
        "budgets": tuple(pdb(f"pdb-{n}", allowed=chance.randrange(3)) for n in range(chance.randrange(3))),
        "services": (service,),
        "workloads": {"ReplicaSet/default/web": LabelSelector(match_labels={"app": chance.choice("ab")})},
        "options": replace(snapshot.options, seed=chance.randrange(5)),
        "pools": tuple(chance.sample(snapshot.pools, len(snapshot.pools))),
    }
    name = chance.choice(list(fields))
    return replace(snapshot, **{name: fields[name]})


def strip(situation: Situation) -> Situation:
    """What of a Situation a recording keeps: all but annotations that nobody reads."""
    return replace(situation, snapshot=strip_annotations(situation.snapshot))


def begin_segment(
    name: str = "first", began: datetime = NOW, rename: RenameLine | None = None, **about: Any
) -> SegmentWriter:
    return SegmentWriter(SegmentHead(format=FORMAT, name=name, began=began, **about), rename)


def write_segments(looks: Sequence[Look], per_segment: int = 1000) -> list[bytes]:
    """The looks in segments of so many, each ended as it should."""
    segments, follows = [], ""
    for number, first in enumerate(range(0, len(looks), per_segment)):
        part = looks[first : first + per_segment]
        writer = begin_segment(f"s{number}", part[0][0], follows=follows)
        data = b""
        for at, situation in part:
            writer.write_look(situation, at)
            data += writer.flush()
        segments.append(data + writer.end_segment(part[-1][0]))
        follows = f"s{number}"
    return segments


def read_back(segments: Iterable[bytes]) -> RecordingReader:
    def source(number: int, data: bytes) -> SegmentSource:
        return SegmentSource(f"segment-{number}", lambda: data)

    return RecordingReader(source(number, data) for number, data in enumerate(segments))


def unzip(data: bytes) -> bytes:
    """The text of a segment, or of several one after another."""
    text, rest = b"", data
    while rest:
        member = zlib.decompressobj(31)
        text += member.decompress(rest)
        rest = member.unused_data
    return text
