"""Settings: every name, flag and default, what is refused and in which words, and who wins."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import Misconfigured
from dovetail.settings import (
    POLICY_FIELDS,
    REMOVED,
    SETTINGS,
    AWSFeatureGates,
    FeatureGates,
    PolicyField,
    SchedulerConfig,
    Setting,
    Settings,
    examine_settings,
    read_settings,
)
from dovetail.settings.decision_log import LogPlace
from dovetail.settings.node_extra import NodeExtra
from dovetail.settings.value_kinds import Rate
from dovetail.settings.zonal import ZonalPolicy

NAMED = {"CLUSTER_NAME": "prod"}
SPREAD = "{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway}"

CORE: dict[str, tuple[str, Any]] = {
    "ASSUME_REGION_PRICES": ("--assume-region-prices", ""),
    "BATCH_IDLE_DURATION": ("--batch-idle-duration", timedelta(seconds=1)),
    "BATCH_MAX_DURATION": ("--batch-max-duration", timedelta(seconds=10)),
    "CONSOLIDATE_MANY": ("--consolidate-many", False),
    "CONSOLIDATION_MAX_PAYBACK": ("--consolidation-max-payback", timedelta()),
    "CONSOLIDATION_MIN_SAVING": ("--consolidation-min-saving", 0.0),
    "CONSOLIDATION_MIN_SAVING_PERCENT": ("--consolidation-min-saving-percent", 0.0),
    "CONSOLIDATION_REST": ("--consolidation-rest", timedelta()),
    "CPU_REQUESTS": ("--cpu-requests", 1000),
    "DECISION_LOG": ("--decision-log", ()),
    "DECISION_LOG_KEEP": ("--decision-log-keep", timedelta(hours=720)),
    "DISABLE_CLUSTER_STATE_OBSERVABILITY": ("--disable-cluster-state-observability", False),
    "DISABLE_CONTROLLER_WARMUP": ("--disable-controller-warmup", True),
    "DISABLE_LEADER_ELECTION": ("--disable-leader-election", False),
    "DISRUPTION_RATE": ("--disruption-rate", None),
    "DRIFT_PAUSE_AFTER": ("--drift-pause-after", timedelta(minutes=10)),
    "ENABLE_PROFILING": ("--enable-profiling", False),
    "FEATURE_GATES": ("--feature-gates", FeatureGates(reserved_capacity=True)),
    "HEALTH_PROBE_PORT": ("--health-probe-port", 8081),
    "HISTORY_KEEP": ("--history-keep", timedelta(hours=24)),
    "RECORDING": ("--recording", None),
    "RECORDING_EVERY": ("--recording-every", timedelta(seconds=10)),
    "RECORDING_KEEP": ("--recording-keep", timedelta(hours=168)),
    "RECORDING_KEYFRAME": ("--recording-keyframe", timedelta(hours=1)),
    "RECORDING_NAMES": ("--recording-names", "keep"),
    "HISTORY_MOST": ("--history-most", 50_000),
    "IGNORE_DRA_REQUESTS": ("--ignore-dra-requests", True),
    "KARPENTER_SERVICE": ("--karpenter-service", ""),
    "KUBE_CLIENT_BURST": ("--kube-client-burst", 300),
    "KUBE_CLIENT_QPS": ("--kube-client-qps", 200),
    "LEADER_ELECTION_NAME": ("--leader-election-name", "karpenter-leader-election"),
    "LEADER_ELECTION_NAMESPACE": ("--leader-election-namespace", ""),
    "LOG_ERROR_OUTPUT_PATHS": ("--log-error-output-paths", ("stderr",)),
    "LOG_LEVEL": ("--log-level", "info"),
    "LOG_OUTPUT_PATHS": ("--log-output-paths", ("stdout",)),
    "MEMORY_LIMIT": ("--memory-limit", -1),
    "METRICS_DETAIL": ("--metrics-detail", "brief"),
    "METRICS_PORT": ("--metrics-port", 8080),
    "MIN_VALUES_POLICY": ("--min-values-policy", "Strict"),
    "NODE_EXTRAS": ("--node-extras", "on"),
    "NODE_EXTRA_HOURLY": ("--node-extra-hourly", NodeExtra()),
    "NOTIFY_FILE": ("--notify-file", ""),
    "PLANNED_NODE_MAX_PODS": ("--planned-node-max-pods", 0),
    "PLANNER": ("--planner", "packed"),
    "PREFERENCE_POLICY": ("--preference-policy", "Respect"),
    "RULE_PRICES": ("--rule-prices", ""),
    "RULE_PRICES_FROM": ("--rule-prices-from", 1.0),
    "SCHEDULER_CONFIG": ("--scheduler-config", SchedulerConfig()),
    "SPEND_LIMITS": ("--spend-limits", False),
    "COMMITMENTS": ("--commitments", "Off"),
}
AWS: dict[str, tuple[str, Any]] = {
    "AMI_REFRESH_INTERVAL": ("--ami-refresh-interval", timedelta(minutes=1)),
    "AWS_FEATURE_GATES": ("--aws-feature-gates", AWSFeatureGates(node_class_cel=False)),
    "CLUSTER_CA_BUNDLE": ("--cluster-ca-bundle", ""),
    "CLUSTER_ENDPOINT": ("--cluster-endpoint", ""),
    "CLUSTER_NAME": ("--cluster-name", ""),
    "DISABLE_DRY_RUN": ("--disable-dry-run", False),
    "EKS_CONTROL_PLANE": ("--eks-control-plane", False),
    "ENABLE_DO_NOT_DISRUPT": ("--enable-do-not-disrupt", False),
    "ENABLE_ZONAL_SHIFT": ("--enable-zonal-shift", False),
    "INTERRUPTION_QUEUE": ("--interruption-queue", ""),
    "ISOLATED_VPC": ("--isolated-vpc", False),
    "RESERVED_ENIS": ("--reserved-enis", 0),
    "SNS_AUTO_SUBSCRIBE": ("--sns-auto-subscribe", False),
    "SUBNET_REFRESH_INTERVAL": ("--subnet-refresh-interval", timedelta(minutes=1)),
    "VM_MEMORY_OVERHEAD_PERCENT": ("--vm-memory-overhead-percent", 0.075),
    "ZONAL_SHIFT_ADOPT_ORPHANS": ("--zonal-shift-adopt-orphans", False),
    "ZONAL_SHIFT_ALLOW_SIGNATURE_V1": ("--zonal-shift-allow-signature-v1", False),
    "ZONAL_SHIFT_AUTO_MODE": ("--zonal-shift-auto-mode", "auto"),
    "ZONAL_SHIFT_CLONE_RETENTION": ("--zonal-shift-clone-retention", timedelta(days=14)),
    "ZONAL_SHIFT_CONFIG_MAP": ("--zonal-shift-config-map", ""),
    "ZONAL_SHIFT_DEBOUNCE": ("--zonal-shift-debounce", timedelta(seconds=2)),
    "ZONAL_SHIFT_DRIFT_GUARD": ("--zonal-shift-drift-guard", "Auto"),
    "ZONAL_SHIFT_DRY_RUN": ("--zonal-shift-dry-run", "false"),
    "ZONAL_SHIFT_EDIT_STRATEGY": ("--zonal-shift-edit-strategy", "AppendNotIn"),
    "ZONAL_SHIFT_ENDPOINT_URL": ("--zonal-shift-endpoint-url", ""),
    "ZONAL_SHIFT_EVENTS_CA_FILE": ("--zonal-shift-events-ca-file", ""),
    "ZONAL_SHIFT_EVENTS_TOKEN_FILE": ("--zonal-shift-events-token-file", ""),
    "ZONAL_SHIFT_HONOUR_UNAPPLIED": ("--zonal-shift-honour-unapplied", False),
    "ZONAL_SHIFT_HTTPS_PORT": ("--zonal-shift-https-port", 8443),
    "ZONAL_SHIFT_MIN_HEALTHY_ZONES": ("--zonal-shift-min-healthy-zones", 1),
    "ZONAL_SHIFT_MIN_HOLD": ("--zonal-shift-min-hold", timedelta(minutes=5)),
    "ZONAL_SHIFT_MODE": ("--zonal-shift-mode", "Offerings"),
    "ZONAL_SHIFT_NODE_ENFORCE": ("--zonal-shift-node-enforce", False),
    "ZONAL_SHIFT_NODE_SCOPE": ("--zonal-shift-node-scope", "All"),
    "ZONAL_SHIFT_OBSERVER": ("--zonal-shift-observer", False),
    "ZONAL_SHIFT_ON_DISABLE": ("--zonal-shift-on-disable", "restore"),
    "ZONAL_SHIFT_ONLY_ZONE_POLICY": ("--zonal-shift-only-zone-policy", "Freeze"),
    "ZONAL_SHIFT_POLICY": ("--zonal-shift-policy", ZonalPolicy()),
    "ZONAL_SHIFT_POLL_INTERVAL": ("--zonal-shift-poll-interval", timedelta(seconds=30)),
    "ZONAL_SHIFT_POLL_INTERVAL_ACTIVE": ("--zonal-shift-poll-interval-active", timedelta(seconds=10)),
    "ZONAL_SHIFT_PRESCALE": ("--zonal-shift-prescale", False),
    "ZONAL_SHIFT_QUEUE": ("--zonal-shift-queue", ""),
    "ZONAL_SHIFT_REBALANCE": ("--zonal-shift-rebalance", "Off"),
    "ZONAL_SHIFT_REHEARSAL": ("--zonal-shift-rehearsal", ""),
    "ZONAL_SHIFT_RESTORE_BATCH": ("--zonal-shift-restore-batch", 0.25),
    "ZONAL_SHIFT_RESTORE_FAST": ("--zonal-shift-restore-fast", False),
    "ZONAL_SHIFT_RESTORE_INTERVAL": ("--zonal-shift-restore-interval", timedelta(seconds=30)),
    "ZONAL_SHIFT_SWEEP_LEGACY": ("--zonal-shift-sweep-legacy", False),
    "ZONAL_SHIFT_SNS_CA_FILE": ("--zonal-shift-sns-ca-file", ""),
    "ZONAL_SHIFT_STORE": ("--zonal-shift-store", "Cluster"),
    "ZONAL_SHIFT_TABLE": ("--zonal-shift-table", ""),
    "ZONAL_SHIFT_TRUST_EVENTS": ("--zonal-shift-trust-events", True),
    "ZONAL_SHIFT_TOPIC_ARN": ("--zonal-shift-topic-arn", ()),
}
KWOK: dict[str, tuple[str, Any]] = {"INSTANCE_TYPES_FILE_PATH": ("--instance-types-file-path", "")}
ALL = CORE | AWS | KWOK

# One value per setting that differs from the default: the text, and what it must be read as.
OTHER: dict[str, tuple[str, Any]] = {
    "ASSUME_REGION_PRICES": ("us-east-1", "us-east-1"),
    "BATCH_IDLE_DURATION": ("1m30s", timedelta(seconds=90)),
    "BATCH_MAX_DURATION": ("500ms", timedelta(milliseconds=500)),
    "CONSOLIDATE_MANY": ("true", True),
    "CONSOLIDATION_MAX_PAYBACK": ("2h", timedelta(hours=2)),
    "CONSOLIDATION_MIN_SAVING": ("0.05", 0.05),
    "CONSOLIDATION_MIN_SAVING_PERCENT": ("7.5", 7.5),
    "CONSOLIDATION_REST": ("30m", timedelta(minutes=30)),
    "CPU_REQUESTS": ("2500", 2500),
    "DECISION_LOG": (
        "log,file:/var/lib/dovetail,s3://trail/prod/eu",
        (
            LogPlace("log"),
            LogPlace("file", folder="/var/lib/dovetail"),
            LogPlace("s3", bucket="trail", prefix="prod/eu"),
        ),
    ),
    "DECISION_LOG_KEEP": ("24h", timedelta(hours=24)),
    "DISABLE_CLUSTER_STATE_OBSERVABILITY": ("true", True),
    "DISABLE_CONTROLLER_WARMUP": ("false", False),
    "DISABLE_LEADER_ELECTION": ("true", True),
    "DISRUPTION_RATE": ("10/1h", Rate(10, timedelta(hours=1))),
    "DRIFT_PAUSE_AFTER": ("5m", timedelta(minutes=5)),
    "ENABLE_PROFILING": ("true", True),
    "FEATURE_GATES": ("NodeRepair=true", FeatureGates(node_repair=True)),
    "HEALTH_PROBE_PORT": ("0", 0),
    "HISTORY_KEEP": ("0s", timedelta(0)),
    "RECORDING": ("file:/var/lib/recording", LogPlace("file", folder="/var/lib/recording")),
    "RECORDING_EVERY": ("1m", timedelta(minutes=1)),
    "RECORDING_KEEP": ("24h", timedelta(hours=24)),
    "RECORDING_KEYFRAME": ("30m", timedelta(minutes=30)),
    "RECORDING_NAMES": ("hash", "hash"),
    "HISTORY_MOST": ("10", 10),
    "IGNORE_DRA_REQUESTS": ("false", False),
    "KARPENTER_SERVICE": ("karpenter", "karpenter"),
    "KUBE_CLIENT_BURST": ("10", 10),
    "KUBE_CLIENT_QPS": ("-1", -1),
    "LEADER_ELECTION_NAME": ("lease", "lease"),
    "LEADER_ELECTION_NAMESPACE": ("kube-system", "kube-system"),
    "LOG_ERROR_OUTPUT_PATHS": ("stderr, /var/log/e", ("stderr", "/var/log/e")),
    "LOG_LEVEL": ("debug", "debug"),
    "LOG_OUTPUT_PATHS": ("", ()),
    "MEMORY_LIMIT": ("1073741824", 1073741824),
    "METRICS_DETAIL": ("full", "full"),
    "METRICS_PORT": ("65535", 65535),
    "MIN_VALUES_POLICY": ("BestEffort", "BestEffort"),
    "NODE_EXTRAS": ("off", "off"),
    "NODE_EXTRA_HOURLY": ("0.01/node,0.0005/vcpu", NodeExtra(0.01, 0.0005)),
    "NOTIFY_FILE": ("/etc/notify.yaml", "/etc/notify.yaml"),
    "PLANNED_NODE_MAX_PODS": ("20", 20),
    "PLANNER": ("one-by-one", "one-by-one"),
    "PREFERENCE_POLICY": ("Ignore", "Ignore"),
    "AMI_REFRESH_INTERVAL": ("24h", timedelta(hours=24)),
    "AWS_FEATURE_GATES": ("NodeClassCEL=true", AWSFeatureGates(node_class_cel=True)),
    "CLUSTER_CA_BUNDLE": ("Y2E=", "Y2E="),
    "CLUSTER_ENDPOINT": ("https://10.0.0.1:443", "https://10.0.0.1:443"),
    "CLUSTER_NAME": ("prod", "prod"),
    "DISABLE_DRY_RUN": ("true", True),
    "EKS_CONTROL_PLANE": ("true", True),
    "ENABLE_DO_NOT_DISRUPT": ("true", True),
    "ENABLE_ZONAL_SHIFT": ("true", True),
    "INTERRUPTION_QUEUE": ("queue", "queue"),
    "ISOLATED_VPC": ("true", True),
    "RESERVED_ENIS": ("1", 1),
    "SNS_AUTO_SUBSCRIBE": ("true", True),
    "SUBNET_REFRESH_INTERVAL": ("1m0s", timedelta(minutes=1)),
    "VM_MEMORY_OVERHEAD_PERCENT": ("0.1", 0.1),
    "ZONAL_SHIFT_ADOPT_ORPHANS": ("true", True),
    "ZONAL_SHIFT_ALLOW_SIGNATURE_V1": ("true", True),
    "ZONAL_SHIFT_AUTO_MODE": ("Clone", "Clone"),
    "ZONAL_SHIFT_CLONE_RETENTION": ("24h", timedelta(days=1)),
    "ZONAL_SHIFT_CONFIG_MAP": ("kube-system/dovetail", "kube-system/dovetail"),
    "ZONAL_SHIFT_DEBOUNCE": ("5s", timedelta(seconds=5)),
    "ZONAL_SHIFT_DRIFT_GUARD": ("Budget", "Budget"),
    "ZONAL_SHIFT_DRY_RUN": ("client", "client"),
    "ZONAL_SHIFT_EDIT_STRATEGY": ("RemoveFromIn", "RemoveFromIn"),
    "ZONAL_SHIFT_ENDPOINT_URL": ("https://example.test/sns", "https://example.test/sns"),
    "ZONAL_SHIFT_EVENTS_CA_FILE": ("/tls/ca.crt", "/tls/ca.crt"),
    "ZONAL_SHIFT_EVENTS_TOKEN_FILE": ("/token/token", "/token/token"),
    "SPEND_LIMITS": ("true", True),
    "COMMITMENTS": ("Follow", "Follow"),
    "ZONAL_SHIFT_HONOUR_UNAPPLIED": ("true", True),
    "ZONAL_SHIFT_HTTPS_PORT": ("9443", 9443),
    "ZONAL_SHIFT_MIN_HEALTHY_ZONES": ("2", 2),
    "ZONAL_SHIFT_MIN_HOLD": ("1m", timedelta(minutes=1)),
    "ZONAL_SHIFT_MODE": ("Both", "Both"),
    "ZONAL_SHIFT_NODE_ENFORCE": ("true", True),
    "ZONAL_SHIFT_NODE_SCOPE": ("Managed", "Managed"),
    "ZONAL_SHIFT_OBSERVER": ("true", True),
    "ZONAL_SHIFT_ON_DISABLE": ("leave", "leave"),
    "ZONAL_SHIFT_ONLY_ZONE_POLICY": ("Leave", "Leave"),
    "ZONAL_SHIFT_POLICY": ("practice=Protect", ZonalPolicy(practice="Protect")),
    "ZONAL_SHIFT_POLL_INTERVAL": ("1m", timedelta(minutes=1)),
    "ZONAL_SHIFT_POLL_INTERVAL_ACTIVE": ("5s", timedelta(seconds=5)),
    "ZONAL_SHIFT_PRESCALE": ("true", True),
    "ZONAL_SHIFT_QUEUE": ("queue", "queue"),
    "ZONAL_SHIFT_REBALANCE": ("Gradual", "Gradual"),
    "ZONAL_SHIFT_REHEARSAL": ("@weekly", "@weekly"),
    "ZONAL_SHIFT_RESTORE_BATCH": ("50%", 0.5),
    "ZONAL_SHIFT_RESTORE_FAST": ("true", True),
    "ZONAL_SHIFT_RESTORE_INTERVAL": ("1m", timedelta(minutes=1)),
    "ZONAL_SHIFT_SWEEP_LEGACY": ("true", True),
    "ZONAL_SHIFT_SNS_CA_FILE": ("/etc/roots.pem", "/etc/roots.pem"),
    "ZONAL_SHIFT_STORE": ("Mirror", "Mirror"),
    "ZONAL_SHIFT_TABLE": ("shifts", "shifts"),
    "ZONAL_SHIFT_TRUST_EVENTS": ("false", False),
    "ZONAL_SHIFT_TOPIC_ARN": ("arn:a, arn:b", ("arn:a", "arn:b")),
    "INSTANCE_TYPES_FILE_PATH": ("/types.json", "/types.json"),
}


FORMER = {each.variable: each for each in POLICY_FIELDS}
BY_NAME: dict[str, Setting | PolicyField] = {**{each.variable: each for each in SETTINGS}, **FORMER}


def provider_of(variable: str) -> str:
    return "kwok" if variable in KWOK else "aws"


def value(settings: Settings, variable: str) -> Any:
    former = FORMER.get(variable)
    return getattr(settings.zonal_policy, former.name) if former else getattr(settings, variable.lower())


@pytest.mark.spec("operations-1", "operations-18.1")
def test_the_table_holds_exactly_the_settings_we_promise() -> None:
    assert {name: each.flag for name, each in BY_NAME.items()} == {
        name: flag for name, (flag, _) in ALL.items()
    }


@pytest.mark.spec("operations-1", "operations-18.1")
@pytest.mark.parametrize("variable", ALL)
def test_a_setting_has_its_promised_default(variable: str) -> None:
    settings = examine_settings([], {}, provider_of(variable)).settings
    assert value(settings, variable) == ALL[variable][1]
    assert settings.origins.get(variable, "default") == "default"


@pytest.mark.parametrize("variable", OTHER)
def test_the_environment_wins_over_the_default_and_the_flag_over_both(variable: str) -> None:
    text, expected = OTHER[variable]
    provider = provider_of(variable)
    settings = examine_settings([], {variable: text}, provider).settings
    assert (value(settings, variable), settings.origins[variable]) == (expected, "environment")

    default = BY_NAME[variable].default or "other"
    flag = f"{ALL[variable][0]}={text}"
    settings = examine_settings([flag], {variable: default}, provider).settings
    assert (value(settings, variable), settings.origins[variable]) == (expected, "flag")


@pytest.mark.spec("operations-18.1")
@pytest.mark.parametrize(
    ("variable", "text", "allowed"),
    [
        ("METRICS_PORT", "80a", "a port number from 0 to 65535"),
        ("METRICS_PORT", "65536", "a port number from 0 to 65535"),
        ("HEALTH_PROBE_PORT", "-1", "a port number from 0 to 65535"),
        ("HEALTH_PROBE_PORT", "٣", "a port number"),
        ("CPU_REQUESTS", "1_000", "a whole number of millicores"),
        ("DECISION_LOG", "stdout", "'stdout' is no place for a log"),
        ("DECISION_LOG", "file:decisions", "names no folder"),
        ("DECISION_LOG", "file:/a,file:/b", "file is there twice"),
        ("DECISION_LOG", "s3://", "names no bucket"),
        ("DECISION_LOG", "s3://Trail/x", "names no bucket"),
        ("DECISION_LOG", "s3://trail/../x", "names no prefix"),
        ("DECISION_LOG_KEEP", "1m", "a duration of 1h or longer"),
        ("MEMORY_LIMIT", "9223372036854775808", "a whole number"),
        ("KUBE_CLIENT_QPS", "1.5", "a whole number"),
        ("BATCH_IDLE_DURATION", "1d", 'a duration such as 10s or 1m30s (time: unknown unit "d"'),
        ("BATCH_MAX_DURATION", "10", "a duration such as 10s or 1m30s (time: missing unit"),
        ("BATCH_MAX_DURATION", "-1s", "a duration such as 10s or 1m30s"),
        ("LOG_LEVEL", "warn", "debug, info or error (or empty)"),
        ("MIN_VALUES_POLICY", "strict", "Strict or BestEffort"),
        ("MIN_VALUES_POLICY", "", "Strict or BestEffort"),
        ("PREFERENCE_POLICY", "Maybe", "Respect or Ignore"),
        ("DISABLE_LEADER_ELECTION", "yes", "true or false"),
        ("FEATURE_GATES", "NodeRepair", 'name=true or name=false with commas between them ("NodeRepair" has'),
        ("FEATURE_GATES", "NodeRepair=on", '(NodeRepair has "on")'),
        ("AMI_REFRESH_INTERVAL", "59s", "a duration of 1m or longer"),
        ("SUBNET_REFRESH_INTERVAL", "1ns", "a duration of 1m or longer"),
        ("CLUSTER_ENDPOINT", "10.0.0.1", "an absolute URL with a host"),
        ("CLUSTER_ENDPOINT", "https:///path", "an absolute URL with a host"),
        ("CLUSTER_ENDPOINT", "https://[::1", "an absolute URL with a host"),
        ("RESERVED_ENIS", "-1", "a whole number that is 0 or more"),
        ("VM_MEMORY_OVERHEAD_PERCENT", "-0.1", "a number that is 0 or more"),
        ("VM_MEMORY_OVERHEAD_PERCENT", "NaN", "a number that is 0 or more"),
        ("VM_MEMORY_OVERHEAD_PERCENT", "1e999", "a number that is 0 or more"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name_itself_and_what_is_allowed(
    variable: str, text: str, allowed: str
) -> None:
    with pytest.raises(Misconfigured) as caught:
        read_settings([], NAMED | {variable: text})
    assert str(caught.value).startswith(f'{variable} is "{text}", but must be ')
    assert allowed in str(caught.value)
    assert "\n" not in str(caught.value)

    with pytest.raises(Misconfigured, match=f'^{ALL[variable][0]} is "'):
        read_settings([f"{ALL[variable][0]}={text}"], NAMED)


def test_a_very_long_wrong_value_is_cut_in_the_message() -> None:
    with pytest.raises(Misconfigured) as caught:
        read_settings([], NAMED | {"METRICS_PORT": "9" * 100_000})
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_go_spellings_of_true_are_taken_from_the_environment(text: str) -> None:
    assert read_settings([], NAMED | {"ISOLATED_VPC": text}).isolated_vpc is True


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False"])
def test_go_spellings_of_false_are_taken_from_the_environment(text: str) -> None:
    assert read_settings([], NAMED | {"IGNORE_DRA_REQUESTS": text}).ignore_dra_requests is False


def test_a_switch_given_as_a_flag_takes_exactly_true_or_false() -> None:
    with pytest.raises(Misconfigured, match='--isolated-vpc is "1", but must be true or false'):
        read_settings(["--isolated-vpc=1"], NAMED)


def test_a_switch_without_a_value_is_on_and_leaves_the_next_flag_alone() -> None:
    settings = read_settings(["--isolated-vpc", "--metrics-port", "9000", "-reserved-enis=2"], NAMED)
    assert (settings.isolated_vpc, settings.metrics_port, settings.reserved_enis) == (True, 9000, 2)


def test_the_last_of_two_equal_flags_wins() -> None:
    assert read_settings(["--metrics-port=1", "--metrics-port=2"], NAMED).metrics_port == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--metric-port=1"], "there is no flag --metric-port; did you mean --metrics-port?"),
        (["--zzz"], "there is no flag --zzz"),
        (["--metrics-port"], "--metrics-port has no value, but must be a port number"),
        (["start"], '"start" is not a flag'),
        (["--"], '"--" is not a flag'),
        (["--leader-elect=false"], "--leader-elect is no longer read: set DISABLE_LEADER_ELECTION=true"),
        (["--webhook-port=1"], "--webhook-port is no longer read: there are no webhooks any more"),
        (["--instance-types-file-path=x"], "--instance-types-file-path belongs to the kwok provider"),
    ],
)
def test_a_flag_that_cannot_be_used_is_explained(arguments: list[str], sentence: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        read_settings(arguments, NAMED)
    assert str(caught.value).startswith(sentence)


def test_an_empty_variable_counts_as_none_where_empty_is_no_value() -> None:
    settings = read_settings([], NAMED | {"METRICS_PORT": "", "ISOLATED_VPC": "", "BATCH_MAX_DURATION": ""})
    assert (settings.metrics_port, settings.find_origin("METRICS_PORT")) == (8080, "default")
    assert settings.batch_max_duration == timedelta(seconds=10)


def test_an_empty_log_level_is_accepted() -> None:
    assert read_settings([], NAMED | {"LOG_LEVEL": ""}).log_level == ""


@pytest.mark.parametrize("text", ["0", "-1", "-9000"])
def test_cpu_requests_that_are_not_positive_become_1000_and_are_remarked_on(text: str) -> None:
    settings = read_settings([], NAMED | {"CPU_REQUESTS": text})
    assert settings.cpu_requests == 1000
    assert settings.warnings == (f"CPU_REQUESTS: {text} is not positive, so 1000 is used",)


def test_aws_needs_a_cluster_name_and_kwok_does_not() -> None:
    with pytest.raises(Misconfigured, match="CLUSTER_NAME is empty, but the aws provider needs it"):
        read_settings([], {})
    with pytest.raises(Misconfigured, match="CLUSTER_NAME is empty"):
        read_settings(["--cluster-name="], {})
    assert read_settings([], {}, "kwok").provider == "kwok"


def test_settings_of_another_provider_are_left_alone_in_the_environment() -> None:
    assert read_settings([], {"RESERVED_ENIS": "nonsense"}, "kwok").reserved_enis == 0


def test_gates_left_out_keep_defaults_and_unknown_ones_are_remarked_on() -> None:
    settings = read_settings(
        [], NAMED | {"FEATURE_GATES": " NodeRepair = true ,,NodeOverlai=true,Drift=false,Zap=1"}
    )
    assert settings.feature_gates == FeatureGates(node_repair=True, reserved_capacity=True)
    assert settings.warnings == (
        "FEATURE_GATES: there is no gate NodeOverlai, so it is ignored; did you mean NodeOverlay?",
        "FEATURE_GATES: the gate Drift was removed: drift is always on; "
        "limit it with disruption budgets for the reason Drifted",
        "FEATURE_GATES: there is no gate Zap, so it is ignored; known gates are "
        "NodeRepair, ReservedCapacity, SpotToSpotConsolidation, NodeOverlay, StaticCapacity, CapacityBuffer",
    )


def test_the_scheduler_document_is_read_from_yaml_and_from_json() -> None:
    yaml = f"podTopologySpread:\n  defaultConstraints:\n  - {SPREAD}\n"
    config = read_settings([], NAMED | {"SCHEDULER_CONFIG": yaml}).scheduler_config
    assert config.pod_topology_spread.default_constraints[0].max_skew == 1
    shown = read_settings([], NAMED | {"SCHEDULER_CONFIG": yaml}).show_value("SCHEDULER_CONFIG")
    assert read_settings([], NAMED | {"SCHEDULER_CONFIG": shown}).scheduler_config == config


@pytest.mark.spec("T-279")
@pytest.mark.parametrize(
    ("constraints", "detail"),
    [
        ("[{maxSkew: 0, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]", "maxSkew 0"),
        ("[{maxSkew: 1, topologyKey: '', whenUnsatisfiable: DoNotSchedule}]", "not a label name"),
        ("[{maxSkew: 1, topologyKey: a/b/c, whenUnsatisfiable: DoNotSchedule}]", "not a label name"),
        ("[{maxSkew: 1, topologyKey: /zone, whenUnsatisfiable: DoNotSchedule}]", "not a label name"),
        ("[{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: Sometimes}]", "whenUnsatisfiable"),
        ("[{maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]", "topologyKey"),
        ("[{maxSkew: one, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]", "maxSkew"),
        (f"[{SPREAD[:-1]}, labelSelector: {{}}}}]", "labelSelector"),
        (f"[{SPREAD[:-1]}, matchLabelKeys: [a]}}]", "matchLabelKeys"),
        (f"[{SPREAD[:-1]}, minDomains: 0}}]", "minDomains"),
        (f"[{SPREAD[:-1]}, colour: red}}]", "colour"),
        (f"[{SPREAD}, {SPREAD}]", "defaultConstraints[1] repeats"),
        ("nonsense", "Expected `array`".replace("`", "")),
    ],
)
def test_a_scheduler_document_with_a_mistake_is_refused(constraints: str, detail: str) -> None:
    text = f"podTopologySpread: {{defaultConstraints: {constraints}}}"
    with pytest.raises(Misconfigured) as caught:
        read_settings([], NAMED | {"SCHEDULER_CONFIG": text})
    assert str(caught.value).startswith('SCHEDULER_CONFIG is "')
    assert detail in str(caught.value)


@pytest.mark.parametrize(
    "text", ["a: [", "percentage: 5", "[]", "7", "[" * 5_000, "a:\n- b", "podTopologySpread: 3", "a: \x00"]
)
def test_text_that_is_no_scheduler_document_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        read_settings([f"--scheduler-config={text}"], NAMED)
    assert str(caught.value).startswith('--scheduler-config is "')
    assert "\n" not in str(caught.value)


def test_every_removed_name_is_reported_and_none_is_obeyed() -> None:
    past = {removed.name: "false" for removed in REMOVED}
    settings = read_settings([], NAMED | past)
    assert len(settings.warnings) == len(REMOVED) == len(past)
    for removed, warning in zip(REMOVED, settings.warnings, strict=True):
        assert warning.startswith(f"{removed.name} is no longer read: ")
    assert dataclasses.replace(settings, origins={}, warnings=()) == read_settings([], NAMED)


@pytest.mark.parametrize(
    ("name", "given", "advice"),
    [
        ("LEADER_ELECT", "true", "set DISABLE_LEADER_ELECTION=false, whose meaning is the reverse"),
        ("LEADER_ELECT", "False", "set DISABLE_LEADER_ELECTION=true, whose meaning is the reverse"),
        ("aws.clusterName", "prod", "set CLUSTER_NAME=prod"),
        ("VM_MEMORY_OVERHEAD", "0.1", "set VM_MEMORY_OVERHEAD_PERCENT=0.1"),
        ("aws.interruptionQueueName", "", "set INTERRUPTION_QUEUE"),
        ("LOGGING_CONFIG", "{}", "set LOG_LEVEL, LOG_OUTPUT_PATHS and LOG_ERROR_OUTPUT_PATHS"),
    ],
)
def test_a_removed_name_leads_to_its_replacement(name: str, given: str, advice: str) -> None:
    assert read_settings([], NAMED | {name: given}).warnings == (f"{name} is no longer read: {advice}",)


def test_every_replacement_is_a_setting_of_today() -> None:
    assert {removed.replacement for removed in REMOVED if removed.replacement} <= set(ALL)
    assert all(removed.replacement or removed.instead for removed in REMOVED)


def test_all_mistakes_are_found_at_once_and_the_error_counts_the_others() -> None:
    environment = {"METRICS_PORT": "x", "LOG_LEVEL": "loud"}
    assert len(examine_settings(["--bogus"], environment).problems) == 4
    with pytest.raises(Misconfigured, match=r"no flag --bogus.*3 more"):
        read_settings(["--bogus"], environment)


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        read_settings([], NAMED).metrics_port = 1  # type: ignore[misc]


def test_asking_for_the_origin_of_something_unknown_is_an_error() -> None:
    with pytest.raises(KeyError):
        read_settings([], NAMED).find_origin("METRIC_PORT")


@pytest.mark.parametrize("variable", OTHER)
def test_a_value_is_shown_as_it_could_be_written(variable: str) -> None:
    provider = provider_of(variable)
    settings = examine_settings([], NAMED | {variable: OTHER[variable][0]}, provider).settings
    again = examine_settings(
        [], NAMED | {variable: BY_NAME[variable].kind.show(value(settings, variable))}, provider
    ).settings
    assert again == settings


@given(st.sampled_from(sorted(ALL)), st.text(max_size=40))
def test_any_text_is_either_read_or_refused_in_one_sentence(variable: str, text: str) -> None:
    reading = examine_settings([], NAMED | {variable: text}, provider_of(variable))
    assert reading.settings.origins.get(variable, "default") in ("environment", "default")
    assert all(problem.startswith(variable) and "\n" not in problem for problem in reading.problems)
