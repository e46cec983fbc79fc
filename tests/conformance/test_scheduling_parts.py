"""The parts of scheduling, each against every answer recorded from the original."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from dovetail.api import quantity
from dovetail.api.core import Taint
from dovetail.api.labels import ARCH, CAPACITY_TYPE, INSTANCE_TYPE, WELL_KNOWN, ZONE
from dovetail.api.nodepool import Requirement
from dovetail.api.pod import PodSpec, Toleration
from dovetail.api.taints import is_ephemeral
from dovetail.scheduling.model import host_ports, instance_types, pod_requirements, resources, taints
from dovetail.scheduling.model.instance_types import InstanceType, Offering, Overhead
from dovetail.scheduling.model.requirements import Requirements, Values, build_entries, describe_values
from dovetail.scheduling.sequential.schedule import schedule_pods
from dovetail.sim.clock import VirtualClock
from dovetail.state.cluster import Cluster
from support.builders import node
from support.manifests import amounts, read, read_pod
from support.vectors import cases
from support.worlds import World

UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


def requirement(case: dict[str, Any]) -> Requirement:
    return read(Requirement, case)


def together(listed: list[dict[str, Any]] | None) -> Requirements:
    return Requirements.from_expressions(requirement(each) for each in listed or ())


def seen_from_outside(key: str, values: Values) -> dict[str, Any]:
    bounded = values.at_least is not None or values.at_most is not None
    listed = [
        {"key": each.key, "operator": each.operator}
        | ({"values": list(each.values)} if each.values else {})
        | ({"minValues": each.min_values} if each.min_values is not None else {})
        for each in build_entries(key, values)
        # The original forgets exclusions beside a bound; ours keeps them.
        if not (bounded and each.operator == "NotIn")
    ]
    return {
        "key": key,
        "operator": values.operator,
        "len": len(values),
        "values": sorted(values.names),
        "minValues": values.min_values,
        "text": describe_values(key, values),
        "api": listed,
    }


def assert_same(key: str, values: Values, expected: dict[str, Any]) -> None:
    has = expected.get("has", {})
    assert seen_from_outside(key, values) == {k: v for k, v in expected.items() if k != "has"}
    assert {value: value in values for value in has} == has


def assert_verdict(ok: bool, complaints: tuple[str, ...], expected: dict[str, Any]) -> None:
    assert ok == expected["ok"] == (not complaints)
    assert ok or "\n".join(sorted(complaints)) in expected["errors"]


def test_a_single_requirement_reads_as_in_the_original() -> None:
    for case in cases("requirements"):
        if case["kind"] == "single":
            ((key, values),) = together([case["a"]]).by_key.items()
            assert_same(key, values, case["result"])


def test_two_requirements_intersect_as_in_the_original() -> None:
    for case in cases("requirements"):
        if case["kind"] == "pair":
            ((key, a),) = together([case["a"]]).by_key.items()
            ((_, b),) = together([case["b"]]).by_key.items()
            assert_same(key, a & b, case["intersection"])
            assert a.has_intersection(b) == case["hasIntersection"]
            assert b.has_intersection(a) == case["hasIntersectionReverse"]


def test_sets_of_requirements_agree_and_complain_as_in_the_original() -> None:
    for case in cases("requirements"):
        if case["kind"] not in ("sets", "labels"):
            continue
        x = together(case["x"]) if "x" in case else Requirements.from_labels(case["labels"] or {})
        y = together(case["y"])
        assert_verdict(x.is_compatible(y), x.describe_incompatibility(y), case["compatible"])
        lenient = x.is_compatible(y, WELL_KNOWN), x.describe_incompatibility(y, WELL_KNOWN)
        assert_verdict(*lenient, case["compatibleWellKnown"])
        if case["kind"] == "sets":
            assert_verdict(x.intersects(y), x.describe_conflicts(y), case["intersects"])
            assert set((x & y).by_key) == set(case["add"] or {})
            for key, expected in (case["add"] or {}).items():
                assert_same(key, (x & y)[key], expected)
            assert (str(x), x.has_min_values) == (case["xText"], case["hasMinValues"])


def test_taints_are_tolerated_merged_and_printed_as_in_the_original() -> None:
    for case in cases("taints"):
        if case["kind"] == "ephemeral":
            one = read(Taint, case["taint"])
            assert (is_ephemeral(one), taints.format_taint(one)) == (case["ephemeral"], case["text"])
            continue
        there = tuple(read(Taint, each) for each in case["taints"] or ())
        tolerations = tuple(read(Toleration, each) for each in case["tolerations"] or ())
        assert sorted(taints.describe_untolerated(there, tolerations)) == sorted(case.get("errors") or ())
        assert taints.tolerates_all(there, tolerations) == case["ok"]


def test_a_pod_requires_what_it_does_in_the_original() -> None:
    for case in cases("pod-requirements"):
        spec = read(PodSpec, case["pod"])
        for found, expected in (
            (pod_requirements.build_requirements(spec), "all"),
            (pod_requirements.build_strict_requirements(spec), "strict"),
        ):
            assert set(found) == set(case[expected])
            for key, values in found.by_key.items():
                assert_same(key, values, case[expected][key])
        assert str(pod_requirements.build_requirements(spec)) == case["text"]
        assert bool(pod_requirements.list_preferred_terms(spec)) == case["hasPreferred"]


def test_effective_requests_and_limits_are_those_of_the_original() -> None:
    for case in cases("pod-resources"):
        if case["kind"] == "one":
            pod = read_pod(case["pod"])
            assert resources.compute_requests(pod) == amounts(case["requests"])
            assert resources.compute_limits(pod) == amounts(case["limits"])
            assert resources.compute_requests_with_pod(pod) == amounts(case["withPods"])
            assert resources.compute_requests(pod, status=False) == amounts(case["specOnly"])
        else:
            all_pods = [read_pod(each) for each in case["pods"] or ()]
            each_asks = (resources.compute_requests_with_pod(pod) for pod in all_pods)
            assert quantity.add_amounts({"pods": quantity.ZERO}, *each_asks) == amounts(case["requests"])


def test_lists_of_resources_add_up_as_in_the_original() -> None:
    for case in cases("resource-lists"):
        a, b, c = (amounts(case[each]) for each in "abc")
        assert quantity.add_amounts(a, b, c) == amounts(case["merge"])
        assert quantity.subtract_amounts(a, b) == amounts(case["subtract"])
        assert quantity.max_amounts(a, b, c) == amounts(case["max"])
        assert quantity.min_amounts(a, b, c) == amounts(case["min"])
        assert (
            resources.fits_within(resources.convert_to_nano(a), resources.convert_to_nano(b)) == case["fits"]
        )


def test_host_ports_conflict_as_in_the_original() -> None:
    for case in cases("host-ports"):
        used, wanted = (
            host_ports.list_host_ports(
                read_pod({"spec": {"containers": [{"ports": each or []} for each in side]}})
            )
            for side in (case["a"], case["b"])
        )
        if case["sameName"]:
            assert (len(used), _refused_anew(case)) == (case["used"], case["conflict"])
            continue
        clash = host_ports.find_conflict(wanted, used)
        assert (len(used), clash is not None) == (case["used"], case["conflict"])
        assert clash is None or host_ports.describe_conflict(clash) == case["error"]


def _refused_anew(case: dict[str, Any]) -> bool:
    """Whether a pod that is made anew under its old name is kept off the node by the ports it had there."""
    cluster = Cluster(VirtualClock())
    cluster.update_node(None, node("node"))
    before, again = (
        read_pod(
            {
                "metadata": {"name": "same", "namespace": "default", "uid": uid},
                "spec": {"containers": [{"name": str(i), "ports": p or []} for i, p in enumerate(case[uid])]},
                "status": {"conditions": [UNSCHEDULABLE], "phase": "Pending"},
            }
        )
        for uid in "ab"
    )
    cluster.update_pod(None, replace(before, node_name="node"))
    cluster.update_pod(replace(before, node_name="node"), again)
    states = tuple(place.state for place in cluster)
    plan = schedule_pods(replace(World().snapshot(), nodes=states, pods=cluster.pending))
    return "default/same" not in plan.existing.get("node", ())


def instance_type(case: dict[str, Any]) -> InstanceType:
    offerings = tuple(
        Offering(
            requirements=Requirements.from_labels({ZONE: each["zone"], CAPACITY_TYPE: each["capacityType"]}),
            price=each["price"],
            available=each["available"],
        )
        for each in case["offerings"] or ()
    )
    listed = {
        INSTANCE_TYPE: Values(frozenset((case["name"],))),
        ARCH: Values(frozenset((case["arch"],))),
        "family": Values(frozenset(case["family"] or ())),
    }
    return InstanceType(name=case["name"], requirements=Requirements(listed), offerings=offerings)


def test_min_values_price_order_and_truncation_are_those_of_the_original() -> None:
    for case in cases("instance-types"):
        if case["kind"] != "minValues":
            continue
        types = [instance_type(each) for each in case["types"] or ()]
        wanted = together(case["requirements"])
        found = instance_types.check_min_values(types, wanted)
        assert (found.needed, found.met) == (case["needed"], case["ok"])
        assert dict(found.unsatisfied) == (case["unsatisfied"] or {})
        usable = [each for each in types if instance_types.find_cheapest_offering(each, wanted) is not None]
        assert [each.name for each in usable] == (case["compatible"] or [])
        ordered = sorted(usable, key=lambda each: instance_types.find_lowest_price(each, wanted))
        assert [each.name for each in ordered] == (case["order"] or [])
        worst = {name: price for name, price in (case["worstLaunchPrice"] or {}).items() if price is not None}
        prices = {each.name: instance_types.worst_launch_price(each, wanted) for each in types}
        assert {name: price for name, price in prices.items() if price != float("inf")} == worst
        most = case["truncate"]["max"]
        strict, short = instance_types.truncate_types(ordered, wanted, strict=True, most=most)
        assert short.met == case["truncate"]["ok"]
        if short.met:
            assert [each.name for each in strict] == (case["truncate"]["types"] or [])
        kept, _ = instance_types.truncate_types(ordered, wanted, strict=False, most=most)
        assert [each.name for each in kept] == (case["truncateBestEffort"]["types"] or [])


def test_allocatable_is_what_it_is_in_the_original_without_overrides() -> None:
    """With overrides the next line of the original replaces amounts where this one adds; ours replaces."""
    for case in cases("instance-types"):
        if case["kind"] != "allocatable":
            continue
        facts = case["type"]
        overhead = Overhead(
            kube_reserved=amounts(facts["kubeReserved"]),
            system_reserved=amounts(facts["systemReserved"]),
            eviction_threshold=amounts(facts["evictionThreshold"]),
        )
        made = InstanceType(name="t", capacity=amounts(facts["capacity"]), overhead=overhead)
        assert made.allocatable() == amounts(case["allocatable"])
