"""Where several domains are equally good to the rules: the cheapest in the end is found."""

from __future__ import annotations

import pytest

from dovetail.api import labels as names
from dovetail.scheduling import solve
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.sequential.schedule import schedule_pods
from dovetail.scheduling.solve import search_domains
from support.builders import pod
from support.worlds import Z1, Z2, World, instance_type, offering, spread


def the_small_pod_comes_first() -> Snapshot:
    """Where the first pod is cheapest the second would be as well, and it gains more from it."""
    small, large = (
        [offering(Z1, "spot", 1.0), offering(Z2, "spot", 1.5)],
        [offering(Z1, "spot", 4.0), offering(Z2, "spot", 9.0)],
    )
    types = [
        instance_type("small", cpu=2, memory="2Gi", offerings=small),
        instance_type("large", cpu=2, memory="9Gi", offerings=large),
    ]
    rule = (spread(names.ZONE),)
    web = {"app": "web"}
    first = pod("a", cpu="1500m", labels=web, topology_spread_constraints=rule)
    second = pod("b", cpu="1", memory="4Gi", labels=web, topology_spread_constraints=rule)
    return World(types=types).snapshot(first, second)


def test_a_dearer_zone_is_taken_first_where_that_is_cheaper_in_the_end() -> None:
    scene = the_small_pod_comes_first()
    assert schedule_pods(scene).price == 1.0 + 9.0
    assert search_domains(scene).price == 1.5 + 4.0


def test_a_search_without_time_gives_the_exact_placers_plan() -> None:
    scene = the_small_pod_comes_first()
    asked = 0

    def out_of_time() -> bool:
        nonlocal asked
        asked += 1
        return asked > len(scene.pods)  # one run, and no more

    assert search_domains(scene, out_of_time) == schedule_pods(scene)


def test_the_number_of_runs_falls_with_the_number_of_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = the_small_pod_comes_first()
    monkeypatch.setattr(solve, "_WORK", len(scene.pods) - 1)
    assert search_domains(scene) == schedule_pods(scene)
