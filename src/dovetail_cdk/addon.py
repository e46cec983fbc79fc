"""The add-on of EKS blueprints' shape: everything in the account, the chart, and a first pool.

addon = KarpenterV1AddOn(chart="deploy/helm/dovetail", interruption_handling=True)
addon.deploy(ClusterInfo(cluster, version="1.34"))
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dovetail_cdk.account import ControllerPolicies, InterruptionQueue, NodeRole
from dovetail_cdk.jsii import Part, cdk, eks, iam
from dovetail_cdk.manifests import BETA, AddOnRefused, Version, defaults, version_of
from dovetail_cdk.source import chart

__all__ = ["ClusterInfo", "Deployed", "KarpenterAddOn", "KarpenterV1AddOn"]

Json = dict[str, Any]
ACCOUNT_NAME = "blueprints-addon-karpenter"
POD_IDENTITY_CHART, POD_IDENTITY_CLUSTER = (0, 35, 0), (1, 24, 0)
AUTOSCALERS = ("cluster-autoscaler", "ClusterAutoScalerAddOn")
TERMINATION_HANDLERS = ("aws-node-termination-handler", "AwsNodeTerminationHandlerAddOn")
# The first chart that works with a Kubernetes, for the older of the two add-ons.
MINIMUM = {
    "1.23": "0.21.0",
    "1.24": "0.21.0",
    "1.25": "0.25.0",
    "1.26": "0.28.0",
    "1.27": "0.28.0",
    "1.28": "0.31.0",
    "1.29": "0.34.0",
    "1.30": "0.37.5",
    "1.31": "0.37.5",
}
GROUPS = ["system:bootstrappers", "system:nodes"]


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """A cluster of this app, its Kubernetes version, and the names of its other add-ons."""

    cluster: Any
    version: str
    add_ons: Iterable[str] = ()
    ipv6: bool = False


class Deployed(Part):
    """What an add-on made: everything in the account hangs below it."""

    node_role: Any
    service_account: Any
    queue: Any = None
    chart: Any = None


@dataclass(frozen=True, slots=True)
class KarpenterV1AddOn:
    """The add-on for v1. It installs the chart of this package, or another: a directory, or a repository.

    `version` says which release values and manifests are written for; a chart of a repository is
    installed in that version, too.
    """

    chart: str = ""
    repository: str = ""
    version: str = "1.3.0"
    namespace: str = "kube-system"
    values: Mapping[str, Any] = field(default_factory=dict)
    node_pool_spec: Mapping[str, Any] | None = None
    ec2_node_class_spec: Mapping[str, Any] | None = None
    interruption_handling: bool = False
    pod_identity: bool = False
    helm_chart_timeout_minutes: int = 5

    def deploy(self, info: ClusterInfo) -> Deployed:
        """Make it all in the cluster's stack."""
        self.check(info)
        stack = cdk.Stack.of(info.cluster)
        made = Deployed(stack, "karpenter")
        made.node_role = NodeRole(made, "NodeRole", ipv6=info.ipv6).role
        profile = self._profile(made, stack)
        self._outputs(made, info.cluster, profile)
        _let_in(made, info.cluster)
        if self.interruption_handling:
            made.queue = InterruptionQueue(made, "Interruption", queue_name=stack.stack_name).queue
        made.service_account = self._account(made, info.cluster)
        self._policies(made, info.cluster)
        made.chart = self._chart(made, info.cluster, profile)
        self._defaults(made, info, profile)
        return made

    def check(self, info: ClusterInfo) -> None:
        """Refuse what cannot work, before anything is made."""
        if not isinstance(info.cluster, eks.Cluster):
            raise AddOnRefused(
                "the cluster is imported, and its roles cannot be mapped; add Karpenter where it is made"
            )
        for name in set(info.add_ons) & set(self._rivals()):
            raise AddOnRefused(f"{name} is there already and does the same work; leave one of them out")
        if self.chart and self.repository:
            raise AddOnRefused(
                "say where the chart is once: `chart` for a directory, or `repository`, and not both"
            )
        if self.pod_identity and (
            self.shape < POD_IDENTITY_CHART or version_of(info.version) < POD_IDENTITY_CLUSTER
        ):
            raise AddOnRefused("pod_identity needs chart 0.35 and Kubernetes 1.24 or newer; use IRSA instead")
        if self.ec2_node_class_spec is not None and self.node_pool_spec is None:
            raise AddOnRefused("ec2_node_class_spec is given without node_pool_spec; give both, or none")
        self._check_versions(info)

    def _rivals(self) -> Sequence[str]:
        return AUTOSCALERS

    def _check_versions(self, info: ClusterInfo) -> None:
        if self.shape < BETA:
            raise AddOnRefused(f"chart {self.version} is older than 0.32; use KarpenterAddOn for it")
        if version_of(info.version) < (1, 29, 0):
            raise AddOnRefused(f"Kubernetes {info.version} is older than 1.29; use KarpenterAddOn for it")

    @property
    def shape(self) -> Version:
        return version_of(self.version)

    def _profile(self, made: Deployed, stack: Any) -> Any:
        told = f"{stack.stack_name}{stack.region}"
        name = f"KarpenterNodeInstanceProfile-{hashlib.md5(told.encode(), usedforsecurity=False).hexdigest()}"
        return iam.CfnInstanceProfile(
            made, "InstanceProfile", instance_profile_name=name, roles=[made.node_role.role_name]
        )

    def _outputs(self, made: Deployed, cluster: Any, profile: Any) -> None:
        exported = {
            "KarpenterNodeRoleName": made.node_role.role_name,
            "KarpenterInstanceProfileName": profile.ref,
        }
        for name, value in exported.items():
            cdk.CfnOutput(made, name, value=value, export_name=f"{cluster.node.id}{name}")

    def _policies(self, made: Deployed, cluster: Any) -> None:
        ControllerPolicies(
            made,
            "ControllerPolicies",
            cluster_name=cluster.cluster_name,
            node_role_arn=made.node_role.role_arn,
            queue_arn=made.queue.queue_arn if made.queue else "",
        ).attach(made.service_account.role)

    def _account(self, made: Deployed, cluster: Any) -> Any:
        identity = eks.IdentityType.POD_IDENTITY if self.pod_identity else eks.IdentityType.IRSA
        account = eks.ServiceAccount(
            made,
            "ServiceAccount",
            cluster=cluster,
            name=ACCOUNT_NAME,
            namespace=self.namespace,
            identity_type=identity,
        )
        if self.namespace != "kube-system":
            manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
            account.node.add_dependency(
                eks.KubernetesManifest(made, "Namespace", cluster=cluster, manifest=[manifest])
            )
        return account

    def _settings(self, made: Deployed, cluster: Any, profile: Any) -> Json:
        told = {"clusterName": cluster.cluster_name, "clusterEndpoint": cluster.cluster_endpoint}
        queue = made.queue.queue_name if made.queue else None
        if self.shape >= BETA:
            return told | ({"interruptionQueue": queue} if queue else {})
        old = told | {"defaultInstanceProfile": profile.ref}
        return {"aws": old | ({"interruptionQueueName": queue} if queue else {})}

    def _chart(self, made: Deployed, cluster: Any, profile: Any) -> Any:
        values = {
            "settings": self._settings(made, cluster, profile),
            "serviceAccount": {"create": False, "name": ACCOUNT_NAME},
        }
        where = (
            {"chart": "karpenter", "repository": self.repository, "version": self.version}
            if self.repository
            else {"chart_asset": cdk.aws_s3_assets.Asset(made, "ChartFiles", path=self.chart or chart())}
        )
        release = eks.HelmChart(
            made,
            "Chart",
            cluster=cluster,
            release="karpenter",
            namespace=self.namespace,
            values=_merged(values, self.values),
            timeout=cdk.Duration.minutes(self.helm_chart_timeout_minutes),
            wait=True,
            **where,
            **self._more(),
        )
        release.node.add_dependency(made.service_account)
        return release

    def _more(self) -> Json:
        """What else the chart is installed with."""
        return {}

    def _defaults(self, made: Deployed, info: ClusterInfo, profile: Any) -> None:
        if self.node_pool_spec is None:
            return
        around = {
            "role": made.node_role.role_name,
            "profile": profile.ref,
            "cluster": info.cluster.cluster_name,
            "ipv6": info.ipv6,
        }
        for each in defaults(self.shape, self.node_pool_spec, self.ec2_node_class_spec, around):
            name = each["metadata"]["name"]
            manifest = eks.KubernetesManifest(made, name, cluster=info.cluster, manifest=[each])
            manifest.node.add_dependency(made.chart)


@dataclass(frozen=True, slots=True)
class KarpenterAddOn(KarpenterV1AddOn):
    """The add-on of before v1, for charts from 0.21 on.

    `default_provisioner_specs` maps a requirement's key to its values, as the first of its kind did.
    """

    version: str = "1.0.6"
    install_crds: bool = True
    default_provisioner_specs: Mapping[str, Sequence[str]] | None = None

    def __post_init__(self) -> None:
        if self.default_provisioner_specs is None:
            return
        if self.node_pool_spec is not None:
            raise AddOnRefused("give node_pool_spec or default_provisioner_specs, and not both")
        listed = [
            {"key": key, "operator": "In", "values": list(values)}
            for key, values in self.default_provisioner_specs.items()
        ]
        object.__setattr__(self, "node_pool_spec", {"requirements": listed})

    def _rivals(self) -> Sequence[str]:
        return (*AUTOSCALERS, *TERMINATION_HANDLERS)

    def _check_versions(self, info: ClusterInfo) -> None:
        if self.shape < (0, 21, 0):
            raise AddOnRefused(f"chart {self.version} is older than 0.21, the first this add-on can install")
        least = MINIMUM.get(".".join(info.version.split(".")[:2]))
        if least and self.shape < version_of(least):
            said = f"chart {self.version} is older than {least}, the first for Kubernetes {info.version}"
            cdk.Annotations.of(info.cluster).add_warning_v2("dovetail:old-chart", said)

    def _more(self) -> Json:
        return {"skip_crds": not self.install_crds}


def _let_in(made: Deployed, cluster: Any) -> None:
    """Nodes of the role may join: by the map of roles, or by an access entry where there is no map."""
    if cluster.authentication_mode == eks.AuthenticationMode.API:
        eks.CfnAccessEntry(
            made,
            "NodeAccess",
            cluster_name=cluster.cluster_name,
            principal_arn=made.node_role.role_arn,
            type="EC2_LINUX",
        )
        return
    cluster.aws_auth.add_role_mapping(
        made.node_role, groups=GROUPS, username="system:node:{{EC2PrivateDNSName}}"
    )


def _merged(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Json:
    """Values people give win, at any depth."""
    found = dict(ours)
    for key, value in theirs.items():
        both = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = _merged(found[key], value) if both else value
    return found
