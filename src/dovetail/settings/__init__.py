"""One frozen Settings, read once from flags and environment.

It knows what every setting is called and may be, and nothing of what is done with it: no files, no
clock, no environment of its own.
"""

from __future__ import annotations

from dovetail.settings.gates import AWS_GATES, GATES, AWSFeatureGates, FeatureGates
from dovetail.settings.loader import Reading, examine_settings, find_conflicts, read_settings
from dovetail.settings.removed import REMOVED
from dovetail.settings.scheduler import PodTopologySpread, SchedulerConfig, SpreadConstraint
from dovetail.settings.table import SETTINGS, Origin, Setting, Settings
from dovetail.settings.zonal_policy import POLICY_FIELDS, PolicyField, ZonalShiftPolicy

__all__ = [
    "AWS_GATES",
    "GATES",
    "POLICY_FIELDS",
    "REMOVED",
    "SETTINGS",
    "AWSFeatureGates",
    "FeatureGates",
    "Origin",
    "PodTopologySpread",
    "PolicyField",
    "Reading",
    "SchedulerConfig",
    "Setting",
    "Settings",
    "SpreadConstraint",
    "ZonalShiftPolicy",
    "examine_settings",
    "find_conflicts",
    "read_settings",
]
