"""What Prometheus scrapes, records and warns of."""

# Queries are long, and broken ones cannot be pasted.
# ruff: noqa: E501

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def _job(name: str) -> Json:
    """The service of that name, as the chart calls it in a release called karpenter."""
    return {
        "job_name": name,
        "kubernetes_sd_configs": [{"role": "endpoints", "namespaces": {"names": ["kube-system"]}}],
        "relabel_configs": [
            {
                "source_labels": [
                    "__meta_kubernetes_endpoints_name",
                    "__meta_kubernetes_endpoint_port_name",
                ],
                "action": "keep",
                "regex": f"{name};http-metrics",
            }
        ],
    }


# The controller, and the parts that run by themselves where they are installed.
SCRAPE = {
    "scrape_configs": [_job(name) for name in ("karpenter", "karpenter-router", "karpenter-zonal-shift")]
}
RECORDED = (
    (
        "dovetail:nodes:count",
        'count by (nodepool, capacity_type) (karpenter_nodes_allocatable{resource_type="cpu"})',
    ),
    ("dovetail:cost:dollars_per_hour", "sum by (nodepool) (karpenter_nodepools_cost_total)"),
    (
        "dovetail:nodes:disrupted_1h",
        "sum by (nodepool, reason) (increase(karpenter_nodeclaims_disrupted_total[1h]))",
    ),
    (
        "dovetail:cloudprovider:errors_5m",
        "sum by (method, error) (rate(karpenter_cloudprovider_errors_total[5m]))",
    ),
)
# Alert, expression, for how long, how bad, what it means and what to do.
ALERTS = (
    ("DovetailDown", 'absent(up{job="karpenter"} == 1)', "10m", "critical",
     "No controller answers: pods that find no room stay pending. Look at the Deployment and its logs."),
    ("DovetailStateUnsynced", "karpenter_cluster_state_synced == 0", "10m", "warning",
     "The controller has not seen the whole cluster for ten minutes and decides nothing. Look for kinds it cannot list."),
    ("DovetailPodsUnschedulable", "sum(karpenter_scheduler_unschedulable_pods_count) > 0", "15m", "warning",
     "Pods are unschedulable, and no new node would change that. `dovetail explain NAMESPACE/POD` says why."),
    ("DovetailCloudErrors", "sum by (method) (rate(karpenter_cloudprovider_errors_total[5m])) > 0.1", "15m", "warning",
     "The cloud keeps refusing. Look at events of NodeClaims and at permissions."),
    ("DovetailNodePoolNearLimit",
     "karpenter_nodepools_usage / (karpenter_nodepools_limit > 0) > 0.9", "15m", "warning",
     "A pool has used nine tenths of its limit. Raise it, or let pods wait."),
    ("DovetailReconcileErrors",
     'sum by (controller) (rate(controller_runtime_reconcile_errors_total{job="karpenter"}[10m])) > 0.1', "30m", "warning",
     "A controller keeps failing. Its log lines say at what."),
    ("DovetailTerminationSlow", 'max(karpenter_nodes_termination_duration_seconds{quantile="0.99"}) > 3600', "15m", "warning",
     "Nodes take over an hour to go. Look for pods that cannot be evicted."),
    ("DovetailDecisionLogBehind",
     "max by (to) (dovetail_decision_log_behind_seconds) > 900",
     "15m", "warning",
     "Decisions wait for their log; after an hour the oldest are dropped. Look at its disk, bucket and rights."),
    ("DovetailInterruptionsLate",
     "histogram_quantile(0.99, sum by (le) (rate(karpenter_interruption_message_queue_duration_seconds_bucket[10m]))) > 60",
     "10m", "warning", "Warnings of interruptions are a minute old when they are handled; machines are gone after two."),
    ("DovetailMalformedInterruptions", "increase(dovetail_interruption_malformed_messages_total[1h]) > 0", "0m", "warning",
     "Messages in the interruption queue cannot be read; they go to its dead-letter queue."),
    ("DovetailBusParked", "sum(increase(dovetail_bus_parked_total[15m])) > 0", "0m", "critical",
     "Events were set aside by the bus. `dovetail interruption-router replay --from park` sends them again."),
    ("DovetailBusUrgentLate", 'dovetail_bus_oldest_message_age_seconds{queue=~".*urgent.*"} > 20', "1m", "critical",
     "Urgent events wait for over 20 seconds. Is the router up?"),
    ("DovetailBusBulkLate", "max(dovetail_bus_oldest_message_age_seconds) > 300", "5m", "warning",
     "Events wait for over five minutes. Is the router up?"),
    ("DovetailBusDeadlineNear",
     "histogram_quantile(0.01, sum by (le) (rate(dovetail_bus_deadline_remaining_seconds_bucket[10m]))) < 60", "5m",
     "warning", "One event in a hundred is sent with less than a minute left."),
    ("DovetailBusUnresolved",
     "sum(rate(dovetail_bus_unresolved_total[15m])) / (sum(rate(dovetail_bus_received_total[15m])) > 0) > 0.01", "15m",
     "warning", "The owner of one event in a hundred cannot be found. Look at tags and at permissions to describe instances."),
    ("DovetailBusThrottled", 'sum(rate(dovetail_bus_lookup_calls_total{result="throttled"}[5m])) > 0', "5m", "warning",
     "EC2 throttles the bus."),
    ("DovetailBusSilent",
     'sum(increase(dovetail_bus_received_total{kind!="canary"}[24h])) == 0 '
     'and on () sum(karpenter_nodes_allocatable{capacity_type="spot",resource_type="cpu"}) > 0', "1h", "warning",
     "There are spot nodes, and no event for a day. Look whether the rules still send to the bus's queues."),
    ("DovetailBusCanaryLost", 'sum(increase(dovetail_bus_received_total{kind="canary"}[3h])) == 0', "10m", "critical",
     "The bus's own events no longer come back to it. Look at rules, queues and their policies."),
    ("DovetailZonalShiftLong", "sum by (zone) (dovetail_zonal_shift_active) > 0", "1d", "warning",
     "A zone has been away for a day."),
    ("DovetailZonalShiftPollStale",
     "(time() - max(dovetail_zonal_shift_last_confirmed_timestamp) > 300) and on () (sum(dovetail_zonal_shift_active) > 0)",
     "1m", "critical", "ARC has not answered for five minutes while a zone is away; nothing is undone meanwhile."),
    ("DovetailZonalShiftRestoreSlow", 'max(dovetail_zonal_shift_phase{phase="Restoring"}) > 0', "30m", "warning",
     "Stepping back into a zone takes over half an hour. `kubectl get zoneshifts` shows what is left."),
    ("DovetailZonalShiftForged", "increase(dovetail_zonal_shift_signature_failures_total[15m]) > 0", "0m", "critical",
     "A message with a wrong signature came in. Nothing was done about it; find out who sends it."),
    ("DovetailZonalShiftContested", "max(dovetail_zonal_shift_contested) > 0", "5m", "warning",
     "Someone keeps undoing the edit of a pool, often a GitOps tool. Let it ignore the requirement during a shift."),
    ("DovetailSpendMonthNearLimit",
     'max by (limit) (dovetail_spend_month_dollars{of="projected"}) / max by (limit) (dovetail_spend_month_dollars{of="limit"}) > 0.8',
     "1h", "warning", "At the rate of the last day the month comes to over 80 % of its SpendLimit. `dovetail spend` shows who spends it."),
    ("DovetailSpendHeldPods", "max by (limit) (dovetail_spend_held_pods) > 0", "15m", "warning",
     "Pods wait because a SpendLimit is reached. `dovetail spend` shows how much is missing; raise the limit, or ask for less."),
    ("DovetailCommitmentUnused",
     'max by (commitment) (dovetail_commitment_dollars{of="unused"}) / (max by (commitment) (dovetail_commitment_dollars{of="hourly"}) > 0) > 0.1',
     "1d", "warning", "Over a tenth of what a Commitment pays for has gone unused for a day. `kubectl get commitments` shows which; see its share."),
)  # fmt: skip
# Today's name, and what it was called before. A histogram or summary has several series.
OLD_NAMES: dict[str, tuple[str, ...]] = {
    "karpenter_nodes_created_total": ("karpenter_nodes_created",),
    "karpenter_nodes_terminated_total": ("karpenter_nodes_terminated",),
    "karpenter_nodes_termination_duration_seconds": ("karpenter_nodes_termination_time_seconds",),
    "karpenter_pods_startup_duration_seconds": ("karpenter_pods_startup_time_seconds",),
    "karpenter_pods_drained_total": ("karpenter_pods_pods_drained_total",),
    "karpenter_nodeclaims_created_total": ("karpenter_nodeclaims_created", "karpenter_machines_created"),
    "karpenter_nodeclaims_terminated_total": (
        "karpenter_nodeclaims_terminated",
        "karpenter_machines_terminated",
    ),
    "karpenter_nodeclaims_disrupted_total": (
        "karpenter_nodeclaims_disrupted",
        "karpenter_machines_disrupted",
    ),
    "karpenter_nodepools_limit": ("karpenter_nodepool_limit", "karpenter_provisioners_limit"),
    "karpenter_nodepools_usage": ("karpenter_nodepool_usage", "karpenter_provisioners_usage"),
    "karpenter_voluntary_disruption_decisions_total": (
        "karpenter_deprovisioning_actions_performed",
        "karpenter_disruption_actions_performed_total",
    ),
    "karpenter_voluntary_disruption_decision_evaluation_duration_seconds": (
        "karpenter_deprovisioning_evaluation_duration_seconds",
        "karpenter_disruption_evaluation_duration_seconds",
    ),
    "karpenter_voluntary_disruption_eligible_nodes": (
        "karpenter_deprovisioning_eligible_machines",
        "karpenter_disruption_eligible_nodes",
    ),
    "karpenter_voluntary_disruption_consolidation_timeouts_total": (
        "karpenter_deprovisioning_consolidation_timeouts",
        "karpenter_disruption_consolidation_timeouts_total",
    ),
    "karpenter_voluntary_disruption_queue_failures_total": (
        "karpenter_disruption_replacement_nodeclaim_failures_total",
    ),
    "karpenter_nodepools_allowed_disruptions": ("karpenter_disruption_budgets_allowed_disruptions",),
    "karpenter_scheduler_scheduling_duration_seconds": (
        "karpenter_allocation_controller_scheduling_duration_seconds",
        "karpenter_provisioner_scheduling_duration_seconds",
        "karpenter_provisioner_scheduling_simulation_duration_seconds",
    ),
    "karpenter_scheduler_queue_depth": ("karpenter_provisioner_scheduling_queue_depth",),
    "karpenter_scheduler_ignored_pods_count": ("karpenter_ignored_pod_count",),
    "karpenter_interruption_received_messages_total": ("karpenter_interruption_received_messages",),
    "karpenter_interruption_deleted_messages_total": ("karpenter_interruption_deleted_messages",),
    "karpenter_interruption_message_queue_duration_seconds": (
        "karpenter_interruption_message_latency_time_seconds",
    ),
    "karpenter_cloudprovider_instance_type_offering_price_estimate": (
        "karpenter_cloudprovider_instance_type_price_estimate",
    ),
}
SUMMARIES = ("karpenter_nodes_termination_duration_seconds", "karpenter_pods_startup_duration_seconds")


def _series(name: str) -> tuple[str, ...]:
    """How the series of a metric end."""
    if name in SUMMARIES:
        return ("", "_sum", "_count")
    return ("_bucket", "_sum", "_count") if name.endswith("_duration_seconds") else ("",)


def rules() -> dict[str, Json]:
    """The rule files, by name."""
    recorded = [{"record": name, "expr": expression} for name, expression in RECORDED]
    alerts = [
        {
            "alert": name,
            "expr": expression,
            "for": patience,
            "labels": {"severity": severity},
            "annotations": {"summary": text},
        }
        for name, expression, patience, severity, text in ALERTS
    ]
    old = [
        {"record": name + ending, "expr": today + ending}
        for today, names in OLD_NAMES.items()
        for name in names
        for ending in _series(today)
    ]
    return {
        "rules.yaml": {"groups": [{"name": "dovetail", "rules": recorded}]},
        "alerts.yaml": {"groups": [{"name": "dovetail-alerts", "rules": alerts}]},
        "old-names.yaml": {"groups": [{"name": "dovetail-old-names", "rules": old}]},
    }
