"""`dovetail explain` of a saved snapshot: what it says, how quickly, and what it makes of bad input."""

from __future__ import annotations

import gc
import json
import time
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.codec import convert
from dovetail.api.core import PodDisruptionBudget
from dovetail.api.nodepool import Budget, NodePool
from dovetail.api.pod import Pod, PodStatus, SchedulingGate
from dovetail.app.snapshot_file import FORMAT, read_snapshot
from dovetail.cli.views.pods import explain_pod
from dovetail.scheduling.model import snapshot_codec
from dovetail.scheduling.model.snapshot import Snapshot, StateNode
from support.builders import NOW, condition, node, nodeclaim, nodepool, owner, pod, taint
from support.commands import Ended, dovetail
from support.explain_snapshots import full_node, world
from support.seen_clusters import encode_world, see

HELD = {"karpenter.sh/do-not-disrupt": "true"}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return tmp_path / "snapshot.json"


def explain(saved: Path, snapshot: Snapshot, *arguments: str) -> Ended:
    saved.write_bytes(encode_world(snapshot))
    return dovetail("explain", *arguments, "--snapshot", str(saved))


def test_a_pod_without_a_place_is_told_counts_by_reason_and_the_nearest_miss(saved: Path) -> None:
    pools = [nodepool(taints=[taint("team", value="a")])]
    ended = explain(saved, world(5, [pod("big", cpu="2")], pools), "big")
    assert (ended.code, ended.err) == (3, "")
    lines = ended.out.splitlines()
    assert lines[0] == (
        "default/big fits none of 6 pools and nodes: 5 not enough resources, 1 a taint is not tolerated"
    )
    assert lines[1].startswith("  nearest: would fit ")
    assert lines[1].endswith(" but for taint team=a:NoSchedule")
    assert lines[4:6] == ["  not enough resources (5)", "    node-0000: cpu: needs 2, has 1"]
    assert "    and 2 more; --all shows them" in lines
    assert "node-0004" not in ended.out


def test_all_names_every_place(saved: Path) -> None:
    ended = explain(saved, world(5, [pod("big", cpu="10000")]), "big", "--all")
    assert all(f"node-{number:04d}: cpu: needs 10k, has 1\n" in ended.out for number in range(5))
    assert "more; --all" not in ended.out


def test_json_and_yaml_say_the_same_as_the_table(saved: Path) -> None:
    snapshot = world(5, [pod("big", cpu="10000")])
    ended = explain(saved, snapshot, "big", "-o", "json")
    told = json.loads(ended.out)
    assert ended.code == 3
    assert (told["kind"], told["name"], told["state"], told["place"]) == (
        "Pod",
        "default/big",
        "waiting",
        None,
    )
    assert [(each["reason"], each["count"]) for each in told["reasons"]] == [("not enough resources", 6)]
    assert told["nearest"].startswith("would fit ")
    assert "rejections" not in told
    assert yaml.safe_load(explain(saved, snapshot, "big", "-o", "yaml").out) == told
    whole = json.loads(explain(saved, snapshot, "big", "--all", "-o", "json").out)
    assert len(whole["rejections"]) == 6


def test_a_pod_that_will_get_a_new_node_is_told_which(saved: Path) -> None:
    ended = explain(saved, world(1, [pod("web", cpu="2")]), "web")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[:2] == ["default/web will run on a new node of pool default", "  with 0 other pods"]
    assert lines[2].startswith("  cheapest: ")
    told = json.loads(explain(saved, world(1, [pod("web", cpu="2")]), "web", "-o", "json").out)
    assert told["newNode"]["pool"] == "default"
    assert told["newNode"]["price"] > 0
    assert told["reasons"] == []


def test_a_pod_that_fits_a_running_node_is_told_its_name(saved: Path) -> None:
    ended = explain(saved, world([full_node(7, pods=0)], [pod("web", cpu="2")]), "web")
    assert (ended.code, ended.out) == (0, "default/web will run on node-0007\n")


def test_a_pod_that_runs_is_told_where(saved: Path) -> None:
    ended = explain(saved, world(2), "web-0001-2")
    assert (ended.code, ended.out) == (0, "default/web-0001-2 is on node node-0001 of pool default\n")


def test_a_pod_on_a_node_that_goes_is_told_where_it_will_be(saved: Path) -> None:
    leaving = replace(full_node(1), marked=True)
    snapshot = world([full_node(0, pods=0), leaving], moving=leaving.pods)
    ended = explain(saved, snapshot, "web-0001-0")
    assert ended.out == "its node node-0001 is being removed; default/web-0001-0 will run on node-0000\n"


def test_pools_that_are_not_asked_are_named(saved: Path) -> None:
    pools = [nodepool("slow", ready=False), nodepool("fixed", replicas=3)]
    ended = explain(saved, world(1, [pod("web", cpu="2")], pools), "web")
    assert ended.code == 3
    assert "  pool slow is not used: it is not ready" in ended.out
    assert "  pool fixed is not used: it is static, with a fixed number of nodes\n" in ended.out


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"status": PodStatus(phase="Succeeded")}, "has run to its end (Succeeded)"),
        ({"node_name": "gone"}, "is bound to node gone, which does not exist"),
        (
            {"status": PodStatus(nominated_node_name="n")},
            "is pending until kube-scheduler has freed capacity for it on node n",
        ),
        (
            {"status": PodStatus(phase="Pending")},
            "is new: kube-scheduler has not said yet that it is unschedulable",
        ),
    ],
)
def test_a_pod_for_which_no_node_is_looked_for_is_told_why(changed: dict[str, object], words: str) -> None:
    assert words in _aside(replace(pod("odd"), **changed))


def test_gates_daemons_and_static_pods_are_told_apart() -> None:
    gated = pod("odd", scheduling_gates=(SchedulingGate(name="quota"),))
    assert _aside(gated) == "default/odd is not scheduled because of its scheduling gates: quota"
    assert "belongs to a DaemonSet" in _aside(pod("odd", owned_by=owner("DaemonSet")))
    assert "is a static pod" in _aside(pod("odd", owned_by=owner("Node", api_version="v1")))
    assert "is being deleted" in _aside(pod("odd", deleted=NOW))


def _aside(odd: Pod) -> str:
    answer = explain_pod(see(world(1), {odd.full_name: odd}), odd.full_name)
    assert (answer.state, answer.stuck) == ("aside", False)
    return answer.sentence


def test_a_node_says_what_it_is_and_why_it_stays(saved: Path) -> None:
    held = full_node(0)
    held = replace(held, pods=(pod("keep", node="node-0000", annotations=HELD), *held.pods))
    ended = explain(saved, world([held]), "node-0000")
    lines = ended.out.splitlines()
    why = 'pod has "karpenter.sh/do-not-disrupt" annotation (Pod=default/keep)'
    assert (ended.code, lines[0]) == (0, f"node node-0000 is blocked: {why}")
    assert lines[1:7] == [
        "  state: running",
        "  nodeclaim: claim-0000",
        "  pool: default",
        "  type: s-4x-amd64-linux",
        "  zone: test-zone-a",
        "  capacity type: on-demand",
    ]
    assert "  requested: cpu 4 of 4, memory 4Gi of 16Gi, pods 4 of 110" in lines
    assert "  expires: 2026-07-01T12:00:00+00:00" in lines
    assert sum(why in line for line in lines) == 4


def test_a_node_is_found_by_its_claims_name_and_may_be_told_in_json(saved: Path) -> None:
    told = json.loads(explain(saved, world(1), "claim-0000", "-o", "json").out)
    assert (told["kind"], told["name"], told["nodeClaim"]) == ("Node", "node-0000", "claim-0000")
    assert told["price"] > 0
    assert [each["name"] for each in told["pods"]] == [f"default/web-0000-{n}" for n in range(3)]
    assert {each["type"] for each in told["conditions"]} == {"Launched", "Registered", "Initialized", "Ready"}
    assert told["disruption"]["reasons"][1] == {
        "reason": "Drifted",
        "allowed": False,
        "why": "it has not drifted",
    }


def _with(state: StateNode, *kinds: str) -> StateNode:
    assert state.claim is not None
    status = state.claim.status
    more = tuple(condition(kind) for kind in kinds)
    return replace(
        state, claim=replace(state.claim, status=replace(status, conditions=status.conditions + more))
    )


def verdicts(saved: Path, snapshot: Snapshot, name: str) -> dict[str, str]:
    told = json.loads(explain(saved, snapshot, name, "-o", "json").out)
    return {
        each["reason"]: "yes" if each["allowed"] else each["why"] for each in told["disruption"]["reasons"]
    }


def test_an_empty_node_may_go_unless_its_pools_budget_is_used_up(saved: Path) -> None:
    empty = _with(full_node(0, pods=0), "Consolidatable")
    open_pool, shut = nodepool(budgets=[Budget(nodes="1")]), nodepool(budgets=[Budget(nodes="0")])
    assert verdicts(saved, world([empty], pools=[open_pool]), "node-0000")["Empty"] == "yes"
    told = verdicts(saved, world([empty], pools=[shut]), "node-0000")
    assert told["Empty"] == (
        'budget "0" of pool default allows 0 at once for Empty, and 0 are being disrupted or not ready'
    )
    ended = explain(saved, world([empty], pools=[open_pool]), "node-0000")
    assert ended.out.startswith("node node-0000 may be disrupted now: Empty\n")


def test_a_drifted_node_may_go(saved: Path) -> None:
    pools = [nodepool(budgets=[Budget(nodes="1")])]
    drifted = _with(full_node(0), "Drifted")
    assert verdicts(saved, world([drifted], pools=pools), "node-0000")["Drifted"] == "yes"


def _annotated(key: str, text: str) -> NodePool:
    pool = nodepool(budgets=[Budget(nodes="1")])
    return replace(pool, metadata=replace(pool.metadata, annotations={key: text}))


def test_a_node_that_waits_after_a_lost_replacement_says_so_and_until_when(saved: Path) -> None:
    now, generation = world(1).options.now, nodepool().metadata.generation
    note = f"Drifted=2@{now.strftime('%Y-%m-%dT%H:%M:%SZ')}/{generation}"
    pools = [_annotated(labels.LOST_REPLACEMENTS, note)]
    told = verdicts(saved, world([_with(full_node(0), "Drifted")], pools=pools), "node-0000")["Drifted"]
    assert told.startswith("Drifted: 2 replacements in a row did not come up; the next is tried at ")


def test_a_node_whose_pools_drift_is_paused_says_so(saved: Path) -> None:
    pools = [_annotated(labels.DRIFT, "paused")]
    told = verdicts(saved, world([_with(full_node(0), "Drifted")], pools=pools), "node-0000")["Drifted"]
    assert told.startswith("drift of pool default is paused")


def test_a_node_is_not_consolidated_before_its_time_and_then_only_for_a_saving(saved: Path) -> None:
    pools = [nodepool(budgets=[Budget(nodes="1")], consolidate_after="5m")]
    early = verdicts(saved, world(1, pools=pools), "node-0000")
    assert early["Underutilized"] == "it is not consolidatable yet (consolidateAfter is 5m, 5m0s to go)"
    assert early["Empty"] == "pods on it would have to move"
    ripe = [_with(full_node(0), "Consolidatable"), full_node(1, pods=0)]
    assert verdicts(saved, world(ripe, pools=pools), "node-0000")["Underutilized"] == "yes"


def test_a_budget_that_protects_a_pod_is_named(saved: Path) -> None:
    guarded = {"app": "db"}
    budget = yaml.safe_load("""{metadata: {name: db, namespace: default, generation: 1},
        spec: {selector: {matchLabels: {app: db}}, maxUnavailable: 0}, status: {observedGeneration: 1}}""")
    state = replace(full_node(0), pods=(pod("db", node="node-0000", labels=guarded),))
    snapshot = replace(world([state]), budgets=(convert(PodDisruptionBudget, budget),))
    ended = explain(saved, snapshot, "node-0000")
    assert ended.out.splitlines()[0] == (
        "node node-0000 is blocked: pdb prevents pod evictions (PodDisruptionBudget=[default/db]), "
        "for pod default/db"
    )


def test_claims_on_their_way_and_nodes_of_others_have_answers(saved: Path) -> None:
    coming = StateNode(claim=nodeclaim("coming", true=("Launched",)))
    ordered = StateNode(claim=nodeclaim("ordered", true=()))
    foreign = StateNode(node=node("foreign", nodepool=""))
    snapshot = world([coming, ordered, foreign])
    assert (
        "nodeclaim coming is blocked: nodeclaim does not have an associated node\n  state: launched\n"
        in explain(saved, snapshot, "coming").out
    )
    assert "  state: ordered\n" in explain(saved, snapshot, "nodeclaim/ordered").out
    assert "  state: running, not managed by Dovetail\n" in explain(saved, snapshot, "foreign").out


def test_a_name_that_is_not_there_is_one_sentence_with_a_guess(saved: Path) -> None:
    ended = explain(saved, world(2), "default/web-0001-9")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        "dovetail: there is no pod, node or nodeclaim default/web-0001-9 here; "
        "did you mean default/web-0001-2?\n"
    )
    assert explain(saved, world(0), "x").err.endswith("x here; is it spelled right?\n")


def test_a_name_that_means_several_things_is_one_sentence_that_names_them(saved: Path) -> None:
    snapshot = world([full_node(0, pods=0)], [pod("web"), pod("web", namespace="shop"), pod("node-0000")])
    ended = explain(saved, snapshot, "web")
    assert (ended.code, ended.err) == (
        1,
        "dovetail: web could be pod/default/web or pod/shop/web; say which\n",
    )
    ended = explain(saved, snapshot, "node-0000")
    assert ended.err == "dovetail: node-0000 could be node/node-0000 or pod/default/node-0000; say which\n"
    for name in ("shop/web", "pod/shop/web", "node/node-0000", "pod/node-0000", "nodeclaim/claim-0000"):
        assert explain(saved, snapshot, name).code == 0
    many = world(0, [pod("web", namespace=f"team-{n}") for n in range(9)])
    assert explain(saved, many, "web").err.endswith("pod/team-3/web or one of 5 others; say which\n")


def test_a_file_that_is_no_snapshot_is_one_sentence(tmp_path: Path) -> None:
    def told(path: Path) -> str:
        ended = dovetail("explain", "web", "--snapshot", str(path))
        assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
        return ended.err.removeprefix(f"dovetail: reading the snapshot {path}: ")

    file, advice = tmp_path / "file", "; take one with `dovetail snapshot -o FILE`\n"
    assert told(file) == f"no such file or directory{advice}"
    assert told(tmp_path) == f"is a directory{advice}"
    for content in (b"", b"\xff\xfe", b"kind: Pod\n", b"{}", b"[1]", b'{"format": 3}'):
        file.write_bytes(content)
        assert told(file) == f"it is not one{advice}"
    file.write_bytes(encode_world(world(1)).replace(FORMAT.encode(), b"dovetail-snapshot/9"))
    assert told(file) == (
        "its format is 'dovetail-snapshot/9' and this version reads 'dovetail-snapshot/2' and "
        "'dovetail-snapshot/1'; take it again with this version\n"
    )
    file.write_bytes(encode_world(world(1)).replace(b'"nodes":[', b'"nodes":[7,', 1))
    assert told(file).startswith("it is damaged (")
    file.write_bytes(encode_world(world(1))[:-400])
    assert told(file) == f"it is not one{advice}"


def test_a_snapshot_may_be_piped_in_but_not_beside_a_kubeconfig(tmp_path: Path) -> None:
    piped = dovetail("explain", "node-0000", "--snapshot", "-", stdin=encode_world(world(1)))
    assert (piped.code, piped.out.startswith("node node-0000 is ")) == (0, True)
    both = dovetail("explain", "web", "--snapshot", "a", "--kubeconfig", "b")
    assert (both.code, both.err) == (
        1,
        "dovetail: --snapshot and --kubeconfig exclude each other; leave one out\n",
    )


def test_no_cluster_is_one_sentence(tmp_path: Path) -> None:
    ended = dovetail("explain", "web", env={"HOME": str(tmp_path)})
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert ended.err.startswith("dovetail: finding a cluster: no --kubeconfig, no KUBECONFIG, not in a pod")


def test_a_snapshot_survives_its_file(saved: Path) -> None:
    snapshot = world(3, [pod("big", cpu="10000")])
    saved.write_bytes(encode_world(snapshot))
    assert read_snapshot(str(saved)).situation == see(snapshot).situation
    assert snapshot_codec.decode_snapshot(saved.read_bytes()) == see(snapshot).snapshot


def test_a_pod_among_a_thousand_nodes_is_answered_within_a_second(saved: Path) -> None:
    saved.write_bytes(encode_world(world(1_000, [pod("big", cpu="10000")])))
    begun = time.process_time()
    ended = dovetail("explain", "big", "--snapshot", str(saved))
    taken = time.process_time() - begun
    assert ended.out.startswith(
        "default/big fits none of 1001 pools and nodes: 1001 not enough resources\n  nearest: "
    )
    assert gc.isenabled()
    assert taken < 1.0


def test_what_was_seen_is_short_in_words_however_much_it_is() -> None:
    assert repr(see(world(3))) == "Seen(3 nodes)"


def test_a_resource_that_no_pool_has_is_told_first_and_pools_come_before_nodes(saved: Path) -> None:
    snapshot = world(5, [pod("train", requests={"nvidia.com/gpu": 1})])
    ended = explain(saved, snapshot, "train")
    assert ended.out.splitlines()[:4] == [
        "default/train requests nvidia.com/gpu 1, and no instance type has any",
        "  default/train fits none of 6 pools and nodes: 6 not enough resources",
        "  not enough resources (6)",
        "    default: no instance type has enough resources",
    ]
    told = json.loads(explain(saved, snapshot, "train", "-o", "json").out)
    assert told["explanation"] == ended.out.splitlines()[0]
    assert told["missingResources"] == [
        {"resource": "nvidia.com/gpu", "requested": "1", "instanceTypes": [], "excludedBy": []}
    ]
    tainted = world(5, [pod("big", cpu="2")], [nodepool(taints=[taint("team", value="a")])])
    lines = explain(saved, tainted, "big").out.splitlines()
    assert lines[2] == "  a taint is not tolerated (1)"
    assert lines[4] == "  not enough resources (5)"
