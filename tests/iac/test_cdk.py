"""The CDK constructs, synthesised by the real CDK: what they make, and what they refuse."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from support.aws import CLUSTER
from support.deployed_stack import deployed_stack
from support.lifetime import SPARE_IAM, lived_with
from support.policy_documents import CLUSTERS, by_sid, from_source
from support.stacks import Place, resolved
from support.stage import virtual

ROOT = Path(__file__).resolve().parents[2]
Json = dict[str, Any]
pytestmark = pytest.mark.usefixtures("node")


@pytest.fixture(scope="module")
def made(node: str) -> dict[str, Json]:
    from support.cdk import stacks

    return stacks()


def of(template: Json, kind: str) -> list[Json]:
    return [each["Properties"] for each in template["Resources"].values() if each["Type"] == kind]


def chart(template: Json) -> Json:
    (found,) = of(template, "Custom::AWSCDK-EKS-HelmChart")
    return {**found, "Values": json.loads(resolved(found["Values"], Place("aws", "us-west-2", "1")))}


def manifests(template: Json) -> dict[str, Json]:
    """Objects the stack applies, by kind and name."""
    place = Place("aws", "us-west-2", "111122223333")
    texts = [
        resolved(each["Manifest"], place) for each in of(template, "Custom::AWSCDK-EKS-KubernetesResource")
    ]
    listed = [each for text in texts for each in json.loads(text)]
    return {f"{each['kind']} {each['metadata']['name']}": each for each in listed}


def test_the_v1_add_on_makes_what_the_chart_and_the_nodes_need(made: dict[str, Json]) -> None:
    template = made["v1"]
    assertions = import_module("aws_cdk.assertions").Template.from_json(template)

    assertions.resource_count_is("AWS::Events::Rule", 5)
    assertions.has_resource_properties("AWS::SQS::Queue", {"QueueName": "v1", "MessageRetentionPeriod": 300})
    assertions.has_output("*", {"Export": {"Name": "ClusterKarpenterNodeRoleName"}})
    assertions.has_output("*", {"Export": {"Name": "ClusterKarpenterInstanceProfileName"}})
    assert len(of(template, "AWS::IAM::ManagedPolicy")) == 6
    values = chart(template)["Values"]
    assert values["serviceAccount"] == {"create": False, "name": "blueprints-addon-karpenter"}
    assert values["replicas"] == 3
    assert set(values["settings"]) == {"clusterName", "clusterEndpoint", "interruptionQueue", "logLevel"}
    assert chart(template)["Release"] == "karpenter"
    assert chart(template)["Namespace"] == "kube-system"
    (profile,) = of(template, "AWS::IAM::InstanceProfile")
    assert profile["InstanceProfileName"].startswith("KarpenterNodeInstanceProfile-")


def test_every_rule_has_a_detail_type_aws_really_sends(made: dict[str, Json]) -> None:
    kinds = {tuple(each["EventPattern"]["detail-type"]) for each in of(made["v1"], "AWS::Events::Rule")}

    assert kinds == {
        ("AWS Health Event",),
        ("EC2 Spot Instance Interruption Warning",),
        ("EC2 Instance Rebalance Recommendation",),
        ("EC2 Instance State-change Notification",),
        ("EC2 Capacity Reservation Instance Interruption Warning",),
    }


def test_nodes_are_let_in_by_the_right_groups_or_by_an_access_entry(made: dict[str, Json]) -> None:
    mapped = json.loads(manifests(made["v1"])["ConfigMap aws-auth"]["data"]["mapRoles"])
    (nodes,) = (each for each in mapped if each["username"] == "system:node:{{EC2PrivateDNSName}}")

    assert nodes["groups"] == ["system:bootstrappers", "system:nodes"]
    assert "EC2_LINUX" in [each.get("Type") for each in of(made["pods"], "AWS::EKS::AccessEntry")]


def test_the_default_pool_is_one_that_v1_admits(made: dict[str, Json]) -> None:
    from dovetail.api.crds import build_manifests as definitions
    from support.apiserver import local_api

    found = manifests(made["v1"])
    api = local_api()
    for each in definitions("aws"):
        api.create("customresourcedefinitions.apiextensions.k8s.io", each)
    api.create("ec2nodeclasses.karpenter.k8s.aws", found["EC2NodeClass default-ec2nodeclass"])
    pool = api.create("nodepools.karpenter.sh", found["NodePool default-nodepool"])

    assert pool["spec"]["disruption"]["consolidationPolicy"] == "WhenEmptyOrUnderutilized"
    assert pool["spec"]["template"]["spec"]["expireAfter"] == "480h"
    spec = found["EC2NodeClass default-ec2nodeclass"]["spec"]
    assert "subnetSelector" not in spec
    assert spec["metadataOptions"]["httpPutResponseHopLimit"] == 2
    assert spec["role"].startswith("<karpenterNodeRole")


def test_older_releases_get_their_own_words(made: dict[str, Json]) -> None:
    beta, alpha = manifests(made["beta"]), manifests(made["alpha"])

    pool = beta["NodePool default-nodepool"]
    assert pool["apiVersion"] == "karpenter.sh/v1beta1"
    assert pool["spec"]["template"]["spec"]["requirements"] == [
        {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m5", "c5"]}
    ]
    assert pool["spec"]["template"]["spec"]["nodeClassRef"]["name"] == "default-ec2nodeclass"
    of_pool = beta["EC2NodeClass default-ec2nodeclass"]["spec"]
    assert of_pool["amiFamily"] == "AL2023"
    assert of_pool["subnetSelectorTerms"] == of_pool["securityGroupSelectorTerms"]
    assert chart(made["beta"])["SkipCrds"] is True
    assert chart(made["beta"])["Version"] == "0.37.5"
    assert {"Provisioner default-provisioner", "AWSNodeTemplate default-nodetemplate"} <= set(alpha)
    assert alpha["Provisioner default-provisioner"]["spec"]["ttlSecondsAfterEmpty"] == 30
    old = chart(made["alpha"])["Values"]["settings"]["aws"]
    assert set(old) == {"clusterName", "clusterEndpoint", "defaultInstanceProfile", "interruptionQueueName"}


def test_the_controller_is_known_by_irsa_or_by_pod_identity(made: dict[str, Json]) -> None:
    def trusts(template: Json) -> set[str]:
        roles = of(template, "AWS::IAM::Role")
        return {
            json.dumps(statement["Principal"])
            for role in roles
            for statement in role["AssumeRolePolicyDocument"]["Statement"]
        }

    assert any("Federated" in each for each in trusts(made["v1"]))
    assert not of(made["v1"], "AWS::EKS::PodIdentityAssociation")
    for name, namespace in (("pods", "karpenter"), ("account", "kube-system")):
        (association,) = of(made[name], "AWS::EKS::PodIdentityAssociation")
        assert association["Namespace"] == namespace
        assert any("pods.eks.amazonaws.com" in each for each in trusts(made[name]))
    assert "Namespace karpenter" in manifests(made["pods"])


def test_ipv6_nodes_may_assign_addresses(made: dict[str, Json]) -> None:
    statements = [
        statement
        for each in of(made["pods"], "AWS::IAM::Policy")
        for statement in each["PolicyDocument"]["Statement"]
    ]

    assert any("ec2:AssignIpv6Addresses" in str(each["Action"]) for each in statements)


def test_the_older_add_on_needs_no_argument(made: dict[str, Json]) -> None:
    assert chart(made["plain"])["Values"]["serviceAccount"]["name"] == "blueprints-addon-karpenter"
    assert "ChartAssetURL" in chart(made["plain"])


def test_without_interruption_handling_there_is_no_queue(made: dict[str, Json]) -> None:
    assert not of(made["pods"], "AWS::SQS::Queue")
    assert len(of(made["pods"], "AWS::IAM::ManagedPolicy")) == 5


def test_the_bus_and_zonal_shift_are_the_very_templates(made: dict[str, Json]) -> None:
    from support.stacks import loaded

    folder = ROOT / "deploy" / "cloudformation"
    wanted = [
        each["Type"]
        for name in ("interruption-bus", "interruption-experiment", "zonal-shift")
        for each in loaded((folder / f"{name}.yaml").read_text())["Resources"].values()
    ]
    found = [each["Type"] for each in made["bus"]["Resources"].values()]

    # One more queue and policy than the templates have: the cluster's own.
    assert sorted([*wanted, "AWS::SQS::Queue", "AWS::SQS::QueuePolicy"]) == sorted(
        each for each in found if each != "AWS::CDK::Metadata"
    )
    (tagged,) = (each for each in of(made["bus"], "AWS::SQS::Queue") if each.get("QueueName") == "demo")
    assert {each["Key"]: each["Value"] for each in tagged["Tags"]} == {
        "dovetail.sh/bus": "true",
        "dovetail.sh/cluster": "demo",
    }


def test_an_experiment_takes_its_numbers(made: dict[str, Json]) -> None:
    (experiment,) = of(made["bus"], "AWS::FIS::ExperimentTemplate")
    place = Place("aws", "us-west-2", "111122223333")

    (target,), (action,) = experiment["Targets"].values(), experiment["Actions"].values()
    assert resolved(target["SelectionMode"], place) == "COUNT(3)"
    assert target["ResourceTags"] == {"eks:eks-cluster-name": "demo"}
    assert action["Parameters"] == {"durationBeforeInterruption": "PT5M"}


def test_what_cannot_work_is_refused_in_one_sentence(node: str) -> None:
    from dovetail_cdk import AddOnRefused, ClusterInfo, KarpenterAddOn, KarpenterV1AddOn, ZonalShift
    from support.cdk import CHART, app_with, made_cluster

    _, stack = app_with()
    cluster = made_cluster(stack)
    v1, pool = KarpenterV1AddOn(chart=CHART), dict[str, Any](requirements=[])
    imported = type(cluster).from_cluster_attributes(stack, "Imported", cluster_name="there")
    refusals: list[tuple[KarpenterV1AddOn, ClusterInfo, str]] = [
        (v1, ClusterInfo(imported, "1.34"), "imported"),
        (v1, ClusterInfo(cluster, "1.34", ["cluster-autoscaler"]), "does the same work"),
        (
            KarpenterAddOn(chart=CHART),
            ClusterInfo(cluster, "1.31", ["aws-node-termination-handler"]),
            "same work",
        ),
        (
            KarpenterV1AddOn(chart=CHART, repository="oci://charts.example/karpenter"),
            ClusterInfo(cluster, "1.34"),
            "where the chart is once",
        ),
        (KarpenterV1AddOn(chart=CHART, version="0.31.0"), ClusterInfo(cluster, "1.34"), "KarpenterAddOn"),
        (v1, ClusterInfo(cluster, "1.28"), "older than 1.29"),
        (KarpenterAddOn(chart=CHART, version="0.20.0"), ClusterInfo(cluster, "1.24"), "older than 0.21"),
        (
            KarpenterAddOn(chart=CHART, version="0.34.0", pod_identity=True),
            ClusterInfo(cluster, "1.29"),
            "IRSA",
        ),
        (
            KarpenterV1AddOn(chart=CHART, ec2_node_class_spec={"role": "r"}),
            ClusterInfo(cluster, "1.34"),
            "without node_pool_spec",
        ),
        (
            KarpenterV1AddOn(chart=CHART, node_pool_spec=pool, ec2_node_class_spec={}),
            ClusterInfo(cluster, "1.34"),
            "amiSelectorTerms",
        ),
        (KarpenterV1AddOn(chart=CHART, version="new"), ClusterInfo(cluster, "1.34"), "is no version"),
    ]
    for addon, info, told in refusals:
        with pytest.raises(AddOnRefused, match=told) as refused:
            addon.deploy(info)
        assert "\n" not in str(refused.value)
    with pytest.raises(ValueError, match="outcome_alarm_arn"):
        ZonalShift(stack, "Z", cluster_name="demo", enable_autoshift=True)


def test_a_chart_too_old_for_the_cluster_is_warned_of(node: str) -> None:
    from dovetail_cdk import ClusterInfo, KarpenterAddOn
    from support.cdk import CHART, app_with, made_cluster

    _, stack = app_with()
    cluster = made_cluster(stack)
    KarpenterAddOn(chart=CHART, version="0.32.0").check(ClusterInfo(cluster, "1.30"))

    said = [each.data for each in cluster.node.metadata if each.type == "aws:cdk:warning"]
    assert len(said) == 1
    assert "older than 0.37.5, the first for Kubernetes 1.30" in said[0]


def test_the_app_of_the_guide_can_be_synthesised(node: str, tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guides" / "infrastructure.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```$", guide, re.M | re.S)
    (tmp_path / "app.py").write_text(program)
    ended = subprocess.run(
        [sys.executable, str(tmp_path / "app.py")],
        cwd=ROOT,
        env={**os.environ, "CDK_OUTDIR": str(tmp_path / "out")},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    template = json.loads((tmp_path / "out" / "shop.template.json").read_text())
    assert len(of(template, "AWS::IAM::ManagedPolicy")) == 6


@pytest.fixture(scope="module")
def living(made: dict[str, Json]) -> tuple[list[Json], Mapping[str, Any]]:
    """The account's part for the cluster of a simulated world, deployed there."""
    from support.deployed_stack import deployed

    template = {**made["living"], "Parameters": {}, "Rules": {}}
    with warnings.catch_warnings():
        # Moto makes everything of the stack but the queue's policy, and says so.
        warnings.filterwarnings("ignore", "Tried to parse")
        return asyncio.run(deployed(CLUSTER, json.dumps(template)))


@pytest.mark.spec("operations-18.3")
def test_what_the_cdk_makes_can_be_deployed_and_grants_what_it_should(
    living: tuple[list[Json], Mapping[str, Any]],
) -> None:
    documents, found = living

    assert found["status"] == "CREATE_COMPLETE"
    assert found["role"]
    assert found["queue"]
    assert len(found["patterns"]) == 5
    granted = by_sid(statement for document in documents for statement in document["Statement"])
    assert granted == from_source(replace(CLUSTERS[0], cluster=CLUSTER))


@pytest.mark.spec("operations-18.3")
@virtual
async def test_nothing_is_denied_to_a_controller_with_that_and_nothing_unused(
    living: tuple[list[Json], Mapping[str, Any]],
) -> None:
    denied, unused = await lived_with(living[0])

    assert denied == set()
    assert unused == SPARE_IAM


def parted(value: Any) -> Any:
    """Attributes as lists: CloudFormation takes a text with a dot as well, moto does not."""
    if isinstance(value, dict):
        held = {key: parted(each) for key, each in value.items()}
        got = held.get("Fn::GetAtt")
        return {"Fn::GetAtt": got.split(".", 1)} if isinstance(got, str) else held
    return [parted(each) for each in value] if isinstance(value, list) else value


@pytest.mark.filterwarnings("ignore:Tried to parse")
def test_the_bus_and_zonal_shift_of_the_cdk_can_be_deployed(made: dict[str, Json]) -> None:
    # The CDK's own parameter wants to know how its account was prepared.
    asked = {name: each for name, each in made["bus"]["Parameters"].items() if name != "BootstrapVersion"}
    template = json.dumps({**parted(made["bus"]), "Parameters": asked, "Rules": {}, "Outputs": {}})
    stack = asyncio.run(deployed_stack("bus", template))

    assert stack.status == "CREATE_COMPLETE"
    hub = {f"dovetail-bus-{lane}" for lane in ("urgent", "bulk", "park", "dlq")}
    zonal = {"dovetail-zonal-demo", "dovetail-zonal-demo-dlq"}
    assert stack.queues == hub | zonal | {"demo"}
    granted = {each["Sid"] for held in stack.documents.values() for one in held for each in one["Statement"]}
    wanted = {
        "AllowCentralQueues",
        "AllowRegistry",
        "AllowCanary",
        "AllowInterrupting",
        "AllowSignals",
        "AllowLedger",
    }
    assert granted >= wanted
    assert "AllowObserver" not in granted
