"""The policy of zonal shift: what is rarely chosen, as fields of one ConfigMap with good defaults.

Each field was a setting once. Its old variable and flag still work: a field of the ConfigMap wins over them,
they win over the default, and whoever uses one is told its replacement at the start.
"""
# Defaults are read by the same functions as values, so they are calls; each gives a frozen value.
# ruff: noqa: RUF009

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, TypeVar

from dovetail.settings import value_kinds
from dovetail.settings.value_kinds import SettingKind
from dovetail.settings.zonal import SHARE

__all__ = ["POLICY_FIELDS", "PolicyField", "ZonalShiftPolicy"]

T = TypeVar("T")
# A variable that does not begin as the others do.
UNPREFIXED = frozenset(("sns_auto_subscribe",))


@dataclass(frozen=True, slots=True)
class PolicyField:
    """One field of the policy: its key in the ConfigMap, its kind, and the setting it was.

    A field that is not `live` is read when a process starts; the others count as soon as they are written.
    """

    name: str
    kind: SettingKind[Any]
    default: str
    meaning: str
    provider: str | None
    live: bool
    required = False

    @property
    def key(self) -> str:
        return self.name.replace("_", "-")

    @property
    def attribute(self) -> str:
        return self.name if self.name in UNPREFIXED else f"zonal_shift_{self.name}"

    @property
    def variable(self) -> str:
        return self.attribute.upper()

    @property
    def flag(self) -> str:
        return "--" + self.attribute.replace("_", "-")

    def applies_to(self, provider: str) -> bool:
        return self.provider in (None, provider)

    def describe_replacement(self, used: str, text: str) -> str:
        """What to tell a person who uses the old variable or flag."""
        return (
            f'{used} is an old name that still works: write {self.key}: "{text}" into the ConfigMap that '
            "ZONAL_SHIFT_CONFIG_MAP names, whose fields win over old names"
        )


def _set(
    kind: SettingKind[T], default: str, meaning: str, provider: str | None = None, *, live: bool = True
) -> T:
    metadata = {"kind": kind, "default": default, "meaning": meaning, "provider": provider, "live": live}
    return field(default=kind.read(default), metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZonalShiftPolicy:
    """How zonal shifts are followed, field by field; frozen, as settings are."""

    sns_auto_subscribe: bool = _set(
        value_kinds.BOOLEAN,
        "false",
        "subscribe ZONAL_SHIFT_ENDPOINT_URL to the topics at the start",
        "aws",
        live=False,
    )
    adopt_orphans: bool = _set(
        value_kinds.BOOLEAN,
        "false",
        "also put a zone back into pools whose note of the edit was removed by someone; else only say so",
        "aws",
    )
    allow_signature_v1: bool = _set(
        value_kinds.BOOLEAN,
        "false",
        "also take messages that a topic signs with SHA-1 (SignatureVersion 1)",
        "aws",
        live=False,
    )
    auto_mode: str = _set(
        value_kinds.one_of("auto", "Native", "Clone", "Off"),
        "auto",
        "where EKS Auto Mode's own pools are all there is: leave it to EKS, stand in for them, or neither",
        "aws",
    )
    clone_retention: timedelta = _set(
        value_kinds.WINDOW,
        "336h",
        "replace the nodes of a stand-in that are still there so long after its shift, within its budgets",
        "aws",
    )
    debounce: timedelta = _set(
        value_kinds.WINDOW, "2s", "wait this long for further messages before nodes and pools are changed"
    )
    drift_guard: str = _set(
        value_kinds.one_of("Auto", "Budget", "None"),
        "Auto",
        "keep an edited pool's nodes from counting as drifted: by a budget, only where needed, or not",
        "aws",
    )
    edit_strategy: str = _set(
        value_kinds.one_of("AppendNotIn", "RemoveFromIn"),
        "AppendNotIn",
        "how pools are kept out of a zone: by a requirement of its own, or by editing the list of zones",
    )
    honour_unapplied: bool = _set(
        value_kinds.BOOLEAN, "false", "also follow shifts that ARC has started and not applied", "aws"
    )
    min_healthy_zones: int = _set(
        value_kinds.POSITIVE, "1", "never shift away from so many zones that fewer than this are left", "aws"
    )
    min_hold: timedelta = _set(
        value_kinds.WINDOW, "5m", "shift back to a zone no sooner than this after shifting away"
    )
    node_enforce: bool = _set(
        value_kinds.BOOLEAN, "false", "mark and cordon a node again when a person took that back", "aws"
    )
    node_scope: str = _set(
        value_kinds.one_of("All", "Managed"),
        "All",
        "mark every node of the zone, or only those of pools",
        "aws",
    )
    observer: bool = _set(
        value_kinds.BOOLEAN, "false", "also follow autoshifts of the region that are not the cluster's", "aws"
    )
    only_zone_policy: str = _set(
        value_kinds.one_of("Freeze", "Leave", "Fallback"),
        "Freeze",
        "a pool whose only zone is shifted away launches nothing, stays as it is, or uses its fallback zones",
    )
    poll_interval: timedelta = _set(
        value_kinds.WINDOW, "30s", "time between two polls of ARC while no zone is shifted away", "aws"
    )
    poll_interval_active: timedelta = _set(
        value_kinds.WINDOW, "10s", "time between two polls of ARC while a zone is shifted away", "aws"
    )
    prescale: bool = _set(
        value_kinds.BOOLEAN,
        "false",
        "while a zone is shifted away, launch what losing it would take elsewhere; needs CapacityBuffer=true",
        live=False,
    )
    rebalance: str = _set(
        value_kinds.one_of("Off", "Report", "Gradual"),
        "Off",
        "when a zone is back: nothing, say how uneven zones are, or also move nodes towards balance, slowly",
        live=False,
    )
    rehearsal: str = _set(
        value_kinds.TEXT,
        "",
        "when to rehearse the loss of each zone, as cron says it, such as @weekly; empty: never",
        live=False,
    )
    restore_batch: float = _set(
        SHARE, "25%", "part of a zone's nodes that is released at once when its shift is over"
    )
    restore_fast: bool = _set(
        value_kinds.BOOLEAN, "false", "launch in a zone that is back before all of its nodes are released"
    )
    restore_interval: timedelta = _set(value_kinds.WINDOW, "30s", "time between two such releases")
    sweep_legacy: bool = _set(
        value_kinds.BOOLEAN,
        "false",
        "when a shift ends, also free nodes of the zone that carry the label but no note of ours",
    )
    sns_ca_file: str = _set(
        value_kinds.TEXT,
        "",
        "PEM file of the authorities that vouch for SNS's signing certificates; empty for the system's",
        "aws",
        live=False,
    )
    trust_events: bool = _set(
        value_kinds.BOOLEAN,
        "true",
        "while ARC does not answer, believe a message that a shift has started",
        "aws",
    )


POLICY_FIELDS: tuple[PolicyField, ...] = tuple(
    PolicyField(name=each.name, **each.metadata) for each in fields(ZonalShiftPolicy)
)
