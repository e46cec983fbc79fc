"""CDK apps with add-ons in them, synthesised once for all tests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from dovetail_cdk import (
    ClusterInfo,
    ControllerPolicies,
    ControllerRole,
    InterruptionBus,
    InterruptionBusCluster,
    InterruptionExperiment,
    InterruptionQueue,
    KarpenterAddOn,
    KarpenterV1AddOn,
    NodeRole,
    ZonalShift,
)
from support.aws import CLUSTER

__all__ = ["CHART", "SINKS", "app_with", "made_cluster", "stacks"]

Json = dict[str, Any]
CHART = str(Path(__file__).resolve().parents[2] / "deploy" / "helm" / "dovetail")
# Sinks of notifications that the stack `telling` may reach.
SINKS = (
    "sns:arn:aws:sns:us-west-2:111122223333:told",
    "eventbridge:arn:aws:events:us-west-2:111122223333:event-bus/told",
)
POOL = {
    "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}],
    "disruption": {"consolidationPolicy": "WhenUnderutilized", "consolidateAfter": "1m"},
    "limits": {"cpu": "100"},
    "expireAfter": "480h",
    "labels": {"team": "web"},
}
CLASS = {
    "amiSelectorTerms": [{"alias": "al2023@latest"}],
    "subnetSelector": {"old": "way"},
    "tags": {"a": "b"},
}


@dataclass(frozen=True)
class Cdk:
    """The parts of the CDK that apps are made of."""

    cdk: Any
    eks: Any
    layer: Any


@cache
def _parts() -> Cdk:
    return Cdk(
        import_module("aws_cdk"),
        import_module("aws_cdk.aws_eks"),
        import_module("aws_cdk.lambda_layer_kubectl_v34"),
    )


def app_with(name: str = "S") -> tuple[Any, Any]:
    """An empty app and its stack."""
    cdk = _parts().cdk
    app = cdk.App()
    return app, cdk.Stack(app, name)


def made_cluster(stack: Any, **more: Any) -> Any:
    parts = _parts()
    return parts.eks.Cluster(
        stack,
        "Cluster",
        version=parts.eks.KubernetesVersion.of("1.34"),
        kubectl_layer=parts.layer.KubectlV34Layer(stack, "Kubectl"),
        default_capacity=0,
        **more,
    )


@cache
def stacks() -> dict[str, Json]:
    """Templates of an app that holds one of each."""
    cdk = _parts().cdk
    app = cdk.App()

    def cluster(name: str, **more: Any) -> Any:
        return made_cluster(cdk.Stack(app, name), **more)

    v1 = KarpenterV1AddOn(
        chart=CHART,
        values={"replicas": 3, "settings": {"logLevel": "debug"}},
        node_pool_spec=POOL,
        ec2_node_class_spec=CLASS,
        interruption_handling=True,
    )
    v1.deploy(ClusterInfo(cluster("v1", cluster_name="demo"), "1.34"))
    api = _parts().eks.AuthenticationMode.API
    KarpenterV1AddOn(chart=CHART, pod_identity=True, namespace="karpenter").deploy(
        ClusterInfo(cluster("pods", authentication_mode=api), "1.34", ipv6=True)
    )
    KarpenterAddOn(
        repository="oci://charts.example/karpenter",
        version="0.37.5",
        default_provisioner_specs={"karpenter.k8s.aws/instance-family": ["m5", "c5"]},
        install_crds=False,
    ).deploy(ClusterInfo(cluster("beta"), "1.30"))
    KarpenterAddOn(
        repository="oci://charts.example/karpenter",
        version="0.28.0",
        node_pool_spec={**POOL, "ttlSecondsAfterEmpty": 30},
        ec2_node_class_spec={"subnetSelector": {"a": "b"}},
        interruption_handling=True,
    ).deploy(ClusterInfo(cluster("alpha"), "1.28"))
    KarpenterAddOn().deploy(ClusterInfo(cluster("plain"), "1.31"))
    _account(cdk.Stack(app, "account"), "demo")
    _account(cdk.Stack(app, "living"), CLUSTER)
    _account(
        cdk.Stack(app, "telling"),
        "demo",
        decision_log="s3://trail/prod",
        recording="s3://looks/prod",
        commitments=True,
        notifications=SINKS,
    )
    _bus(cdk.Stack(app, "bus"))
    assembly = app.synth()
    return {each.stack_name: each.template for each in assembly.stacks}


def _account(stack: Any, cluster: str, **more: Any) -> None:
    role = NodeRole(stack, "NodeRole", role_name=f"KarpenterNodeRole-{cluster}").role
    queue = InterruptionQueue(stack, "Interruption", queue_name=cluster).queue
    policies = ControllerPolicies(
        stack,
        "Policies",
        cluster_name=cluster,
        node_role_arn=role.role_arn,
        queue_arn=queue.queue_arn,
        **more,
    )
    ControllerRole(
        stack, "Controller", cluster_name=cluster, policies=policies, role_name=f"{cluster}-karpenter"
    )


def _bus(stack: Any) -> None:
    InterruptionBus(
        stack,
        "Bus",
        code_bucket="code",
        code_key="bus.zip",
        destinations=[{"account": "111122223333", "cluster": "demo", "queueUrl": "https://q"}],
        optional=["registry", "canary"],
    )
    InterruptionBusCluster(stack, "Cluster", cluster_name="demo")
    InterruptionExperiment(stack, "Experiment", cluster_name="demo", instances=3, notice="PT5M")
    ZonalShift(stack, "Zonal", cluster_name="demo", enable_dynamodb=True)
