"""Four kits, one source: equal action by action, resource by resource, condition by condition."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.policy_documents import CLUSTERS, Where, by_sid, from_cloudformation, from_source, from_template
from support.stacks import hub_queue_policy, loaded, resolved
from support.terraform import outputs

ROOT = Path(__file__).resolve().parents[2]


def from_terraform(binary: str, where: Where, at: Path, **more: object) -> dict[str, object]:
    told = where.places
    variables = {
        "partition": where.partition,
        "region": where.region,
        "account": where.account,
        "cluster_name": where.cluster,
        "node_role_arn": told["NodeRoleArn"],
        "queue_arn": told["QueueArn"],
        **more,
    }
    policy = outputs(binary, "policies", variables, at)["controller_policy"]
    return dict(by_sid(json.loads(policy)["Statement"]))


@pytest.mark.spec("operations-12.2")
@pytest.mark.parametrize("where", CLUSTERS, ids=lambda each: each.partition)
def test_every_kit_grants_the_same(where: Where, terraform: str, node: str, tmp_path: Path) -> None:
    from support.cdk import stacks

    source = from_source(where)

    assert len(source) == 18
    assert from_cloudformation(where) == source
    assert from_terraform(terraform, where, tmp_path) == source
    assert from_template(stacks()["v1"], where) == source


def test_every_kit_grants_a_log_a_recording_and_sinks_the_same_where_it_is_told_of_them(
    terraform: str, node: str, tmp_path: Path
) -> None:
    from support.cdk import SINKS, stacks

    where = CLUSTERS[0]
    topic, bus = (each.partition(":")[2] for each in SINKS)
    log = {"LogBucketArn": "arn:aws:s3:::trail", "LogFolder": f"prod/{where.cluster}/"}
    looks = {"RecordingBucketArn": "arn:aws:s3:::looks", "RecordingFolder": "prod/"}
    more = "decisionLogPolicy", "recordingPolicy", "commitmentPolicy", "notificationPolicy"
    source = from_source(where, *more, TopicArn=topic, BusArn=bus, **log, **looks)
    asked = {
        "recording_bucket": "looks",
        "recording_prefix": "prod",
        "commitments": True,
        "decision_log_bucket": "trail",
        "decision_log_prefix": "prod",
        "notification_topic_arns": [topic],
        "notification_bus_arns": [bus],
    }
    given = {
        "RecordingBucket": "looks",
        "RecordingPrefix": "prod/",
        "Commitments": "true",
        "DecisionLogBucket": "trail",
        "DecisionLogPrefix": "prod/",
        "NotificationTopicArns": topic,
        "NotificationBusArns": bus,
    }

    granted = {"DecisionLogObjects", "RecordingObjects", "NotificationTopics", "NotificationBuses"}
    granted |= {"SavingsPlanReadActions", "ReservedInstanceReadActions"}
    assert {f"Allow{each}" for each in granted} <= set(source)
    assert from_terraform(terraform, where, tmp_path, **asked) == source
    assert from_cloudformation(where, **given) == source
    assert from_template(stacks()["telling"], where) == source


def test_the_cdks_own_policies_are_those_of_a_cluster_named_in_words(node: str) -> None:
    from support.cdk import stacks

    where = CLUSTERS[0]
    assert from_template(stacks()["account"], where) == from_source(where)


@pytest.mark.parametrize("where", CLUSTERS, ids=lambda each: each.partition)
def test_the_bus_and_zonal_shift_agree_too(where: Where, terraform: str, tmp_path: Path) -> None:
    at = f"{where.region}:{where.account}"
    arns = {
        "queue_arn": f"arn:{where.partition}:sqs:{at}:q",
        "topic_arn": f"arn:{where.partition}:sns:{at}:t",
        "table_arn": f"arn:{where.partition}:dynamodb:{at}:table/l",
        "rule_arn": f"arn:{where.partition}:events:{at}:rule/dovetail-zonal-{where.cluster}",
    }
    names = {"name": "bus", "cluster_name": where.cluster}
    places = {"partition": where.partition, "region": where.region, "account": where.account}
    found = outputs(terraform, "documents", {**places, **names, **arns}, tmp_path)
    place = where.stack(
        **{
            "Name": "bus",
            "ClusterName": where.cluster,
            "Queue.Arn": arns["queue_arn"],
            "Topic": arns["topic_arn"],
            "Table.Arn": arns["table_arn"],
            "Registry.Arn": arns["table_arn"],
            # As the Terraform module names it; the stack leaves that to CloudFormation.
            "RouterRole.Arn": f"arn:{where.partition}:iam::{where.account}:role/bus-{where.region}-router",
        }
    )

    bus = loaded((ROOT / "deploy" / "cloudformation" / "interruption-bus.yaml").read_text())["Resources"]
    routing, discovery, registry, canary = bus["RouterRole"]["Properties"]["Policies"]
    written = {
        "routerPolicy": routing,
        "discoveryPolicy": discovery,
        "tablePolicy": registry["Fn::If"][1],
        "canaryPolicy": canary["Fn::If"][1],
        "replayPolicy": bus["ReplayPolicy"]["Properties"],
        "queuePolicy": {"PolicyDocument": hub_queue_policy(bus, place)},
    }
    for name, each in written.items():
        assert _statements(resolved(each["PolicyDocument"], place)) == _statements(
            found["bus_policies"][name]
        )
    rules = {
        name.removesuffix("Rule"): each["Properties"]["EventPattern"]
        for name, each in bus.items()
        if each["Type"] == "AWS::Events::Rule"
    }
    assert {name: json.loads(each["pattern"]) for name, each in found["bus_rules"].items()} == rules

    zonal = loaded((ROOT / "deploy" / "cloudformation" / "zonal-shift.yaml").read_text())["Resources"]
    own, signals, ledger, observer = zonal["Role"]["Properties"]["Policies"]
    written = {
        "policy": own,
        "sqsPolicy": signals["Fn::If"][1],
        "snsPolicy": signals["Fn::If"][2],
        "tablePolicy": ledger["Fn::If"][1],
        "observerPolicy": observer["Fn::If"][1],
        "operatorPolicy": zonal["OperatorPolicy"]["Properties"],
        "queuePolicy": zonal["QueuePolicy"]["Properties"],
        "topicPolicy": zonal["TopicPolicy"]["Properties"],
    }
    for name, each in written.items():
        assert _statements(resolved(each["PolicyDocument"], place)) == _statements(
            found["zonal_policies"][name]
        )
    assert json.loads(found["zonal_pattern"]) == zonal["Rule"]["Properties"]["EventPattern"]


@pytest.mark.parametrize("where", CLUSTERS, ids=lambda each: each.partition)
def test_the_experiment_agrees_too(where: Where, terraform: str, tmp_path: Path) -> None:
    told = {
        "partition": where.partition,
        "region": where.region,
        "account": where.account,
        "cluster_name": where.cluster,
    }
    found = outputs(terraform, "documents", told, tmp_path)
    text = (ROOT / "deploy" / "cloudformation" / "interruption-experiment.yaml").read_text()
    made = loaded(text)["Resources"]
    place = where.stack(ClusterName=where.cluster)
    role, experiment = made["Role"]["Properties"], made["Experiment"]["Properties"]
    own = resolved(role["Policies"][0]["PolicyDocument"], place)
    trust = resolved(role["AssumeRolePolicyDocument"], place)

    assert _statements(own) == _statements(found["experiment_policies"]["policy"])
    assert json.loads(trust) == json.loads(found["experiment_policies"]["trust"])
    (action,), (target,) = experiment["Actions"].values(), experiment["Targets"].values()
    assert found["experiment"] == {
        "action": action["ActionId"],
        "kind": target["ResourceType"],
        "mark": next(iter(target["ResourceTags"])),
    }


def _statements(document: object) -> dict[str, object]:
    read = json.loads(document) if isinstance(document, str) else document
    assert isinstance(read, dict)
    return dict(by_sid(read["Statement"]))
