"""What a rule costs at most is proven: no search finds more, and neither does trying out everything.

The oracles know CPUs, prices and who holds whom as they were drawn, and none of the code that they judge.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as swap
from math import inf
from random import Random

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.pod import Pod
from dovetail.disruption.held_price import list_eligible
from dovetail.disruption.priced_cluster import sum_bill
from dovetail.disruption.pricing_rules import (
    PricedCluster,
    RulePrice,
    find_rules,
    lift_rule,
    list_rules,
    price_rule,
)
from dovetail.disruption.situation import Situation, decide_plan
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.solve import Effort, solve
from support.builders import nodepool, owner, pod
from support.disruption import pdb, scene, state
from support.worlds import Z1, World, apart, instance_type, offering

WORLDS = int(os.environ.get("DOVETAIL_PRICED_WORLDS", "25"))
SEARCHES = 20
SAME = 1e-9
Machine = tuple[int, float, str]


def divide(items: Sequence[int]) -> Iterator[list[list[int]]]:
    """Every way to put items into groups."""
    if not items:
        yield []
        return
    first, *rest = items
    for found in divide(rest):
        for at in range(len(found)):
            yield [*found[:at], [first, *found[at]], *found[at + 1 :]]
        yield [[first], *found]


def draw_machines(chance: Random) -> list[Machine]:
    """Milli-CPUs that pods can have, dollars and architecture."""
    sizes = chance.sample((2, 4, 8, 16), 3)
    return [
        (size * 1000 - 100, round(size * chance.uniform(0.3, 0.6), 3), arch)
        for size in sizes
        for arch in ("amd64", "arm64")
    ]


def make_types(machines: Sequence[Machine]) -> tuple[InstanceType, ...]:
    return tuple(
        instance_type(
            f"t{number}",
            (cpu + 100) / 1000,
            "64Gi",
            110,
            arch=arch,
            offerings=[offering(Z1, "on-demand", price)],
        )
        for number, (cpu, price, arch) in enumerate(machines)
    )


# --------------------------------------------------------------------- shape


@dataclass(frozen=True)
class DrawnShape:
    """Pods of two workloads, the first of which keeps apart; machines, of which a pool may buy some."""

    machines: list[Machine]
    cpus: list[int]
    apart: int
    amd64_alone: bool

    def find_cheapest(self, *, keep_apart: bool, amd64_alone: bool) -> float:
        """The least that any fleet costs, by trying all of them."""
        best = inf
        usable = [each for each in self.machines if each[2] == "amd64" or not amd64_alone]
        for groups in divide(range(len(self.cpus))):
            if keep_apart and any(sum(one < self.apart for one in group) > 1 for group in groups):
                continue
            cost = 0.0
            for group in groups:
                need = sum(self.cpus[one] for one in group)
                cost += min((price for cpu, price, _ in usable if cpu >= need), default=inf)
            best = min(best, cost)
        return best

    def build_cluster(self) -> PricedCluster:
        asked = [(labels.ARCH, "In", "amd64")] if self.amd64_alone else []
        pods = [self._build_pod(number, cpu) for number, cpu in enumerate(self.cpus)]
        world = World(nodepool(requirements=asked), types=make_types(self.machines))
        return PricedCluster(Situation(snapshot=world.snapshot(*pods)))

    def _build_pod(self, number: int, cpu: int) -> Pod:
        app = "api" if number < self.apart else "other"
        owned = owner("ReplicaSet", f"{app}-5d9c")
        made = pod(f"{app}-{number}", cpu=f"{cpu}m", memory="100Mi", labels={"app": app}, owned_by=owned)
        if number >= self.apart:
            return made
        return replace(made, spec=replace(made.spec, affinity=apart(labels.HOSTNAME, app=app)))


def draw_shape(seed: int) -> DrawnShape:
    chance = Random(f"shape {seed}")
    while True:
        count = chance.randint(3, 6)
        drawn = DrawnShape(
            draw_machines(chance),
            [chance.choice((300, 700, 1100, 1900, 2500)) for _ in range(count)],
            chance.randint(2, count),
            chance.random() < 0.6,
        )
        if drawn.find_cheapest(keep_apart=True, amd64_alone=True) < inf:
            return drawn


@pytest.mark.spec("PR-2")
@pytest.mark.parametrize("seed", range(WORLDS))
def test_no_fleet_at_all_saves_more_than_a_rule_costs_at_most(seed: int) -> None:
    drawn = draw_shape(seed)
    cluster = drawn.build_cluster()
    with_rules = sum_bill(cluster.fleet)
    best_with = drawn.find_cheapest(keep_apart=True, amd64_alone=drawn.amd64_alone)
    assert with_rules >= best_with - SAME
    best = {
        "deployment/default/api:anti-affinity": drawn.find_cheapest(
            keep_apart=False, amd64_alone=drawn.amd64_alone
        )
    }
    if drawn.amd64_alone:
        best["pool/default:requirements[arch]"] = drawn.find_cheapest(keep_apart=True, amd64_alone=False)
    for rule in find_rules(list_rules(cluster.situation), best):
        (price,) = price_rule(cluster, rule)
        assert price.at_most >= best_with - best[rule.name] - SAME
        if price.costs_now:
            assert price.at_most >= with_rules - best[rule.name] - SAME
        assert price.costs_now <= with_rules - best[rule.name] + SAME, "no fleet costs so little"
        assert price.costs_now <= price.at_most + SAME


@pytest.mark.spec("PR-2")
@pytest.mark.parametrize("seed", range(max(2, WORLDS // 12)))
def test_twenty_searches_with_more_effort_find_no_more(seed: int) -> None:
    drawn = draw_shape(seed)
    chance = Random(f"searches {seed}")
    many = swap(drawn, cpus=[chance.choice(drawn.cpus) for _ in range(16)], apart=7)
    cluster = many.build_cluster()
    with_rules = sum_bill(cluster.fleet)
    (rule,) = find_rules(list_rules(cluster.situation), ["deployment/default/api:anti-affinity"])
    (price,) = price_rule(cluster, rule)
    lifted = lift_rule(cluster.placed, rule)
    for number in range(SEARCHES):
        harder = Effort(rounds=48, dives=8, greedies=12, repacks=16, seed=100 + number, close=0.0)
        found = decide_plan(lifted, harder)
        assert not found.left_out
        assert with_rules - found.price <= price.at_most + SAME


# ---------------------------------------------------------------------- held


@dataclass(frozen=True)
class DrawnFleet:
    """Nodes by their machine and the CPUs of their pods; the pods of some are held by a budget."""

    machines: list[Machine]
    nodes: list[tuple[int, list[int]]]
    held: frozenset[int]

    def build_cluster(self) -> PricedCluster:
        types = make_types(self.machines)
        states = []
        for number, (of, cpus) in enumerate(self.nodes):
            app = "web" if number in self.held else "other"
            pods = [
                pod(
                    f"{app}-{number}-{at}",
                    cpu=f"{cpu}m",
                    memory="100Mi",
                    labels={"app": app},
                    node="some",
                    owned_by=owner("ReplicaSet", f"{app}-5d9c"),
                )
                for at, cpu in enumerate(cpus)
            ]
            states.append(state(f"n{number}", *pods, of=types[of]))
        world = scene(*states, types=types, pdbs=[pdb(max_unavailable=0)])
        return PricedCluster(Situation(snapshot=world.snapshot))


def draw_fleet(seed: int) -> DrawnFleet:
    chance = Random(f"fleet {seed}")
    machines = [each for each in draw_machines(chance) if each[2] == "amd64"]
    nodes: list[tuple[int, list[int]]] = []
    for _ in range(chance.randint(2, 3)):
        of = chance.randrange(len(machines))
        cpus, left = list[int](), machines[of][0]
        for _ in range(chance.randint(1, 2)):
            cpu = chance.choice((200, 500, 900, 1500, 2600))
            if cpu <= left:
                cpus.append(cpu)
                left -= cpu
        nodes.append((of, cpus or [200]))
    held = frozenset(chance.sample(range(len(nodes)), chance.randint(1, 2)))
    return DrawnFleet(machines, nodes, held)


Room = tuple[int, float]


def find_least(
    pods: Sequence[int], free: Sequence[Room], kept: Sequence[Room], new: Sequence[Machine]
) -> float:
    """The least that nodes for these pods cost: on free room, on nodes that are kept, or on new ones."""
    best = inf
    for groups in divide(range(len(pods))):
        needs = [sum(pods[one] for one in group) for group in groups]
        best = min(best, _place_groups(needs, list(free), list(kept), new))
    return best


def _place_groups(needs: Sequence[int], free: list[Room], kept: list[Room], new: Sequence[Machine]) -> float:
    if not needs:
        return 0.0
    need, rest = needs[0], needs[1:]
    options = [price + _place_groups(rest, free, kept, new) for cpu, price, _ in new if cpu >= need]
    for at, (room, price) in enumerate(kept):
        if room >= need:
            options.append(price + _place_groups(rest, free, kept[:at] + kept[at + 1 :], new))
    for at, (room, _) in enumerate(free):
        if room >= need:
            less = [*free[:at], (room - need, 0.0), *free[at + 1 :]]
            options.append(_place_groups(rest, less, kept, new))
    return min(options, default=inf)


def read_fleet(
    cluster: PricedCluster, machines: Sequence[Machine]
) -> list[tuple[bool, int, float, list[int]]]:
    """The nodes where disruption leaves them: whether a held pod is there, CPUs, dollars and pods."""
    found = []
    for each in cluster.settled.snapshot.nodes:
        cpu, price, _ = machines[int(views.read_labels(each)[labels.INSTANCE_TYPE][1:])]
        pods = [one.spec.nano_requests["cpu"] // 1_000_000 for one in each.pods]
        found.append((any(one.labels.get("app") == "web" for one in each.pods), cpu, price, pods))
    return found


@pytest.mark.spec("PR-2")
@pytest.mark.parametrize("seed", range(WORLDS))
def test_nothing_that_could_be_done_with_held_nodes_saves_more(seed: int) -> None:
    drawn = draw_fleet(seed)
    cluster = drawn.build_cluster()
    (rule,) = find_rules(list_rules(cluster.situation), ["pdb/default/pdb"])
    (price,) = price_rule(cluster, rule)
    fleet = read_fleet(cluster, drawn.machines)
    whole = sum(each[2] for each in fleet)

    def least(*, lifted: bool) -> float:
        stay = [each for each in fleet if each[0] and not lifted]
        free = [(cpu - sum(pods), 0.0) for _, cpu, _, pods in stay]
        movable = [each for each in fleet if each not in stay]
        pods = [one for each in movable for one in each[3]]
        kept = [(cpu, dollars) for _, cpu, dollars, _ in movable]
        return sum(each[2] for each in stay) + find_least(pods, free, kept, drawn.machines)

    with_rule, without = least(lifted=False), least(lifted=True)
    assert with_rule - without <= price.at_most + SAME
    assert price.costs_now <= whole - without + SAME, "no fleet costs so little"
    assert price.costs_now <= price.at_most + SAME


@pytest.mark.spec("PR-2")
@pytest.mark.parametrize("seed", range(max(4, WORLDS // 4)))
def test_twenty_ways_to_remove_nodes_save_no_more_for_want_of_the_rule(seed: int) -> None:
    """Each takes away other nodes together, and plans their pods with more effort than disruption does."""
    drawn = draw_fleet(seed)
    cluster = swap(drawn, nodes=drawn.nodes * 3, held=drawn.held).build_cluster()
    (rule,) = find_rules(list_rules(cluster.situation), ["pdb/default/pdb"])
    (price,) = price_rule(cluster, rule)
    before = cluster.settled
    known = list_eligible(before.inputs)
    lifted = lift_rule(cluster.calm.with_snapshot(before.snapshot), rule)
    states = {views.read_provider_id(each): each for each in lifted.snapshot.nodes}
    freed = sorted(key for key in states if key not in known)
    chance = Random(f"ways {seed}")
    for _ in range(SEARCHES):
        mine = {key for key in freed if chance.random() < 0.7}
        others = {key for key in known if chance.random() < 0.5}
        saved = save_without(lifted, states.keys() & (mine | others), chance)
        saved_anyway = save_without(lifted, states.keys() & others, chance)
        assert saved - max(0.0, saved_anyway) <= price.at_most + SAME


def save_without(situation: Situation, gone: set[str], chance: Random) -> float:
    """What removing these nodes saves, by a thorough plan for their pods; below 0 where it cannot be done."""
    snapshot = situation.snapshot
    lost = [each for each in snapshot.nodes if views.read_provider_id(each) in gone]
    left = tuple(each for each in snapshot.nodes if views.read_provider_id(each) not in gone)
    moving = tuple(one for each in lost for one in each.pods)
    effort = Effort(rounds=40, seed=chance.randrange(1_000), close=0.0)
    plan = solve(replace(snapshot, nodes=left, moving=moving), effort)
    before = sum_bill(snapshot) - sum_bill(replace(snapshot, nodes=left))
    return before - plan.price if not plan.left_out else -1.0


@pytest.mark.spec("PR-2")
def test_the_drawn_worlds_have_rules_that_cost_something() -> None:
    """Else the proofs above could hold for want of cases."""

    def list_prices(cluster: PricedCluster) -> list[RulePrice]:
        return [each for rule in list_rules(cluster.situation) for each in price_rule(cluster, rule)]

    shapes = [each for seed in range(8) for each in list_prices(draw_shape(seed).build_cluster())]
    held = [each for seed in range(25) for each in list_prices(draw_fleet(seed).build_cluster())]
    assert sum(each.listed for each in shapes) >= 5
    assert sum(each.listed for each in held) >= 3
    assert any(each.at_most < each.costs_now * 1.05 for each in (*shapes, *held) if each.listed)
