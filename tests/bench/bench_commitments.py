"""Commitments: how long the ledger takes over a large fleet, and what open plans add to a first plan."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from msgspec.structs import replace

from dovetail.api.commitment import Commitment, CommitmentSpec
from dovetail.api.meta import ObjectMeta
from dovetail.disruption.situation import Situation, decide_plan
from dovetail.scheduling.commitment_terms import TermsReader, build_terms
from dovetail.scheduling.commitments import Ledger, UsageKind, UsageLine
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.solve import QUICK
from dovetail.scheduling.sunk_prices import CommitmentBook, list_usage_kinds
from support.builders import NOW
from support.peer_workloads import generated, snapshot_of

from .registry import Figure, best_of, scenario

FAMILIES = [f"{letter}{number}{more}" for letter in "cmrt" for number in (5, 6, 7) for more in ("", "i", "g")]
SIZES = {"large": 1, "xlarge": 2, "2xlarge": 4, "4xlarge": 8, "8xlarge": 16, "12xlarge": 24}
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
PRICES = {f"{family}.{size}": 0.09 * factor for family in FAMILIES for size, factor in SIZES.items()}
# Shares of new list prices that a plan pays for at its rate; first plans may take this much longer with it.
SHARES = (0.1, 0.5, 2.0)
MOST_LONGER = 1.6


def make_commitments(count: int, rng: Random) -> list[Commitment]:
    """Half of them plans with rates for every type, the others reserved instances."""
    made = []
    for number in range(count):
        name, family = f"commitment-{number:03}", rng.choice(FAMILIES)
        rates = {each: f"{price * rng.choice([0.6, 0.66, 0.72]):.6f}" for each, price in PRICES.items()}
        specs = [
            CommitmentSpec(kind="ComputePlan", hourly=f"{rng.uniform(1, 12):.2f}", rates=rates),
            CommitmentSpec(kind="FamilyPlan", family=family, hourly=f"{rng.uniform(1, 9):.2f}", rates=rates),
            CommitmentSpec(
                kind="Reserved", family=family, instance_type=f"{family}.large", count=rng.randint(1, 40)
            ),
            CommitmentSpec(
                kind="ReservedInZone", instance_type=f"{family}.xlarge", zone=rng.choice(ZONES), count=9
            ),
        ]
        made.append(Commitment(metadata=ObjectMeta(name=name), spec=specs[number % 4]))
    return made


@scenario("commitments: the ledger")
def the_ledger() -> Iterator[Figure]:
    rng = Random(7)
    commitments = make_commitments(200, rng)
    lines = [
        UsageLine(f"node-{number:04}", UsageKind(name, rng.choice(ZONES), PRICES[name]))
        for number in range(5_000)
        if (name := rng.choice(sorted(PRICES)))
    ]
    reader = TermsReader()
    terms = reader.read_terms(commitments, NOW)
    ledger = Ledger(terms)
    first = best_of(1, lambda: ledger.apply_nodes(lines))
    _, found = ledger.apply_nodes(lines)
    yield Figure(
        "200 commitments, 5,000 nodes", 1e3 * best_of(5, lambda: ledger.apply_nodes(lines)), "ms", 10
    )
    yield Figure("the first time", 1e3 * first, "ms")
    yield Figure(
        "reading terms again", 1e3 * best_of(3, lambda: reader.read_terms(commitments, NOW)), "ms", 20
    )
    yield Figure("kinds of instances", len({kind for _, kind in lines}), "")
    yield Figure("commitments in use", sum(each.used_units > 0 for each in found.uses), "")


@scenario("commitments: first plans")
def first_plans() -> Iterator[Figure]:
    for family in ("web", "mix"):
        snapshot = snapshot_of(generated(family, 10_000))
        cache = DecisionCache()
        plain = best_of(3, lambda: decide_plan(Situation(snapshot=snapshot), QUICK, cache))  # noqa: B023
        listed = decide_plan(Situation(snapshot=snapshot), QUICK, cache).price
        for share in SHARES:
            asked = follow(snapshot, f"{listed * share * 0.7:.4f}")
            cache = DecisionCache()
            decide_plan(Situation(snapshot=asked), QUICK, cache)
            took = best_of(3, lambda: decide_plan(Situation(snapshot=asked), QUICK, cache))  # noqa: B023
            name = f"{family}: first plan, with a plan for {share:.0%} of it"
            yield Figure(name, took / plain, "times", MOST_LONGER)


def follow(snapshot: Snapshot, hourly: str) -> Snapshot:
    """The snapshot with one open compute plan of so many dollars, which is followed."""
    plan = Commitment(metadata=ObjectMeta(name="plan"), spec=CommitmentSpec(hourly=hourly, discount="30%"))
    options = replace(snapshot.options, follow_commitments=True)
    found = CommitmentBook().add_commitments(replace(snapshot, options=options), build_terms([plan], NOW))
    assert found.open_commitments, list_usage_kinds(snapshot.catalogs)
    return found
