"""Grafana dashboards and Prometheus rules, from short tables. `make dashboards` writes deploy/observability.

A panel is a title, a kind, a unit and its queries; where it stands follows from its order and width.
"""

# Queries are long, and broken ones cannot be pasted.
# ruff: noqa: E501

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent / "deploy" / "observability"
Json = dict[str, Any]
FULL, HALF, QUARTER, THREE_QUARTERS = 24, 12, 6, 18
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Panel:
    """One picture. `queries` are (expression, legend); a table joins its queries on `join`."""

    title: str
    queries: tuple[tuple[str, str], ...] = ()
    kind: str = "timeseries"
    unit: str = "short"
    width: int = HALF
    height: int = 8
    join: str = ""
    about: str = ""


@dataclass(frozen=True)
class Dashboard:
    """A page of them. `variables` are (name, query, multi); without a query the choices are given."""

    name: str
    title: str
    uid: str
    refresh: str
    panels: tuple[Panel, ...]
    variables: tuple[tuple[str, str, bool], ...] = ()
    choices: tuple[tuple[str, tuple[str, ...]], ...] = ()
    tags: tuple[str, ...] = ("karpenter", "dovetail")


NODES = 'nodepool=~"$nodepool",zone=~"$zone",arch=~"$arch",capacity_type=~"$capacity_type",instance_type=~"$instance_type"'
PODS = 'nodepool=~"$nodepool",arch=~"$arch",capacity_type=~"$capacity_type",instance_type=~"$instance_type"'
POOLS = 'nodepool=~"$nodepool"'


def _rate_and_total(metric: str, by: str, where: str = POOLS) -> tuple[tuple[str, str], ...]:
    legend = " ".join(f"{{{{{label.strip()}}}}}" for label in by.split(","))
    return (
        (f"sum by ({by}) (rate({metric}{{{where}}}[5m]))", f"{legend} per second"),
        (f"sum by ({by}) ({metric}{{{where}}})", f"{legend} total"),
    )


def _utilisation(resource: str) -> str:
    """Requests of pods include those of daemons already."""
    return (
        f'sum by (node_name) (karpenter_nodes_total_pod_requests{{resource_type="{resource}",{NODES}}}) '
        f'/ sum by (node_name) (karpenter_nodes_allocatable{{resource_type="{resource}",{NODES}}})'
    )


def _used(resource: str) -> str:
    return (
        f'sum by (nodepool) (karpenter_nodepools_usage{{resource_type="{resource}",{POOLS}}}) '
        f'/ sum by (nodepool) (karpenter_nodepools_limit{{resource_type="{resource}",{POOLS}}})'
    )


CAPACITY = Dashboard(
    "capacity",
    "Karpenter Capacity v1",
    "ta8I9Q67Z",
    "10s",
    (
        Panel(
            "Nodes Created by nodepool",
            _rate_and_total("karpenter_nodes_created_total", "cluster, nodepool"),
            width=FULL,
        ),
        Panel(
            "Nodes Terminated by nodepool",
            _rate_and_total("karpenter_nodes_terminated_total", "cluster, nodepool"),
            width=FULL,
        ),
        Panel(
            'Nodes Eligible for Disruptions by "reason"',
            (("sum by (reason) (karpenter_voluntary_disruption_eligible_nodes)", "{{reason}}"),),
        ),
        Panel(
            'Node Disruptions by "$distribution_filter"',
            _rate_and_total("karpenter_nodeclaims_disrupted_total", "cluster, nodepool"),
        ),
        Panel(
            'Disruption Actions performed by "type" and "decision"',
            (
                (
                    "sum by (cluster, nodepool, consolidation_type, decision) "
                    "(rate(karpenter_voluntary_disruption_decisions_total[5m]))",
                    "{{decision}} {{consolidation_type}} per second",
                ),
                (
                    "sum by (consolidation_type, decision) (karpenter_voluntary_disruption_decisions_total)",
                    "{{decision}} {{consolidation_type}} total",
                ),
            ),
            width=FULL,
        ),
        Panel(
            'Pod Distribution by "$distribution_filter"',
            (
                (
                    f"sum by ($distribution_filter) (karpenter_pods_state{{{PODS}}})",
                    "{{$distribution_filter}}",
                ),
            ),
        ),
        Panel("Pod Phase", ((f"sum by (phase) (karpenter_pods_state{{{PODS}}})", "{{phase}}"),)),
        Panel(
            "Nodepool Summary",
            (
                (
                    f'count by (nodepool) (karpenter_nodes_allocatable{{resource_type="cpu",{NODES}}})',
                    "Node Count",
                ),
                (
                    f'sum by (nodepool) (karpenter_nodes_allocatable{{resource_type="cpu",{NODES}}})',
                    "CPU Provisioned",
                ),
                (
                    f'sum by (nodepool) (karpenter_nodes_allocatable{{resource_type="memory",{NODES}}})',
                    "Memory Provisioned",
                ),
                (_used("cpu"), "CPU Limit Utilization"),
                (_used("memory"), "Memory Limit Utilization"),
            ),
            kind="table",
            width=THREE_QUARTERS,
            join="nodepool",
        ),
        Panel(
            "Spot Node Percentage",
            (
                (
                    f'(count(karpenter_nodes_allocatable{{resource_type="cpu",{NODES},capacity_type="spot"}}) or vector(0)) '
                    f'/ count(karpenter_nodes_allocatable{{resource_type="cpu",{NODES}}})',
                    "spot",
                ),
            ),
            unit="percentunit",
            width=QUARTER,
        ),
        Panel(
            "Node Summary",
            (
                (_utilisation("cpu"), "CPU Utilization"),
                (_utilisation("memory"), "Memory Utilization"),
                (
                    f'sum by (node_name) (karpenter_nodes_total_pod_requests{{resource_type="pods",{NODES}}})',
                    "Pods",
                ),
                (f"max by (node_name) (karpenter_nodes_current_lifetime_seconds{{{NODES}}})", "Uptime"),
                (
                    "max by (node_name, instance_type, zone, capacity_type) "
                    f'(karpenter_nodes_allocatable{{resource_type="cpu",{NODES}}})',
                    "CPU",
                ),
            ),
            kind="table",
            width=FULL,
            height=12,
            join="node_name",
            about="One row for each node; shown where METRICS_DETAIL is full.",
        ),
    ),
    tuple(
        (name, f"label_values(karpenter_nodes_allocatable, {name})", True)
        for name in ("nodepool", "zone", "arch", "capacity_type", "instance_type")
    ),
    (
        (
            "distribution_filter",
            ("arch", "capacity_type", "instance_type", "namespace", "node", "nodepool", "zone"),
        ),
    ),
)
QUANTILES = (("0", "Min"), ("0.5", "P50"), ("0.9", "P90"), ("0.99", "P99"), ("1", "Max"))


def _summary(metric: str) -> tuple[tuple[str, str], ...]:
    # The Go client writes 0 and 1, others 0.0 and 1.0; both are meant.
    shown = {"0": "0|0.0", "1": "1|1.0"}
    return tuple((f'max({metric}{{quantile=~"{shown.get(q, q)}"}})', name) for q, name in QUANTILES)


PERFORMANCE = Dashboard(
    "performance",
    "Karpenter Performance v1",
    "fdusq1f2alerke",
    "5s",
    (
        Panel(
            "Node Termination Latency",
            _summary("karpenter_nodes_termination_duration_seconds"),
            unit="s",
            width=FULL,
        ),
        Panel(
            "Pod Startup Latency", _summary("karpenter_pods_startup_duration_seconds"), unit="s", width=FULL
        ),
        Panel(
            "Controller Reconciliation Latency [$controller]",
            tuple(
                (
                    f"histogram_quantile({q}, sum by (le) (rate(controller_runtime_reconcile_time_seconds_bucket"
                    f'{{job="karpenter",controller="$controller"}}[10m])))',
                    name,
                )
                for q, name in QUANTILES
            ),
            unit="s",
            width=FULL,
        ),
        Panel(
            "Controller Reconciliation Rate",
            (
                (
                    'sum by (controller) (rate(controller_runtime_reconcile_total{job="karpenter"}[10m]))',
                    "{{controller}}",
                ),
            ),
            kind="bargauge",
            unit="reqps",
            width=FULL,
        ),
    ),
    (
        (
            "controller",
            'label_values(controller_runtime_reconcile_time_seconds_count{job="karpenter"}, controller)',
            False,
        ),
    ),
)
COST = Dashboard(
    "cost",
    "Dovetail Cost",
    "dovetail-cost",
    "30s",
    (
        Panel(
            "Dollars an hour",
            (("sum(karpenter_nodepools_cost_total)", "all pools"),),
            kind="stat",
            unit="currencyUSD",
            width=QUARTER,
        ),
        Panel(
            "Dollars an hour by pool",
            (("sum by (nodepool) (karpenter_nodepools_cost_total)", "{{nodepool}}"),),
            unit="currencyUSD",
            width=THREE_QUARTERS,
        ),
        Panel(
            "Used of what is paid for",
            (("karpenter_cluster_utilization_percent", "{{resource_type}}"),),
            unit="percent",
        ),
        Panel(
            "Dollars a month at this rate",
            (("sum by (nodepool) (karpenter_nodepools_cost_total) * 730", "{{nodepool}}"),),
            unit="currencyUSD",
        ),
        Panel(
            "Nodes taken away, by reason",
            (("sum by (reason) (increase(karpenter_nodeclaims_disrupted_total[1h]))", "{{reason}}"),),
        ),
        Panel(
            "Decisions to save, by kind",
            (
                (
                    "sum by (decision, consolidation_type) "
                    "(increase(karpenter_voluntary_disruption_decisions_total[1h]))",
                    "{{decision}} {{consolidation_type}}",
                ),
            ),
        ),
        Panel(
            "Nodes by capacity type",
            (
                (
                    'count by (capacity_type) (karpenter_nodes_allocatable{resource_type="cpu"})',
                    "{{capacity_type}}",
                ),
            ),
        ),
        Panel(
            "Pods that fit nowhere",
            (("sum(karpenter_scheduler_unschedulable_pods_count)", "pods"),),
        ),
    ),
)
BUS = Dashboard(
    "interruption-bus",
    "Dovetail Interruption Bus",
    "dovetail-bus",
    "10s",
    (
        Panel("Received by kind", (("sum by (kind) (rate(dovetail_bus_received_total[5m]))", "{{kind}}"),)),
        Panel(
            "Routed by cluster", (("sum by (cluster) (rate(dovetail_bus_routed_total[5m]))", "{{cluster}}"),)
        ),
        Panel(
            "From event to queue",
            tuple(
                (
                    f"histogram_quantile({q}, sum by (le, lane) (rate(dovetail_bus_latency_seconds_bucket[5m])))",
                    f"{{{{lane}}}} {name}",
                )
                for q, name in (("0.5", "P50"), ("0.99", "P99"))
            ),
            unit="s",
        ),
        Panel(
            "Time left when sent, 1 in 100",
            (
                (
                    "histogram_quantile(0.01, sum by (le, kind) "
                    "(rate(dovetail_bus_deadline_remaining_seconds_bucket[5m])))",
                    "{{kind}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            "Put aside",
            (
                ("sum by (reason) (increase(dovetail_bus_dropped_total[1h]))", "dropped: {{reason}}"),
                ("sum by (reason) (increase(dovetail_bus_parked_total[1h]))", "parked: {{reason}}"),
                ("sum(increase(dovetail_bus_duplicates_total[1h]))", "duplicates"),
            ),
        ),
        Panel(
            "Asking EC2",
            (
                ("sum by (result) (rate(dovetail_bus_lookup_calls_total[5m]))", "calls: {{result}}"),
                ("sum(rate(dovetail_bus_lookup_ids_total[5m]))", "ids"),
            ),
        ),
        Panel("Found in memory", (("dovetail_bus_cache_hit_ratio", "share"),), unit="percentunit"),
        Panel("Oldest message", (("dovetail_bus_oldest_message_age_seconds", "{{queue}}"),), unit="s"),
        Panel(
            "Failures",
            (
                ("sum by (code) (increase(dovetail_bus_send_failures_total[1h]))", "sending: {{code}}"),
                ("sum(increase(dovetail_bus_source_failures_total[1h]))", "receiving"),
                ("sum by (cluster) (dovetail_bus_circuit_open)", "set aside: {{cluster}}"),
            ),
        ),
        Panel("The canary's way through", (("dovetail_bus_canary_seconds", "seconds"),), unit="s"),
    ),
)
SHIFT = "dovetail_zonal_shift_"
ZONAL = Dashboard(
    "zonal-shift",
    "Dovetail Zonal Shift",
    "dovetail-zonal",
    "10s",
    (
        Panel(
            "Zones stepped out of",
            ((f"sum by (zone, kind) ({SHIFT}active)", "{{zone}} {{kind}}"),),
            kind="stat",
        ),
        Panel("Phases", ((f"sum by (zone_id, phase) ({SHIFT}phase)", "{{zone_id}} {{phase}}"),)),
        Panel("Nodes protected", ((f"sum by (zone) ({SHIFT}nodes_protected)", "{{zone}}"),)),
        Panel("Pools edited", ((f"sum by (zone) ({SHIFT}nodepools_edited)", "{{zone}}"),)),
        Panel(
            "Signals",
            ((f"sum by (source, result) (increase({SHIFT}signals_total[1h]))", "{{source}} {{result}}"),),
        ),
        Panel(
            "Since ARC last answered",
            ((f"time() - max({SHIFT}last_confirmed_timestamp)", "seconds"),),
            unit="s",
        ),
        Panel("Ready to lose a zone", ((f"{SHIFT}readiness", "{{zone}}"),), unit="percentunit"),
        Panel("Pods waiting for a zone", ((f"sum by (zone) ({SHIFT}pods_waiting_for_zone)", "{{zone}}"),)),
    ),
)
DASHBOARDS = (CAPACITY, PERFORMANCE, COST, BUS, ZONAL)


def grafana(board: Dashboard) -> Json:
    """A dashboard as Grafana imports it."""
    return {
        "annotations": {"list": []},
        "editable": True,
        "graphTooltip": 1,
        "panels": _placed(board.panels),
        "refresh": board.refresh,
        "schemaVersion": 39,
        "tags": list(board.tags),
        "templating": {"list": _variables(board)},
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "title": board.title,
        "uid": board.uid,
        "version": 1,
    }


def _variables(board: Dashboard) -> list[Json]:
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
    asked = [
        {
            "name": name,
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "multi": multi,
            "includeAll": multi,
            "current": {"text": "All", "value": "$__all"} if multi else {},
            "sort": 1,
        }
        for name, query, multi in board.variables
    ]
    given = [
        {
            "name": name,
            "type": "custom",
            "query": ",".join(values),
            "options": [{"text": v, "value": v, "selected": v == values[0]} for v in values],
            "current": {"text": values[0], "value": values[0]},
        }
        for name, values in board.choices
    ]
    return [source, *asked, *given]


def _placed(panels: tuple[Panel, ...]) -> list[Json]:
    """Panels from left to right, and a new row where one does not fit any more."""
    found, x, y, tallest = [], 0, 0, 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > FULL:
            x, y, tallest = 0, y + tallest, 0
        place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
        found.append(_panel(number, panel, place))
        x, tallest = x + panel.width, max(tallest, panel.height)
    return found


def _panel(number: int, panel: Panel, place: Json) -> Json:
    table = panel.kind == "table"
    targets = [
        {
            "datasource": SOURCE,
            "editorMode": "code",
            "expr": expression,
            "legendFormat": legend,
            "refId": chr(ord("A") + n),
            **({"format": "table", "instant": True} if table else {}),
        }
        for n, (expression, legend) in enumerate(panel.queries)
    ]
    shown: Json = {
        "id": number,
        "title": panel.title,
        "type": panel.kind,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": targets,
    }
    if panel.about:
        shown["description"] = panel.about
    if table:
        shown |= _joined(panel)
    return shown


def _joined(panel: Panel) -> Json:
    names = {f"Value #{chr(ord('A') + n)}": legend for n, (_, legend) in enumerate(panel.queries)}
    gauges = [name for name in names.values() if "Utilization" in name]
    return {
        "transformations": [
            {"id": "joinByField", "options": {"byField": panel.join, "mode": "outer"}},
            {
                "id": "organize",
                "options": {"excludeByName": {"Time": True}, "renameByName": names},
            },
        ],
        "fieldConfig": {
            "defaults": {"unit": panel.unit},
            "overrides": [
                {
                    "matcher": {"id": "byName", "options": name},
                    "properties": [
                        {"id": "unit", "value": "percentunit"},
                        {"id": "min", "value": 0},
                        {"id": "max", "value": 1},
                        {"id": "custom.cellOptions", "value": {"type": "gauge"}},
                    ],
                }
                for name in gauges
            ],
        },
    }


# Prometheus

SCRAPE = {
    "scrape_configs": [
        {
            "job_name": "karpenter",
            "kubernetes_sd_configs": [{"role": "endpoints", "namespaces": {"names": ["kube-system"]}}],
            "relabel_configs": [
                {
                    "source_labels": [
                        "__meta_kubernetes_endpoints_name",
                        "__meta_kubernetes_endpoint_port_name",
                    ],
                    "action": "keep",
                    "regex": "karpenter;http-metrics",
                }
            ],
        }
    ]
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
     "Pods fit nowhere, and no node would change that. `dovetail explain NAMESPACE/POD` says why."),
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
    ("DovetailInterruptionsLate",
     "histogram_quantile(0.99, sum by (le) (rate(karpenter_interruption_message_queue_duration_seconds_bucket[10m]))) > 60",
     "10m", "warning", "Warnings of interruptions are a minute old when they are handled; machines are gone after two."),
    ("DovetailMalformedInterruptions", "increase(dovetail_interruption_malformed_messages_total[1h]) > 0", "0m", "warning",
     "Messages in the interruption queue cannot be read; they go to its dead-letter queue."),
    ("DovetailBusParked", "sum(increase(dovetail_bus_parked_total[15m])) > 0", "0m", "critical",
     "Events were set aside by the bus. `dovetail interruption-router --replay` sends them again."),
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
    ("DovetailZonalShiftLong", "min_over_time(sum by (zone) (dovetail_zonal_shift_active)[24h:5m]) > 0", "5m", "warning",
     "A zone has been away for a day."),
    ("DovetailZonalShiftPollStale",
     "(time() - max(dovetail_zonal_shift_last_confirmed_timestamp) > 300) and on () (sum(dovetail_zonal_shift_active) > 0)",
     "1m", "critical", "ARC has not answered for five minutes while a zone is away; nothing is undone meanwhile."),
    ("DovetailZonalShiftRestoreSlow", 'max(dovetail_zonal_shift_phase{phase="Restoring"}) > 0', "30m", "warning",
     "Stepping back into a zone takes over half an hour. `dovetail zonal-shift status` says what is left."),
    ("DovetailZonalShiftForged", "increase(dovetail_zonal_shift_signature_failures_total[15m]) > 0", "0m", "critical",
     "A message with a wrong signature came in. Nothing was done about it; find out who sends it."),
    ("DovetailZonalShiftContested", "max(dovetail_zonal_shift_contested) > 0", "5m", "warning",
     "Someone keeps undoing the edit of a pool, often a GitOps tool. Let it ignore the requirement during a shift."),
)  # fmt: skip
OLD_NAMES = (
    ("karpenter_nodes_created", "karpenter_nodes_created_total"),
    ("karpenter_nodes_terminated", "karpenter_nodes_terminated_total"),
    ("karpenter_nodes_termination_time_seconds", "karpenter_nodes_termination_duration_seconds"),
    ("karpenter_pods_startup_time_seconds", "karpenter_pods_startup_duration_seconds"),
    ("karpenter_pods_pods_drained_total", "karpenter_pods_drained_total"),
    ("karpenter_nodeclaims_created", "karpenter_nodeclaims_created_total"),
    ("karpenter_nodeclaims_terminated", "karpenter_nodeclaims_terminated_total"),
    ("karpenter_nodeclaims_disrupted", "karpenter_nodeclaims_disrupted_total"),
    ("karpenter_nodepool_limit", "karpenter_nodepools_limit"),
    ("karpenter_nodepool_usage", "karpenter_nodepools_usage"),
    ("karpenter_provisioners_limit", "karpenter_nodepools_limit"),
    ("karpenter_provisioners_usage", "karpenter_nodepools_usage"),
    ("karpenter_deprovisioning_actions_performed", "karpenter_voluntary_disruption_decisions_total"),
    ("karpenter_disruption_actions_performed_total", "karpenter_voluntary_disruption_decisions_total"),
    ("karpenter_disruption_eligible_nodes", "karpenter_voluntary_disruption_eligible_nodes"),
    (
        "karpenter_disruption_consolidation_timeouts_total",
        "karpenter_voluntary_disruption_consolidation_timeouts_total",
    ),
    (
        "karpenter_disruption_replacement_nodeclaim_failures_total",
        "karpenter_voluntary_disruption_queue_failures_total",
    ),
    ("karpenter_disruption_budgets_allowed_disruptions", "karpenter_nodepools_allowed_disruptions"),
    ("karpenter_provisioner_scheduling_queue_depth", "karpenter_scheduler_queue_depth"),
    ("karpenter_ignored_pod_count", "karpenter_scheduler_ignored_pods_count"),
    ("karpenter_interruption_received_messages", "karpenter_interruption_received_messages_total"),
    ("karpenter_interruption_deleted_messages", "karpenter_interruption_deleted_messages_total"),
    (
        "karpenter_cloudprovider_instance_type_price_estimate",
        "karpenter_cloudprovider_instance_type_offering_price_estimate",
    ),
)


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
    old = [{"record": name, "expr": source} for name, source in OLD_NAMES]
    return {
        "rules.yaml": {"groups": [{"name": "dovetail", "rules": recorded}]},
        "alerts.yaml": {"groups": [{"name": "dovetail-alerts", "rules": alerts}]},
        "old-names.yaml": {"groups": [{"name": "dovetail-old-names", "rules": old}]},
    }


def files() -> dict[str, str]:
    """Every file's text, by its path below deploy/observability."""
    head = "# Written by `make dashboards` from hack/write_dashboards.py; do not edit.\n"
    found = {f"dashboards/{b.name}.json": json.dumps(grafana(b), indent=2) + "\n" for b in DASHBOARDS}
    found["scrape.yaml"] = head + yaml.safe_dump(SCRAPE, sort_keys=False, width=110)
    for name, content in rules().items():
        found[name] = head + yaml.safe_dump(content, sort_keys=False, width=110)
    return found


def main() -> None:
    for path, text in files().items():
        target = ROOT / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    print(f"wrote {len(files())} files below deploy/observability")


if __name__ == "__main__":
    main()
