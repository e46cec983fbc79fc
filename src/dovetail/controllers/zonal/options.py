"""What the settings say about zonal shifts, as the controller wants to know it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, cast

from dovetail.api import cron
from dovetail.controllers.zonal import asked
from dovetail.settings import Settings
from dovetail.settings.zonal import ZonalPolicy
from dovetail.zonal.machine import Pace
from dovetail.zonal.owners import CONTROLLER, Owner
from dovetail.zonal.pools import OnlyZone, Strategy
from dovetail.zonal.shifts import Policies, Policy

__all__ = ["DryRun", "Mode", "ZonalOptions", "dry_run", "from_settings", "policies"]

Mode = Literal["Offerings", "NodePoolEdit", "Both"]
DryRun = Literal["", "server", "client"]
DriftGuard = Literal["Auto", "Budget", "None"]
Keeper = Literal["Cluster", "DynamoDB", "Mirror"]
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
    # As whom shifts are kept and notes are made.
    owner: Owner = CONTROLLER
    store: Keeper = "Cluster"
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
    s = settings
    return ZonalOptions(
        cluster=s.cluster_name,
        enabled=s.enable_zonal_shift,
        on_disable=cast(OnDisable, s.zonal_shift_on_disable),
        mode=cast(Mode, s.zonal_shift_mode),
        protect=s.enable_do_not_disrupt,
        enforce=s.zonal_shift_node_enforce,
        managed_only=s.zonal_shift_node_scope == "Managed",
        observer=s.zonal_shift_observer,
        honour_unapplied=s.zonal_shift_honour_unapplied,
        trust_events=s.zonal_shift_trust_events,
        min_healthy=s.zonal_shift_min_healthy_zones,
        policies=policies(s.zonal_shift_policy),
        pace=Pace(debounce=s.zonal_shift_debounce, min_hold=s.zonal_shift_min_hold),
        poll=s.zonal_shift_poll_interval.total_seconds(),
        poll_active=s.zonal_shift_poll_interval_active.total_seconds(),
        strategy=cast(Strategy, s.zonal_shift_edit_strategy),
        only_zone=cast(OnlyZone, s.zonal_shift_only_zone_policy),
        drift_guard=cast(DriftGuard, s.zonal_shift_drift_guard),
        auto_mode=cast(AutoMode, s.zonal_shift_auto_mode),
        restore_batch=s.zonal_shift_restore_batch,
        restore_interval=s.zonal_shift_restore_interval.total_seconds(),
        restore_fast=s.zonal_shift_restore_fast,
        sweep_legacy=s.zonal_shift_sweep_legacy,
        adopt_orphans=s.zonal_shift_adopt_orphans,
        clone_retention=s.zonal_shift_clone_retention,
        prescale=asked.prescale(s),
        rebalance=cast(Rebalance, s.zonal_shift_rebalance),
        rehearsal=asked.schedule(s.zonal_shift_rehearsal),
        repair=s.feature_gates.node_repair,
        dry_run=dry_run(s.zonal_shift_dry_run),
        store=cast(Keeper, s.zonal_shift_store),
        table=s.zonal_shift_table,
    )


def policies(told: ZonalPolicy) -> Policies:
    return Policies(*(cast(Policy, getattr(told, each)) for each in Policies.__struct_fields__))


def dry_run(told: str) -> DryRun:
    return cast(DryRun, {"false": "", "true": "server"}.get(told, "client"))
