"""The bus, its experiment and zonal shift as constructs, over the templates CloudFormation users deploy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dovetail_cdk.jsii import Part, cdk, include, sqs
from dovetail_cdk.source import document, more, template

__all__ = ["InterruptionBus", "InterruptionBusCluster", "InterruptionExperiment", "ZonalShift"]


class _Included(Part):
    """A template with its parameters said; `part` gives its resources by their names there."""

    def __init__(self, scope: Any, id: str, name: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(scope, id)
        said = {key: value for key, value in parameters.items() if value is not None}
        self.template = include.CfnInclude(
            self, "Template", template_file=template(name), parameters=said, preserve_logical_ids=False
        )

    def part(self, name: str) -> Any:
        return self.template.get_resource(name)


class InterruptionBus(_Included):
    """The hub of an account and region: queues, rules, functions, alarms."""

    def __init__(
        self,
        scope: Any,
        id: str,
        *,
        code_bucket: str,
        code_key: str,
        name: str = "dovetail-bus",
        destinations: Sequence[Mapping[str, Any]] = (),
        alarm_topic_arn: str = "",
        optional: Sequence[str] = (),
        replay_role_arn: str = "",
    ) -> None:
        """`optional`: any of autoscaling, zonal-shift, canary, registry. Others may not write to the queues:

        `replay_role_arn` is the role of those who replay events, else the role <name>-replay.
        """
        switches = {
            "WithAutoscaling": "autoscaling",
            "WithZonalShift": "zonal-shift",
            "WithCanary": "canary",
            "WithRegistry": "registry",
        }
        unknown = sorted(set(optional) - set(switches.values()))
        if unknown:
            raise ValueError(f"there is no {unknown[0]}; there are {', '.join(switches.values())}")
        parameters = {
            "Name": name,
            "CodeBucket": code_bucket,
            "CodeKey": code_key,
            "Destinations": json.dumps([dict(each) for each in destinations]),
            "AlarmTopicArn": alarm_topic_arn,
            "ReplayRoleArn": replay_role_arn,
            **{switch: str(each in optional).lower() for switch, each in switches.items()},
        }
        super().__init__(scope, id, "interruption-bus", parameters)


class InterruptionBusCluster(Part):
    """A cluster's queue behind a hub: its tags are its registration.

    With `router_role_arn` the router alone may write to it; one of another account has to be named.
    """

    def __init__(
        self,
        scope: Any,
        id: str,
        *,
        cluster_name: str,
        queue_name: str | None = None,
        router_role_arn: str = "",
    ) -> None:
        super().__init__(scope, id)
        wanted = more()["bus"]["clusterQueue"]
        self.queue = sqs.Queue(
            self,
            "Queue",
            queue_name=queue_name or cluster_name,
            retention_period=cdk.Duration.seconds(wanted["retention"]),
            visibility_timeout=cdk.Duration.seconds(wanted["visibility"]),
            receive_message_wait_time=cdk.Duration.seconds(wanted["wait"]),
            encryption=sqs.QueueEncryption.SQS_MANAGED,
        )
        source = more()["bus"]
        routed = source["clusterQueueRouterPolicy"] if router_role_arn else []
        places = {"QueueArn": self.queue.queue_arn}
        if router_role_arn:
            places["RouterArn"] = router_role_arn
        sqs.CfnQueuePolicy(
            self,
            "Policy",
            queues=[self.queue.queue_url],
            policy_document=cdk.Fn.sub(document([*routed, *source["clusterQueuePolicy"]]), places),
        )
        tags = cdk.Tags.of(self.queue)
        tags.add("dovetail.sh/bus", "true")
        tags.add("dovetail.sh/cluster", cluster_name)


class InterruptionExperiment(_Included):
    """Interrupts some spot machines of a cluster when someone starts it; `notice` is PT2M to PT15M."""

    def __init__(
        self, scope: Any, id: str, *, cluster_name: str, instances: int = 1, notice: str = "PT2M"
    ) -> None:
        parameters = {"ClusterName": cluster_name, "Instances": str(instances), "Notice": notice}
        super().__init__(scope, id, "interruption-experiment", parameters)


class ZonalShift(_Included):
    """How zonal shifts reach the controller of a cluster, and what it may ask about them."""

    def __init__(
        self,
        scope: Any,
        id: str,
        *,
        cluster_name: str,
        transport: str = "sqs",
        enable_dynamodb: bool = False,
        enable_observer: bool = False,
        enable_autoshift: bool = False,
        enable_on_cluster: bool = False,
        practice_run: Mapping[str, Any] | None = None,
        namespace: str = "kube-system",
        service_account: str = "karpenter",
        oidc_provider_arn: str = "",
        oidc_provider: str = "",
    ) -> None:
        """`practice_run`: outcome_alarm_arn, and blocked_windows and blocked_dates as lists.

        `enable_on_cluster` sets zonalShiftConfig of a cluster that another tool made; where this app makes
        the cluster, say it there.
        """
        practice = dict(practice_run or {})
        if transport not in ("sqs", "sns"):
            raise ValueError(f"transport is {transport!r}; it is sqs or sns")
        if enable_autoshift and not practice.get("outcome_alarm_arn"):
            raise ValueError(
                "enable_autoshift needs practice_run.outcome_alarm_arn, the alarm that ends bad practice runs"
            )
        parameters = {
            "ClusterName": cluster_name,
            "Transport": transport,
            "EnableDynamoDB": str(enable_dynamodb).lower(),
            "EnableObserver": str(enable_observer).lower(),
            "EnableAutoshift": str(enable_autoshift).lower(),
            "EnableOnCluster": str(enable_on_cluster).lower(),
            "PracticeRunAlarmArn": practice.get("outcome_alarm_arn"),
            "PracticeRunBlockedWindows": practice.get("blocked_windows"),
            "PracticeRunBlockedDates": practice.get("blocked_dates"),
            "Namespace": namespace,
            "ServiceAccount": service_account,
            "OidcProviderArn": oidc_provider_arn,
            "OidcProvider": oidc_provider,
        }
        super().__init__(scope, id, "zonal-shift", parameters)
