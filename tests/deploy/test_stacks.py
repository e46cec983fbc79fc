"""CloudFormation: templates that are current, clean, and say what the one source of permissions says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail.bus.config import KEYS
from dovetail.bus.operator_tools import QUEUES
from support.policy_documents import CLUSTERS, Where, from_cloudformation, from_source
from support.stacks import Place, loaded, resolved

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "hack"))
import write_iam  # type: ignore[import-not-found]  # noqa: E402  # hack is not a package

TEMPLATES = (
    "dovetail",
    "interruption-bus",
    "interruption-bus-cluster",
    "interruption-experiment",
    "zonal-shift",
)
Json = dict[str, Any]


def template(name: str) -> Json:
    return loaded((ROOT / "deploy" / "cloudformation" / f"{name}.yaml").read_text())


def test_generated_files_are_current() -> None:
    for path, text in write_iam.files().items():
        assert (ROOT / path).read_text(encoding="utf-8") == text, f"{path}: run make iam"


def test_cfn_lint_finds_nothing() -> None:
    paths = [str(ROOT / "deploy" / "cloudformation" / f"{name}.yaml") for name in TEMPLATES]
    ended = subprocess.run(
        [str(Path(sys.executable).parent / "cfn-lint"), *paths],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert (ended.returncode, ended.stdout) == (0, "")


@pytest.mark.parametrize("where", CLUSTERS, ids=lambda each: each.partition)
def test_the_stack_grants_what_the_source_says(where: Where) -> None:
    assert from_cloudformation(where) == from_source(where)


def test_queues_of_the_bus_are_as_its_doctor_wants_them() -> None:
    resources = template("interruption-bus")["Resources"]
    for lane, visibility, days, receives in QUEUES:
        queue = resources[f"{lane.title()}Queue"]["Properties"]
        assert queue.get("VisibilityTimeout") == visibility
        assert queue["MessageRetentionPeriod"] == days * 86_400
        assert queue.get("RedrivePolicy", {}).get("maxReceiveCount") == receives
        assert queue["SqsManagedSseEnabled"] is True


def test_a_function_has_six_times_to_work_before_its_messages_come_again() -> None:
    resources = template("interruption-bus")["Resources"]
    for lane in ("Urgent", "Bulk"):
        function, mapping = resources[f"{lane}Function"], resources[f"{lane}Mapping"]["Properties"]
        visibility = resources[f"{lane}Queue"]["Properties"]["VisibilityTimeout"]
        assert visibility >= 6 * function["Properties"]["Timeout"]
        assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
        assert mapping["ScalingConfig"] == {"MaximumConcurrency": 10}


def test_every_variable_of_the_functions_is_one_the_router_reads() -> None:
    known = {key.variable for key in KEYS}
    for lane in ("Urgent", "Bulk"):
        function = template("interruption-bus")["Resources"][f"{lane}Function"]["Properties"]
        assert set(function["Environment"]["Variables"]) <= known


def test_warnings_and_everything_else_take_different_lanes() -> None:
    rules = {
        name: each["Properties"]["Targets"][0]
        for name, each in template("interruption-bus")["Resources"].items()
        if each["Type"] == "AWS::Events::Rule"
    }
    urgent = {
        name for name, target in rules.items() if target["Arn"] == {"Fn::GetAtt": ["UrgentQueue", "Arn"]}
    }

    assert urgent >= {"SpotInterruptionRule", "CapacityReservationRule"}
    assert set(rules) - urgent == {"StateChangeRule", "RebalanceRule", "ScheduledChangeRule"}
    assert all(target["DeadLetterConfig"] and target["RetryPolicy"] for target in rules.values())


def test_only_the_rules_may_write_and_only_by_https() -> None:
    place = Place("aws", "us-west-2", "111122223333", Name="bus", ClusterName="demo")
    for name in ("interruption-bus", "zonal-shift"):
        given = template(name)["Resources"]["QueuePolicy"]["Properties"]["PolicyDocument"]
        writing, *others, http = json.loads(resolved(given, place))["Statement"]
        assert writing["Principal"] == {"Service": "events.amazonaws.com"}
        sources = writing["Condition"]["ArnLike"]["aws:SourceArn"]
        for source in sources if isinstance(sources, list) else [sources]:
            assert source.startswith("arn:aws:events:us-west-2:111122223333:rule/")
            assert "*" not in source
        assert {each["Effect"] for each in (*others, http)} == {"Deny"}


def test_zonal_shift_asks_about_its_own_cluster_alone() -> None:
    place = Place("aws", "us-west-2", "111122223333", ClusterName="demo")
    role = template("zonal-shift")["Resources"]["Role"]["Properties"]
    (first, *_) = json.loads(resolved(role["Policies"][0]["PolicyDocument"], place))["Statement"]

    assert first["Action"] == ["arc-zonal-shift:GetManagedResource"]
    assert first["Condition"] == {
        "StringEquals": {
            "arc-zonal-shift:ResourceIdentifier": "arn:aws:eks:us-west-2:111122223333:cluster/demo"
        }
    }
    trusts = role["AssumeRolePolicyDocument"]["Fn::If"]
    assert json.loads(resolved(trusts[1], place))["Statement"][0]["Action"] == "sts:AssumeRoleWithWebIdentity"
    assert trusts[2]["Statement"][0]["Action"] == ["sts:AssumeRole", "sts:TagSession"]
