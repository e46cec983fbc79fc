"""The scheduler's defaults, mirrored: the document in SCHEDULER_CONFIG.

A cluster whose kube-scheduler spreads pods by default can tell Dovetail so; it then counts on the
same spreading. Decoding is strict: a member this page does not name is a mistake.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from dovetail.settings.value_kinds import SettingKind

# A label name: an optional DNS prefix and a slash, then up to 63 characters.
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")


class SpreadConstraint(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """One default spread constraint. Its selector is deduced from the pod's Service or owner."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    min_domains: int | None = None
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    node_taints_policy: Literal["Honor", "Ignore"] | None = None
    # Known members of a spread constraint that have no place among defaults: see _complaint.
    label_selector: Any = None
    match_label_keys: tuple[str, ...] | None = None


class PodTopologySpread(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """The spreading that pods without constraints of their own receive."""

    default_constraints: tuple[SpreadConstraint, ...] = ()


class SchedulerConfig(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """The part of kube-scheduler's configuration that planning must know."""

    pod_topology_spread: PodTopologySpread = PodTopologySpread()


def parse_scheduler_config(text: str) -> SchedulerConfig:
    """Read the document from YAML or JSON text; empty text is an empty document."""
    if not text.strip():
        return SchedulerConfig()
    try:
        return validate_scheduler_config(msgspec.yaml.decode(text))
    except msgspec.DecodeError as error:
        raise ValueError(" ".join(str(error).split())) from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def validate_scheduler_config(document: object) -> SchedulerConfig:
    """Check a document that has been parsed already."""
    try:
        config = msgspec.convert(document, SchedulerConfig)
    except msgspec.ValidationError as error:
        raise ValueError(str(error).replace("`", "")) from error
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(config.pod_topology_spread.default_constraints):
        pair = (constraint.topology_key, constraint.when_unsatisfiable)
        complaint = "repeats an earlier topologyKey and whenUnsatisfiable" if pair in seen else None
        complaint = complaint or _find_complaint(constraint)
        if complaint:
            raise ValueError(f"podTopologySpread.defaultConstraints[{index}] {complaint}")
        seen.add(pair)
    return config


def _find_complaint(constraint: SpreadConstraint) -> str | None:
    if constraint.max_skew <= 0:
        return f"has maxSkew {constraint.max_skew}, which must be above 0"
    if not _is_label_name(constraint.topology_key):
        return f'has topologyKey "{constraint.topology_key}", which is not a label name'
    if constraint.label_selector is not None:
        return "has a labelSelector; defaults take theirs from each pod's Service or owner"
    if constraint.match_label_keys is not None:
        return "has matchLabelKeys, which defaults may not have"
    if constraint.min_domains is not None and constraint.min_domains <= 0:
        return f"has minDomains {constraint.min_domains}, which must be above 0"
    return None


def _is_label_name(text: str) -> bool:
    prefix, slash, name = text.rpartition("/")
    prefix_fits = len(prefix) <= 253 and _PREFIX.fullmatch(prefix) if slash else True
    return bool(prefix_fits and len(name) <= 63 and _NAME.fullmatch(name))


def _show_config(config: SchedulerConfig) -> str:
    return "" if config == SchedulerConfig() else msgspec.json.encode(config).decode()


SCHEDULER_CONFIG = SettingKind(
    "a YAML or JSON document of scheduler defaults", parse_scheduler_config, _show_config, blank=True
)
