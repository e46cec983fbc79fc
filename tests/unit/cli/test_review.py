"""dovetail review and verify: comments on pull requests, and expectations as people write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.app.cluster_source import SeenCluster
from dovetail.app.snapshot_file import encode_snapshot
from dovetail.cli.views.file_plans import FilePlanner
from dovetail.cli.views.review_comment import MOST_BYTES, escape_markdown
from dovetail.cli.views.world_files import WorldReader
from support.commands import Ended, dovetail
from support.random_changes import claimed_node, deployment, listed, pool, running_pod, thing

EXPECTATIONS = """apiVersion: dovetail.sh/v1alpha1
kind: Expectations
expect:
  - {everyPodPlaced: true}
  - {hourlyAtMost: "0.01"}
"""


class Sides:
    """A snapshot of two nodes with web on them, and the two sides of a pull request."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("base", "head"):
            (folder / name).mkdir()
        nodes = [each for n in range(2) for each in claimed_node(f"node-{n}", "general", "2", "test-zone-a")]
        pods = [running_pod(f"web-5d9c-{n}", "web", f"node-{n}", 500, 512) for n in range(2)]
        (folder / "now.json").write_text(json.dumps(listed(pool("general"), *nodes, *pods)))
        reader = WorldReader()
        reader.read_files([str(folder / "now.json")])
        seen = SeenCluster(FilePlanner(reader, "", "", quick=True).build_situation())
        (folder / "cluster.json").write_bytes(encode_snapshot(seen))
        (folder / "expect.yaml").write_text(EXPECTATIONS)

    def write(self, side: str, *objects: dict[str, Any]) -> None:
        (self.folder / side / "all.json").write_text(json.dumps(listed(*objects)))

    def review(self, *words: str) -> Ended:
        base, head, taken = (str(self.folder / name) for name in ("base", "head", "cluster.json"))
        return dovetail("review", "--base", base, "--head", head, "--snapshot", taken, *words)


@pytest.fixture
def sides(tmp_path: Path) -> Sides:
    return Sides(tmp_path)


@pytest.mark.spec("VF-5")
def test_two_equal_folders_are_one_line(sides: Sides) -> None:
    for side in ("base", "head"):
        sides.write(side, deployment("web", 2, 500, 512))
    told = sides.review("--fail-on", "pods", "--fail-on", "cost:+5%")
    assert (told.code, told.out.count("\n")) == (0, 1), told.err
    assert told.out == "No object that a plan depends on differs between the two sides.\n"


@pytest.mark.spec("VF-5")
def test_a_renamed_label_names_the_pods_that_lose_their_place_with_the_nearest_miss(sides: Sides) -> None:
    sides.write("base", deployment("web", 2, 500, 512))
    sides.write("head", deployment("web", 2, 500, 512, nodeSelector={"disk": "fast"}))
    told = sides.review("--fail-on", "pods")
    assert told.code == 3, told.err
    assert "**2 pods would have no place:**" in told.out
    assert "shop/web\\-0, shop/web\\-1" in told.out
    assert "but for its node selector\\: disk In \\[fast\\]" in told.out


def test_dollars_pods_nodes_and_expectations_are_told(sides: Sides) -> None:
    sides.write("base", deployment("web", 2, 500, 512))
    sides.write("head", deployment("web", 9, 500, 512))
    expect = str(sides.folder / "expect.yaml")
    told = sides.review("--expect", expect, "--fail-on", "cost:+5%")
    assert told.code == 3, told.err
    assert told.out.startswith("**\\$79 → \\$")
    assert "| Deployment shop/web | 2 → 9 |" in told.out
    assert "| new nodes | bought | before | after |" in told.out
    assert "hourlyAtMost 0.01 | now | impossible | cannot be kept by any plan" in told.out
    assert "1 of 2 expectations kept." in told.out
    assert sides.review("--expect", expect, "--fail-on", "expect").code == 3
    assert sides.review("--expect", expect).code == 0
    found = json.loads(sides.review("--format", "json").out)
    (web,) = found["workloads"]
    assert (web["before"], web["after"]) == (2, 9)
    assert web["monthlyAfter"] > web["monthlyBefore"] > 0


def test_a_new_image_is_a_rollout_though_a_snapshot_knows_no_images(sides: Sides) -> None:
    sides.write("base", deployment("web", 2, 500, 512))
    newer = deployment("web", 2, 500, 512)
    newer["spec"]["template"]["spec"]["containers"][0]["image"] = "x:2"
    sides.write("head", newer)
    told = sides.review()
    assert "| Deployment shop/web | 2 → 2, at most 3 |" in told.out, told.err
    assert "While it is rolled out, at most" in told.out


def test_what_is_gone_is_deleted_and_what_was_never_there_is_told(sides: Sides) -> None:
    sides.write("base", deployment("web", 2, 500, 512), deployment("lost", 2, 500, 512))
    told = sides.review()
    assert "| Deployment shop/web | 2 → 0 |" in told.out, told.err
    assert "Deployment shop/lost is not there" in told.out


@pytest.mark.spec("VF-7")
def test_kinds_of_rendered_manifests_are_handled_and_told(sides: Sides) -> None:
    job = {"parallelism": 2, "template": {"spec": {"containers": [{"name": "a"}]}}}
    hook = thing("batch/v1", "Job", "migrate", "shop", spec=job)
    hook["metadata"]["annotations"] = {"helm.sh/hook": "pre-upgrade"}
    target = {"scaleTargetRef": {"kind": "Deployment", "name": "api"}, "minReplicas": 3, "maxReplicas": 9}
    sides.write(
        "head",
        deployment("api", None, 100, 64),
        thing("autoscaling/v2", "HorizontalPodAutoscaler", "api", "shop", spec=target),
        thing("batch/v1", "Job", "once", "shop", spec={**job, "suspend": True}),
        thing("batch/v1", "CronJob", "nightly", "shop", spec={"jobTemplate": {"spec": job}}),
        thing("v1", "ConfigMap", "settings", "shop"),
        thing("example.com/v1", "Gizmo", "g", "shop"),
        hook,
    )
    told = sides.review()
    assert told.code == 0, told.err
    assert "| Deployment shop/api | 0 → 3 |" in told.out
    text = told.out.replace("\\", "")
    assert "counted with 3 pods, its least is 3" in text
    assert "Job shop/once is suspended: it makes no pods" in text
    assert "CronJob shop/nightly is counted as one run of it: 2 pods" in text
    assert "does not matter to a plan was left out: 1 ConfigMap, 1 Gizmo" in text
    assert "Job migrate is a Helm hook, and was left out" in text


@pytest.mark.spec("VF-8")
def test_a_comment_on_thousands_of_workloads_is_short_with_the_largest_first(sides: Sides) -> None:
    sides.write("head", *(deployment(f"app-{n:04}-{'x' * 40}", 1, 50 + n // 100, 64) for n in range(2000)))
    told = sides.review()
    assert told.code == 0, told.err
    assert len(told.out.encode()) <= MOST_BYTES
    rows = [line for line in told.out.splitlines() if line.startswith("| Deployment")]
    sizes = [int(row.rpartition("+")[2].strip(" |").replace(",", "")) for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    assert f"and {2000 - len(rows):,} more, all smaller." in told.out


def test_names_in_manifests_mean_nothing_in_markdown() -> None:
    hostile = "<img src=x> [a](http://b) **x** `y` | @team #12 www.evil.example\n# heading\x1b[31m"
    told = escape_markdown(hostile)
    assert "\n" not in told
    assert "\x1b" not in told
    for plain in ("<img", "](", "**", "@team", "#12", "www.evil", "http://"):
        assert plain not in told.replace("\\<", "").replace("\\@", "").replace("\\#", ""), plain


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--fail-on", "cost"), "--fail-on cost: write expect, pods, or a growth such as cost:+5%"),
        (("--fail-on", "expect"), "--fail-on expect needs expectations; name their file with --expect"),
        (("--expect", "nowhere.yaml"), "there is no such file"),
        (("--base", "nowhere"), "there is no such file"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(words: tuple[str, ...], said: str, sides: Sides) -> None:
    ended = sides.review(*words)
    assert ended.code in (1, 2)
    assert said in ended.err
    assert "Traceback" not in ended.err


# ------------------------------------------------------------------ dovetail verify


def verify(sides: Sides, text: str, *words: str) -> Ended:
    (sides.folder / "mine.yaml").write_text(text)
    taken = str(sides.folder / "cluster.json")
    return dovetail("verify", "-f", str(sides.folder / "mine.yaml"), "--snapshot", taken, *words)


def test_expectations_are_told_one_by_one(sides: Sides) -> None:
    broken = verify(sides, EXPECTATIONS)
    assert broken.code == 3, broken.err
    assert "impossible  hourlyAtMost 0.01  now" in broken.out
    assert broken.out.endswith("1 of 2 expectations kept\n")
    kept = verify(sides, EXPECTATIONS.replace("0.01", "9.00"), "-o", "json")
    assert (kept.code, json.loads(kept.out)["kept"]) == (0, True)


def test_a_change_is_judged_before_it_is_made(sides: Sides) -> None:
    sides.write("head", pool("general", labels={"tier": "x"}))
    text = EXPECTATIONS.replace('{hourlyAtMost: "0.01"}', "{replacedAtMost: 20%, pool: general}")
    told = verify(sides, text, "--change", str(sides.folder / "head"))
    assert told.code == 3, told.err
    assert "2 of 2 nodes" in told.out


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "everyPodPlaced",
            "everyPodsPlaced",
            ":4: error: expect[0].everyPodsPlaced: there is no such field; did you mean everyPodPlaced?",
        ),
        ("expect:", "worlds: [{name: z, loseZone: each}]\nexpect:", "has nodes in test-zone-a alone"),
        ("kind: Expectations", "kind: [", "mine.yaml"),
    ],
)
def test_bad_expectations_end_with_one(old: str, new: str, said: str, sides: Sides) -> None:
    ended = verify(sides, EXPECTATIONS.replace(old, new))
    assert ended.code == 1
    assert said in ended.err
    assert "Traceback" not in ended.err
