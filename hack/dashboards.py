"""The dashboards as short tables: a panel is a title, a kind, a unit and its queries."""

# Queries are long, and broken ones cannot be pasted.
# ruff: noqa: E501

from __future__ import annotations

from dataclasses import dataclass

FULL, HALF, QUARTER, THREE_QUARTERS = 24, 12, 6, 18


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
    """Requests of pods include those of daemons already; a node without any has none."""
    asked = f'sum by (node_name) (karpenter_nodes_total_pod_requests{{resource_type="{resource}",{NODES}}})'
    there = f'sum by (node_name) (karpenter_nodes_allocatable{{resource_type="{resource}",{NODES}}})'
    return f"({asked} or {there} * 0) / {there}"


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
# Prometheus knows no quantile 0 of a histogram whose first bucket is empty.
LEAST = 0.0001
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
                    f"histogram_quantile({max(float(q), LEAST):g}, sum by (le) (rate(controller_runtime_reconcile_time_seconds_bucket"
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
            "Beside the instances: volumes, addresses and what you add, dollars an hour",
            (("sum by (nodepool) (dovetail_nodepools_extras_cost)", "{{nodepool}}"),),
            unit="currencyUSD",
        ),
        Panel(
            "Spend limits: dollars an hour",
            (
                ("max by (limit, of) (dovetail_spend_dollars)", "{{limit}} {{of}}"),
                ("max by (limit) (dovetail_spend_held_pods)", "{{limit}} held pods"),
            ),
        ),
        Panel(
            "Spend limits: dollars of the month",
            (("max by (limit, of) (dovetail_spend_month_dollars)", "{{limit}} {{of}}"),),
            unit="currencyUSD",
        ),
        Panel(
            "Commitments: used and lost, dollars an hour",
            (
                ('sum by (commitment) (dovetail_commitment_dollars{of="used"})', "{{commitment}} used"),
                ('sum by (commitment) (dovetail_commitment_dollars{of="unused"})', "{{commitment}} lost"),
            ),
            unit="currencyUSD",
        ),
        Panel(
            "By the price list, committed, and left to pay",
            (("sum by (of) (dovetail_bill_dollars)", "{{of}}"),),
            unit="currencyUSD",
        ),
        Panel(
            "Unschedulable pods",
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
            "Zones shifted away",
            ((f"sum by (zone, kind) ({SHIFT}active)", "{{zone}} {{kind}}"),),
            kind="stat",
        ),
        Panel("Phases", ((f"sum by (zone_id, phase) ({SHIFT}phase)", "{{zone_id}} {{phase}}"),)),
        Panel("Nodes protected", ((f"sum by (zone) ({SHIFT}nodes_protected)", "{{zone}}"),)),
        Panel("Pools edited", ((f"sum by (zone) ({SHIFT}nodepools_edited)", "{{zone}}"),)),
        Panel("Pods that wait for a zone", ((f"sum by (zone) ({SHIFT}pods_waiting_for_zone)", "{{zone}}"),)),
        Panel(
            "Ready to lose a zone",
            (("min by (zone) (dovetail_zonal_readiness)", "{{zone}}"),),
            unit="percentunit",
        ),
        Panel(
            "Signals",
            ((f"sum by (source, result) (increase({SHIFT}signals_total[1h]))", "{{source}} {{result}}"),),
        ),
        Panel(
            "Since ARC last answered",
            ((f"time() - max({SHIFT}last_confirmed_timestamp)", "seconds"),),
            unit="s",
        ),
        Panel(
            "How long it took, on average",
            tuple(
                (f"sum({SHIFT}time_to_{what}_seconds_sum) / sum({SHIFT}time_to_{what}_seconds_count)", legend)
                for what, legend in (
                    ("gate", "until nothing was launched there"),
                    ("protect", "until nodes were protected"),
                    ("restore", "until all was undone"),
                )
            ),
            unit="s",
        ),
        Panel(
            "Trouble",
            (
                (f"sum by (op, code) (increase({SHIFT}poll_errors_total[1h]))", "ARC: {{op}} {{code}}"),
                (f"sum by (reason) (increase({SHIFT}signature_failures_total[1h]))", "signature: {{reason}}"),
                (f"{SHIFT}contested", "pools that someone changes back"),
            ),
        ),
    ),
)
SHADOW = Dashboard(
    "shadow",
    "Dovetail Shadow",
    "dovetail-shadow",
    "1m",
    (
        Panel(
            "Dollars since the shadow began",
            (("sum by (whose) (dovetail_shadow_dollars_total)", "{{whose}}"),),
            unit="currencyUSD",
            width=FULL,
            about="real is what was paid, twin what Dovetail would have paid, calibration the model of what was done.",
        ),
        Panel(
            "Dollars an hour",
            (("sum by (whose) (rate(dovetail_shadow_dollars_total[30m])) * 3600", "{{whose}}"),),
            unit="currencyUSD",
        ),
        Panel(
            "Decisions that differ",
            (("sum by (kind) (increase(dovetail_shadow_difference_total[1h]))", "{{kind}} in an hour"),),
        ),
        Panel(
            "Certainty",
            (("max(dovetail_shadow_certainty)", "largest daily error of the calibration"),),
            unit="percentunit",
        ),
        Panel("Behind the recording", (("max(dovetail_shadow_behind_seconds)", "slowest twin"),), unit="s"),
    ),
)

DASHBOARDS = (CAPACITY, PERFORMANCE, COST, BUS, ZONAL, SHADOW)
