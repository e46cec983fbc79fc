"""One node for a cheaper one or none: what is found, and the words for why nothing is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import codec, labels
from dovetail.api.core import PersistentVolume, PersistentVolumeClaim
from dovetail.api.pod import Pod
from dovetail.disruption.candidates import (
    UNCONSOLIDATABLE,
)
from dovetail.disruption.choose import DisruptionChoice
from dovetail.disruption.command import Command
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.consolidation import choose_multi_node, choose_single_node
from dovetail.disruption.methods.emptiness import choose_empty_nodes
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.requirements import Values
from dovetail.scheduling.model.snapshot import StateNode, Storage
from support.builders import NOW, node, owner, pod, requirement
from support.disruption import LARGE, SIZES, SMALL, machine, pool, scene, state
from support.worlds import RESERVATION, Z1, Z2, Z3, apart, instance_type, near, offering, spread

RS = owner("ReplicaSet")
GATE = "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"


def light(name: str = "p", on: str = "a", cpu: str = "500m", **about: Any) -> Pod:
    return pod(name, cpu=cpu, memory="100Mi", node=on, owned_by=RS, **about)


def only(choice: DisruptionChoice) -> Command:
    assert len(choice.commands) == 1, [s.why for s in choice.blocked]
    return choice.commands[0]


def why(of: DisruptionInput, name: str = "a") -> list[str]:
    choice = choose_single_node(of)
    assert choice.commands == []
    return [each.why for each in choice.blocked if each.name == name]


def spots(count: int, first: float = 1.0) -> list[InstanceType]:
    return [machine(f"spot-{i:02d}", 4, first + i / 10, ("spot",)) for i in range(count)]


# Who is considered


@pytest.mark.spec("disruption-60")
@pytest.mark.parametrize(
    ("given", "about", "text"),
    [
        ({"labels": {labels.INSTANCE_TYPE: ""}}, {}, 'Instance Type "" not found'),
        (
            {"labels": {labels.CAPACITY_TYPE: ""}},
            {},
            'Node does not have label "karpenter.sh/capacity-type"',
        ),
        ({"labels": {labels.ZONE: ""}}, {}, 'Node does not have label "topology.kubernetes.io/zone"'),
        (
            {},
            {"consolidation_policy": "WhenEmpty"},
            'NodePool "default" has consolidation policy WhenEmpty, but node is not empty',
        ),
    ],
)
def test_each_method_says_why_it_passes_a_node_over(
    given: dict[str, Any], about: dict[str, Any], text: str
) -> None:
    world = scene(state("a", light(), **given), pools=[pool(**about)])
    told = [
        s
        for method in (choose_empty_nodes, choose_multi_node, choose_single_node)
        for s in method(world).blocked
    ]
    assert [(s.why, s.event) for s in told] == [(text, UNCONSOLIDATABLE)] * 2


@pytest.mark.spec("disruption-60")
def test_a_pool_without_consolidation_is_passed_over_by_all_three() -> None:
    world = scene(state("a", light()), pools=[pool(consolidate_after="Never")])
    told = [
        s.why
        for method in (choose_empty_nodes, choose_multi_node, choose_single_node)
        for s in method(world).blocked
    ]
    assert told == ['NodePool "default" has consolidation disabled'] * 3


@pytest.mark.spec("disruption-59")
def test_an_empty_node_is_left_to_emptiness_without_a_word() -> None:
    for method in (choose_multi_node, choose_single_node):
        choice = method(scene(state("a")))
        assert (choice.eligible, choice.blocked, choice.commands) == (0, [], [])


# Replace


@pytest.mark.spec("disruption-62")
def test_a_node_too_large_for_its_pod_is_replaced_by_a_cheaper_one() -> None:
    command = only(choose_single_node(scene(state("a", light()))))
    assert (command.decision, str(command)) == ("replace", "replace: [a] -> [1 replacement]")
    assert command.replacements[0].instance_types == ("small", "medium")
    assert command.savings == 7.0


@pytest.mark.spec("disruption-63")
def test_a_spot_node_is_replaced_when_many_cheaper_types_would_do() -> None:
    types = [*spots(16), machine("dear", 8, 9.0, ("spot",))]
    world = scene(state("a", light(), of=types[-1], kind="spot"), types=types, spot_to_spot=True)
    command = only(choose_single_node(world))
    assert len(command.replacements[0].instance_types) == 15
    assert command.replacements[0].capacity_types == ("spot",)


@pytest.mark.spec("disruption-64")
def test_a_spot_node_stays_while_the_gate_is_shut() -> None:
    types = [*spots(16), machine("dear", 8, 9.0, ("spot",))]
    assert why(scene(state("a", light(), of=types[-1], kind="spot"), types=types)) == [GATE]


@pytest.mark.spec("disruption-65", "disruption-66")
def test_a_spot_node_stays_when_few_types_are_cheaper() -> None:
    types = [*spots(1), machine("dear", 8, 9.0, ("spot",))]
    world = scene(state("a", light(), of=types[-1], kind="spot"), types=types, spot_to_spot=True)
    assert why(world) == [
        "SpotToSpotConsolidation requires 15 cheaper instance type options than the current candidate "
        "to consolidate, got 1"
    ]
    many = spots(20)
    second = scene(state("a", light(), of=many[1], kind="spot"), types=many, spot_to_spot=True)
    assert why(second)[0].endswith("got 1")


@pytest.mark.spec("disruption-67")
def test_the_fifteen_cheapest_are_sent_wherever_they_are_listed() -> None:
    types = spots(18)
    listed = [*types[1:17], types[0], types[17], machine("dear", 8, 9.0, ("spot",))]
    world = scene(state("a", light(), of=listed[-1], kind="spot"), types=listed, spot_to_spot=True)
    sent = only(choose_single_node(world)).replacements[0].instance_types
    assert sent == tuple(each.name for each in types[:15])


@pytest.mark.spec("disruption-68")
@pytest.mark.parametrize(("least", "sent"), [(16, 16), (3, 15)])
def test_min_values_may_ask_for_more_than_fifteen(least: int, sent: int) -> None:
    types = [*spots(20), machine("dear", 8, 9.0, ("spot",))]
    wanted = requirement(labels.INSTANCE_TYPE, "In", *(each.name for each in types), min_values=least)
    world = scene(
        state("a", light(), of=types[-1], kind="spot"),
        types=types,
        pools=[pool(requirements=[wanted])],
        spot_to_spot=True,
    )
    assert len(only(choose_single_node(world)).replacements[0].instance_types) == sent


@pytest.mark.spec("disruption-69", "disruption-78")
@pytest.mark.parametrize("kind", ["on-demand", "spot"])
@pytest.mark.parametrize("policy", ["Strict", "BestEffort"])
def test_too_few_cheaper_types_for_min_values_keep_the_node(kind: str, policy: str) -> None:
    cheap = [machine(f"cheap-{i:02d}", 4, 1.0, (kind,)) for i in range(15)]
    types = [*cheap, machine("mine", 4, 2.0, (kind,)), machine("dearer", 4, 3.0, (kind,))]
    wanted = requirement(labels.INSTANCE_TYPE, "In", *(each.name for each in types), min_values=16)
    world = scene(
        state("a", light(), of=types[15], kind=kind),
        types=types,
        pools=[pool(requirements=[wanted])],
        spot_to_spot=True,
        min_values=policy,
    )
    (text,) = why(world)
    assert text.startswith("Filtering by price: ")
    assert labels.INSTANCE_TYPE in text


@pytest.mark.spec("disruption-70")
def test_the_worst_spot_price_counts() -> None:
    mine = instance_type("mine", 4, "32Gi", 110, offerings=[offering(Z1, "on-demand", 0.5)])
    deals = [offering(z, "spot", p) for z, p in ((Z1, 1.0), (Z2, 0.2), (Z3, 0.4))]
    other = instance_type("other", 4, "32Gi", 110, offerings=deals)
    assert why(scene(state("a", light(), of=mine), types=[mine, other])) == [
        "Can't replace with a cheaper node"
    ]


@pytest.mark.spec("disruption-71")
def test_spot_prices_do_not_count_for_a_pool_of_on_demand() -> None:
    mine = instance_type("mine", 4, "32Gi", 110, offerings=[offering(Z1, "on-demand", 0.5)])
    deals = [offering(Z1, "on-demand", 0.6), offering(Z1, "spot", 0.1)]
    other = instance_type("other", 4, "32Gi", 110, offerings=deals)
    od = pool(requirements=[(labels.CAPACITY_TYPE, "In", "on-demand")])
    world = scene(state("a", light(), of=mine), types=[mine, other], pools=[od])
    assert why(world) == ["Can't replace with a cheaper node"]


@pytest.mark.spec("disruption-72")
def test_a_replacement_that_may_be_spot_must_be() -> None:
    both = machine("both", 4, 0.5, ("spot", "on-demand"))
    world = scene(state("a", light()), types=[both, LARGE])
    (new,) = only(choose_single_node(world)).replacements
    assert new.capacity_types == ("spot",)
    assert new.requirements[labels.CAPACITY_TYPE] == Values(frozenset(("spot",)))


@pytest.mark.spec("disruption-73", "disruption-83")
def test_a_pool_with_nothing_to_buy_is_in_nobodys_way() -> None:
    world = scene(state("a", light()), pools=[pool(), pool("bare")], types={"default": SIZES, "bare": ()})
    assert only(choose_single_node(world)).decision == "replace"
    two = scene(
        state("a", light()),
        state("b", light("q", "b")),
        pools=[pool(), pool("bare"), pool("ill", ready=False)],
        types={"default": SIZES[2:], "bare": (), "ill": SIZES},
    )
    assert only(choose_single_node(two)).decision == "delete"


@pytest.mark.spec("disruption-75")
def test_held_nodes_are_skipped_and_others_proceed() -> None:
    hold = {labels.DO_NOT_DISRUPT: "true"}
    world = scene(
        state("a", light(), annotations=hold),
        state("b", light("q", "b", annotations=hold)),
        state("d", light("s", "d", cpu="1900m")),
    )
    found = choose_single_node(world)
    assert [c.name for c in only(found).candidates] == ["d"]


@pytest.mark.spec("disruption-76")
def test_reserved_capacity_is_cheaper_than_any_other() -> None:
    def sold(name: str, reservation: str, price: float) -> InstanceType:
        deals = [
            offering(Z1, "reserved", price, reservation=reservation, count=5),
            offering(Z1, "on-demand", 3.0),
            offering(Z1, "spot", 2.0),
        ]
        return instance_type(name, 4, "32Gi", 110, offerings=deals)

    mine, other = sold("mine", "r-1", 0.0003), sold("other", "r-2", 0.0001)
    held = state("a", light(), of=mine, kind="reserved", labels={RESERVATION: "r-1"})
    (new,) = only(choose_single_node(scene(held, types=[mine, other]))).replacements
    assert (new.instance_types, new.capacity_types) == (("other",), ("reserved",))
    for kind in ("on-demand", "spot"):
        paid = state("a", light(), of=mine, kind=kind)
        (new,) = only(choose_single_node(scene(paid, types=[mine]))).replacements
        assert (new.instance_types, new.capacity_types) == (("mine",), ("reserved",))


@pytest.mark.spec("disruption-77")
def test_preferences_count_unless_they_are_ignored() -> None:
    wish = apart(labels.HOSTNAME, preferred=True, app="web")
    web = {"app": "web"}
    states = [
        state("a", light("p", "a", labels=web, affinity=wish), of=SMALL),
        state("b", light("q", "b", labels=web, affinity=wish), of=SMALL),
    ]
    assert choose_single_node(scene(*states, types=[SMALL])).commands == []
    assert only(choose_single_node(scene(*states, types=[SMALL], preferences="Ignore"))).decision == "delete"
    close = near(labels.HOSTNAME, preferred=True, app="other")
    lonely = state("a", light("p", "a", labels=web, affinity=close))
    assert only(choose_single_node(scene(lonely, preferences="Ignore"))).decision == "replace"


@pytest.mark.spec("disruption-79")
def test_spread_and_anti_affinity_are_kept() -> None:
    web = {"app": "web"}
    over = spread(labels.ZONE)
    zoned = [
        instance_type("big", 16, "32Gi", 110, offerings=[offering(z, "on-demand", 8.0) for z in (Z1, Z2)]),
        instance_type("tiny", 2, "32Gi", 110, offerings=[offering(z, "on-demand", 1.0) for z in (Z1, Z2)]),
    ]
    states = [
        state("a", light("p", "a", labels=web, topology_spread_constraints=(over,)), of=zoned[1], zone=Z1),
        state("b", light("q", "b", labels=web, topology_spread_constraints=(over,)), of=zoned[0], zone=Z2),
    ]
    command = only(choose_single_node(scene(*states, types=zoned)))
    assert [c.name for c in command.candidates] == ["b"]
    assert command.replacements[0].zone == Z2
    rule = apart(labels.HOSTNAME, app="web")
    pair = [state(n, light(f"p{n}", n, labels=web, affinity=rule), of=SMALL) for n in ("a", "b")]
    assert choose_single_node(scene(*pair, types=[SMALL])).commands == []


@pytest.mark.spec("disruption-80")
def test_a_volume_pinned_to_the_old_node_does_not_pin_the_pod() -> None:
    pinned: dict[str, Any] = {
        "nodeAffinity": {
            "required": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": labels.HOSTNAME, "operator": "In", "values": ["a"]}]}
                ]
            }
        },
        "local": {"path": "/x"},
    }
    volume = codec.convert(
        PersistentVolume, {"metadata": {"name": "pv"}, "spec": pinned | {"capacity": {"storage": "1Gi"}}}
    )
    claim = codec.convert(
        PersistentVolumeClaim,
        {"metadata": {"name": "data", "namespace": "default"}, "spec": {"volumeName": "pv"}},
    )
    spec = codec.convert(
        Pod,
        {
            "metadata": {"name": "x"},
            "spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
        },
    ).spec
    storage = Storage(claims={"default/data": claim}, volumes={"pv": volume})
    world = scene(state("a", light(volumes=spec.volumes)), snapshot={"storage": storage})
    assert only(choose_single_node(world)).decision == "replace"


# Delete


def pair(**second: Any) -> list[StateNode]:
    """A crowded node and a lonely one of the same price."""
    crowd = [light(f"p{i}", "a") for i in range(3)]
    return [state("a", *crowd), state("b", light("q", "b"), **second)]


@pytest.mark.spec("disruption-81", "disruption-84")
def test_the_node_with_fewer_pods_goes_when_they_fit_on_the_other() -> None:
    command = only(choose_single_node(scene(*pair(), types=[LARGE])))
    assert (str(command), command.savings) == ("delete: [b]", 8.0)
    orphan = pod("q", cpu="500m", node="b")
    bare = scene(pair()[0], state("b", orphan), types=[LARGE])
    assert str(only(choose_single_node(bare))) == "delete: [b]"


@pytest.mark.spec("disruption-82")
def test_room_on_a_node_nobody_manages_is_room() -> None:
    theirs = StateNode(
        node=node("theirs", nodepool="", allocatable={"cpu": "8", "memory": "32Gi", "pods": "9"})
    )
    command = only(choose_single_node(scene(state("a", light()), theirs, types=[LARGE])))
    assert str(command) == "delete: [a]"


@pytest.mark.spec("disruption-85", "disruption-86")
def test_pods_do_not_move_to_a_node_that_may_never_come_up() -> None:
    coming = state("b", light("q", "b"), initialized=False)
    world = scene(state("a", light()), coming, types=[LARGE])
    (text,) = why(world)
    assert text.startswith("not all pods would schedule, default/p => ")
    assert "would schedule against uninitialized nodeclaim/b, node/b" in text
    ready = state("c", *(light(f"r{i}", "c") for i in range(3)))
    both = scene(state("a", light()), coming, ready, types=[LARGE])
    assert str(only(choose_single_node(both))) == "delete: [a]"


def window(minutes: int) -> list[StateNode]:
    """The second node had a pod come in that long ago; it is not consolidatable itself."""
    first, second = pair(consolidatable=False)
    assert second.claim is not None
    moved = replace(second.claim.status, last_pod_event_time=NOW - timedelta(minutes=minutes))
    return [first, replace(second, claim=replace(second.claim, status=moved))]


@pytest.mark.spec("disruption-87")
def test_a_node_within_its_window_takes_no_pods_that_only_move_to_save() -> None:
    calm = pool(consolidate_after="1m")
    young = scene(*window(0), pools=[calm], types=[LARGE])
    assert choose_single_node(young).commands == []
    assert str(only(choose_single_node(scene(*window(2), pools=[calm], types=[LARGE])))) == "delete: [a]"


@pytest.mark.spec("disruption-88")
def test_a_pool_that_never_consolidates_takes_pods() -> None:
    first, second = window(0)
    assert second.claim is not None
    never = pool("never", consolidate_after="Never")
    there = replace(
        state("b", light("q", "b"), pool="never", consolidatable=False),
        claim=replace(
            second.claim,
            metadata=replace(second.claim.metadata, labels={**second.claim.labels, labels.NODEPOOL: "never"}),
        ),
    )
    world = scene(first, there, pools=[pool(), never], types=[LARGE])
    assert str(only(choose_single_node(world))) == "delete: [a]"


@pytest.mark.spec("disruption-89")
def test_windows_of_others_do_not_matter_to_a_replacement() -> None:
    world = scene(*window(0), pools=[pool(consolidate_after="1m")])
    command = only(choose_single_node(world))
    assert (command.decision, command.candidates[0].name) == ("replace", "a")


@pytest.mark.spec("disruption-90")
def test_a_pod_that_waits_for_ever_holds_nothing_up() -> None:
    odd = pod("odd", node_selector={"no": "such"})
    assert str(only(choose_single_node(scene(*pair(), types=[LARGE], pending=[odd])))) == "delete: [b]"


@pytest.mark.spec("disruption-91")
def test_no_running_pod_is_left_without_a_place() -> None:
    full = state("a", light("p", "a", cpu="15"))
    odd = state("b", light("q", "b", cpu="15"))
    capped = pool(limits={"cpu": "16"})
    (text, *_) = why(scene(full, odd, types=[LARGE], pools=[capped]), "a")
    assert text.startswith("not all pods would schedule")


def test_a_node_whose_pods_need_two_others_stays_and_says_so() -> None:
    single_pod = instance_type("one", 4, "32Gi", 1, offerings=[offering(Z1, "on-demand", 1.0)])
    crowded = state("a", light("p", "a"), light("q", "a"))
    assert why(scene(crowded, types=[single_pod, LARGE], pools=[pool(requirements=[NOT_LARGE])])) == [
        "Can't remove without creating 2 candidates"
    ]


NOT_LARGE = (labels.INSTANCE_TYPE, "NotIn", "large")


def test_a_node_without_a_known_price_can_go_but_not_be_replaced() -> None:
    free = machine("mine", 16, 0.0)
    assert why(scene(state("a", light(), of=free), types=[free, SMALL])) == [
        "Can't replace with a cheaper node"
    ]
    two = [state("a", light(), of=free), state("b", *(light(f"r{i}", "b") for i in range(2)))]
    assert str(only(choose_single_node(scene(*two, types=[free, LARGE])))) in ("delete: [a]", "delete: [b]")
