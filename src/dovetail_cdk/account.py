"""The account's part: a role for nodes, the controller's policies, a queue of warnings and its rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail_cdk.jsii import Part, cdk, eks, events, iam, sqs
from dovetail_cdk.source import document, shared

__all__ = ["ControllerPolicies", "ControllerRole", "InterruptionQueue", "NodeRole"]

# What a sink in AWS is written with, by what is granted for it; in the order of the source.
SINKS = {"NotificationTopic": "sns:", "NotificationBus": "eventbridge:"}
IPV6_ACTIONS = ["ec2:AssignIpv6Addresses", "ec2:UnassignIpv6Addresses"]


class NodeRole(Part):
    """The role of nodes, with the managed policies operators expect; IPv6 clusters need a little more."""

    def __init__(self, scope: Any, id: str, *, role_name: str | None = None, ipv6: bool = False) -> None:
        super().__init__(scope, id)
        managed = [iam.ManagedPolicy.from_aws_managed_policy_name(name) for name in shared()["nodePolicies"]]
        self.role = iam.Role(
            self,
            "Role",
            role_name=role_name,
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            managed_policies=managed,
        )
        if ipv6:
            interface = cdk.Stack.of(self).format_arn(
                service="ec2", resource="network-interface", resource_name="*"
            )
            self.role.add_to_policy(iam.PolicyStatement(actions=IPV6_ACTIONS, resources=[interface]))


def _split_place(place: str) -> tuple[str, str]:
    """The ARN of the bucket of s3://bucket/prefix, and what its keys begin with."""
    bucket, _, prefix = place.removeprefix("s3://").partition("/")
    below = prefix.strip("/")
    return f"arn:{cdk.Aws.PARTITION}:s3:::{bucket}", f"{below}/" if below else ""


class ControllerPolicies(Part):
    """The controller's policies: none for interruptions without a queue, and none in S3 without a bucket.

    `decision_log` and `recording` are where DECISION_LOG and RECORDING write in S3: s3://bucket/prefix.
    `commitments` lets the controller read Savings Plans and reserved instances, which COMMITMENTS needs.
    `notifications` are the sinks in AWS that NOTIFY_FILE has, as it has them: sns:<topic arn>,
    eventbridge:<bus arn>.
    """

    def __init__(
        self,
        scope: Any,
        id: str,
        *,
        cluster_name: str,
        node_role_arn: str,
        queue_arn: str = "",
        named: bool = True,
        decision_log: str = "",
        recording: str = "",
        commitments: bool = False,
        notifications: Sequence[str] = (),
    ) -> None:
        super().__init__(scope, id)
        stack = cdk.Stack.of(self)
        places = {
            "Partition": cdk.Aws.PARTITION,
            "Region": cdk.Aws.REGION,
            "Account": cdk.Aws.ACCOUNT_ID,
            "Cluster": cluster_name,
            "NodeRoleArn": node_role_arn,
            "QueueArn": queue_arn,
            "ClusterArn": stack.format_arn(service="eks", resource="cluster", resource_name=cluster_name),
        }
        granted = dict(shared()["policies"])
        if decision_log:
            places["LogBucketArn"], below = _split_place(decision_log)
            places["LogFolder"] = f"{below}{cluster_name}/"
            granted["DecisionLog"] = shared()["decisionLogPolicy"]
        if recording:
            places["RecordingBucketArn"], places["RecordingFolder"] = _split_place(recording)
            granted["Recording"] = shared()["recordingPolicy"]
        if commitments:
            granted["Commitment"] = shared()["commitmentPolicy"]
        for (area, way), statement in zip(SINKS.items(), shared()["notificationPolicy"], strict=True):
            arns = [each.removeprefix(way) for each in notifications if each.startswith(way)]
            # By place, and not in the text: an ARN may be known only when the stack is deployed.
            named_arns = {f"{area}{number}": arn for number, arn in enumerate(arns)}
            if arns:
                places |= named_arns
                granted[area] = [{**statement, "Resource": [f"${{{place}}}" for place in named_arns]}]
        self.by_area: dict[str, Any] = {}
        for area, statements in granted.items():
            if area == "Interruption" and not queue_arn:
                continue
            text = document(statements)
            used = {name: value for name, value in places.items() if f"${{{name}}}" in text}
            self.by_area[area] = iam.CfnManagedPolicy(
                self,
                area,
                managed_policy_name=f"KarpenterController{area}Policy-{cluster_name}" if named else None,
                # Condition keys hold the cluster's name, which only a Sub of the whole text can say.
                policy_document=cdk.Fn.sub(text, used),
            )

    @property
    def arns(self) -> list[str]:
        return [policy.ref for policy in self.by_area.values()]

    def attach(self, role: Any) -> None:
        """Let a role do what the controller does."""
        for area, policy in self.by_area.items():
            role.add_managed_policy(
                iam.ManagedPolicy.from_managed_policy_arn(self, f"{area}Reference", policy.ref)
            )


class InterruptionQueue(Part):
    """The queue of warnings, who may write to it, and the five rules that do."""

    def __init__(self, scope: Any, id: str, *, queue_name: str | None = None) -> None:
        super().__init__(scope, id)
        retention = cdk.Duration.seconds(shared()["queueRetentionSeconds"])
        self.queue = sqs.Queue(
            self,
            "Queue",
            queue_name=queue_name,
            retention_period=retention,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
        )
        self.rules = [self._rule(name, **rule) for name, rule in shared()["rules"].items()]
        text = document(shared()["queuePolicy"], Id="EC2InterruptionPolicy")
        # One text for all rules, so that it can stand where the shared document names one.
        rules = cdk.Fn.join('","', [rule.attr_arn for rule in self.rules])
        listed = text.replace('"${RuleArn}"', '["${RuleArns}"]')
        sqs.CfnQueuePolicy(
            self,
            "Policy",
            queues=[self.queue.queue_url],
            policy_document=cdk.Fn.sub(listed, {"QueueArn": self.queue.queue_arn, "RuleArns": rules}),
        )

    def _rule(self, name: str, source: str, detailType: str) -> Any:
        target = events.CfnRule.TargetProperty(
            id="KarpenterInterruptionQueueTarget", arn=self.queue.queue_arn
        )
        pattern = {"source": [source], "detail-type": [detailType]}
        return events.CfnRule(self, name, event_pattern=pattern, targets=[target])


class ControllerRole(Part):
    """A role for the controller's service account: by Pod Identity, or by IRSA where a provider is given.

    Use it where the service account is not made by the same app; the add-ons make both together.
    """

    def __init__(
        self,
        scope: Any,
        id: str,
        *,
        cluster_name: str,
        policies: ControllerPolicies,
        namespace: str = "kube-system",
        service_account: str = "karpenter",
        oidc_provider: Any = None,
        role_name: str | None = None,
    ) -> None:
        super().__init__(scope, id)
        trusted = (
            self._irsa(oidc_provider, namespace, service_account) if oidc_provider else self._pod_identity()
        )
        self.role = iam.Role(self, "Role", role_name=role_name, assumed_by=trusted)
        policies.attach(self.role)
        if oidc_provider is None:
            self.association = eks.CfnPodIdentityAssociation(
                self,
                "Association",
                cluster_name=cluster_name,
                namespace=namespace,
                service_account=service_account,
                role_arn=self.role.role_arn,
            )

    def _irsa(self, provider: Any, namespace: str, account: str) -> Any:
        issuer = provider.open_id_connect_provider_issuer
        # The issuer may be known only at deployment, and it is part of a key.
        equal = cdk.CfnJson(
            self,
            "Trust",
            value={
                f"{issuer}:aud": "sts.amazonaws.com",
                f"{issuer}:sub": f"system:serviceaccount:{namespace}:{account}",
            },
        )
        return iam.WebIdentityPrincipal(provider.open_id_connect_provider_arn, {"StringEquals": equal})

    @staticmethod
    def _pod_identity() -> Any:
        return iam.SessionTagsPrincipal(iam.ServicePrincipal("pods.eks.amazonaws.com"))
