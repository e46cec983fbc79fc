"""What settings and the policy say about zonal shifts, as the controller wants to know it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal, cast

from msgspec import structs

from dovetail.api import cron
from dovetail.errors import Misconfigured
from dovetail.settings import Settings
from dovetail.settings.zonal import ZonalPolicy
from dovetail.zonal.model.pools import OnlyZone, Strategy
from dovetail.zonal.model.shifts import CONTROLLER, Owner, Policy, ShiftPolicies
from dovetail.zonal.model.state_machine import ShiftTiming

__all__ = [
    "POLICY_OPTIONS",
    "DryRun",
    "Mode",
    "PolicyOption",
    "ZonalOptions",
    "check_prescale",
    "from_settings",
    "parse_dry_run",
    "parse_policies",
    "parse_schedule",
]


def check_prescale(settings: Settings) -> bool:
    """Whether room is bought for what may be lost; Misconfigured where nothing could buy it."""
    if settings.zonal_policy.prescale and not settings.feature_gates.capacity_buffer:
        raise Misconfigured(
            "ZONAL_SHIFT_PRESCALE is true, but room is bought by CapacityBuffers, which are off: "
            "add CapacityBuffer=true to FEATURE_GATES"
        )
    return settings.zonal_policy.prescale


def parse_schedule(text: str) -> cron.Schedule | None:
    """When zones are rehearsed; None for never."""
    if not text:
        return None
    try:
        return cron.parse_schedule(text)
    except ValueError as error:
        raise Misconfigured(
            f'ZONAL_SHIFT_REHEARSAL is "{text}", but must be a cron schedule such as @weekly: {error}'
        ) from error


Mode = Literal["Offerings", "NodePoolEdit", "Both"]
DryRun = Literal["", "server", "client"]
DriftGuard = Literal["Auto", "Budget", "None"]
StoreKind = Literal["Cluster", "DynamoDB", "Mirror"]
OnDisable = Literal["restore", "leave"]
AutoMode = Literal["auto", "Native", "Clone", "Off"]
Rebalance = Literal["Off", "Report", "Gradual"]


@dataclass(frozen=True, slots=True)
class ZonalOptions:
    """How to go about it. A dry run on the `server` keeps ZoneShift objects, one on the `client` none."""

    cluster: str = ""
    enabled: bool = True
    # What becomes of shifts in force when the feature is switched off.
    on_disable: OnDisable = "restore"
    mode: Mode = "Offerings"
    protect: bool = False
    # Mark again what a person took back.
    enforce: bool = False
    # Only nodes of pools, instead of every node of the zone.
    managed_only: bool = False
    observer: bool = False
    honour_unapplied: bool = False
    trust_events: bool = True
    min_healthy: int = 1
    policies: ShiftPolicies = field(default_factory=ShiftPolicies)
    pace: ShiftTiming = field(default_factory=ShiftTiming)
    poll: float = 30.0
    poll_active: float = 10.0
    strategy: Strategy = "AppendNotIn"
    only_zone: OnlyZone = "Freeze"
    drift_guard: DriftGuard = "Auto"
    auto_mode: AutoMode = "auto"
    restore_batch: float = 0.25
    restore_interval: float = 30.0
    # The launch gate opens before the zone's nodes are all released.
    restore_fast: bool = False
    # Nodes with the label and no ledger are freed, too.
    sweep_legacy: bool = False
    # Pools whose ledger is gone are mended by what their class can reach.
    adopt_orphans: bool = False
    clone_retention: timedelta = timedelta(days=14)
    prescale: bool = False
    rebalance: Rebalance = "Off"
    # When to rehearse the loss of every zone; None for never.
    rehearsal: cron.Schedule | None = None
    repair: bool = False
    dry_run: DryRun = ""
    # As whom shifts are kept and notes are made.
    owner: Owner = CONTROLLER
    store: StoreKind = "Cluster"
    table: str = ""

    @property
    def edits_pools(self) -> bool:
        return self.mode in ("NodePoolEdit", "Both")

    @property
    def gates(self) -> bool:
        """Offerings are withheld; where pools are edited for someone else, there are none of ours."""
        return self.mode in ("Offerings", "Both")

    @property
    def budget_guard(self) -> bool:
        """With nodes protected one by one a budget for all of a pool's nodes is not needed."""
        return self.drift_guard == "Budget" or (self.drift_guard == "Auto" and not self.protect)


def from_settings(settings: Settings) -> ZonalOptions:
    """Options as settings say them, with the policy that was read at the start."""
    check_prescale(settings)
    s = settings
    options = ZonalOptions(
        cluster=s.cluster_name,
        enabled=s.enable_zonal_shift,
        on_disable=cast(OnDisable, s.zonal_shift_on_disable),
        mode=cast(Mode, s.zonal_shift_mode),
        protect=s.enable_do_not_disrupt,
        policies=parse_policies(s.zonal_shift_policy),
        repair=s.feature_gates.node_repair,
        dry_run=parse_dry_run(s.zonal_shift_dry_run),
        store=cast(StoreKind, s.zonal_shift_store),
        table=s.zonal_shift_table,
    )
    for name, option in POLICY_OPTIONS.items():
        options = option.set_value(options, getattr(s.zonal_policy, name))
    return options


def parse_policies(told: ZonalPolicy) -> ShiftPolicies:
    return ShiftPolicies(*(cast(Policy, getattr(told, each)) for each in ShiftPolicies.__struct_fields__))


def parse_dry_run(told: str) -> DryRun:
    return cast(DryRun, {"false": "", "true": "server"}.get(told, "client"))


@dataclass(frozen=True, slots=True)
class PolicyOption:
    """The option that a field of the policy is: a field of ZonalOptions, or of its timing."""

    name: str
    convert: Callable[[Any], Any] = lambda value: value
    timing: bool = False

    def set_value(self, options: ZonalOptions, value: Any) -> ZonalOptions:
        """The options with this value of the policy field."""
        return self._replace(options, self.convert(value))

    def copy_from(self, source: ZonalOptions, options: ZonalOptions) -> ZonalOptions:
        """The options with what another has here."""
        return self._replace(options, getattr(source.pace if self.timing else source, self.name))

    def _replace(self, options: ZonalOptions, value: Any) -> ZonalOptions:
        if self.timing:
            return replace(options, pace=structs.replace(options.pace, **{self.name: value}))
        return replace(options, **{self.name: value})


# Fields of the policy by name. What only the HTTPS endpoint needs is no option.
POLICY_OPTIONS: Mapping[str, PolicyOption] = {
    "adopt_orphans": PolicyOption("adopt_orphans"),
    "auto_mode": PolicyOption("auto_mode"),
    "clone_retention": PolicyOption("clone_retention"),
    "debounce": PolicyOption("debounce", timing=True),
    "drift_guard": PolicyOption("drift_guard"),
    "edit_strategy": PolicyOption("strategy"),
    "honour_unapplied": PolicyOption("honour_unapplied"),
    "min_healthy_zones": PolicyOption("min_healthy"),
    "min_hold": PolicyOption("min_hold", timing=True),
    "node_enforce": PolicyOption("enforce"),
    "node_scope": PolicyOption("managed_only", lambda scope: scope == "Managed"),
    "observer": PolicyOption("observer"),
    "only_zone_policy": PolicyOption("only_zone"),
    "poll_interval": PolicyOption("poll", timedelta.total_seconds),
    "poll_interval_active": PolicyOption("poll_active", timedelta.total_seconds),
    "prescale": PolicyOption("prescale"),
    "rebalance": PolicyOption("rebalance"),
    "rehearsal": PolicyOption("rehearsal", parse_schedule),
    "restore_batch": PolicyOption("restore_batch"),
    "restore_fast": PolicyOption("restore_fast"),
    "restore_interval": PolicyOption("restore_interval", timedelta.total_seconds),
    "sweep_legacy": PolicyOption("sweep_legacy"),
    "trust_events": PolicyOption("trust_events"),
}
