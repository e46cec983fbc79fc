"""The settings of a replayed controller: those of the recording, less what a replay has no place for."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.api.commitment import Commitment
from dovetail.api.meta import Object
from dovetail.api.spend_limit import SpendLimit

__all__ = ["FOLLOWED_BY", "build_environment"]

# Our own kinds that a replay or a scenario may bring, and the setting by which each is followed.
FOLLOWED_BY: Mapping[type[Object], tuple[str, str]] = {
    SpendLimit: ("SPEND_LIMITS", "true"),
    Commitment: ("COMMITMENTS", "Follow"),
}

# What Karpenter has no word for, and how it plans.
KARPENTER = {"PLANNER": "one-by-one", "DRIFT_PAUSE_AFTER": "0s"}
# Nobody reads these in a replay, and they cost time.
QUIET = {"HISTORY_KEEP": "0s", "DISABLE_CLUSTER_STATE_OBSERVABILITY": "true"}
# Settings that say where a process runs and what it writes: a replay has none of it. Zones are shifted away
# when the recording says so, and nobody else is asked.
ELSEWHERE = ("RECORDING", "DECISION_LOG", "NOTIFY_FILE", "ENABLE_ZONAL_SHIFT", "ZONAL_SHIFT_MODE")
# Of the settings that decisions depend on, those that Karpenter has too.
_KARPENTER_KNOWS = frozenset(
    (
        "BATCH_IDLE_DURATION",
        "BATCH_MAX_DURATION",
        "FEATURE_GATES",
        "MIN_VALUES_POLICY",
        "PREFERENCE_POLICY",
        "RESERVED_ENIS",
        "VM_MEMORY_OVERHEAD_PERCENT",
    )
)


def build_environment(settings: Mapping[str, str], karpenter: bool = False) -> dict[str, str]:
    """The environment of a controller with these settings; as Karpenter, with those that it has too."""
    kept = {key: value for key, value in settings.items() if key not in ELSEWHERE and key != "PROVIDER"}
    if karpenter:
        kept = {key: value for key, value in kept.items() if key in _KARPENTER_KNOWS} | KARPENTER
    return {"CLUSTER_NAME": "replay", **kept, **QUIET}
