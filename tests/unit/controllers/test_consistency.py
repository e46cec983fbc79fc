"""A Node with markedly less than its NodeClaim was promised is named, with how much of it there is."""

from __future__ import annotations

from typing import Any

from dovetail.controllers.nodeclaim.consistency import list_shape_issues
from support.builders import NOW, node, nodeclaim


def issues(found: dict[str, str | int], **about: Any) -> list[str]:
    claim = nodeclaim(
        "c",
        requests=about.pop("requests", {"cpu": "1", "memory": "1Gi"}),
        capacity=about.pop("capacity", {"cpu": "4", "memory": "8Gi"}),
        **about,
    )
    return list_shape_issues(claim, node("n", capacity=found))


def test_less_than_nine_tenths_of_what_was_promised_is_an_issue() -> None:
    told = "expected 4 of resource cpu, but found 3500m (87.5% of expected)"
    assert issues({"cpu": "3500m", "memory": "8Gi"}) == [told]
    assert issues({"cpu": "3600m", "memory": "8Gi"}) == []
    assert len(issues({"cpu": "1", "memory": "1Gi"})) == 2
    assert len(issues({"cpu": "4"})) == 1


def test_what_nobody_requested_or_promised_is_none() -> None:
    assert issues({"cpu": "1", "memory": "1Gi"}, requests={"cpu": "0", "memory": "0"}) == []
    assert issues({"cpu": "4"}, capacity={"cpu": "4"}) == []


def test_a_claim_that_terminates_or_is_not_initialized_has_none() -> None:
    short: dict[str, str | int] = {"cpu": "1", "memory": "1Gi"}
    assert issues(short, deleted=NOW) == []
    assert issues(short, true=("Launched", "Registered")) == []
