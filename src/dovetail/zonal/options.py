"""What the settings say about zonal shifts, as the controller wants to know it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, ClassVar, Literal, cast

from dovetail.api import cron
from dovetail.api.meta import Kind, Object
from dovetail.errors import Misconfigured
from dovetail.logs import get_logger
from dovetail.ports import Recorder
from dovetail.settings import Settings
from dovetail.settings.table import BY_VARIABLE
from dovetail.settings.zonal import ZonalPolicy
from dovetail.zonal.model.pools import OnlyZone, Strategy
from dovetail.zonal.model.shifts import CONTROLLER, Owner, Policy, ShiftPolicies
from dovetail.zonal.model.state_machine import ShiftTiming

__all__ = [
    "ConfigMap",
    "DryRun",
    "Mode",
    "ShiftConfigMap",
    "ZonalOptions",
    "check_prescale",
    "from_settings",
    "parse_dry_run",
    "parse_policies",
    "parse_schedule",
]


def check_prescale(settings: Settings) -> bool:
    """Whether room is bought for what may be lost; Misconfigured where nothing could buy it."""
    if settings.zonal_shift_prescale and not settings.feature_gates.capacity_buffer:
        raise Misconfigured(
            "ZONAL_SHIFT_PRESCALE is true, but room is bought by CapacityBuffers, which are off: "
            "add CapacityBuffer=true to FEATURE_GATES"
        )
    return settings.zonal_shift_prescale


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
        policies=parse_policies(s.zonal_shift_policy),
        pace=ShiftTiming(debounce=s.zonal_shift_debounce, min_hold=s.zonal_shift_min_hold),
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
        prescale=check_prescale(s),
        rebalance=cast(Rebalance, s.zonal_shift_rebalance),
        rehearsal=parse_schedule(s.zonal_shift_rehearsal),
        repair=s.feature_gates.node_repair,
        dry_run=parse_dry_run(s.zonal_shift_dry_run),
        store=cast(StoreKind, s.zonal_shift_store),
        table=s.zonal_shift_table,
    )


def parse_policies(told: ZonalPolicy) -> ShiftPolicies:
    return ShiftPolicies(*(cast(Policy, getattr(told, each)) for each in ShiftPolicies.__struct_fields__))


def parse_dry_run(told: str) -> DryRun:
    return cast(DryRun, {"false": "", "true": "server"}.get(told, "client"))


log = get_logger()
# Keys of the ConfigMap, and the setting each stands for.
CONFIG_KEYS = {"policy": "ZONAL_SHIFT_POLICY", "dry-run": "ZONAL_SHIFT_DRY_RUN"}


class ConfigMap(Object, frozen=True):
    """Words by their keys."""

    KIND: ClassVar[Kind] = Kind("", "v1", "ConfigMap", "configmaps")

    data: Mapping[str, str] = {}


class ShiftConfigMap:
    """Turns what the ConfigMap says into options."""

    def __init__(
        self, options: ZonalOptions, recorder: Recorder, apply: Callable[[ZonalOptions], None]
    ) -> None:
        # A key that is left out, or empty, is what the process was started with.
        self._base, self._now = options, options
        self._recorder, self._apply = recorder, apply

    def apply_change(self, before: ConfigMap | None, now: ConfigMap | None) -> None:
        """The map was written. One that is gone takes nothing back: nobody said what should be instead."""
        if now is None or (before is not None and before.data == now.data):
            return
        told = self._now
        for key in CONFIG_KEYS:
            told = self._apply_key(told, key, now)
        if told != self._now:
            self._now = told
            log.info(
                "zonal shift goes on by another policy",
                policy=told.policies,
                **{"dry-run": told.dry_run or "false"},
            )
            self._apply(told)

    def _apply_key(self, options: ZonalOptions, key: str, source: ConfigMap) -> ZonalOptions:
        text, kind = source.data.get(key, "").strip(), BY_VARIABLE[CONFIG_KEYS[key]].kind
        if not text:
            return _set_option(options, key, getattr(self._base, FIELDS[key]))
        try:
            return _set_option(options, key, READ[key](kind.read(text)))
        except ValueError as error:
            detail = f" ({error})" if str(error) else ""
            note = (
                f'{key} in ConfigMap {source.namespace}/{source.name} is "{text[:120]}", but must be '
                f"{kind.allowed}{detail}; what was in force before stays so until it is corrected"
            )
            log.warning("a key of the ConfigMap is not taken", key=key, error=note)
            self._recorder.publish_event(
                source, "ZonalShiftMisconfigured", note, warning=True, dedupe=(key, text)
            )
            return options


FIELDS = {"policy": "policies", "dry-run": "dry_run"}
READ: Mapping[str, Callable[[Any], Any]] = {"policy": parse_policies, "dry-run": parse_dry_run}


def _set_option(options: ZonalOptions, key: str, value: Any) -> ZonalOptions:
    return replace(options, **{FIELDS[key]: value})
