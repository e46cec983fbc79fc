"""Expectations of a cluster of 500 nodes and 5,000 pods, in five worlds: what a gate costs a pull request."""

from __future__ import annotations

import time
from collections.abc import Iterator

from dovetail.disruption.situation import Situation
from dovetail.play.expectations import judge_expectations
from dovetail.play.expectations_file import parse_expectations
from dovetail.play.expected_worlds import GivenWorld, build_worlds
from dovetail.providers.kwok.catalog import read_instance_types
from dovetail.scheduling.model.snapshot import SchedulingOptions
from dovetail.state.offline import OfflineCluster
from support.builders import NOW
from support.random_changes import ZONES, claimed_node, pool, running_pod
from support.worlds import FLAVOUR

from .registry import Figure, scenario

NODES, PODS = 500, 10
FILE = {
    "apiVersion": "dovetail.sh/v1alpha1",
    "kind": "Expectations",
    "worlds": [
        {"name": "now"},
        {"name": "a zone less", "loseZone": ZONES[0]},
        {"name": "another zone less", "loseZone": ZONES[1]},
        {"name": "spot storm", "reclaim": {"share": 0.4}},
        {"name": "black friday", "scale": {"factor": 2.5, "workloads": ["shop/*"]}},
    ],
    "expect": [
        {"everyPodPlaced": True},
        {"hourlyAtMost": "20.00"},
        {"zoneShareAtMost": "60%"},
        {"spotPoolShareAtMost": "30%"},
        {"readyWithin": "15m"},
    ],
}


def build_fleet() -> Situation:
    """500 nodes of two zones, half of them spot, with ten pods of twenty Deployments on each."""
    world = OfflineCluster()
    objects = [pool("general", ("spot", "on-demand"))]
    for number in range(NODES):
        name, bought = f"node-{number:03}", ("spot", "on-demand")[number % 4 < 2]
        objects += claimed_node(name, "general", "8", ZONES[number % 2], bought)
        for each in range(PODS):
            app = f"app{(number * PODS + each) % 20}"
            objects.append(running_pod(f"{app}-5d9c-{number}-{each}", app, name, 500 + 25 * (each % 4), 900))
    for made in objects:
        world.add(made["apiVersion"], made["kind"], made)
    types = tuple(each for each in read_instance_types() if "amd64-linux" in each.name)
    return Situation(world.build_snapshot(lambda _: types, SchedulingOptions(now=NOW, flavour=FLAVOUR)))


@scenario("verify: five worlds of 500 nodes and 5,000 pods")
def five_worlds() -> Iterator[Figure]:
    situation = build_fleet()
    expectations = parse_expectations(FILE, "{}: {}".format)
    before = time.process_time()
    found = judge_expectations(expectations, build_worlds(expectations, GivenWorld(situation)))
    spent = time.process_time() - before
    assert len(found) == 25
    yield Figure("processor time", spent, "s", 30.0)
