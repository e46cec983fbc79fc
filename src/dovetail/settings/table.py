"""Every setting, declared once: parsing, help, reference and the settings command read this page.

A field's name gives the variable and the flag: ``metrics_port`` is METRICS_PORT and --metrics-port.
"""
# Defaults are read by the same functions as values, so they are calls; each gives a frozen value.
# ruff: noqa: RUF009

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from dovetail.settings import value_kinds
from dovetail.settings.decision_log import DECISION_LOG, LogPlace
from dovetail.settings.gates import AWS_FEATURE_GATES, FEATURE_GATES, AWSFeatureGates, FeatureGates
from dovetail.settings.node_extra import NODE_EXTRA, NodeExtra
from dovetail.settings.recording import RECORDING
from dovetail.settings.scheduler import SCHEDULER_CONFIG, SchedulerConfig
from dovetail.settings.value_kinds import RATE, Rate, SettingKind
from dovetail.settings.zonal import OBJECT_NAME, ZONAL_POLICY, ZonalPolicy
from dovetail.settings.zonal_policy import POLICY_FIELDS, ZonalShiftPolicy

T = TypeVar("T")
Origin = Literal["flag", "environment", "default"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its names, its kind, and what it is for."""

    attribute: str
    kind: SettingKind[Any]
    default: str
    meaning: str
    provider: str | None
    required: bool

    @property
    def variable(self) -> str:
        return self.attribute.upper()

    @property
    def flag(self) -> str:
        return "--" + self.attribute.replace("_", "-")

    def applies_to(self, provider: str) -> bool:
        return self.provider in (None, provider)

    def show_default(self) -> str:
        """The default as `show_value` would write it."""
        return self.kind.show(self.kind.read(self.default))


def _set(
    kind: SettingKind[T], default: str, meaning: str, provider: str | None = None, required: bool = False
) -> T:
    metadata = {"kind": kind, "default": default, "meaning": meaning}
    metadata |= {"provider": provider, "required": required}
    return field(default=kind.read(default), metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting of one process, read once and never changed."""

    assume_region_prices: str = _set(
        value_kinds.TEXT,
        "",
        "region whose bundled prices stand in, as estimates, where those of the own region are not known; "
        "empty refuses to plan without an account, and warns where AWS cannot be asked",
    )
    batch_idle_duration: timedelta = _set(
        value_kinds.WINDOW, "1s", "close a batch of pending pods after this long without a new one"
    )
    batch_max_duration: timedelta = _set(
        value_kinds.WINDOW, "10s", "close a batch of pending pods after this long at the latest"
    )
    commitments: str = _set(
        value_kinds.one_of("Off", "Show", "Follow"),
        "Off",
        "count savings plans and reserved instances that Commitments tell of: not at all, to show what they "
        "pay for, or to buy and consolidate by what is left to pay",
    )
    consolidate_many: bool = _set(
        value_kinds.BOOLEAN,
        "false",
        "replace nodes by several cheaper ones where that saves money; a pool's own annotation wins",
    )
    consolidation_max_payback: timedelta = _set(
        value_kinds.WINDOW,
        "0s",
        "consolidate only what pays for itself within this time; 0s for any time. Pools may say otherwise",
    )
    consolidation_min_saving: float = _set(
        value_kinds.FRACTION,
        "0",
        "dollars an hour that a consolidation must save at least. Pools may say otherwise",
    )
    consolidation_min_saving_percent: float = _set(
        value_kinds.FRACTION,
        "0",
        "part of its nodes' price, in percent, that a consolidation must save. Pools may say otherwise",
    )
    consolidation_rest: timedelta = _set(
        value_kinds.WINDOW,
        "0s",
        "leave nodes and pods younger than this where they are when consolidating. Pools may say otherwise",
    )
    cpu_requests: int = _set(
        value_kinds.MILLICORES,
        "1000",
        "millicores the container requests; more let more work run at once (0 or less counts as 1000)",
    )
    decision_log: tuple[LogPlace, ...] = _set(
        DECISION_LOG,
        "",
        "where every decision is logged, numbered and chained: log, file:/folder and s3://bucket/prefix; "
        "empty for nowhere",
    )
    decision_log_keep: timedelta = _set(
        value_kinds.HOURS, "720h", "how long the files of a decision log in a folder are kept"
    )
    disable_cluster_state_observability: bool = _set(
        value_kinds.BOOLEAN,
        "false",
        "leave out the metrics of pods, nodes and pools, and those of conditions",
    )
    disable_controller_warmup: bool = _set(
        value_kinds.BOOLEAN, "true", "wait for leadership before watching; false fills the caches beforehand"
    )
    disable_leader_election: bool = _set(value_kinds.BOOLEAN, "false", "run without a lease")
    disruption_rate: Rate | None = _set(
        RATE,
        "",
        "nodes of one pool that may be disrupted by choice in any such time, as 10/1h; empty for any "
        "number. Pools may say otherwise",
    )
    drift_pause_after: timedelta = _set(
        value_kinds.WINDOW,
        "10m",
        "pause a pool's drift while a new node of it is not ready after this long; 0s never pauses. "
        "Pools may say otherwise",
    )
    enable_profiling: bool = _set(value_kinds.BOOLEAN, "false", "serve profiles on the metrics port")
    feature_gates: FeatureGates = _set(
        FEATURE_GATES,
        FEATURE_GATES.show(FeatureGates()),
        "features switched on or off; names left out keep their defaults, unknown names are ignored",
    )
    health_probe_port: int = _set(value_kinds.PORT, "8081", "port of the probes /healthz and /readyz")
    history_keep: timedelta = _set(
        value_kinds.WINDOW,
        "24h",
        "how far back the history of decisions goes that `dovetail history` asks for; 0s keeps none",
    )
    history_most: int = _set(
        value_kinds.COUNT, "50000", "records that the history holds at most; verdicts go before acts"
    )
    ignore_dra_requests: bool = _set(
        value_kinds.BOOLEAN, "true", "treat pods with resource claims as if they had none"
    )
    karpenter_service: str = _set(value_kinds.TEXT, "", "accepted so that old installations start; not used")
    kube_client_burst: int = _set(value_kinds.INTEGER, "300", "requests to the Kubernetes API in one burst")
    kube_client_qps: int = _set(value_kinds.INTEGER, "200", "requests to the Kubernetes API each second")
    leader_election_name: str = _set(value_kinds.TEXT, "karpenter-leader-election", "name of the lease")
    leader_election_namespace: str = _set(
        value_kinds.TEXT, "", "namespace of the lease; empty is the namespace of the pod"
    )
    log_error_output_paths: tuple[str, ...] = _set(
        value_kinds.LIST, "stderr", "where the logger writes its own errors"
    )
    log_level: str = _set(
        value_kinds.one_of("debug", "info", "error", blank=True), "info", "how much to log; empty means info"
    )
    log_output_paths: tuple[str, ...] = _set(value_kinds.LIST, "stdout", "where log lines go")
    memory_limit: int = _set(
        value_kinds.INTEGER, "-1", "memory limit of the container in bytes; 0 or less means none is known"
    )
    metrics_detail: str = _set(
        value_kinds.one_of("brief", "full"),
        "brief",
        "add up nodes, pods and conditions that are alike and show few histogram bounds, so that 500 nodes "
        "make under 2,000 series; or show every one, as Karpenter does",
    )
    metrics_port: int = _set(value_kinds.PORT, "8080", "port of /metrics")
    min_values_policy: str = _set(
        value_kinds.one_of("Strict", "BestEffort"), "Strict", "keep minValues of requirements, or relax them"
    )
    node_extra_hourly: NodeExtra = _set(
        NODE_EXTRA,
        "",
        "dollars an hour that every node costs beside what the cloud bills, such as licences of agents, as "
        "0.01/node,0.0005/vcpu. Pools may say otherwise",
    )
    node_extras: str = _set(
        value_kinds.one_of("on", "off"),
        "on",
        "count what a node costs beside its instance: volumes, a public IPv4 address and "
        "NODE_EXTRA_HOURLY; off decides by the instance's price alone, as Karpenter does",
    )
    notify_file: str = _set(
        value_kinds.TEXT,
        "",
        "YAML file of kind Notify that says who is told of which decisions; it is watched. Empty for nobody",
    )
    planned_node_max_pods: int = _set(
        value_kinds.COUNT,
        "0",
        "plan no more pods than this onto one new node, so that losing it hurts less; 0 for as many as fit",
    )
    planner: str = _set(
        value_kinds.one_of("packed", "one-by-one"),
        "packed",
        "plan a batch as a whole, or pod by pod in Karpenter's order, with Karpenter's choices",
    )
    preference_policy: str = _set(
        value_kinds.one_of("Respect", "Ignore"),
        "Respect",
        "weigh soft affinities and soft spreading, or ignore them",
    )
    recording: LogPlace | None = _set(
        RECORDING,
        "",
        "where what decisions saw is recorded, so that they can be made again: file:/folder or "
        "s3://bucket/prefix; empty for nowhere",
    )
    recording_every: timedelta = _set(
        value_kinds.WINDOW,
        "10s",
        "how often the recording takes a look while nothing is decided; what is decided on is always in it",
    )
    recording_keep: timedelta = _set(
        value_kinds.HOURS, "168h", "how long the files of a recording in a folder are kept"
    )
    recording_keyframe: timedelta = _set(
        value_kinds.INTERVAL, "1h", "how long a segment of the recording lasts; each begins with everything"
    )
    recording_names: str = _set(
        value_kinds.one_of("keep", "hash"),
        "keep",
        "record names and label values as they are, or as hashes with a salt that nobody knows",
    )
    rule_prices: str = _set(
        value_kinds.one_of("@hourly", "@daily", "@weekly", "@monthly", blank=True),
        "",
        "how often what rules cost is worked out, beside decisions, for a metric and events; empty for never",
    )
    rule_prices_from: float = _set(
        value_kinds.FRACTION,
        "1.00",
        "dollars an hour from which on a PodDisruptionBudget is told what it costs, with RULE_PRICES",
    )
    scheduler_config: SchedulerConfig = _set(
        SCHEDULER_CONFIG, "", "the cluster's own scheduler defaults, as a YAML or JSON document"
    )
    spend_limits: bool = _set(
        value_kinds.BOOLEAN, "false", "follow SpendLimits: buy no nodes beyond what they allow"
    )

    ami_refresh_interval: timedelta = _set(
        value_kinds.INTERVAL, "1m", "how long found images are kept", "aws"
    )
    aws_feature_gates: AWSFeatureGates = _set(
        AWS_FEATURE_GATES,
        AWS_FEATURE_GATES.show(AWSFeatureGates()),
        "features of the AWS provider switched on or off",
        "aws",
    )
    cluster_ca_bundle: str = _set(
        value_kinds.TEXT,
        "",
        "certificate authority handed to nodes, in base64; empty takes the API client's own. "
        "Part of the node class hash",
        "aws",
    )
    cluster_endpoint: str = _set(
        value_kinds.URL, "", "Kubernetes API address handed to nodes; empty asks EKS for it", "aws"
    )
    cluster_name: str = _set(
        value_kinds.TEXT, "", "name of the cluster, for discovery, tags and permissions", "aws", required=True
    )
    disable_dry_run: bool = _set(
        value_kinds.BOOLEAN,
        "false",
        "do not check permissions with EC2 dry runs when a node class changes",
        "aws",
    )
    eks_control_plane: bool = _set(
        value_kinds.BOOLEAN, "false", "ask EKS for the cluster's version and details", "aws"
    )
    enable_do_not_disrupt: bool = _set(
        value_kinds.BOOLEAN,
        "false",
        "while a zone is shifted away, mark its nodes do-not-disrupt and cordon them; also -d",
    )
    enable_zonal_shift: bool = _set(
        value_kinds.BOOLEAN,
        "false",
        "follow zonal shifts of the cluster; it must be registered for them",
    )
    interruption_queue: str = _set(
        value_kinds.TEXT, "", "name of the SQS queue with interruption messages; empty means none", "aws"
    )
    isolated_vpc: bool = _set(
        value_kinds.BOOLEAN, "false", "reach neither the price list nor IAM; built-in prices are used", "aws"
    )
    reserved_enis: int = _set(
        value_kinds.COUNT, "0", "network interfaces left out when pods per node are counted", "aws"
    )
    subnet_refresh_interval: timedelta = _set(
        value_kinds.INTERVAL, "1m", "how long found subnets are kept", "aws"
    )
    vm_memory_overhead_percent: float = _set(
        value_kinds.FRACTION,
        "0.075",
        "part of the advertised memory taken to be missing until a node of that type was seen",
        "aws",
    )

    zonal_shift_config_map: str = _set(
        OBJECT_NAME,
        "",
        "ConfigMap with the policy of zonal shift: policy, dry-run and the fields below",
    )
    zonal_shift_dry_run: str = _set(
        value_kinds.one_of("false", "true", "client"),
        "false",
        "only say what would be done: on ZoneShift objects, or (client) in the log alone",
    )
    zonal_shift_endpoint_url: str = _set(
        value_kinds.URL, "", "where SNS reaches this process, for the policy field sns-auto-subscribe", "aws"
    )
    zonal_shift_events_ca_file: str = _set(
        value_kinds.TEXT,
        "",
        "PEM file of the authorities whose clients may post to /events; empty for none",
        "aws",
    )
    zonal_shift_events_token_file: str = _set(
        value_kinds.TEXT,
        "",
        "file with the bearer token that lets a sender post to /events; empty for none",
        "aws",
    )
    zonal_shift_https_port: int = _set(
        value_kinds.PORT,
        "8443",
        "port of the HTTPS endpoint for SNS; it opens only if there are topics",
        "aws",
    )
    zonal_shift_mode: str = _set(
        value_kinds.one_of("Offerings", "NodePoolEdit", "Both"),
        "Offerings",
        "exclude the zone inside Dovetail, by editing NodePools that another autoscaler serves, or both",
    )
    zonal_shift_on_disable: str = _set(
        value_kinds.one_of("restore", "leave"),
        "restore",
        "when the feature is switched off during a shift: undo everything, or leave it; also --on-disable",
        "aws",
    )
    zonal_shift_policy: ZonalPolicy = _set(
        ZONAL_POLICY, ZONAL_POLICY.show(ZonalPolicy()), "what to do about each kind of shift", "aws"
    )
    zonal_shift_queue: str = _set(
        value_kinds.TEXT, "", "name of the SQS queue with messages about shifts; empty means none", "aws"
    )
    zonal_shift_store: str = _set(
        value_kinds.one_of("Cluster", "DynamoDB", "Mirror"),
        "Cluster",
        "where shifts are kept: as objects, in ZONAL_SHIFT_TABLE, or as objects that the table follows",
        "aws",
    )
    zonal_shift_table: str = _set(
        value_kinds.TEXT, "", "name of the DynamoDB table with keys pk and sk; empty means none", "aws"
    )
    zonal_shift_topic_arn: tuple[str, ...] = _set(
        value_kinds.LIST,
        "",
        "SNS topics whose messages about shifts are taken; others are turned away",
        "aws",
    )

    instance_types_file_path: str = _set(
        value_kinds.TEXT,
        "",
        "JSON file with instance types and offerings; empty takes the built-in ones",
        "kwok",
    )

    # What old names of policy fields say; and the same with the ConfigMap as it was at the start over it.
    zonal_policy_base: ZonalShiftPolicy = field(default_factory=ZonalShiftPolicy)
    zonal_policy: ZonalShiftPolicy = field(default_factory=ZonalShiftPolicy)

    provider: str = "aws"
    origins: Mapping[str, Origin] = field(
        default_factory=lambda: MappingProxyType({}), compare=False, repr=False
    )
    warnings: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def find_origin(self, variable: str) -> Origin:
        """Where a setting's value came from; a name that is no setting is a KeyError."""
        return self.origins.get(BY_VARIABLE[variable].variable, "default")

    def find_node_extra(self) -> NodeExtra | None:
        """What is added to the price of every node; None where only instances count."""
        return None if self.node_extras == "off" else self.node_extra_hourly

    def list_deciding(self) -> dict[str, str]:
        """The settings that decisions depend on, where they differ from their defaults, by variable."""
        policy = {
            each.variable: each.kind.show(getattr(self.zonal_policy, each.name)) for each in DECIDING_POLICY
        }
        found = {
            name: self.show_value(name) for name in DECIDING if BY_VARIABLE[name].applies_to(self.provider)
        }
        defaults = {name: BY_VARIABLE[name].show_default() for name in found}
        defaults |= {each.variable: each.kind.show(each.kind.read(each.default)) for each in DECIDING_POLICY}
        return {name: value for name, value in (found | policy).items() if value != defaults[name]}

    def show_value(self, variable: str) -> str:
        """A setting's value as it would be written in the environment."""
        setting = BY_VARIABLE[variable]
        return setting.kind.show(getattr(self, setting.attribute))


SETTINGS: tuple[Setting, ...] = tuple(
    Setting(attribute=each.name, **each.metadata)
    for each in fields(Settings)
    if each.metadata and each.default is not MISSING
)
BY_VARIABLE = {setting.variable: setting for setting in SETTINGS}
BY_FLAG = {setting.flag: setting for setting in SETTINGS}

# What plans, commands and verdicts depend on. Files of snapshots and the leader's lease carry these by name.
DECIDING = (
    "ASSUME_REGION_PRICES",
    "COMMITMENTS",
    "CONSOLIDATE_MANY",
    "CONSOLIDATION_MAX_PAYBACK",
    "CONSOLIDATION_MIN_SAVING",
    "CONSOLIDATION_MIN_SAVING_PERCENT",
    "CONSOLIDATION_REST",
    "DISRUPTION_RATE",
    "DRIFT_PAUSE_AFTER",
    "ENABLE_ZONAL_SHIFT",
    "FEATURE_GATES",
    "IGNORE_DRA_REQUESTS",
    "ISOLATED_VPC",
    "MIN_VALUES_POLICY",
    "NODE_EXTRAS",
    "NODE_EXTRA_HOURLY",
    "PLANNED_NODE_MAX_PODS",
    "PLANNER",
    "PREFERENCE_POLICY",
    "RESERVED_ENIS",
    "SCHEDULER_CONFIG",
    "SPEND_LIMITS",
    "VM_MEMORY_OVERHEAD_PERCENT",
    "ZONAL_SHIFT_MODE",
)
DECIDING_POLICY = tuple(each for each in POLICY_FIELDS if each.name == "rebalance")
