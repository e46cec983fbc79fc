"""What the settings say about zonal shifts, as the controller wants to know it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, cast

from dovetail.api import cron
from dovetail.errors import Misconfigured
from dovetail.settings import Settings
from dovetail.zonal.machine import Pace
from dovetail.zonal.pools import OnlyZone, Strategy
from dovetail.zonal.shifts import Policies, Policy

__all__ = ["DryRun", "Mode", "ZonalOptions", "from_settings"]

Mode = Literal["Offerings", "NodePoolEdit", "Both"]
DryRun = Literal["", "server", "client"]
DriftGuard = Literal["Auto", "Budget", "None"]
AutoMode = Literal["auto", "Native", "Clone", "Off"]
Rebalance = Literal["Off", "Report", "Gradual"]


@dataclass(frozen=True, slots=True)
class ZonalOptions:
    """How to go about it. A dry run on the `server` keeps ZoneShift objects, one on the `client` none."""

    cluster: str = ""
    enabled: bool = True
    # What becomes of shifts in force when the feature is switched off.
    on_disable: Literal["restore", "leave"] = "restore"
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
    policies: Policies = field(default_factory=Policies)
    pace: Pace = field(default_factory=Pace)
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
    s = settings
    pace = Pace(debounce=s.zonal_shift_debounce, min_hold=s.zonal_shift_min_hold)
    dry: DryRun = cast(DryRun, {"false": "", "true": "server"}.get(s.zonal_shift_dry_run, "client"))
    return ZonalOptions(
        cluster=s.cluster_name,
        enabled=s.enable_zonal_shift,
        mode=cast(Mode, s.zonal_shift_mode),
        protect=s.enable_do_not_disrupt,
        observer=s.zonal_shift_observer,
        policies=_policies(s),
        pace=pace,
        poll=s.zonal_shift_poll_interval.total_seconds(),
        poll_active=s.zonal_shift_poll_interval_active.total_seconds(),
        strategy=cast(Strategy, s.zonal_shift_edit_strategy),
        only_zone=cast(OnlyZone, s.zonal_shift_only_zone_policy),
        auto_mode=cast(AutoMode, s.zonal_shift_auto_mode),
        restore_batch=s.zonal_shift_restore_batch,
        restore_interval=s.zonal_shift_restore_interval.total_seconds(),
        restore_fast=s.zonal_shift_restore_fast,
        sweep_legacy=s.zonal_shift_sweep_legacy,
        adopt_orphans=s.zonal_shift_adopt_orphans,
        clone_retention=s.zonal_shift_clone_retention,
        prescale=_prescale(s),
        rebalance=cast(Rebalance, s.zonal_shift_rebalance),
        rehearsal=_schedule(s.zonal_shift_rehearsal),
        repair=s.feature_gates.node_repair,
        dry_run=dry,
    )


def _policies(settings: Settings) -> Policies:
    told = settings.zonal_shift_policy
    return Policies(*(cast(Policy, getattr(told, each)) for each in Policies.__struct_fields__))


def _prescale(settings: Settings) -> bool:
    if settings.zonal_shift_prescale and not settings.feature_gates.capacity_buffer:
        raise Misconfigured(
            "ZONAL_SHIFT_PRESCALE is true, but room is bought by CapacityBuffers, which are off: "
            "add CapacityBuffer=true to FEATURE_GATES"
        )
    return settings.zonal_shift_prescale


def _schedule(text: str) -> cron.Schedule | None:
    if not text:
        return None
    try:
        return cron.parse(text)
    except ValueError as error:
        raise Misconfigured(
            f'ZONAL_SHIFT_REHEARSAL is "{text}", but must be a cron schedule such as @weekly: {error}'
        ) from error
