"""dovetail plan: what people and programs read, and what happens to files that make no sense."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.commands import Ended, dovetail, process
from support.peer_workloads import PEER, generated

ROOT = Path(__file__).parents[3]
SHOP = str(ROOT / "examples" / "shop.yaml")
REPORT = str(ROOT / "examples" / "shop-report.yaml")
SPOT = str(ROOT / "examples" / "shop-spot.yaml")
GOLDEN = ROOT / "examples" / "shop.plan.json"
ALONE = Path(__file__).parent / "records" / "shop-instances-alone.json"
GUIDE = ROOT / "docs" / "guides" / "plan.md"
MEASURED = ("solveSeconds", "firstPlanSeconds", "peakRssBytes")
KEYS = {
    "nodes",
    "existing",
    "unschedulable",
    "totalHourly",
    "lowerBound",
    "gap",
    "provenPods",
    "solveSeconds",
    "firstPlanSeconds",
    "firstPlanHourly",
    "peakRssBytes",
}
LEFT_OUT = 3


def pool(name: str = "general", **spec: Any) -> dict[str, Any]:
    template = {
        "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        "requirements": spec.pop("requirements", []),
        "taints": spec.pop("taints", []),
    }
    labels = spec.pop("labels", {})
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": {"metadata": {"labels": labels}, "spec": template}, **spec},
    }


def pod(name: str, cpu: str = "500m", memory: str = "1Gi", **spec: Any) -> dict[str, Any]:
    container = {"name": "a", "image": "x", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], **spec},
    }


def given(folder: Path, *items: Mapping[str, Any], name: str = "world.json", **metadata: Any) -> str:
    path = folder / name
    listed = {"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": list(items)}
    path.write_text(json.dumps(listed), encoding="utf-8")
    return str(path)


def planned(*arguments: str, **env: str) -> dict[str, Any]:
    ended = dovetail("plan", "-o", "json", *arguments, env=env)
    assert ended.code in (0, LEFT_OUT), ended.err
    found: dict[str, Any] = json.loads(ended.out)
    return found


def nearest(document: Mapping[str, Any], name: str) -> list[str]:
    mine = next(each for each in document["unschedulable"] if each["pod"] == name)
    return [reason["nearest"] for reason in mine["reasons"]]


# ------------------------------------------------------------------ what is printed


@pytest.mark.parametrize(("switch", "record"), [("on", GOLDEN), ("off", ALONE)])
def test_the_example_gives_the_recorded_plan(switch: str, record: Path) -> None:
    """One record is of today, the other from before anything but instances was counted."""
    ours, recorded = planned("-f", SHOP, NODE_EXTRAS=switch), json.loads(record.read_text(encoding="utf-8"))
    assert all(ours[key] > 0 for key in MEASURED)
    assert ours["lowerBound"] <= ours["totalHourly"] == pytest.approx(recorded.pop("totalHourly"))
    assert ours["gap"] == pytest.approx(ours["totalHourly"] / ours["lowerBound"] - 1)
    assert ours["totalHourly"] <= ours["firstPlanHourly"]
    assert {key: ours[key] for key in recorded} == recorded
    assert set(recorded) == KEYS - set(MEASURED) - {"totalHourly", "lowerBound", "gap", "firstPlanHourly"}


def test_with_extras_the_example_costs_a_volume_more_for_each_node() -> None:
    ours, recorded = planned("-f", SHOP), json.loads(ALONE.read_text(encoding="utf-8"))
    root = 20 * 0.08 / 730
    assert [each["extras"] for each in ours["nodes"]] == pytest.approx([root] * 3)
    assert [each["price"] - root for each in ours["nodes"]] == pytest.approx(
        [each["price"] for each in recorded["nodes"]]
    )
    assert ours["totalHourly"] == pytest.approx(sum(each["price"] for each in ours["nodes"]))
    assert ours["lowerBound"] <= ours["totalHourly"]


def test_what_you_add_is_part_of_every_price() -> None:
    added = {"NODE_EXTRA_HOURLY": "0.5/node,0.25/vcpu"}
    table = dovetail("plan", "-f", SHOP, env=added).out
    assert "EXTRAS $/H" in table.splitlines()[0]
    for node in planned("-f", SHOP, **added)["nodes"]:
        vcpus = {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16}
        size = node["offering"]["instanceType"].partition(".")[2]
        assert node["extras"] == pytest.approx(0.5 + 0.25 * vcpus[size] + 20 * 0.08 / 730)
    ended = dovetail("plan", "-f", SHOP, env={"NODE_EXTRA_HOURLY": "0.5/cpu"})
    assert ended.code != 0
    assert "did you mean 0.5/vcpu?" in ended.err


def test_a_region_without_prices_is_refused_unless_another_may_stand_in() -> None:
    ended = dovetail("plan", "-f", SHOP, "--catalog", "aws:eu-west-1")
    assert ended.code == 1
    assert "there are no prices of eu-west-1 here, only of us-east-1" in ended.err
    assert "--assume-region-prices us-east-1" in ended.err
    assert ended.err.count("\n") == 1
    asked = ("--catalog", "aws:us-east-2", "--assume-region-prices", "us-east-1")
    assert "no prices of mars here" in dovetail("plan", "-f", SHOP, *asked[:3], "mars").err


def test_estimates_are_marked_in_table_and_document(tmp_path: Path) -> None:
    wanted = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    spot = pool(requirements=wanted)
    spot["spec"]["template"]["spec"]["nodeClassRef"] = reference
    path = given(tmp_path, spot, pod("web", cpu="1"))
    ended = dovetail("plan", "-f", path)
    row = ended.out.splitlines()[1].split()
    assert [each[0] for each in row[-2:]] == ["~", "~"]
    assert "marks estimates" in ended.out
    assert [each["priceEstimated"] for each in planned("-f", path)["nodes"]] == [True]
    explained = dovetail("plan", "-f", path, "--explain", "default/web").out
    assert "an hour (estimated), of which $0.0022 beside the instance" in explained
    assumed = ("--catalog", "aws:eu-west-1", "--assume-region-prices", "us-east-1")
    told = dovetail("plan", "-f", path, *assumed)
    assert "those of us-east-1 stand in, as was asked for" in told.err
    assert "~" in told.out


def test_the_document_has_exactly_the_keys_that_are_promised() -> None:
    found = planned("-f", SHOP, "-f", REPORT)
    assert set(found) == KEYS
    node = {"nodepool", "instanceTypes", "offering", "price", "extras", "requirements", "pods"}
    assert all(set(each) == node for each in found["nodes"])
    assert all(set(each["offering"]) == {"instanceType", "zone", "capacityType"} for each in found["nodes"])
    reasons = [reason for each in found["unschedulable"] for reason in each["reasons"]]
    assert {frozenset(each) for each in found["unschedulable"]} == {frozenset(("pod", "reasons"))}
    assert {frozenset(each) for each in reasons} == {frozenset(("reason", "count", "nearest"))}


def test_yaml_says_what_json_says() -> None:
    from dovetail.api import manifests

    ended = dovetail("plan", "-o", "yaml", "-f", SHOP)
    (document,) = manifests.parse_manifests(
        b"apiVersion: v1\nkind: Plan\n" + ended.out.encode(), "stdin"
    ).documents
    as_json = planned("-f", SHOP)
    assert document.value["nodes"] == as_json["nodes"]
    assert document.value["totalHourly"] == pytest.approx(as_json["totalHourly"])


def test_a_spread_pods_zone_is_among_its_nodes_requirements() -> None:
    for node in planned("-f", SHOP)["nodes"]:
        zones = [each["values"] for each in node["requirements"] if each["key"].endswith("/zone")]
        assert zones == [[node["offering"]["zone"]]]


def test_pods_left_out_end_with_code_three_and_a_near_miss() -> None:
    ended = dovetail("plan", "-f", SHOP, "-f", REPORT)
    assert ended.code == LEFT_OUT
    assert "but for taint workload=batch:NoSchedule" in ended.out
    assert dovetail("plan", "-f", SHOP).code == 0


def test_prices_that_are_estimates_are_said_to_be() -> None:
    ended = dovetail("plan", "-f", SHOP)
    assert "spot prices are estimates" in ended.err
    assert "an hour" in ended.out
    assert "a month" in ended.out


def test_everything_about_one_pod_is_told_on_request() -> None:
    refused = dovetail("plan", "-f", SHOP, "-f", REPORT, "--explain", "shop/report-0")
    assert "a taint is not tolerated (1)" in refused.out
    assert refused.code == LEFT_OUT
    placed = dovetail("plan", "-f", SHOP, "--explain", "shop/web-0")
    assert "a new node of pool general" in placed.out
    as_json = json.loads(dovetail("plan", "-f", SHOP, "--explain", "shop/web-0", "-o", "json").out)
    assert as_json["place"] == "general/1"


def test_a_pod_nobody_knows_is_an_error_with_a_suggestion() -> None:
    ended = dovetail("plan", "-f", SHOP, "--explain", "shop/web-00")
    assert ended.code == 1
    assert re.search(r"no pending pod shop/web-00 .*did you mean shop/web-\d\?", ended.err)


def blocks() -> list[tuple[str, str]]:
    return re.findall(r"```console\n\$ dovetail ([^\n]+)\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)


@pytest.mark.parametrize(("command", "printed"), blocks(), ids=[command for command, _ in blocks()])
def test_the_guide_shows_what_is_printed(command: str, printed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert dovetail(*shlex.split(command)).out == printed


def test_no_bar_is_drawn_into_a_pipe() -> None:
    ended = process("plan", "-f", SHOP, cwd=ROOT)
    assert ended.code == 0
    assert "\x1b" not in ended.err + ended.out


# ------------------------------------------------------------------ what is read


def test_a_list_from_a_file_and_the_same_as_yaml_give_the_same_plan(tmp_path: Path) -> None:
    from dovetail.cli.views.output import render_yaml

    items = [pool(), *(pod(f"p-{i}") for i in range(20))]
    text = tmp_path / "world.yaml"
    text.write_text(render_yaml(items), encoding="utf-8")
    fast, slow = planned("-f", given(tmp_path, *items)), planned("-f", str(text))
    assert fast["nodes"] == slow["nodes"]
    assert sum(len(node["pods"]) for node in fast["nodes"]) == 20


def test_the_workload_says_which_part_of_a_catalogue_it_is_for(tmp_path: Path) -> None:
    size = {"cpuMilli": 4000, "memoryMiB": 8000, "pods": 50}
    fact = {"arch": "amd64", "cpu": 4, "memoryMiB": 8192, "capacity": size, "allocatable": size}
    types = [{"name": "dear", "onDemand": 2.0, **fact}, {"name": "cheap", "onDemand": 1.0, **fact}]
    shop = tmp_path / "catalog.json"
    shop.write_text(
        json.dumps({"types": types, "zones": ["a"], "subsets": {"few": ["dear"]}}), encoding="utf-8"
    )
    told = given(tmp_path, pool(), pod("p"), annotations={"catalog-subset": "few"})
    assert [node["instanceTypes"] for node in planned("-f", told, "--catalog", str(shop))["nodes"]] == [
        ["dear"]
    ]
    silent = given(tmp_path, pool(), pod("p"), name="other.json")
    cheapest = [
        node["offering"]["instanceType"] for node in planned("-f", silent, "--catalog", str(shop))["nodes"]
    ]
    assert cheapest == ["cheap"]
    missing = dovetail("plan", "-f", silent, "--catalog", str(shop), "--catalog-subset", "none")
    assert (missing.code, "it has few" in missing.err) == (1, True)


def test_what_is_piped_in_is_read_like_a_file(tmp_path: Path) -> None:
    world = given(tmp_path, pool(), pod("p"), annotations={"catalog-subset": "few"})
    text = Path(world).read_bytes()
    for piped in (text, b"# not JSON, which YAML is a part of\n" + text):
        ended = dovetail("plan", "-o", "json", "-f", "-", stdin=piped)
        assert json.loads(ended.out)["nodes"] == planned("-f", world)["nodes"]
    broken = dovetail("plan", "-f", "-", stdin=b"a: [")
    assert (broken.code, "nothing was planned" in broken.err) == (1, True)


def test_kinds_that_do_not_matter_are_said_once(tmp_path: Path) -> None:
    maps = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{i}"}} for i in range(3)]
    ended = dovetail("plan", "-f", given(tmp_path, pool(), pod("p"), *maps))
    assert ended.err.count("ConfigMap") == 1
    assert "3 ConfigMap" in ended.err


def test_the_node_class_changes_what_a_node_holds(tmp_path: Path) -> None:
    small = ROOT / "examples" / "shop.yaml"
    text = small.read_text(encoding="utf-8").replace(
        "  role: KarpenterNodeRole-my-cluster\n",
        "  role: KarpenterNodeRole-my-cluster\n  kubelet:\n    maxPods: 3\n",
    )
    changed = tmp_path / "shop.yaml"
    changed.write_text(text, encoding="utf-8")
    assert len(planned("-f", str(changed))["nodes"]) > len(planned("-f", SHOP)["nodes"])


@pytest.mark.parametrize("family", ["mix", "diverse", "pools", "spot", "daemons", "existing", "services"])
def test_the_workloads_and_the_catalogue_of_the_harness_are_read_as_they_are(
    family: str, tmp_path: Path
) -> None:
    document = generated(family, 100, subset="144")
    workload = tmp_path / "workload.json"
    workload.write_text(json.dumps(document), encoding="utf-8")
    shop = str(PEER / "catalog.json")
    found = planned("--quick", "-f", str(workload), "--catalog", shop)
    waiting = [each for each in document["items"] if each["kind"] == "Pod" and "nodeName" not in each["spec"]]
    placed = [pod for node in found["nodes"] for pod in node["pods"]]
    placed += [pod for pods in found["existing"].values() for pod in pods]
    assert sorted(placed) == sorted(f"default/{each['metadata']['name']}" for each in waiting)
    allowed = set(json.loads(Path(shop).read_text(encoding="utf-8"))["subsets"]["144"])
    assert {name for node in found["nodes"] for name in node["instanceTypes"]} <= allowed


def test_twenty_thousand_pods_and_729_types_fit_in_a_quarter_of_a_gigabyte(tmp_path: Path) -> None:
    workload = tmp_path / "workload.json"
    workload.write_text(json.dumps(generated("diverse", 20_000)), encoding="utf-8")
    ended = process(
        "plan", "-o", "json", "-f", str(workload), "--catalog", str(PEER / "catalog.json"), timeout=300
    )
    found = json.loads(ended.out)
    assert sum(len(node["pods"]) for node in found["nodes"]) == 20_000
    assert found["peakRssBytes"] <= 250e6


# ------------------------------------------------------------------ changes


def running(name: str, capacity: str, *pods: Mapping[str, Any]) -> list[dict[str, Any]]:
    labels = {
        "karpenter.sh/nodepool": "general",
        "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true",
        "karpenter.sh/capacity-type": capacity,
        "node.kubernetes.io/instance-type": "c-4x-amd64-linux",
        "topology.kubernetes.io/zone": "test-zone-a",
        "kubernetes.io/hostname": name,
    }
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"providerID": f"kwok://{name}"},
        "status": {"capacity": amounts, "allocatable": amounts},
    }
    claim = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name, "labels": labels},
        "spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": []},
        "status": {"providerID": f"kwok://{name}", "nodeName": name},
    }
    bound = [
        {**each, "spec": {**each["spec"], "nodeName": name}, "status": {"phase": "Running"}} for each in pods
    ]
    return [node, claim, *bound]


def only(capacity: str) -> dict[str, Any]:
    return pool(requirements=[{"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity]}])


def test_a_change_tells_nodes_dollars_and_evictions(tmp_path: Path) -> None:
    world = given(tmp_path, only("on-demand"), pod("new", cpu="3"), *running("old", "on-demand", pod("was")))
    change = given(tmp_path, only("spot"), name="change.json")
    found = json.loads(dovetail("plan", "-f", world, "--change", change, "-o", "json").out)
    assert found["evicted"] == ["default/was"]
    assert [each["node"] for each in found["replaced"]] == ["old"]
    assert found["hourlyAfter"] < found["hourlyBefore"]
    table = dovetail("plan", "-f", world, "--change", change).out
    assert "1 node replaced, 1 pod evicted" in table


def test_a_pod_that_must_not_be_disrupted_holds_its_node(tmp_path: Path) -> None:
    held = pod("was")
    held["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    world = given(tmp_path, only("on-demand"), *running("old", "on-demand", held))
    change = given(tmp_path, only("spot"), name="change.json")
    found = json.loads(dovetail("plan", "-f", world, "--change", change, "-o", "json").out)
    assert found["evicted"] == []
    assert [each["heldBy"] for each in found["replaced"]] == ["default/was"]


def test_a_change_that_alters_nothing_says_so(tmp_path: Path) -> None:
    world = given(tmp_path, only("spot"), pod("p"))
    assert "the change alters nothing" in dovetail("plan", "-f", world, "--change", world).out
    empty = given(
        tmp_path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}, name="no.json"
    )
    nothing = dovetail("plan", "-f", world, "--change", empty)
    assert (nothing.code, "a plan depends on no object in it" in nothing.err) == (1, True)


# ------------------------------------------------------------------ near misses


def test_each_obstacle_has_its_words(tmp_path: Path) -> None:
    torn = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {
                                "key": "topology.kubernetes.io/zone",
                                "operator": "In",
                                "values": ["test-zone-b"],
                            }
                        ]
                    }
                ]
            }
        }
    }
    batch = pool(
        "batch",
        taints=[{"key": "team", "value": "ml", "effect": "NoSchedule"}],
        labels={"team": "ml"},
        limits={"cpu": "4"},
    )
    found = planned(
        "-f",
        given(
            tmp_path,
            pool(),
            batch,
            pod("tainted", nodeSelector={"team": "ml"}),
            pod("typo", nodeSelector={"disk": "nvme"}),
            pod("huge", cpu="5000"),
            pod("torn", nodeSelector={"topology.kubernetes.io/zone": "test-zone-a"}, affinity=torn),
            pod("limited", cpu="6", nodeSelector={"team": "ml"}, tolerations=[{"operator": "Exists"}]),
        ),
    )
    said = {
        name: " ".join(nearest(found, f"default/{name}"))
        for name in ("tainted", "typo", "huge", "torn", "limited")
    }
    assert "in test-zone-a but for taint team=ml:NoSchedule" in said["tainted"]
    assert "but for its node selector: disk In [nvme]" in said["typo"]
    assert "but for cpu: it requests 5k, and the most there is is" in said["huge"]
    assert "topology.kubernetes.io/zone cannot have every value it requires" in said["torn"]
    assert "but for the limits of pool batch (cpu 4)" in said["limited"]


# ------------------------------------------------------------------ bad input


def test_no_pool_and_a_pool_without_types_are_decisions(tmp_path: Path) -> None:
    nobody = planned("-f", given(tmp_path, pod("p")))
    assert nobody["unschedulable"][0]["reasons"][0]["reason"] == "no dynamic nodepools found"
    wrong = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["nope"]}]
    empty = planned("-f", given(tmp_path, pool(requirements=wrong), pod("p")))
    assert (
        empty["unschedulable"][0]["reasons"][0]["reason"] == "the pool's requirements leave no instance type"
    )


def test_no_pods_at_all_is_fine_and_said(tmp_path: Path) -> None:
    ended = dovetail("plan", "-f", given(tmp_path, pool()))
    assert (ended.code, "nothing to plan" in ended.err) == (0, True)


def test_absurd_amounts_are_refused_or_decided(tmp_path: Path) -> None:
    found = planned(
        "-f", given(tmp_path, pool(), pod("a", cpu="9e300"), pod("b", memory="9999999999Ei"), pod("c"))
    )
    assert {each["pod"] for each in found["unschedulable"]} == {"default/a", "default/b"}
    for amount in ("lots", "-5"):
        ended = dovetail("plan", "-f", given(tmp_path, pool(), pod("p", cpu=amount)))
        assert_one_sentence(ended)


UNREADABLE: dict[str, tuple[dict[str, Any], str]] = {
    "a node with more memory than any machine": (
        {"kind": "Node", "apiVersion": "v1", "status": {"allocatable": {"memory": "9" * 400}}},
        "Node bad makes no sense: status.allocatable[memory] is more than any machine has",
    ),
    "a daemon that requests more than any machine has": (
        {
            "kind": "DaemonSet",
            "apiVersion": "apps/v1",
            "spec": {"template": {"spec": {"containers": [{"resources": {"requests": {"cpu": "1e30"}}}]}}},
        },
        "DaemonSet bad makes no sense: its pods request more cpu than any machine has",
    ),
    "a budget whose number is a list": (
        {"kind": "PodDisruptionBudget", "apiVersion": "policy/v1", "spec": {"minAvailable": [1]}},
        "reading a PodDisruptionBudget: ",
    ),
}


@pytest.mark.parametrize("case", UNREADABLE)
@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_document_that_would_be_set_aside_is_refused_in_one_sentence(
    case: str, suffix: str, tmp_path: Path
) -> None:
    """Left out in silence, it would make the plan one for another cluster."""
    bad, told = UNREADABLE[case]
    path = given(tmp_path, pool(), pod("web"), {**bad, "metadata": {"name": "bad"}}, name=f"world.{suffix}")
    ended = dovetail("plan", "-f", path)
    assert_one_sentence(ended)
    assert ended.out == ""
    assert told in ended.err
    assert "item 3" in ended.err if suffix == "json" else "world.yaml:" in ended.err
    assert_one_sentence(dovetail("plan", "--disruption", "-f", path))


def assert_one_sentence(ended: Ended) -> None:
    assert ended.code == 1
    assert len(ended.err.strip().splitlines()) == 1
    assert "this is a bug" not in ended.err


@pytest.mark.parametrize(
    "text",
    [
        b'[{"name": "x", "resources": {"cpu": "4"}, "zones": ["a"], "price": {}}]',
        b'[{"name": "x", "resources": {"cpu": "4"}, "zones": ["a"], "price": {"spot": -1}}]',
        b'[{"name": "x", "zones": ["a"], "price": {"spot": 1}}, {"name": "x"}]',
        b'{"types": [], "zones": []}',
        b'{"types": 5}',
        b"{nope",
        b"[5]",
        b"",
    ],
)
def test_a_catalogue_that_sells_nothing_is_one_clear_error(text: bytes, tmp_path: Path) -> None:
    shop = tmp_path / "catalog.json"
    shop.write_bytes(text)
    assert_one_sentence(dovetail("plan", "-f", given(tmp_path, pool(), pod("p")), "--catalog", str(shop)))


def test_catalogues_that_are_not_there_are_named(tmp_path: Path) -> None:
    world = given(tmp_path, pool(), pod("p"))
    for name in ("nowhere.json", "aws:mars-1"):
        assert_one_sentence(dovetail("plan", "-f", world, "--catalog", name))


def test_a_workload_beyond_all_measure_is_refused(tmp_path: Path) -> None:
    template = {"spec": {"containers": [{"name": "a"}]}}
    endless = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"replicas": 2_000_000_000, "template": template},
    }
    assert_one_sentence(dovetail("plan", "-f", given(tmp_path, pool(), endless)))


def test_a_free_catalogue_still_gives_a_plan(tmp_path: Path) -> None:
    shop = tmp_path / "free.json"
    sized = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    listed = [{"name": "x", "resources": sized, "zones": ["a"], "price": {"on-demand": 0}}]
    shop.write_text(json.dumps(listed), encoding="utf-8")
    found = planned("-f", given(tmp_path, pool(), pod("p"), pod("q")), "--catalog", str(shop))
    assert found["totalHourly"] == 0
    assert sum(len(node["pods"]) for node in found["nodes"]) == 2


def test_thousands_of_different_shapes_take_no_longer_than_they_should(tmp_path: Path) -> None:
    shapes = [pod(f"s-{i}", cpu=f"{100 + i}m", memory=f"{200 + i % 977}Mi") for i in range(3_000)]
    alike = [pod(f"s-{i}") for i in range(3_000)]
    started = time.perf_counter()
    planned("--quick", "-f", given(tmp_path, pool(), *alike, name="alike.json"))
    between = time.perf_counter()
    found = planned("--quick", "-f", given(tmp_path, pool(), *shapes))
    assert time.perf_counter() - between < 20 * (between - started) + 5
    assert sum(len(node["pods"]) for node in found["nodes"]) == 3_000


CONFINED = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - {key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}
---
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]
"""


def test_limits_stand_in_for_requests_and_a_resource_no_pool_has_is_told_first(tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    file.write_text(CONFINED)
    ended = dovetail("plan", "-f", str(file))
    assert ended.code == 3
    (told,) = [line for line in ended.out.splitlines() if "train" in line]
    assert told.startswith(
        "default/train requests nvidia.com/gpu 1, and no instance type of any pool has it; types with it: g"
    )
    assert told.endswith("; pool general excludes them: karpenter.k8s.aws/instance-category In [c m r]")
    whole = dovetail("plan", "-f", str(file), "--explain", "train").out.splitlines()
    assert whole[0] == "default/train requests nvidia.com/gpu 1, and no instance type of any pool has it"
    assert whole[2] == "  pool general excludes them: karpenter.k8s.aws/instance-category In [c m r]"


def refused(tmp_path: Path, text: str, suffix: str = "yaml") -> list[str]:
    """What is said on stderr about a file that cannot be planned."""
    file = tmp_path / f"wrong.{suffix}"
    file.write_text(text)
    ended = dovetail("plan", "-f", str(file))
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.endswith("; nothing was planned\n")
    return ended.err.replace(str(file), "FILE").splitlines()[:-1]


def test_pools_that_would_be_refused_are_complained_about_and_nothing_is_planned(tmp_path: Path) -> None:
    wrong = CONFINED.replace("operator: In", "operator: Is")
    (said,) = refused(tmp_path, wrong)
    assert said.startswith("FILE:10: error: spec.template.spec.requirements[0].operator: ")
    old = refused(tmp_path, CONFINED.replace("karpenter.sh/v1", "karpenter.sh/v1beta1"))
    assert "karpenter.sh/v1beta1 NodePool is not served: write it as karpenter.sh/v1" in old[0]
    listed = {"apiVersion": "v1", "kind": "List", "items": [yaml.safe_load(wrong.partition("---")[0])]}
    (said,) = refused(tmp_path, json.dumps(listed), "json")
    assert said.startswith("FILE, item 1: error: spec.template.spec.requirements[0].operator: ")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("spec: {limits: {cpu: 0%}, ", 'spec.limits.cpu: "0%" is not an amount'),
        (
            "spec: {disruption: {consolidateAfter: 0s, budgets: [{nodes: x}]}, ",
            "spec.disruption.budgets[0].nodes: ",
        ),
    ],
)
def test_an_amount_that_is_none_is_a_complaint(tmp_path: Path, more: str, told: str) -> None:
    reference = "{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}"
    template = f"template: {{spec: {{requirements: [], nodeClassRef: {reference}}}}}}}"
    pool = f"apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: a}}\n{more}{template}\n"
    assert any(told in each for each in refused(tmp_path, pool))


def test_an_overlay_whose_price_is_no_number_is_a_complaint(tmp_path: Path) -> None:
    overlay = "apiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata: {name: o}\n"
    said = refused(tmp_path, CONFINED + f"---\n{overlay}spec: {{requirements: [], priceAdjustment: 0%}}\n")
    assert "spec.priceAdjustment: " in said[0]


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_text_nested_without_end_is_a_complaint(tmp_path: Path, suffix: str) -> None:
    deep = '{"apiVersion": "v1", "kind": "Pod", "spec": ' + "[" * 3000 + "]" * 3000 + "}"
    for text in (deep, f'{{"kind": "List", "items": [{deep}]}}'):
        (said,) = refused(tmp_path, text, suffix)
        assert said.endswith("nested deeper than 128 levels; no Kubernetes object is")


def test_an_empty_document_costs_next_to_nothing(tmp_path: Path) -> None:
    file = tmp_path / "empty.yaml"
    file.write_text("---\n{}\n" * 199_000)
    began = time.process_time()
    ended = dovetail("plan", "-f", str(file))
    assert ended.err.splitlines()[-2].endswith("more than 1000 complaints; the rest is not shown")
    assert time.process_time() - began < 3


def test_without_a_pool_the_one_that_is_needed_is_named_and_planned_with_when_asked(tmp_path: Path) -> None:
    file = tmp_path / "pods.yaml"
    pods = CONFINED.partition("---")[2].replace("spec:", "spec:\n  nodeSelector: {team: blue}", 1)
    file.write_text(pods)
    without = dovetail("plan", "-f", str(file))
    assert without.code == 3
    assert without.err.splitlines()[0] == (
        "note: there is no NodePool in these files; the pods need a pool default "
        "(karpenter.sh/capacity-type In [on-demand spot], labels team=blue): --default-pool plans with it"
    )
    ended = dovetail("plan", "-f", str(file), "--default-pool", "-o", "json")
    assert ended.code == 0
    assert "a pool default (karpenter.sh/capacity-type In [on-demand spot], labels team=blue)" in ended.err
    (node,) = json.loads(ended.out)["nodes"]
    assert node["nodepool"] == "default"
    plain = tmp_path / "plain.yaml"
    plain.write_text(
        pods.replace("team: blue", "karpenter.sh/nodepool: web").replace("nvidia.com/gpu", "cpu")
    )
    told = dovetail("plan", "-f", str(plain)).err
    assert "the pods need a pool web (" in told
    assert "karpenter.k8s.aws/instance-category In [c m r]" in told
