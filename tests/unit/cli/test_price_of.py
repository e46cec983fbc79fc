"""``dovetail price-of``: a table for people, JSON and CSV for programs, and one sentence for a wrong name."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from dovetail.api import labels
from dovetail.app.cluster_source import SeenCluster
from dovetail.app.snapshot_file import encode_snapshot
from dovetail.cli.views import rule_prices
from dovetail.disruption.pricing_rules import PricedCluster, list_rules, price_rules
from dovetail.disruption.situation import Situation
from support.builders import owner, pod
from support.commands import Ended, dovetail
from support.disruption import LARGE, pdb, pool, scene, state
from support.worlds import apart


def build_cluster() -> Situation:
    """Two large nodes that a budget and a mark hold, a full one, and a Deployment whose pods keep apart."""
    apart_pods = [
        pod(
            f"api-{number}",
            cpu="500m",
            labels={"app": "api"},
            owned_by=owner("ReplicaSet", "api-77f"),
            affinity=apart(labels.HOSTNAME, app="api"),
        )
        for number in range(5)
    ]
    marked = pod("m", cpu="1", annotations={labels.DO_NOT_DISRUPT: "true"}, node="marked")
    web = pod("w", cpu="1", labels={"app": "web"}, node="held")
    full = pod("x", cpu="15500m", labels={"app": "x"}, node="full")
    asked = [(labels.INSTANCE_TYPE, "In", "small", "large")]
    world = scene(
        state("held", web, of=LARGE),
        state("full", full, of=LARGE),
        state("marked", marked, of=LARGE),
        pools=[pool(requirements=asked)],
        pdbs=[pdb("db", max_unavailable=0)],
        pending=apart_pods,
    )
    return Situation(snapshot=world.snapshot)


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.json"
    path.write_bytes(encode_snapshot(SeenCluster(build_cluster())))
    return path


def price_of(cluster: Path, *words: str) -> Ended:
    return dovetail("price-of", "--snapshot", str(cluster), *words)


def test_the_table_has_the_dearest_first_and_leaves_out_what_costs_nothing(cluster: Path) -> None:
    told = price_of(cluster)
    assert told.code == 0, told.err
    head, *rows = told.out.splitlines()
    assert head.split() == ["RULE", "KIND", "COSTS", "NOW", "A", "MONTH", "AT", "MOST", "HOW"]
    assert rows[0].startswith("pdb default/db (maxUnavailable 0)")
    assert " held " in rows[0]
    assert "one node stays that" in rows[0]
    assert any(row.startswith("deployment default/api anti-affinity") and " shape " in row for row in rows)
    assert not any(row.startswith("budget") for row in rows)
    dollars = [float(row.split("$")[1].partition("/h")[0]) for row in rows]
    assert dollars == sorted(dollars, reverse=True)
    assert "held and shape never do" in told.err


def test_so_many_are_shown_as_are_asked_for(cluster: Path) -> None:
    told = price_of(cluster, "--top", "1")
    assert len(told.out.splitlines()) == 3
    assert "more; see --top" in told.out.splitlines()[-1]


def test_a_rule_that_is_named_is_shown_whatever_it_costs(cluster: Path) -> None:
    told = price_of(cluster, "budget/default[0]", "-o", "json")
    (found,) = json.loads(told.out)["rules"]
    assert (found["rule"], found["kind"], found["costsNowHourly"]) == ("budget/default[0]", "held", 0.0)


@pytest.mark.spec("PR-5")
def test_a_wrong_name_is_one_sentence_with_the_nearest(cluster: Path) -> None:
    told = price_of(cluster, "pdb/default/dbx")
    assert (told.code, told.out) == (1, "")
    assert told.err == "dovetail: there is no rule pdb/default/dbx here; did you mean pdb/default/db?\n"


def test_programs_get_the_same_prices_as_json_and_as_csv(cluster: Path) -> None:
    document = json.loads(price_of(cluster, "--pairs", "-o", "json").out)
    rules = document["rules"]
    assert rules[0]["nodes"]
    assert all(each["atMostHourly"] >= each["costsNowHourly"] - 1e-9 for each in rules)
    assert all(each["costsNowMonthly"] == pytest.approx(each["costsNowHourly"] * 730) for each in rules)
    rows = list(csv.DictReader(io.StringIO(price_of(cluster, "-o", "csv").out)))
    assert [(row["Rule"], float(row["CostsNowHourly"])) for row in rows] == [
        (each["rule"], each["costsNowHourly"]) for each in rules
    ]
    names = {each["rule"] for each in rules}
    assert all(set(each["parts"]) <= names for each in document["pairs"])
    assert document["pairs"]


@pytest.mark.spec("PR-8")
def test_processes_side_by_side_give_the_very_same_table(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = price_of(cluster, "--workers", "1", "-o", "json")
    monkeypatch.setattr(rule_prices, "MUCH", 0)
    spread = price_of(cluster, "--workers", "2", "-o", "json")
    assert spread.out == alone.out
    assert alone.out == price_of(cluster, "-o", "json").out
    situation = build_cluster()
    listed = {each["rule"]: each["costsNowHourly"] for each in json.loads(alone.out)["rules"]}
    found = {each.rule.name: each for each in price_rules(PricedCluster(situation), list_rules(situation))}
    assert {name: found[name].costs_now for name in listed} == listed


def test_where_no_rule_costs_anything_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "calm.json"
    path.write_bytes(encode_snapshot(SeenCluster(Situation(snapshot=scene().snapshot))))
    told = price_of(path)
    assert (told.code, told.out) == (0, "")
    assert told.err == "note: no rule here costs a cent an hour\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--recording", "somewhere"), "exclude each other"),
        (("--at", "3h ago"), "--at is a moment of a recording"),
        (("--top", "0"), "Invalid value for '--top'"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(cluster: Path, words: tuple[str, ...], said: str) -> None:
    told = price_of(cluster, *words)
    assert told.code in (1, 2)
    assert said in told.err
