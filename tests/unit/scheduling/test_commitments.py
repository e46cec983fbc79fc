"""The ledger of commitments: as AWS applies them, checked against its examples and against brute force."""

from __future__ import annotations

import os
from datetime import timedelta
from fractions import Fraction
from random import Random

import pytest

from dovetail.api.commitment import Commitment, CommitmentSpec, CommitmentStatus
from dovetail.api.meta import Condition, ObjectMeta
from dovetail.scheduling.commitment_terms import build_terms, find_size_factor
from dovetail.scheduling.commitments import (
    CommitmentUse,
    CoveredUsage,
    Ledger,
    NodeCover,
    UsageKind,
    UsageLine,
    is_still_open,
)
from support.builders import NOW
from support.commitment_oracle import FACTORS, Instance, apply_by_brute_force

FLEETS = int(os.environ.get("DOVETAIL_COMMITMENT_FLEETS", "200"))
ZONE = "us-east-1a"


def commitment(name: str, kind: str, **spec: object) -> Commitment:
    return Commitment(metadata=ObjectMeta(name=name), spec=CommitmentSpec(kind=kind, **spec))  # type: ignore[arg-type]


def ledger(*commitments: Commitment) -> Ledger:
    return Ledger(build_terms(commitments, NOW))


def use_of(found: CoveredUsage, name: str) -> CommitmentUse:
    return next(each for each in found.uses if each.name == name)


def covered(found: CoveredUsage, kind: UsageKind) -> float:
    return sum(amount for _, amount in found.kinds.get(kind, ()))


def pay(found: CoveredUsage, usage: dict[UsageKind, float]) -> float:
    """Dollars an hour beyond what is committed."""
    return sum(kind.price * count for kind, count in usage.items()) - found.saved


# The savings-plan guide's example: four r5.4xlarge, an m5.24xlarge and Fargate, in one hour. Usage that is no
# instance stands in as a type of its own, as the plan does not care what it pays for.
R5 = UsageKind("r5.4xlarge", ZONE, 1.00)
M5 = UsageKind("m5.24xlarge", ZONE, 10.00)
VCPU = UsageKind("fargate.vcpu", "us-west-1a", 0.04)
GB = UsageKind("fargate.gb", "us-west-1a", 0.004)
HOUR = {R5: 4.0, M5: 1.0, VCPU: 400.0, GB: 1600.0}
COMPUTE_RATES = {"r5.4xlarge": "0.70", "m5.24xlarge": "8.20", "fargate.vcpu": "0.03", "fargate.gb": "0.003"}


@pytest.mark.spec("CM-1")
def test_a_plan_with_room_for_everything_pays_for_all_at_its_rates() -> None:
    found = ledger(commitment("sp", "ComputePlan", hourly="50.00", rates=COMPUTE_RATES)).apply_kinds(HOUR)
    # 4 x 0.70 + 8.20 + 400 x 0.03 + 1,600 x 0.003
    assert use_of(found, "sp").used == pytest.approx(27.80)
    assert use_of(found, "sp").unused == pytest.approx(22.20)
    assert pay(found, HOUR) == pytest.approx(0.0)


@pytest.mark.spec("CM-1")
def test_a_plan_that_is_too_small_pays_for_the_highest_percentage_first_and_the_lower_rate_of_equals() -> (
    None
):
    found = ledger(commitment("sp", "ComputePlan", hourly="19.60", rates=COMPUTE_RATES)).apply_kinds(HOUR)
    # 30 % on r5.4xlarge: 2.80; 25 % on Fargate: 4.80 for memory, 12.00 for CPU; nothing is left for 18 %.
    assert use_of(found, "sp").used == pytest.approx(19.60)
    assert (covered(found, R5), covered(found, GB), covered(found, VCPU)) == (4, 1600, 400)
    assert pay(found, HOUR) == pytest.approx(10.00)
    less = ledger(commitment("sp", "ComputePlan", hourly="7.00", rates=COMPUTE_RATES)).apply_kinds(HOUR)
    assert covered(less, GB) == pytest.approx((7.00 - 2.80) / 0.003)
    assert covered(less, VCPU) == 0


@pytest.mark.spec("CM-1")
def test_a_plan_for_a_family_is_applied_before_a_compute_plan() -> None:
    # The guide's older prices: c5.9xlarge 4.00 (compute plan 2.00, family plan 1.00) and
    # c5.24xlarge 10.00 (8.00, 6.00).
    small, large = UsageKind("c5.9xlarge", ZONE, 4.00), UsageKind("c5.24xlarge", ZONE, 10.00)
    usage = {small: 1.0, large: 1.0}
    family = commitment(
        "family",
        "FamilyPlan",
        family="c5",
        region="us-east-1",
        hourly="4.00",
        rates={"c5.9xlarge": "1.00", "c5.24xlarge": "6.00"},
    )
    rest = commitment(
        "rest", "ComputePlan", hourly="20.00", rates={"c5.9xlarge": "2.00", "c5.24xlarge": "8.00"}
    )
    found = ledger(rest, family).apply_kinds(usage)
    # The family plan pays 1.00 for the one and 3.00, so half, for the other; the compute plan the rest.
    assert found.kinds[small] == (("family", 1.0),)
    assert found.kinds[large] == (("family", 0.5), ("rest", 0.5))
    assert use_of(found, "family").used == pytest.approx(4.00)
    assert use_of(found, "rest").used == pytest.approx(4.00)
    alone = ledger(family).apply_kinds(usage)
    assert pay(alone, usage) == pytest.approx(5.00)


@pytest.mark.spec("CM-1")
def test_reserved_instances_are_applied_as_in_the_example_of_the_user_guide() -> None:
    m3, m4, c4 = (
        UsageKind("m3.large", "us-east-1a", 0.133),
        UsageKind("m4.xlarge", "us-east-1b", 0.20),
        UsageKind("c4.xlarge", "us-east-1c", 0.199),
    )
    found = ledger(
        commitment("zonal", "ReservedInZone", instance_type="m3.large", zone="us-east-1a", count=4),
        commitment("m4", "Reserved", instance_type="m4.large", family="m4", region="us-east-1", count=4),
        commitment("c4", "Reserved", instance_type="c4.large", family="c4", region="us-east-1", count=1),
    ).apply_kinds({m3: 4.0, m4: 4.0, c4: 1.0})
    assert found.kinds[m3] == (("zonal", 4.0),)
    # Four m4.large are 16 units, and an m4.xlarge is 8: two are paid for. A c4.large is half of a c4.xlarge.
    assert found.kinds[m4] == (("m4", 2.0),)
    assert found.kinds[c4] == (("c4", 0.5),)


@pytest.mark.spec("CM-1")
@pytest.mark.parametrize(
    ("size", "count"), [("8xlarge", 1), ("4xlarge", 2), ("2xlarge", 4), ("large", 16), ("xlarge", 8)]
)
def test_one_large_reservation_pays_for_as_many_small_instances(size: str, count: int) -> None:
    kind = UsageKind(f"c4.{size}", ZONE, 1.0)
    reserved = commitment("ri", "Reserved", instance_type="c4.8xlarge", family="c4", count=1)
    found = ledger(reserved).apply_kinds({kind: 20.0})
    assert covered(found, kind) == pytest.approx(count)


@pytest.mark.spec("CM-1")
def test_plans_pay_after_reserved_instances_and_spread_over_nodes_by_name() -> None:
    kind = UsageKind("m6i.large", ZONE, 0.10)
    both = ledger(
        commitment("plan", "ComputePlan", hourly="0.09", discount="40%"),
        commitment("ri", "Reserved", instance_type="m6i.large", count=1),
    )
    covers, found = both.apply_nodes([UsageLine(name, kind) for name in ("d", "c", "b", "a")])
    assert covers == {
        "a": NodeCover(1.0, ("ri",)),
        "b": NodeCover(1.0, ("plan",)),
        "c": NodeCover(pytest.approx(0.5), ("plan",)),  # type: ignore[arg-type]
    }
    assert use_of(found, "plan").unused == pytest.approx(0.0)


TYPES = {
    f"{family}.{size}": Fraction(cents, 1000) * FACTORS[size] / 4
    for family, cents in (("m6i", 96), ("c6i", 85), ("r6g", 101), ("t3", 83))
    for size in ("medium", "large", "xlarge", "2xlarge", "4xlarge")
}
ZONES = ("us-east-1a", "us-east-1b", "us-west-2a")


def random_fleet(rng: Random) -> list[Instance]:
    names = rng.sample(sorted(TYPES), rng.randint(1, 5))
    fleet = []
    for number in range(rng.randint(0, 14)):
        name = rng.choice(names)
        system = "Windows" if rng.random() < 0.1 else "Linux"
        zone = rng.choice(ZONES)
        fleet.append(Instance(f"n{number:02}", name, zone, TYPES[name], system, rng.random() < 0.15))
    return fleet


def random_commitments(rng: Random) -> list[Commitment]:
    return [_random_commitment(rng, f"c{number}") for number in range(rng.randint(0, 6))]


def _random_commitment(rng: Random, name: str) -> Commitment:
    kind = rng.choice(["ComputePlan", "FamilyPlan", "Reserved", "ReservedInZone"])
    chosen = rng.choice(sorted(TYPES))
    family = chosen.partition(".")[0]
    common: dict[str, object] = {"share": f"{rng.choice([100, 100, 60, 25, 0])}%"}
    if kind != "ReservedInZone" and rng.random() < 0.6:
        common["region"] = rng.choice(["us-east-1", "us-west-2"])
    if kind.endswith("Plan"):
        common["hourly"] = f"{rng.choice([0.05, 0.2, 0.4, 1, 3]):.2f}"
        common |= {"family": family} if kind == "FamilyPlan" else {}
        if rng.random() < 0.5:
            common["discount"] = f"{rng.choice([20, 28, 28, 50])}%"
        else:
            known = rng.sample(sorted(TYPES), rng.randint(1, len(TYPES)))
            share = {
                each: rng.choice([Fraction(6, 10), Fraction(7, 10), Fraction(72, 100)]) for each in known
            }
            common["rates"] = {each: f"{float(TYPES[each] * share[each]):.6f}" for each in known}
        return commitment(name, kind, **common)
    common |= {"instance_type": chosen, "count": rng.randint(0, 4)}
    common |= {"platform": "Windows"} if rng.random() < 0.2 else {}
    if kind == "ReservedInZone":
        return commitment(name, kind, zone=rng.choice(ZONES), **common)
    flexible = "platform" not in common and rng.random() < 0.6
    return commitment(name, kind, **common, **({"family": family} if flexible else {}))


@pytest.mark.spec("CM-1")
@pytest.mark.parametrize("batch", range(10))
def test_the_ledger_equals_brute_force_on_random_fleets(batch: int) -> None:
    covered_fleets = 0
    seeds = {
        *range(batch * FLEETS // 10, (batch + 1) * FLEETS // 10),
        804,
    }  # 804: rates that are equal but for dust
    for seed in sorted(seeds):
        rng = Random(seed)
        fleet, commitments = random_fleet(rng), random_commitments(rng)
        lines = [
            UsageLine(each.name, UsageKind(each.type, each.zone, float(each.price), each.system == "Windows"))
            for each in fleet
            if not each.spot
        ]
        covers, found = ledger(*commitments).apply_nodes(lines)
        pots = apply_by_brute_force(fleet, commitments)
        assert [each.name for each in found.uses] == [pot.name for pot in pots]
        for use, pot in zip(found.uses, pots, strict=True):
            assert use.left == pytest.approx(float(pot.left), abs=1e-9), (seed, use.name)
        by_kind: dict[UsageKind, float] = {}
        for node, kind in lines:
            by_kind[kind] = by_kind.get(kind, 0.0) + (covers[node].share if node in covers else 0.0)
        wanted: dict[UsageKind, float] = dict.fromkeys(by_kind, 0.0)
        for each in fleet:
            if not each.spot:
                key = UsageKind(each.type, each.zone, float(each.price), each.system == "Windows")
                wanted[key] += float(1 - each.open)
        assert by_kind == pytest.approx(wanted, abs=1e-9), seed
        covered_fleets += bool(covers)
    assert covered_fleets > FLEETS // 10 // 4


@pytest.mark.spec("CM-2")
@pytest.mark.parametrize(
    ("instance_type", "units"),
    [
        ("t3.nano", 0.25),
        ("t3.micro", 0.5),
        ("t3.small", 1),
        ("t3.medium", 2),
        ("m6i.large", 4),
        ("m6i.xlarge", 8),
        ("m6i.2xlarge", 16),
        ("c5.3xlarge", 24),
        ("m6i.4xlarge", 32),
        ("m6i.6xlarge", 48),
        ("m6i.8xlarge", 64),
        ("c5.9xlarge", 72),
        ("m4.10xlarge", 80),
        ("m6i.12xlarge", 96),
        ("m6i.16xlarge", 128),
        ("c5.18xlarge", 144),
        ("m6i.24xlarge", 192),
        ("m6i.32xlarge", 256),
        ("m7i.48xlarge", 384),
        ("u-3tb1.56xlarge", 448),
        ("u-6tb1.112xlarge", 896),
        ("a1.metal", 32),
        ("i3.metal", 128),
        ("c5n.metal", 144),
        ("m5.metal", 192),
        ("m6i.metal", 256),
        ("m7i.metal-24xl", 192),
        ("m7i.metal-48xl", 384),
        ("x9.metal", None),
        ("c-4x-amd64-linux", None),
        ("m6i.enormous", None),
    ],
)
def test_units_of_every_size(instance_type: str, units: float | None) -> None:
    assert find_size_factor(instance_type) == units


@pytest.mark.spec("CM-2")
def test_the_smallest_sizes_are_paid_for_first() -> None:
    small, middle, large = (UsageKind(f"m6i.{size}", ZONE, 1.0) for size in ("large", "xlarge", "4xlarge"))
    reserved = commitment("ri", "Reserved", instance_type="m6i.2xlarge", family="m6i", count=1)
    found = ledger(reserved).apply_kinds({large: 1.0, middle: 1.0, small: 1.0})
    assert (covered(found, small), covered(found, middle), covered(found, large)) == (1.0, 1.0, 0.125)


@pytest.mark.spec("CM-2")
def test_reservations_of_a_zone_and_of_windows_are_not_flexible() -> None:
    same, other = UsageKind("m6i.large", ZONE, 0.1), UsageKind("m6i.xlarge", ZONE, 0.2)
    elsewhere = UsageKind("m6i.large", "us-east-1b", 0.1)
    zonal = commitment("ri", "ReservedInZone", instance_type="m6i.large", zone=ZONE, count=9)
    assert ledger(zonal).apply_kinds({same: 2.0, other: 2.0, elsewhere: 2.0}).kinds == {same: (("ri", 2.0),)}
    system, larger = same._replace(windows=True), other._replace(windows=True)
    windows = commitment("ri", "Reserved", instance_type="m6i.large", platform="Windows", count=9)
    found = ledger(windows).apply_kinds({same: 2.0, system: 2.0, larger: 2.0})
    assert found.kinds == {system: (("ri", 2.0),)}
    exact = commitment("ri", "Reserved", instance_type="m6i.large", count=9)
    assert ledger(exact).apply_kinds({same: 2.0, other: 2.0, elsewhere: 2.0}).kinds == {
        same: (("ri", 2.0),),
        elsewhere: (("ri", 2.0),),
    }


def test_a_commitment_that_is_not_in_force_or_cannot_be_read_pays_for_nothing() -> None:
    plain = {"hourly": "5", "discount": "30%"}
    out = Condition(type="Current", status="False", reason="Currency", message="it is paid in CNY")
    told = commitment("told", "ComputePlan", **plain)
    later, before = NOW + timedelta(hours=1), NOW - timedelta(hours=1)
    unread = [
        commitment("later", "ComputePlan", starts=later, **plain),
        commitment("over", "ComputePlan", ends=NOW, **plain),
        commitment("yuan", "ComputePlan", currency="CNY", **plain),
        commitment("odd", "SomePlan", **plain),
        commitment("words", "ComputePlan", hourly="five", discount="30%"),
        commitment("more", "ComputePlan", hourly="5", discount="130%"),
        Commitment(metadata=told.metadata, spec=told.spec, status=CommitmentStatus(conditions=(out,))),
    ]
    assert build_terms(unread, NOW) == ()
    (soon,) = build_terms([commitment("soon", "ComputePlan", starts=before, ends=later, **plain)], NOW)
    assert soon.ending
    (lasts,) = build_terms([commitment("lasts", "ComputePlan", ends=NOW + timedelta(days=3), **plain)], NOW)
    assert not lasts.ending


def test_ours_is_the_share_and_no_more_than_others_leave() -> None:
    def ours(share: str, observe: str, others: str) -> float:
        made = Commitment(
            metadata=ObjectMeta(name="sp"),
            spec=CommitmentSpec(hourly="10", discount="30%", share=share, observe=observe),
            status=CommitmentStatus(by_others=others),
        )
        (terms,) = build_terms([made], NOW)
        return terms.hourly

    assert ours("40%", "Cluster", "9") == 4.0
    assert ours("40%", "Account", "3") == 4.0
    assert ours("40%", "Account", "9") == pytest.approx(1.0)
    assert ours("40%", "Account", "12") == 0.0


def test_rates_told_by_the_cloud_count_where_the_spec_says_none() -> None:
    kind = UsageKind("m6i.large", ZONE, 0.10)
    made = Commitment(
        metadata=ObjectMeta(name="sp"),
        spec=CommitmentSpec(hourly="1"),
        status=CommitmentStatus(rates={"m6i.large": "0.05"}),
    )
    found = ledger(made).apply_kinds({kind: 1.0})
    assert use_of(found, "sp").used == pytest.approx(0.05)
    other = UsageKind("m6i.xlarge", ZONE, 0.20)
    assert ledger(made).apply_kinds({other: 1.0}).kinds == {}
    assert ledger(made).find_payers(kind) == ("sp",)
    assert ledger(made).find_payers(other) == ()


def test_a_region_is_not_taken_for_another_that_begins_alike() -> None:
    plan = commitment("sp", "ComputePlan", hourly="1", discount="30%", region="us-west-2")
    for zone, holds in (("us-west-2a", True), ("us-west-2-lax-1a", True), ("us-west-20a", False)):
        kind = UsageKind("m6i.large", zone, 0.10)
        assert bool(ledger(plan).find_payers(kind)) is holds


def use(units: float, used: float) -> CommitmentUse:
    return CommitmentUse(name="sp", hourly=units, used=used, units=units, used_units=used)


@pytest.mark.parametrize(
    ("used", "was_full", "is_open"),
    [
        (0.0, None, True),
        (99.0, None, True),
        (99.95, None, False),
        (98.0, False, True),
        (98.0, True, False),
        (96.9, True, True),
        (99.95, False, False),
        (100.0, True, False),
    ],
)
def test_open_and_full_have_a_gap_between(used: float, was_full: bool | None, is_open: bool) -> None:
    assert is_still_open(use(100.0, used), 0.1, was_full) is is_open


def test_a_plan_of_a_few_nodes_opens_again_with_room_for_two_and_one_of_one_node_when_it_is_unused() -> None:
    assert not is_still_open(use(1.0, 0.93), 0.07, True)
    assert not is_still_open(use(1.0, 0.87), 0.07, True)
    assert is_still_open(use(1.0, 0.86), 0.07, True)
    assert is_still_open(use(0.07, 0.0), 0.07, True)
    assert not is_still_open(use(1.0, 0.0), float("inf"), None)
