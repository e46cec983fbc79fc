"""What a rule costs: nodes it holds, the shape it gives a fleet, and the names that people ask for it by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace as swap
from datetime import timedelta

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.meta import LabelSelector
from dovetail.api.nodepool import Budget, NodePool
from dovetail.api.pod import Pod
from dovetail.disruption import held_price, priced_cluster, settling, shape_price
from dovetail.disruption.candidates import Candidate
from dovetail.disruption.command import Command
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.consolidation import judge_single_node
from dovetail.disruption.priced_cluster import sum_bill
from dovetail.disruption.pricing_rules import (
    PricedCluster,
    PriceKind,
    RulePrice,
    build_pairs,
    find_rules,
    lift_rule,
    list_rules,
    price_rule,
    price_rules,
    rank_prices,
    with_parts,
)
from dovetail.disruption.situation import Situation, decide_plan
from dovetail.errors import BadInput
from dovetail.scheduling.commitment_terms import CommitmentTerms
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.spend_caps import SpendCap
from support.builders import NOW, nodepool, owner, pod, taint
from support.disruption import LARGE, MEDIUM, SIZES, SMALL, machine, pdb, pool, scene, state
from support.worlds import Z1, Z2, World, apart, instance_type, offering, spread

DO_NOT = {labels.DO_NOT_DISRUPT: "true"}


def web(name: str, cpu: str, app: str = "web", **about: object) -> Pod:
    """A running pod of a Deployment."""
    made = pod(name, cpu=cpu, labels={"app": app}, node="some", owned_by=owner("ReplicaSet", f"{app}-5d9c"))
    return replace(made, **about) if about else made


def cluster(inputs_snapshot: Snapshot, **known: object) -> PricedCluster:
    return PricedCluster(Situation(snapshot=inputs_snapshot, **known))  # type: ignore[arg-type]


def price(found: PricedCluster, name: str) -> RulePrice:
    """The one price of a rule."""
    (rule,) = find_rules(list_rules(found.situation), [name])
    (made,) = price_rule(found, rule)
    return made


def names_of(found: PricedCluster) -> list[str]:
    return [rule.name for rule in list_rules(found.situation)]


def held_by_pdb() -> PricedCluster:
    """A large node with a small pod that a budget holds, and a full one."""
    return cluster(
        scene(
            state("held", web("w", "500m"), of=LARGE),
            state("full", web("x", "15500m", app="x"), of=LARGE),
            pdbs=[pdb(max_unavailable=0)],
        ).snapshot
    )


# ---------------------------------------------------------------------- held


def test_a_budget_that_holds_a_node_costs_what_disruption_would_save_without_it() -> None:
    found = price(held_by_pdb(), "pdb/default/pdb")
    assert found.kind is PriceKind.HELD
    # The large node of 8 dollars would be a small one of 1.
    assert found.costs_now == pytest.approx(7.0)
    assert 7.0 <= found.at_most <= 8.0, "no more than the node it holds"
    assert found.how == "one node stays that one cheaper would replace; 1 pod would move"
    assert found.nodes == {"held": pytest.approx(7.0)}
    assert found.listed


@pytest.mark.spec("PR-3")
def test_a_budget_that_holds_nothing_costs_nothing_and_is_not_listed() -> None:
    world = scene(
        state("a", web("w", "1800m"), of=SMALL),
        state("b", web("x", "500m", app="x"), of=LARGE),
        pdbs=[pdb(max_unavailable=0), pdb("roomy", allowed=1, max_unavailable=1, namespace="other")],
    )
    found = cluster(world.snapshot)
    for name in ("pdb/default/pdb", "pdb/other/roomy"):
        made = price(found, name)
        assert (made.costs_now, made.listed) == (0.0, False)
    assert price(found, "pdb/default/pdb").how == "it holds one node, whose pods could run nowhere cheaper"
    assert price(found, "pdb/other/roomy").at_most == 0.0


def test_what_disruption_does_anyway_is_no_rules_price() -> None:
    """The pods of two free nodes fit on the held one: it is needed then, and holding it costs nothing."""
    world = scene(
        state("held", web("w", "1"), of=MEDIUM),
        state("b", web("x1", "1", app="x"), of=MEDIUM),
        state("c", web("x2", "1", app="x"), of=MEDIUM),
        pdbs=[pdb(max_unavailable=0)],
    )
    found = cluster(world.snapshot)
    assert len(found.settled.snapshot.nodes) == 1
    assert price(found, "pdb/default/pdb").costs_now == 0.0


def test_a_node_that_two_rules_hold_is_freed_by_neither_alone_and_by_both() -> None:
    marked = web("w", "500m")
    marked = replace(marked, metadata=replace(marked.metadata, annotations=DO_NOT))
    both = web("v", "500m")
    world = scene(state("held", marked, both, of=LARGE), pdbs=[pdb(max_unavailable=0)])
    found = cluster(world.snapshot)
    assert price(found, "pdb/default/pdb").costs_now == 0.0
    assert price(found, "pod/default/w:do-not-disrupt").costs_now == 0.0
    rules = find_rules(list_rules(found.situation), ["pdb/default/pdb", "pod/default/w:do-not-disrupt"])
    (pair,) = build_pairs([RulePrice(rule=each, kind=PriceKind.HELD, costs_now=1.0) for each in rules])
    (together,) = price_rule(found, pair)
    assert together.costs_now == pytest.approx(7.0)


def test_a_mark_on_a_pod_tells_since_when_and_one_on_a_node_is_a_rule_too() -> None:
    old = web("w", "500m")
    old = replace(
        old,
        metadata=replace(old.metadata, annotations=DO_NOT),
        status=replace(old.status, start_time=NOW - timedelta(days=3, hours=2)),
    )
    found = cluster(scene(state("held", old, of=LARGE)).snapshot)
    made = price(found, "pod/default/w:do-not-disrupt")
    assert made.costs_now == pytest.approx(7.0)
    assert ", since 3 days" in made.how
    node = cluster(scene(state("held", web("w", "500m"), of=LARGE, annotations=DO_NOT)).snapshot)
    assert price(node, "node/held:do-not-disrupt").costs_now == pytest.approx(7.0)


@pytest.mark.parametrize(
    ("about", "rule", "consolidatable"),
    [
        ({"nodes": "0"}, "budget/default[0]", True),
        ({"consolidate_after": "Never"}, "pool/default:consolidateAfter", True),
        ({"consolidate_after": "30m"}, "pool/default:consolidateAfter", False),
        ({"consolidation_policy": "WhenEmpty"}, "pool/default:consolidationPolicy", True),
    ],
)
def test_what_a_pool_says_of_disruption_has_a_price(
    about: dict[str, str], rule: str, consolidatable: bool
) -> None:
    held = state("held", web("w", "500m"), of=LARGE, consolidatable=consolidatable)
    found = cluster(scene(held, pools=[pool(**about)]).snapshot)
    made = price(found, rule)
    assert made.costs_now == pytest.approx(7.0)
    assert made.at_most >= made.costs_now
    others = [each for each in price_rules(found, list_rules(found.situation)) if each.rule.name != rule]
    assert not any(each.listed for each in others)


def test_a_budget_that_only_slows_disruption_down_costs_nothing() -> None:
    states = [state(f"n{number}", web(f"w{number}", "500m"), of=LARGE) for number in range(4)]
    found = cluster(scene(*states, pools=[pool(nodes="1")]).snapshot)
    assert len(found.settled.commands) > 0
    assert price(found, "budget/default[0]").costs_now == 0.0


def test_pods_that_wait_are_placed_before_anything_is_held() -> None:
    """The held node is where a pending pod goes: then it is needed."""
    world = scene(
        state("held", web("w", "500m"), of=LARGE),
        pdbs=[pdb(max_unavailable=0)],
        pending=[pod("late", cpu="14")],
    )
    assert price(cluster(world.snapshot), "pdb/default/pdb").costs_now == 0.0


# --------------------------------------------------------------------- shape


def waiting(
    *pods: Pod, pools: Sequence[NodePool] = (), types: object = SIZES, **known: object
) -> PricedCluster:
    world = World(*(pools or (nodepool(),)), types=types)  # type: ignore[arg-type]
    return cluster(world.snapshot(*pods), **known)


def apart_pods(count: int, cpu: str = "500m") -> list[Pod]:
    return [
        pod(
            f"api-{number}",
            cpu=cpu,
            labels={"app": "api"},
            owned_by=owner("ReplicaSet", "api-77f"),
            affinity=apart(labels.HOSTNAME, app="api"),
        )
        for number in range(count)
    ]


def test_an_anti_affinity_costs_the_nodes_that_pods_need_for_it() -> None:
    found = waiting(*apart_pods(6))
    made = price(found, "deployment/default/api:anti-affinity")
    assert made.kind is PriceKind.SHAPE
    # Six small nodes of a dollar; without it, 3 CPUs of pods fit on two small or one medium one.
    assert made.costs_now == pytest.approx(4.0)
    assert made.at_most == pytest.approx(4.0)
    assert made.how.startswith("6 pods need 6 nodes; ")
    assert made.how.endswith("(the floor says no more can be had)")


def test_a_rule_that_the_plan_without_it_keeps_costs_nothing() -> None:
    found = waiting(*apart_pods(3, cpu="1800m"))
    made = price(found, "deployment/default/api:anti-affinity")
    assert (made.costs_now, made.how) == (0.0, "a fleet for the same pods costs no less")


def test_requirements_are_named_by_the_end_of_their_key_and_told_by_what_they_forbid() -> None:
    types = (
        machine("dear", 4, 2.0),
        replace(instance_type("arm", 4, "32Gi", 110, arch="arm64", price=1.0)),
    )
    asked = [(labels.ARCH, "In", "amd64"), ("example.com/team", "In", "a")]
    found = waiting(pod("w", cpu="3"), pools=[nodepool(requirements=asked)], types=types)
    assert names_of(found) == ["budget/default[0]", "pool/default:requirements[arch]"]
    made = price(found, "pool/default:requirements[arch]")
    assert made.costs_now == pytest.approx(1.0)
    assert made.rule.words == "pool default requirements: arch In [amd64]"
    assert made.how.startswith("a fleet for the same pods with arm64 allowed: 1 node as before, but cheaper")


def test_a_requirement_on_how_nodes_are_paid_for_has_the_price_of_spot() -> None:
    """The plan names both ways to pay; that it is priced by spot must not be overlooked."""
    ways = [offering(Z1, "on-demand", 2.0), offering(Z1, "spot", 0.5)]
    types = (instance_type("both", 4, "32Gi", 110, offerings=ways),)
    asked = [(labels.CAPACITY_TYPE, "In", "on-demand")]
    found = waiting(pod("w", cpu="3"), pools=[nodepool(requirements=asked)], types=types)
    assert price(found, "pool/default:requirements[capacity-type]").costs_now == pytest.approx(1.5)


def test_taints_limits_zones_and_spread_have_prices() -> None:
    cheap = nodepool("cheap", taints=[taint("team", value="a")], weight=10)
    dear = nodepool("dear", requirements=[(labels.INSTANCE_TYPE, "In", "large")])
    found = waiting(pod("w", cpu="1"), pools=[cheap, dear])
    assert price(found, "pool/cheap:taints").costs_now == pytest.approx(7.0)
    limited = nodepool("cheap", limits={"cpu": "1"}, weight=10)
    found = waiting(pod("w", cpu="1"), pools=[limited, dear])
    assert price(found, "limit/cheap:cpu").costs_now == pytest.approx(7.0)
    zones = (
        instance_type(
            "t", 4, "32Gi", 110, offerings=[offering(Z1, "on-demand", 3.0), offering(Z2, "on-demand", 1.0)]
        ),
    )
    here = nodepool(requirements=[(labels.ZONE, "In", Z1)])
    found = waiting(pod("w", cpu="1"), pools=[here], types=zones)
    (rule,) = find_rules(list_rules(found.situation), [f"zone/{Z2}"])
    held, shape = price_rule(found, rule)
    assert (held.kind, shape.kind) == (PriceKind.HELD, PriceKind.SHAPE)
    assert shape.costs_now == pytest.approx(2.0)
    assert shape.how.startswith(f"a fleet for the same pods with {Z2} allowed")
    pods = [
        pod(
            f"s-{number}",
            cpu="1",
            labels={"app": "s"},
            owned_by=owner("StatefulSet", "s"),
            topology_spread_constraints=(
                spread(labels.ZONE, selector=LabelSelector(match_labels={"app": "s"})),
            ),
        )
        for number in range(2)
    ]
    found = waiting(*pods, types=zones)
    assert price(found, "statefulset/default/s:spread").costs_now == pytest.approx(3.0)


def test_a_limit_that_leaves_pods_out_is_priced_by_those_it_lets_in() -> None:
    """More pods would run without it, and cost more; that is no saving."""
    pods = [pod(f"w-{number}", cpu="1800m") for number in range(3)]
    found = waiting(*pods, pools=[nodepool(limits={"cpu": "4"})], types=(SMALL,))
    made = price(found, "limit/default:cpu")
    assert made.costs_now == 0.0
    assert made.how == "a fleet for the same pods costs no less; 1 more pod would have a place"
    cap = SpendCap(limit="dev", every=True, hourly=2.0)
    found = waiting(*pods, types=(SMALL,), spend_caps=(cap,))
    made = price(found, "spendlimit/dev")
    assert (made.costs_now, "1 more pod would have a place" in made.how) == (0.0, True)


def test_running_pods_are_planned_afresh_beside_those_of_nodes_that_stay() -> None:
    """Nodes that nobody ordered stay as they are, with their pods."""
    foreign = replace(state("foreign", web("x", "1", app="x")), claim=None)
    world = scene(
        state("mine", *(replace(each, node_name="mine") for each in apart_pods(2)), of=LARGE), foreign
    )
    found = cluster(world.snapshot)
    fresh = found.fresh.snapshot
    assert [each.node.name for each in fresh.nodes if each.node] == ["foreign"]
    assert sorted(each.name for each in fresh.pods) == ["api-0", "api-1"]
    assert not any(each.node_name for each in fresh.pods)


# --------------------------------------------------------------------- names


@pytest.mark.spec("PR-5")
def test_a_rule_named_wrongly_gets_the_nearest_name() -> None:
    found = held_by_pdb()
    with pytest.raises(BadInput) as told:
        find_rules(list_rules(found.situation), ["pdb/default/pbd"])
    assert str(told.value) == "there is no rule pdb/default/pbd here; did you mean pdb/default/pdb?"
    with pytest.raises(BadInput) as told:
        find_rules(list_rules(found.situation), ["???"])
    assert "there is no rule ??? here" in str(told.value)


def test_every_rule_has_a_name_of_its_own_and_lifting_it_takes_it_away() -> None:
    marked = [web(f"m{n}", "200m", app="m") for n in range(2)]
    marked = [replace(each, metadata=replace(each.metadata, annotations=DO_NOT)) for each in marked]
    one = nodepool(
        "one",
        requirements=[(labels.ARCH, "In", "amd64"), (labels.ZONE, "In", Z1)],
        taints=[taint("team")],
        limits={"cpu": "100", "memory": "100Gi"},
        consolidate_after="30s",
        consolidation_policy="WhenEmpty",
        budgets=(Budget(nodes="0"), Budget(nodes="5", reasons=("Drifted",))),
    )
    world = scene(
        state("a", *marked, of=LARGE, pool="one", annotations=DO_NOT),
        state("b", *apart_pods(1), of=LARGE, pool="one"),
        pools=[one],
        types=(
            instance_type(
                "large", 16, "32Gi", 110, offerings=[offering(z, "on-demand", 8.0) for z in (Z1, Z2)]
            ),
        ),
        pdbs=[pdb(max_unavailable=1)],
    )
    situation = Situation(
        snapshot=world.snapshot, spend_caps=(SpendCap(limit="dev", every=True, hourly=9.0),)
    )
    rules = list_rules(situation)
    assert [rule.name for rule in rules] == sorted(
        [
            "budget/one",
            "budget/one[0]",
            "budget/one[1]",
            "deployment/default/api:anti-affinity",
            "deployment/default/m:do-not-disrupt",
            "limit/one",
            "limit/one:cpu",
            "limit/one:memory",
            "node/a:do-not-disrupt",
            "pdb/default/pdb",
            "pool/one:consolidateAfter",
            "pool/one:consolidationPolicy",
            "pool/one:requirements",
            "pool/one:requirements[arch]",
            "pool/one:requirements[zone]",
            "pool/one:taints",
            "spendlimit/dev",
            f"zone/{Z2}",
        ]
    )
    assert [
        part.name for part in with_parts(find_rules(rules, ["deployment/default/m:do-not-disrupt"]))[1:]
    ] == [
        "pod/default/m0:do-not-disrupt",
        "pod/default/m1:do-not-disrupt",
    ]
    for rule in rules:
        left = {each.name for each in list_rules(lift_rule(situation, rule))}
        if not rule.name.startswith("budget"):  # another budget stands in its place
            assert rule.name not in left, rule.name
        assert lift_rule(situation, rule) != situation


# ---------------------------------------------------------- parts, pairs, order


@pytest.mark.spec("PR-4")
def test_parts_add_up_to_no_more_than_their_whole_or_it_is_told() -> None:
    types = (
        machine("dear", 4, 4.0),
        instance_type("arm", 4, "32Gi", 110, arch="arm64", offerings=[offering(Z1, "on-demand", 3.0)]),
        instance_type("far", 4, "32Gi", 110, offerings=[offering(Z2, "on-demand", 3.0)]),
        instance_type("best", 4, "32Gi", 110, arch="arm64", offerings=[offering(Z2, "on-demand", 1.0)]),
    )
    told_of = []
    for kept in (types, types[:3]):
        asked = [(labels.ARCH, "In", "amd64"), (labels.ZONE, "In", Z1)]
        found = waiting(pod("w", cpu="3"), pools=[nodepool(requirements=asked)], types=kept)
        rules = with_parts(find_rules(list_rules(found.situation), ["pool/default:requirements"]))
        prices = {each.rule.name: each for each in rank_prices(price_rules(found, rules))}
        whole = prices.pop("pool/default:requirements")
        added = sum(each.costs_now for each in prices.values())
        assert len(prices) == 2
        assert whole.costs_now >= max(each.costs_now for each in prices.values())
        told = "its parts add up to" in whole.how
        assert told == (added > whole.costs_now + 1e-6)
        told_of.append((round(whole.costs_now, 6), round(added, 6), told))
    # Both are needed for the best type; and one does in place of the other.
    assert told_of == [(3.0, 2.0, False), (1.0, 2.0, True)]


def test_a_whole_is_never_cheaper_than_one_of_its_parts() -> None:
    """Its own search may have found less than that of a part, whose plan is one of its own."""
    situation = held_by_pdb().situation
    part, other = (
        replace(list_rules(situation)[0], name=f"pool/x:requirements[{key}]") for key in ("a", "b")
    )
    whole = replace(part, name="pool/x:requirements", parts=(part, other))
    prices = [
        RulePrice(rule=whole, kind=PriceKind.SHAPE, costs_now=1.0, at_most=1.5),
        RulePrice(rule=part, kind=PriceKind.SHAPE, costs_now=2.0, at_most=2.5),
        RulePrice(rule=other, kind=PriceKind.HELD, costs_now=9.0, at_most=9.0),
    ]
    found = {each.rule.name: each for each in rank_prices(prices)}["pool/x:requirements"]
    assert (found.costs_now, found.at_most) == (2.0, 2.0)
    assert found.how == "as without pool/x:requirements[a] alone"


def test_pairs_are_of_one_kind_and_never_of_a_whole_and_its_part() -> None:
    types = (machine("dear", 4, 2.0), instance_type("arm", 4, "32Gi", 110, arch="arm64", price=1.0))
    asked = [(labels.ARCH, "In", "amd64"), (labels.OS, "In", "linux")]
    found = waiting(*apart_pods(4), pools=[nodepool(requirements=asked)], types=types)
    prices = rank_prices(price_rules(found, list_rules(found.situation)))
    pairs = build_pairs(prices)
    assert pairs
    assert not any("requirements" in a.name and "requirements" in b.name for a, b in (p.parts for p in pairs))
    whole = rank_prices([*prices, *price_rules(found, pairs)])
    dearest = max(each.costs_now for each in prices)
    assert all(
        each.costs_now >= dearest - 1e-9
        for each in whole
        if each.rule in pairs
        and dearest == max(one.costs_now for one in prices if one.rule in each.rule.parts)
    )


@pytest.mark.spec("PR-8")
def test_the_same_cluster_has_the_same_prices_whoever_asks_first() -> None:
    marked = [web(f"m{n}", "200m", app="m") for n in range(2)]
    marked = [replace(each, metadata=replace(each.metadata, annotations=DO_NOT)) for each in marked]
    world = scene(
        state("a", *marked, of=LARGE),
        state("b", web("w", "500m"), of=MEDIUM),
        pdbs=[pdb(max_unavailable=0)],
        pending=apart_pods(3),
    )
    situation = Situation(snapshot=world.snapshot)
    rules = list_rules(situation)
    forwards = rank_prices(price_rules(PricedCluster(situation), rules))
    shared = PricedCluster(situation)
    backwards = rank_prices(price_rules(shared, reversed(rules)))
    assert forwards == backwards
    assert forwards == rank_prices(price_rules(shared, rules))
    assert [each for rule in rules for each in price_rule(PricedCluster(situation), rule)] == price_rules(
        shared, rules
    )


# ---------------------------------------------------------------- commitments


@pytest.mark.spec("PR-6")
def test_with_commitments_a_price_is_that_of_the_bill() -> None:
    """An hour that is paid for already is not saved by taking its node away; what takes it over is."""
    terms = CommitmentTerms(name="plan", kind="ComputePlan", hourly=4.0, units=4.0, discount=0.5)
    plain = held_by_pdb().situation.snapshot
    committed = replace(plain, commitments=(terms,))
    free, paid = cluster(plain), cluster(committed)
    # Both large nodes are 8 dollars each by the list; the plan pays for one of them.
    assert sum_bill(plain) == pytest.approx(16.0)
    assert sum_bill(committed) == pytest.approx(4.0 + 8.0)
    rule = "pdb/default/pdb"
    assert price(free, rule).costs_now == pytest.approx(7.0)
    # Nodes of 9 dollars are left, of which the plan pays for 8: the bill falls from 12 dollars to 5.
    made = price(paid, rule)
    assert made.costs_now == pytest.approx(7.0)
    assert made.at_most == pytest.approx(8.0), "what is committed stays on the bill"
    both = replace(terms, hourly=8.0, units=8.0)
    covered = price(cluster(replace(plain, commitments=(both,))), rule)
    assert (covered.costs_now, covered.at_most) == (0.0, 0.0), "its hour is paid for"
    shapes = waiting(*apart_pods(6))
    rule = "deployment/default/api:anti-affinity"
    assert price(shapes, rule).costs_now == pytest.approx(4.0)
    six = replace(terms, hourly=3.0, units=3.0)
    paid = cluster(replace(shapes.situation.snapshot, commitments=(six,)))
    made = price(paid, rule)
    assert max(made.costs_now, made.at_most) == pytest.approx(0.0)


@pytest.mark.spec("PR-7")
def test_a_rule_takes_one_plan_or_one_look_at_what_it_frees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever all rules share is worked out once, and a rule that frees no node is not looked into."""
    counted: Counter[str] = Counter()

    def count(module: object, name: str) -> None:
        honest = getattr(module, name)

        def counting(*asked: object, **more: object) -> object:
            counted[f"{getattr(module, '__name__', '').rpartition('.')[2]}.{name}"] += 1
            return honest(*asked, **more)

        monkeypatch.setattr(module, name, counting)

    for module, name in (
        (shape_price, "decide_plan"),
        (shape_price, "compute_price_floor"),
        (priced_cluster, "decide_plan"),
        (priced_cluster, "settle_disruption"),
        (held_price, "settle_disruption"),
        (held_price, "compute_fleet_floor"),
    ):
        count(module, name)
    budgets = [
        pdb(f"pdb-{number}", allowed=1, max_unavailable=1, namespace=f"n{number}") for number in range(20)
    ]
    apps = [
        pod(
            f"{app}-0",
            cpu="500m",
            labels={"app": app},
            node="held",
            owned_by=owner("ReplicaSet", f"{app}-77f"),
            affinity=apart(labels.HOSTNAME, app=app),
        )
        for app in (f"app{number}" for number in range(20))
    ]
    world = scene(state("held", web("w", "500m"), *apps, of=LARGE), pdbs=[pdb(max_unavailable=0), *budgets])
    found = cluster(world.snapshot)
    rules = [each for each in list_rules(found.situation) if not each.name.startswith("budget")]
    assert len(rules) == 41
    price_rules(found, rules)
    assert counted == {
        "shape_price.decide_plan": 20,
        "shape_price.compute_price_floor": 20,
        "priced_cluster.decide_plan": priced_cluster.SEARCHES,
        "priced_cluster.settle_disruption": 1,
        "held_price.settle_disruption": 1,
        "held_price.compute_fleet_floor": 1,
    }


# --------------------------------------------------------- only what is accepted


def test_a_plan_that_breaks_a_rule_saves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = waiting(*apart_pods(6))
    rule = "deployment/default/api:anti-affinity"
    honest = price(found, rule)
    decide = decide_plan

    def squeeze(*asked: object) -> Plan:
        """All pods on one of the planned nodes, which is too small for them."""
        plan = decide(*asked)  # type: ignore[arg-type]
        first = plan.new_nodes[0]
        pods = tuple(pod for node in plan.new_nodes for pod in node.pods)
        return replace(plan, new_nodes=(replace(first, pods=pods, instance_type="small", price=0.1),))

    monkeypatch.setattr(shape_price, "decide_plan", squeeze)
    cheated = price(waiting(*apart_pods(9)), rule)
    assert cheated.costs_now == 0.0
    assert cheated.at_most > honest.at_most


def test_a_command_that_verification_refuses_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    found = held_by_pdb()
    (rule,) = find_rules(list_rules(found.situation), ["pdb/default/pdb"])
    assert price_rule(found, rule)[0].costs_now == pytest.approx(7.0)
    judge = judge_single_node

    def judge_wrongly(inputs: DisruptionInput, candidate: Candidate) -> tuple[Command | None, str]:
        """The command, with the pods on a node that is full."""
        command, why = judge(inputs, candidate)
        if command is None or command.plan is None:
            return command, why
        full = replace(command.plan, new_nodes=(), existing={"full": ("default/w",)})
        return swap(command, plan=full), why

    monkeypatch.setattr(settling, "judge_single_node", judge_wrongly)
    made = price_rule(held_by_pdb(), rule)[0]
    assert (made.costs_now, made.nodes) == (0.0, {})
