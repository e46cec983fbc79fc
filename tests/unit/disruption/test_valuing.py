"""Commands are valued by the bill: what a commitment has paid for is not saved by taking it away."""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import Random

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.commitment import Commitment, CommitmentSpec, CommitmentStatus
from dovetail.api.meta import Condition, ObjectMeta
from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.command import Command
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.consolidation import choose_single_node
from dovetail.disruption.methods.emptiness import choose_empty_nodes
from dovetail.disruption.report import build_report, find_turns
from dovetail.disruption.situation import Situation
from dovetail.disruption.validate import InvalidCommand, validate_command, validate_empty_nodes
from dovetail.scheduling.bill import PriceList, bill_nodes
from dovetail.scheduling.commitment_terms import build_terms
from dovetail.scheduling.commitments import Ledger
from dovetail.scheduling.model.instance_types import PriceParts
from dovetail.scheduling.model.snapshot import (
    SchedulingOptions,
    Snapshot,
    StateNode,
    build_pools_and_catalogs,
)
from dovetail.scheduling.sunk_prices import add_commitments
from support.builders import NOW, pod
from support.committed_worlds import TYPES, plan_of, sold
from support.disruption import pool, state
from support.worlds import FLAVOUR, Z1, Z2

SEEDS = int(os.environ.get("DOVETAIL_COMMITMENT_SEEDS", "25"))
LARGE, XLARGE = TYPES[0], TYPES[1]


def told_full(commitment: Commitment, full: bool) -> Commitment:
    told = Condition(type="Full", status=str(full), reason="Counted", message="by the last pass")
    return replace(commitment, status=CommitmentStatus(conditions=(told,)))


def inputs(
    nodes: Sequence[StateNode],
    *commitments: Commitment,
    follow: bool = True,
    types: object = TYPES,
    **about: object,
) -> DisruptionInput:
    pools, catalogs = build_pools_and_catalogs([(pool(**about), types)])  # type: ignore[arg-type, list-item]
    options = SchedulingOptions(now=NOW, flavour=FLAVOUR, follow_commitments=follow)
    plain = Snapshot(
        pools=pools, catalogs=catalogs, nodes=tuple(nodes), namespaces={"default": {}}, options=options
    )
    snapshot = add_commitments(plain, build_terms(commitments, NOW))
    return DisruptionInput.from_situation(Situation(snapshot=snapshot, spot_to_spot=True))


def bill_after(asked: DisruptionInput, command: Command) -> tuple[float, float]:
    """The whole bill before a command and after it, each from its own nodes alone."""
    snapshot = asked.snapshot
    gone = {candidate.name for candidate in command.candidates}
    stay = [each for each in snapshot.nodes if each.node is not None and each.node.name not in gone]
    come = [
        state(
            f"new-{number}",
            of=next(each for each in TYPES if each.name == node.instance_type),
            kind=node.capacity_type,
            zone=node.zone,
        )
        for number, node in enumerate(command.replacements)
    ]
    prices, ledger = PriceList.from_snapshot(snapshot), Ledger(snapshot.commitments)
    return bill_nodes(snapshot.nodes, prices, ledger).total, bill_nodes([*stay, *come], prices, ledger).total


def busy(name: str, cpu: str = "1500m", **about: object) -> StateNode:
    return state(name, pod(f"on-{name}", cpu=cpu, memory="1Gi", node=name), **({"of": LARGE} | about))  # type: ignore[arg-type]


def test_an_empty_node_that_is_paid_for_stays_and_says_by_what() -> None:
    asked = inputs([state("a", of=LARGE), busy("b")], plan_of(hourly="1.00"))
    choice = choose_empty_nodes(asked)
    assert choice.commands == []
    (blocked,) = (each for each in choice.blocked if each.name == "a")
    assert blocked.blocked_reason is BlockedReason.COMMITTED
    assert blocked.why == "its hour is paid for by sp; taking it away saves $0.00"


def test_an_empty_node_goes_when_what_paid_for_it_can_pay_for_another() -> None:
    # The plan pays for one of the two; without the empty one it pays for the other.
    asked = inputs([state("a", of=LARGE), busy("b")], told_full(plan_of(hourly="0.07"), True))
    (command,) = choose_empty_nodes(asked).commands
    assert [each.name for each in command.candidates] == ["a"]
    assert command.savings == pytest.approx(0.10)


def test_of_two_empty_nodes_only_that_goes_which_the_bill_is_less_without() -> None:
    asked = inputs([state("a", of=LARGE), state("b", of=LARGE)], told_full(plan_of(hourly="0.07"), True))
    choice = choose_empty_nodes(asked)
    assert [len(command.candidates) for command in choice.commands] == [1]
    assert choice.commands[0].savings == pytest.approx(0.10)
    assert [each.blocked_reason for each in choice.blocked] == [BlockedReason.COMMITTED]
    kept, dropped = validate_empty_nodes(asked, choice.commands[0])
    assert (kept, dropped) == (choice.commands[0], None)


def test_an_empty_node_whose_volumes_cost_something_goes_for_that() -> None:
    with_disk = tuple(
        replace(
            each,
            offerings=tuple(
                replace(offer, price=offer.price + 0.01, parts=PriceParts(instance=offer.price, volumes=0.01))
                for offer in each.offerings
            ),
        )
        for each in TYPES
    )
    asked = inputs(
        [state("a", of=with_disk[0]), busy("b", of=with_disk[0])], plan_of(hourly="1.00"), types=with_disk
    )
    (command,) = choose_empty_nodes(asked).commands
    assert command.savings == pytest.approx(0.01)


def test_a_node_that_is_paid_for_is_not_replaced_by_spot_and_one_that_is_not_is() -> None:
    nodes = [busy("a", "900m", of=XLARGE), busy("b", "900m", of=XLARGE)]
    paid = told_full(plan_of(hourly="0.14"), True)
    # Either could go to the other; then the plan pays for what stays.
    (command,) = choose_single_node(inputs(nodes, paid, types=(XLARGE,))).commands
    assert command.replacements == ()
    assert command.savings == pytest.approx(0.20)
    alone = inputs([busy("a", "3000m", of=XLARGE)], paid, types=(XLARGE,))
    choice = choose_single_node(alone)
    assert choice.commands == []
    assert choice.blocked[-1].blocked_reason is BlockedReason.COMMITTED
    assert "its hour is paid for by sp; taking it away" in choice.blocked[-1].why
    unpaid = choose_single_node(inputs([busy("a", "3000m", of=XLARGE)], types=(XLARGE,)))
    assert unpaid.commands[0].savings == pytest.approx(0.12)


def test_while_a_plan_is_open_a_node_says_that_it_is_paid_for() -> None:
    asked = inputs([busy("a", "1900m"), busy("b", "1900m")], plan_of(hourly="5"))
    report = build_report(asked)
    assert report.commands == ()
    assert {each.main.blocked_reason for each in report.blocked_nodes} == {BlockedReason.COMMITTED}


def test_spot_is_exchanged_for_on_demand_under_an_open_plan_and_back_only_when_that_pays() -> None:
    spot = [busy("a", "3500m", of=XLARGE, kind="spot")]
    asked = inputs(spot, plan_of(hourly="1.00"), types=(XLARGE,))
    (command,) = choose_single_node(asked).commands
    (new,) = command.replacements
    assert (new.capacity_type, new.capacity_types) == ("on-demand", ("on-demand",))
    assert new.price == pytest.approx(0.20)  # by the price list
    assert command.savings == pytest.approx(0.08)  # the spot node's price: the new one is paid for
    again = validate_command(asked, command)
    assert isinstance(again, Command)
    assert (again.replacements, again.savings) == (command.replacements, command.savings)
    full = inputs(spot, told_full(plan_of(hourly="0.01"), True), types=(XLARGE,))
    assert choose_single_node(full).commands == []
    gone = inputs(
        [*spot, busy("b", "3500m", of=XLARGE)], told_full(plan_of(hourly="0.14"), True), types=(XLARGE,)
    )
    # By now another node uses the plan: the exchange would cost more than it saves.
    assert isinstance(validate_command(gone, command), InvalidCommand)


def test_an_exchange_keeps_no_type_that_could_cost_more_than_it_saves() -> None:
    cheap, dear = sold("m6i.large", 2, 0.10, spot=0.04), sold("m6i.xlarge", 4, 0.20, spot=0.09)
    node = busy("a", "1500m", of=dear)
    other = busy("b", "3500m", of=dear)
    paid = told_full(plan_of(hourly="0.14"), True)  # for one of the two
    asked = inputs([node, other], paid, types=(cheap, dear))
    (command,) = choose_single_node(asked).commands
    for new in command.replacements:
        worst = max(
            offer.price
            for each in (cheap, dear)
            if each.name in new.instance_types
            for offer in each.offerings
            if offer.capacity_type in new.capacity_types
        )
        assert worst < new.price + command.savings


def random_world(rng: Random) -> DisruptionInput:
    nodes = []
    for number in range(rng.randint(2, 12)):
        of = rng.choice(TYPES)
        room = int(of.capacity["cpu"].value * 1000) - 200
        pods = []
        for at in range(rng.choice([0, 0, 1, 1, 2, 3])):
            cpu = rng.choice([100, 400, 900, 1800])
            if cpu <= room:
                room -= cpu
                pods.append(pod(f"p{number}-{at}", cpu=f"{cpu}m", memory="256Mi", node=f"n{number}"))
        kind, zone = rng.choice(["on-demand", "on-demand", "spot"]), rng.choice([Z1, Z2])
        nodes.append(state(f"n{number}", *pods, of=of, kind=kind, zone=zone))
    commitments = []
    for number in range(rng.randint(1, 3)):
        made = rng.choice(
            [
                plan_of(f"c{number}", hourly=f"{rng.choice([0.05, 0.2, 0.6, 2.0, 6.0])}"),
                plan_of(f"c{number}", kind="FamilyPlan", family="m6g", hourly=f"{rng.choice([0.1, 0.5, 2])}"),
                Commitment(
                    metadata=ObjectMeta(name=f"c{number}"),
                    spec=CommitmentSpec(
                        kind="Reserved",
                        family="m6i",
                        instance_type="m6i.large",
                        count=rng.randint(1, 6),
                        hourly="0.1",
                    ),
                ),
            ]
        )
        commitments.append(told_full(made, True) if rng.random() < 0.4 else made)
    return inputs(nodes, *commitments)


@pytest.mark.spec("CM-5")
@pytest.mark.parametrize("part", range(5))
def test_every_consolidation_saves_by_the_bill_what_it_says(part: int) -> None:
    found = 0
    for seed in range(part * SEEDS // 5, (part + 1) * SEEDS // 5):
        asked = random_world(Random(seed))
        for turn in find_turns(asked, 1):
            for command in turn.commands[:1]:
                before, after = bill_after(asked, command)
                assert after <= before + 1e-9, (seed, str(command))
                assert command.savings == pytest.approx(before - after, abs=1e-9), (seed, str(command))
                assert command.savings > 0, (seed, str(command))
                found += 1
    assert found > 0


@pytest.mark.spec("CM-6")
def test_a_calm_cluster_at_97_to_101_percent_of_its_plan_is_left_alone_for_a_week() -> None:
    rng = Random(6)
    nodes = [busy(f"n{number:02}", "3500m", of=XLARGE) for number in range(30)]
    nodes += [busy(f"s{number:02}", "3500m", of=XLARGE, kind="spot", zone=Z2) for number in range(6)]
    used = 30 * 0.20 * 0.70
    commitment, states = plan_of(hourly=f"{used:.4f}"), set()
    commitment = told_full(commitment, True)
    for _ in range(7 * 24):
        hourly = used / rng.uniform(0.97, 1.01)
        told = replace(commitment, spec=replace(commitment.spec, hourly=f"{hourly:.6f}"))
        asked = inputs(nodes, told, types=(XLARGE,))
        opened = bool(asked.snapshot.open_commitments)
        states.add(opened)
        commitment = told_full(commitment, not opened)
        assert find_turns(asked) == ()
    assert states == {False}


@pytest.mark.spec("CM-12")
@pytest.mark.parametrize("seed", range(max(5, SEEDS // 5)))
def test_showing_commitments_disrupts_byte_for_byte_as_without_them(seed: int) -> None:
    world = random_world(Random(seed)).snapshot
    plain = tuple(
        tuple(
            replace(
                each,
                offerings=tuple(
                    replace(offer, price=offer.listed_price, listed=None) for offer in each.offerings
                ),
            )
            for each in types
        )
        for types in world.catalogs
    )
    off = replace(
        world,
        catalogs=plain,
        commitments=(),
        open_commitments=(),
        options=replace(world.options, follow_commitments=False),
    )
    shown = replace(off, commitments=world.commitments)
    both = [
        build_report(DisruptionInput.from_situation(Situation(snapshot=each, spot_to_spot=True)))
        for each in (off, shown)
    ]
    assert [str(command) + command.worth for command in both[0].commands] == [
        str(command) + command.worth for command in both[1].commands
    ]
    assert [(each.name, each.reasons) for each in both[0].blocked_nodes] == [
        (each.name, each.reasons) for each in both[1].blocked_nodes
    ]
    assert labels.ON_DEMAND == "on-demand"


def test_what_is_being_removed_uses_no_commitment_any_more() -> None:
    """The plan pays for one: the node that is on its way out leaves it to the other."""
    nodes = [state("a", of=LARGE, marked=True), state("b", of=LARGE)]
    choice = choose_empty_nodes(inputs(nodes, told_full(plan_of(hourly="0.07"), True)))
    assert choice.commands == []
    assert BlockedReason.COMMITTED in {each.blocked_reason for each in choice.blocked if each.name == "b"}
