"""Topology spread: how pods are counted, and where the next one may go."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels as names
from dovetail.api.meta import LabelSelector, LabelSelectorTerm
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod, Toleration
from dovetail.scheduling.sequential.scheduler import SequentialScheduler
from support.builders import NOW, nodepool, pod, taint
from support.worlds import Z1, Z2, Z3, World, assorted, node_affinity, running, spread

ZONE, HOST, KIND = names.ZONE, names.HOSTNAME, names.CAPACITY_TYPE
WEB = {"app": "web"}


def webs(
    count: int, *rules: Any, prefix: str = "web", cpu: str = "10m", labels: Any = WEB, **more: Any
) -> list[Pod]:
    return [
        pod(f"{prefix}-{i}", cpu=cpu, memory="10M", labels=labels, topology_spread_constraints=rules, **more)
        for i in range(count)
    ]


def only(*zones: str) -> dict[str, Any]:
    return {"affinity": node_affinity([(ZONE, "In", *zones)])}


def pool(*zones: str, **more: Any) -> NodePool:
    return nodepool(requirements=[(ZONE, "In", *zones)] if zones else [], **more)


@pytest.mark.spec("T-182")
def test_an_unknown_key_strands_the_pods_that_use_it_and_no_others() -> None:
    world = World()
    plan = world.solve(*webs(2, spread("unknown")), pod("other"))
    assert set(plan.unschedulable) == {"default/web-0", "default/web-1"}


@pytest.mark.spec("T-183")
def test_without_a_selector_nothing_is_spread() -> None:
    world = World()
    rule = replace(spread(ZONE), label_selector=None)
    world.provision(*webs(2, rule))
    assert world.skew(ZONE, app="web") == [2]


BY_TERMS = LabelSelector(match_expressions=(LabelSelectorTerm(key="app", operator="In", values=("web",)),))


@pytest.mark.spec("T-184")
@pytest.mark.parametrize("selector", [None, BY_TERMS])
def test_pods_are_spread_over_zones(selector: LabelSelector | None) -> None:
    world = World()
    world.provision(*webs(4, spread(ZONE, selector=selector)))
    assert world.skew(ZONE, app="web") == [2, 1, 1]


@pytest.mark.spec("T-185")
@pytest.mark.parametrize(
    ("pools", "counts"),
    [
        ([pool(Z1, Z2)], [2, 2]),
        ([nodepool(labels={ZONE: Z1})], [4]),
        ([pool(Z1, Z2, labels={ZONE: Z1})], [4]),
        ([nodepool("a", labels={ZONE: Z1}), nodepool("b", labels={ZONE: Z2})], [2, 2]),
    ],
)
def test_domains_are_those_pools_can_make(pools: list[NodePool], counts: list[int]) -> None:
    world = World(*pools)
    world.provision(*webs(4, spread(ZONE)))
    assert world.skew(ZONE, app="web") == counts


def there(zone: str, *pods: Pod, name: str = "", **more: Any) -> Any:
    full = {"capacity": {"cpu": "4", "memory": "8Gi", "pods": str(len(pods))}}
    return running(name or f"in-{zone}", *pods, zone=zone, **(full | more))


def one(name: str, **more: Any) -> Pod:
    return pod(name, cpu="1m", memory="1M", node="x", labels=WEB, **more)


@pytest.mark.spec("T-186")
def test_a_domain_only_running_nodes_have_holds_back_the_others() -> None:
    world = World(pool(Z1, Z2), nodes=[there(Z3, one("old"))])
    world.provision(*webs(6, spread(ZONE)))
    assert sorted(world.skew(ZONE, app="web")) == [1, 2, 2]
    assert len(world.plan.unschedulable) == 2


@pytest.mark.spec("T-187", "T-189")
@pytest.mark.parametrize(
    ("skew", "before", "zones", "counts"), [(5, (Z1, Z2), (Z3,), [6, 1, 1]), (1, (Z1,), (Z2, Z3), [2, 2, 1])]
)
def test_a_skew_is_used_up_and_no_more(
    skew: int, before: tuple[str, ...], zones: tuple[str, ...], counts: list[int]
) -> None:
    held = [there(zone, one(f"old-{zone}")) for zone in before]
    world = World(pool(*zones), nodes=held)
    world.provision(*webs(10, spread(ZONE, skew)))
    assert world.skew(ZONE, app="web") == counts


@pytest.mark.spec("T-188")
def test_pods_that_went_away_no_longer_count() -> None:
    world = World()
    world.provision(*webs(9, spread(ZONE), prefix="first"))
    assert world.skew(ZONE, app="web") == [3, 3, 3]
    world.nodes = [replace(s, pods=s.pods if world_zone(s) == Z1 else ()) for s in world.nodes]
    world.provision(*webs(3, spread(ZONE), prefix="second"))
    assert world.skew(ZONE, app="web") == [3, 2, 1]


def world_zone(state: Any) -> str:
    return str(state.node.labels[ZONE])


def bystander(**more: Any) -> Pod:
    return pod("bystander", cpu="1m", memory="1M", node="x", **({"labels": WEB} | more))


def ended(phase: str) -> Pod:
    found = bystander()
    return replace(found, status=replace(found.status, phase=phase))


@pytest.mark.spec("T-190")
@pytest.mark.parametrize(
    "uncounted",
    [
        pytest.param(bystander(labels={"app": "db"}), id="unmatched labels"),
        pytest.param(bystander(namespace="other"), id="other namespace"),
        pytest.param(bystander(deleted=NOW), id="terminating"),
        pytest.param(ended("Failed"), id="Failed"),
        pytest.param(ended("Succeeded"), id="Succeeded"),
    ],
)
def test_only_running_matching_pods_of_the_namespace_count(uncounted: Pod) -> None:
    """Three of them in the emptiest zone: were they counted, it would be the fullest and get no pod."""
    crowd = [replace(uncounted, metadata=replace(uncounted.metadata, name=f"b{i}")) for i in range(3)]
    full = {"cpu": "5m", "memory": "8Gi", "pods": "110"}
    zones = [(Z1, [one("a"), one("b")]), (Z2, [one("c")]), (Z3, crowd)]
    held = [there(zone, *pods, capacity=full) for zone, pods in zones]
    world = World(nodes=held)
    world.provision(*webs(2, spread(ZONE)))
    assert sorted(_matching(world).values()) == [1, 2, 2]
    assert _matching(world)[Z3] >= 1


def _matching(world: World) -> Counter[str]:
    """The pods by zone that the rule is about."""
    return Counter(
        world_zone(state)
        for state in world.nodes
        for each in state.pods
        if (each.labels, each.namespace, each.deleting) == (WEB, "default", False)
        and each.status.phase == "Running"
    )


@pytest.mark.spec("T-190")
def test_pods_without_a_node_and_nodes_without_the_label_do_not_count() -> None:
    unzoned = running("unzoned", *(one(f"n{i}") for i in range(3)), zone="")
    assert unzoned.node is not None
    bare = {key: value for key, value in unzoned.node.labels.items() if key != ZONE}
    node = replace(unzoned.node, metadata=replace(unzoned.node.metadata, labels=bare))
    pending = pod("pending", cpu="1m", labels=WEB, node_selector={ZONE: "nowhere"})
    plan = World(pool(Z1, Z2), nodes=[replace(unzoned, node=node)]).solve(*webs(4, spread(ZONE)), pending)
    assert sorted(zone for each in plan.new_nodes for zone in [each.zone] * len(each.pods)) == [
        Z1,
        Z1,
        Z2,
        Z2,
    ]
    assert list(plan.unschedulable) == ["default/pending"]


@pytest.mark.spec("T-191")
def test_a_rule_about_others_does_not_spread_its_owners() -> None:
    selector = LabelSelector(match_labels={"app": "other"})
    assert len(World().solve(*webs(5, spread(HOST, selector=selector))).new_nodes) == 1


@pytest.mark.spec("T-192")
@pytest.mark.parametrize(
    ("zones", "domains", "count", "counts"),
    [((Z1, Z2), 3, 3, [1, 1]), ((), 3, 11, [4, 4, 3]), ((), 2, 11, [4, 4, 3])],
)
def test_too_few_domains_count_as_an_empty_one(
    zones: tuple[str, ...], domains: int, count: int, counts: list[int]
) -> None:
    world = World(pool(*zones))
    world.provision(*webs(count, spread(ZONE, min_domains=domains)))
    assert world.skew(ZONE, app="web") == counts


@pytest.mark.spec("T-193")
def test_hosts_are_domains_too() -> None:
    world = World()
    world.provision(*webs(4, spread(HOST)))
    assert world.skew(HOST, app="web") == [1, 1, 1, 1]
    world.provision(*webs(5, spread(HOST), prefix="more"))
    assert world.skew(HOST, app="web") == [1] * 9
    assert len(World().solve(*webs(4, spread(HOST, 4))).new_nodes) == 1


@pytest.mark.spec("T-194")
@pytest.mark.parametrize(("archs", "nodes"), [((None, None), 2), (("amd64", "arm64"), 4)])
def test_two_apps_share_hosts_unless_their_archs_differ(archs: tuple[Any, Any], nodes: int) -> None:
    pods = []
    for app, arch in zip(("a", "b"), archs, strict=True):
        rule = spread(HOST, selector=LabelSelector(match_labels={"app": app}))
        selector = {names.ARCH: arch} if arch else {}
        pods += webs(2, rule, prefix=app, labels={"app": app}, node_selector=selector)
    assert len(World().solve(*pods).new_nodes) == nodes


@pytest.mark.spec("T-195")
def test_zones_even_out_over_nodes_that_are_coming() -> None:
    world = World()
    world.provision(*webs(4, spread(ZONE)))
    plan = world.provision(*webs(5, spread(ZONE), prefix="more"))
    assert world.skew(ZONE, app="web") == [3, 3, 3]
    assert not plan.new_nodes


@pytest.mark.spec("T-196")
@pytest.mark.parametrize(("key", "values"), [(KIND, ("spot", "on-demand")), (names.ARCH, ("arm64", "amd64"))])
def test_other_labels_can_be_spread_over(key: str, values: tuple[str, str]) -> None:
    world = World()
    world.provision(*webs(4, spread(key)))
    assert world.skew(key, app="web") == [2, 2]
    world = World()
    world.provision(*webs(1, prefix="first", cpu="1500m", node_selector={key: values[0]}))
    world.pools = [nodepool(requirements=[(key, "In", values[1])])]
    world.nodes = [replace(s, pods=tuple(_filling(s))) for s in world.nodes]
    world.provision(*webs(5, spread(key)))
    assert world.skew(key, app="web") == [2, 1]


def _filling(state: Any) -> list[Pod]:
    """The pods of a node and one that takes up the rest of it."""
    rest = pod("filler", cpu="20m", memory="1M", node="x", requests={"pods": "0"})
    return [
        *state.pods,
        *(replace(rest, metadata=replace(rest.metadata, name=f"filler-{i}")) for i in range(4)),
    ]


@pytest.mark.spec("T-197")
def test_nodes_outside_the_pods_own_selector_are_not_counted() -> None:
    held = there(Z1, one("old"), labels={KIND: "on-demand"})
    world = World(nodes=[held])
    chosen = {ZONE: Z2, KIND: "spot"}
    world.provision(*webs(5, spread(KIND), node_selector=chosen))
    assert world.skew(KIND, app="web") == [5, 1]


@pytest.mark.spec("T-198")
def test_a_custom_label_of_several_pools_forces_a_ratio() -> None:
    key = "capacity-spread"
    spot = nodepool("spot", requirements=[(KIND, "In", "spot"), (key, "In", "2", "3", "4", "5")])
    demand = nodepool("demand", requirements=[(KIND, "In", "on-demand"), (key, "In", "1")])
    world = World(spot, demand)
    world.provision(*webs(20, spread(key)))
    assert world.skew(key, app="web") == [4, 4, 4, 4, 4]
    assert world.skew(KIND, app="web") == [16, 4]


@pytest.mark.spec("T-199")
def test_a_zone_nobody_may_buy_in_still_holds_back_a_spread() -> None:
    world = World(pool(Z1, Z2), pool(Z3, name="empty", limits={"cpu": "0"}))
    world.provision(*webs(10, spread(ZONE)))
    assert world.skew(ZONE, app="web") == [1, 1]


@pytest.mark.spec("T-200", "T-201")
@pytest.mark.parametrize(
    ("key", "expected"),
    [(ZONE, ([1, 1], [2, 2, 1], [4, 3, 3], [7, 7, 7])), (KIND, ([1, 1], [3, 2], [5, 5], [11, 10]))],
)
def test_two_spreads_hold_together(key: str, expected: tuple[list[int], ...]) -> None:
    world = World()
    for batch, (count, counts) in enumerate(zip((2, 3, 5, 11), expected, strict=True)):
        world.provision(*webs(count, spread(key), spread(HOST, 3), prefix=f"b{batch}"))
        assert world.skew(key, app="web") == counts
        assert max(world.skew(HOST, app="web")) <= 3


@pytest.mark.spec("T-202")
def test_three_spreads_hold_together_batch_after_batch() -> None:
    world = World(types=assorted())
    for count in range(1, 15):
        rules = spread(KIND), spread(ZONE, 2), spread(HOST, 3)
        plan = world.provision(*webs(count, *rules, prefix=f"b{count}"))
        assert not plan.unschedulable
        kinds, zones = world.skew(KIND, app="web"), world.skew(ZONE, app="web")
        assert max(kinds) - (min(kinds) if len(kinds) == 2 else 0) <= 1
        assert max(zones) - (min(zones) if len(zones) == 3 else 0) <= 2
        assert max(world.skew(HOST, app="web")) <= 3


@pytest.mark.spec("T-203")
@pytest.mark.parametrize(("key", "nodes"), [("revision", 2), ("unknown", 4)])
def test_match_label_keys_tell_revisions_apart(key: str, nodes: int) -> None:
    rule = spread(HOST, match_label_keys=(key,))
    pods = [
        each
        for revision in ("1", "2")
        for each in webs(2, rule, prefix=revision, labels=WEB | {"revision": revision})
    ]
    assert len(World().solve(*pods).new_nodes) == nodes


CUSTOM = "fake-label"


@pytest.mark.spec("T-204", "T-207")
@pytest.mark.parametrize("policy", ["taints", "affinity"])
@pytest.mark.parametrize(("setting", "counts"), [("Ignore", [1]), ("Honor", [5])])
def test_nodes_a_pod_cannot_use_count_by_policy(policy: str, setting: str, counts: list[int]) -> None:
    more: dict[str, Any] = {"taints": [taint("other")]} if policy == "taints" else {"labels": {}}
    held = []
    for domain in ("foo", "bar"):
        labels = {CUSTOM: domain} | ({"selected": "no"} if policy == "affinity" else {})
        held.append(running(f"n-{domain}", **(more | {"labels": labels})))
    made = nodepool(labels={CUSTOM: "baz", "selected": "yes"})
    chosen: dict[str, Any] = {f"node_{policy}_policy": setting}
    rule = spread(CUSTOM, **chosen)
    selector: dict[str, Any] = {"node_selector": {"selected": "yes"}} if policy == "affinity" else {}
    world = World(made, nodes=held)
    world.provision(*webs(5, rule, **selector))
    assert world.skew(CUSTOM, app="web") == counts


@pytest.mark.spec("T-205")
@pytest.mark.parametrize(("setting", "counts"), [("Ignore", [1]), ("Honor", [2])])
def test_domains_behind_a_pools_taint_count_by_policy(setting: str, counts: list[int]) -> None:
    world = World(
        nodepool("open", labels={CUSTOM: "foo"}),
        nodepool("closed", labels={CUSTOM: "bar"}, taints=[taint("other")]),
    )
    world.provision(*webs(2, spread(CUSTOM, node_taints_policy=setting)))
    assert world.skew(CUSTOM, app="web") == counts


@pytest.mark.spec("T-206")
def test_each_pod_spreads_over_the_pools_it_tolerates() -> None:
    world = World(
        nodepool("a", requirements=[(CUSTOM, "In", "foo", "bar")], taints=[taint("a")]),
        nodepool("b", requirements=[(CUSTOM, "In", "foo", "baz")], taints=[taint("b")]),
    )
    rule = spread(CUSTOM, node_taints_policy="Honor")
    for key, count in (("a", 2), ("b", 4)):
        toleration = Toleration(key=key, operator="Exists")
        world.provision(*webs(count, rule, prefix=key, tolerations=(toleration,)))
    assert world.skew(CUSTOM, app="web") == [3, 2, 1]


@pytest.mark.spec("T-208")
def test_a_pods_own_zone_is_all_it_is_spread_over() -> None:
    world = World()
    world.provision(
        *webs(5, spread(ZONE), prefix="a", node_selector={ZONE: Z1}),
        *webs(10, spread(ZONE), prefix="b", node_selector={ZONE: Z2}),
    )
    assert world.skew(ZONE, app="web") == [10, 5]
    world = World()
    world.provision(*webs(10, spread(ZONE), **only(Z1, Z2)))
    assert world.skew(ZONE, app="web") == [5, 5]


@pytest.mark.spec("T-209")
def test_pods_allowed_elsewhere_go_where_there_are_fewest() -> None:
    world = World()
    world.provision(*webs(6, spread(ZONE), prefix="a", **only(Z1, Z2)))
    assert world.skew(ZONE, app="web") == [3, 3]
    world.provision(*webs(1, spread(ZONE), prefix="b", **only(Z2, Z3)))
    assert world.zone_of("b-0") == Z3
    world.provision(*webs(5, spread(ZONE), prefix="c"))
    assert world.skew(ZONE, app="web") == [4, 4, 4]


@pytest.mark.spec("T-210")
def test_a_preferred_zone_does_not_narrow_a_spread() -> None:
    world = World()
    wish = node_affinity(preferred=[(1, [(ZONE, "In", Z1, Z2)])])
    world.provision(*webs(6, spread(ZONE), affinity=wish))
    assert world.skew(ZONE, app="web") == [2, 2, 2]


@pytest.mark.spec("T-211")
def test_capacity_types_even_out_as_pods_are_allowed_more() -> None:
    world = World()
    world.provision(*webs(3, spread(KIND), prefix="a", affinity=node_affinity([(KIND, "In", "spot")])))
    assert world.skew(KIND, app="web") == [3]
    both = node_affinity([(KIND, "In", "spot", "on-demand")])
    world.provision(*webs(1, spread(KIND), prefix="b", affinity=both))
    assert world.skew(KIND, app="web") == [3, 1]
    world.provision(*webs(5, spread(KIND), prefix="c"))
    assert world.skew(KIND, app="web") == [5, 4]


def test_a_spread_is_one_whatever_the_order_in_which_its_pods_name_labels() -> None:
    """Which nodes take part is part of the rule, and the order of a node selector is not."""
    here = {names.ARCH: "amd64", names.OS: "linux"}
    pods = [
        pod(
            f"web-{i}",
            cpu="1",
            labels={"app": "web"},
            node_selector=dict(sorted(here.items(), reverse=bool(i % 2))),
            topology_spread_constraints=(spread(names.ZONE),),
        )
        for i in range(4)
    ]
    run = SequentialScheduler(World(types=assorted()).snapshot(*pods))
    shapes = [run.shapes.find_shape(each) for each in pods]
    for shape in shapes:
        run.topology.find_constraints(shape)
    assert len(run.topology.groups) == 1
