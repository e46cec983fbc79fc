"""plan --disruption: what is removable, what it saves, and why the others are blocked."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from dovetail.api import codec, labels, manifests
from dovetail.api.pod import Pod
from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.inputs import DisruptionInput
from support.builders import NOW, nodepool, owner, pod
from support.commands import dovetail
from support.disruption import LARGE, MEDIUM, SMALL, machine, pdb, pool, scene, state
from support.disruption_policies import asking
from support.seen_clusters import encode_first_format, encode_world

RS = owner("ReplicaSet")
HUGE = machine("huge", 64, 40.0)


def light(name: str, node: str, cpu: str = "1", **about: Any) -> Pod:
    return pod(name, cpu=cpu, memory="10Mi", node=node, owned_by=RS, **about)


def saved(path: Path, world: DisruptionInput) -> str:
    file = path / "world.json"
    file.write_bytes(encode_world(world.snapshot))
    return str(file)


def mixed() -> DisruptionInput:
    guarded = light("db", "guarded", "15", labels={"app": "web"})
    return scene(
        state("empty"),
        state("old", light("p", "old", "15"), drifted=NOW - timedelta(hours=1)),
        state("guarded", guarded),
        pools=[pool(nodes="2")],
        pdbs=[pdb(allowed=0)],
    )


def test_the_table_says_what_goes_and_why_the_rest_stays(tmp_path: Path) -> None:
    ended = dovetail("plan", "--disruption", "--snapshot", saved(tmp_path, mixed()))
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0].split() == [
        "TURN",
        "WHY",
        "DECISION",
        "NODES",
        "REPLACED",
        "BY",
        "PODS",
        "SAVES",
        "$/H",
        "PAID",
        "BACK",
        "IN",
    ]
    assert lines[1].split()[:5] == ["1", "Empty", "delete", "empty", "-"]
    assert lines[2].split()[:4] == ["2", "Drifted", "replace", "old"]
    (stays,) = [line for line in lines if line.startswith("guarded")]
    assert "pdb " in stays
    assert "PodDisruptionBudget=[default/pdb]), for pod default/db" in stays
    assert "2 nodes removable, 1 replacement, 1 pod would move, 1 node blocked" in ended.out


def test_json_has_everything_a_program_needs(tmp_path: Path) -> None:
    ended = dovetail("plan", "--disruption", "--snapshot", saved(tmp_path, mixed()), "-o", "json")
    found = json.loads(ended.out)
    empty, old = found["commands"]
    assert (empty["reason"], empty["decision"], empty["savingsHourly"]) == ("Empty", "delete", 8.0)
    assert old["moves"] == [{"pod": "default/p", "to": "new node 1"}]
    assert old["replacements"][0]["instanceType"] == "large"
    (stays,) = found["staying"]
    assert (stays["node"], stays["reason"], stays["pod"]) == ("guarded", "pdb", "default/db")
    assert [wave["nodes"] for wave in found["waves"]] == [["old"]]
    assert found["more"] is False


def test_yaml_says_the_same(tmp_path: Path) -> None:
    file = saved(tmp_path, mixed())
    as_json = dovetail("plan", "--disruption", "--snapshot", file, "-o", "json")
    as_yaml = dovetail("plan", "--disruption", "--snapshot", file, "-o", "yaml")
    assert yaml.safe_load(as_yaml.out) == json.loads(as_json.out)


def test_one_node_is_explained(tmp_path: Path) -> None:
    file = saved(tmp_path, mixed())
    goes = dovetail("plan", "--disruption", "--snapshot", file, "--explain", "old")
    assert "old is removable in turn 2: Drifted, replace: [old] -> [1 replacement]" in goes.out
    assert "default/p moves to new node 1" in goes.out
    stays = dovetail("plan", "--disruption", "--snapshot", file, "--explain", "guarded")
    assert stays.out.startswith("guarded is blocked: pdb prevents pod evictions")
    told = json.loads(
        dovetail("plan", "--disruption", "--snapshot", file, "--explain", "guarded", "-o", "json").out
    )
    assert (told["goes"], told["reason"]) == (False, "pdb")
    lost = dovetail("plan", "--disruption", "--snapshot", file, "--explain", "gaurded")
    assert (lost.code, lost.out) == (1, "")
    assert "there is no node gaurded here; did you mean guarded?" in lost.err


def test_a_drifted_node_that_only_a_person_can_free_is_an_exit_code(tmp_path: Path) -> None:
    held = light("p", "old", annotations={labels.DO_NOT_DISRUPT: "true"})
    stuck = scene(state("old", held, drifted=NOW - timedelta(hours=1)))
    assert dovetail("plan", "--disruption", "--snapshot", saved(tmp_path, stuck)).code == 3
    shut = scene(state("old", light("p", "old"), drifted=NOW), pools=[pool(nodes="0")])
    assert dovetail("plan", "--disruption", "--snapshot", saved(tmp_path, shut)).code == 0


def one_large_node() -> DisruptionInput:
    """A node that several smaller ones would be cheaper than, where that is wanted."""
    pods = [light(f"p{i}", "n", "3.5") for i in range(5)]
    return scene(state("n", *pods, of=HUGE), types=[HUGE, MEDIUM])


@pytest.mark.spec("FN-4")
def test_a_file_of_the_first_format_is_read_with_the_settings_of_the_environment(tmp_path: Path) -> None:
    file = str(tmp_path / "world.json")
    Path(file).write_bytes(encode_first_format(one_large_node().snapshot))
    nothing = json.loads(dovetail("plan", "--disruption", "--snapshot", file, "-o", "json").out)
    assert nothing["commands"] == []
    many = {"CONSOLIDATE_MANY": "true"}
    (split,) = json.loads(dovetail("plan", "--disruption", "--snapshot", file, "-o", "json", env=many).out)[
        "commands"
    ]
    assert (split["type"], split["evictions"], len(split["replacements"])) == ("many", 5, 5)
    assert split["paybackHours"] == pytest.approx(1 / 30)
    strict = {**many, "CONSOLIDATION_MIN_SAVING": "30.5"}
    ended = dovetail("plan", "--disruption", "--snapshot", file, env=strict)
    assert "nothing would be disrupted now; 1 node blocked" in ended.out


@pytest.mark.spec("FN-4")
def test_a_file_of_the_second_format_brings_its_settings_wherever_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSOLIDATE_MANY", "true")
    file = saved(tmp_path, one_large_node())
    monkeypatch.delenv("CONSOLIDATE_MANY")
    other = {"CONSOLIDATION_MIN_SAVING": "30.5", "FEATURE_GATES": "SpotToSpotConsolidation=true"}
    answers = [
        dovetail("plan", "--disruption", "--snapshot", file, "-o", "json", env=env).out for env in ({}, other)
    ]
    assert answers[0] == answers[1]
    (split,) = json.loads(answers[0])["commands"]
    assert (split["type"], len(split["replacements"])) == ("many", 5)


@pytest.mark.spec("FN-4")
def test_a_file_of_the_third_format_is_refused_in_a_sentence(tmp_path: Path) -> None:
    file = Path(saved(tmp_path, one_large_node()))
    file.write_bytes(file.read_bytes().replace(b"dovetail-snapshot/2", b"dovetail-snapshot/3"))
    ended = dovetail("plan", "--disruption", "--snapshot", str(file))
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        f"dovetail: reading the snapshot {file}: its format is 'dovetail-snapshot/3' and this version reads "
        "'dovetail-snapshot/2' and 'dovetail-snapshot/1'; take it again with this version\n"
    )


def test_a_pools_annotations_survive_in_a_snapshot(tmp_path: Path) -> None:
    pods = [light(f"p{i}", "n", "3.5") for i in range(5)]
    own = asking(pool(), consolidation="many")
    file = saved(tmp_path, scene(state("n", *pods, of=HUGE), types=[HUGE, MEDIUM], pools=[own]))
    found = json.loads(dovetail("plan", "--disruption", "--snapshot", file, "-o", "json").out)
    assert [command["type"] for command in found["commands"]] == ["many"]


def test_waves_and_a_pause_are_shown(tmp_path: Path) -> None:
    nodes = [state(f"n{i}", light(f"p{i}", f"n{i}", "15"), drifted=NOW) for i in range(5)]
    waves = dovetail(
        "plan", "--disruption", "--snapshot", saved(tmp_path, scene(*nodes, pools=[pool(nodes="2")]))
    )
    assert "WAVE" in waves.out
    assert [line.split()[0] for line in waves.out.splitlines() if "× large" in line and "n" in line][-3:] == [
        "1",
        "2",
        "3",
    ]
    held = scene(*nodes, pools=[asking(pool(nodes="2"), drift="paused")])
    paused = dovetail("plan", "--disruption", "--snapshot", saved(tmp_path, held))
    assert "drift of pool default is paused: annotation disruption.dovetail.sh/drift" in paused.out
    assert paused.code == 3


def test_turns_bound_how_far_it_looks(tmp_path: Path) -> None:
    ended = dovetail("plan", "--disruption", "--snapshot", saved(tmp_path, mixed()), "--turns", "1")
    assert "there is more to find in later turns: see --turns" in ended.out


def test_manifests_will_do(tmp_path: Path) -> None:
    made = state("n", of=machine("s-4x-amd64-linux", 4, 1.0), zone="test-zone-a")
    file = tmp_path / "world.yaml"
    objects = (nodepool(budgets=pool().spec.disruption.budgets or ()), made.node, made.claim)
    file.write_text("---\n".join(manifests.write_manifest(codec.to_dict(each)) for each in objects if each))
    ended = dovetail("plan", "--disruption", "-f", str(file), "-o", "json")
    assert ended.code == 0, ended.err
    (command,) = json.loads(ended.out)["commands"]
    assert [node["name"] for node in command["nodes"]] == ["n"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--change", "x.yaml", "-f", "y.yaml"), "--disruption and --change exclude each other"),
        (("--snapshot", "x", "-f", "y.yaml"), "exclude each other"),
        (("--snapshot", "x", "--catalog", "aws"), "--catalog is for files"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(arguments: tuple[str, ...], words: str) -> None:
    ended = dovetail("plan", "--disruption", *arguments)
    assert (ended.code, ended.out) == (1, "")
    assert words in ended.err
    assert ended.err.count("\n") == 1


def test_a_world_without_nodes_of_ours_says_so(tmp_path: Path) -> None:
    ended = dovetail("plan", "--disruption", "--snapshot", saved(tmp_path, scene()))
    assert ended.code == 0
    assert "there is no node with a NodeClaim" in ended.err


def test_the_guide_shows_what_the_command_says() -> None:
    """The console blocks of the guide, word for word."""
    root = Path(__file__).parents[3]
    guide = (root / "docs/guides/disruption.md").read_text(encoding="utf-8")
    shown = re.findall(r"\$ dovetail ([^\n]+)\n(.*?)```", guide, re.DOTALL)
    assert len(shown) == 2
    for line, out in shown:
        arguments = line.replace("examples/", f"{root}/examples/").split()
        assert dovetail(*arguments).out == out


def test_the_guide_names_every_reason() -> None:
    guide = (Path(__file__).parents[3] / "docs/guides/disruption.md").read_text(encoding="utf-8")
    assert [
        held for held in BlockedReason if held is not BlockedReason.UNSAID and f"`{held}`" not in guide
    ] == []


def test_estimated_prices_are_marked_wherever_they_are_shown(tmp_path: Path) -> None:
    """Of the node that goes, of what replaces it, of the node that is blocked, and of the sum."""
    guessed = replace(LARGE, offerings=tuple(replace(each, price_estimated=True) for each in LARGE.offerings))
    world = replace(mixed().snapshot, catalogs=((SMALL, MEDIUM, guessed),))
    file = tmp_path / "world.json"
    file.write_bytes(encode_world(world))
    lines = dovetail("plan", "--disruption", "--snapshot", str(file)).out.splitlines()
    assert "~8.0000" in lines[1]
    assert "~0.0000" in lines[2]
    (stays,) = [line for line in lines if line.startswith("guarded")]
    assert "~8.0000" in stays
    assert lines[-2:] == [
        "saves ~$8.0000 an hour, $5,840 a month",
        "~ marks estimates: prices that are not known without asking AWS",
    ]
    goes = dovetail("plan", "--disruption", "--snapshot", str(file), "--explain", "empty").out
    assert " (estimated), paid back" in goes
    told = json.loads(dovetail("plan", "--disruption", "--snapshot", str(file), "-o", "json").out)
    empty, old = told["commands"]
    marked = [*empty["nodes"], *old["nodes"], *old["replacements"], *told["staying"]]
    assert [each["priceEstimated"] for each in marked] == [True] * 4
    plain = dovetail("plan", "--disruption", "--snapshot", saved(tmp_path, mixed()))
    as_json = dovetail("plan", "--disruption", "--snapshot", saved(tmp_path, mixed()), "-o", "json")
    assert not any(word in plain.out + as_json.out for word in ("~", "stimate"))
