"""SpendLimit as admitted: dovetail.sh/v1alpha1."""

from __future__ import annotations

from typing import Any

from dovetail.api.crds import patterns
from dovetail.api.crds.definition import (
    AGE,
    CONDITION,
    PLAIN_CONDITIONS,
    READY,
    AdmissionRule,
    CrdDefinition,
    FieldSchema,
    PrinterColumn,
    constrain_field,
    mount_fields,
)
from dovetail.api.spend_limit import SpendLimit

__all__ = ["SPENDLIMIT"]

MOST_WINDOWS = 20
_NUMBERS = ("hourly", "monthly", "nodes", "resources")
_MODES = ["Enforce", "Warn"]
_AMOUNTS: dict[str, FieldSchema] = {
    "hourly": constrain_field("Dollars an hour.", pattern=patterns.DOLLARS),
    "monthly": constrain_field("Dollars in a calendar month.", pattern=patterns.DOLLARS),
    "nodes": constrain_field("How many nodes.", minimum=0, format="int32"),
    "resources": constrain_field("How much capacity, by resource name.", maxProperties=20),
}
_MONTH: dict[str, FieldSchema] = {
    "of": constrain_field("The month, such as 2026-11."),
    "spent": constrain_field("Dollars spent so far."),
    "projected": constrain_field("Dollars at its end, if the rate of the last 24 hours goes on."),
    "until": constrain_field("The moment up to which spent is counted."),
    "rate": constrain_field("Dollars an hour in the last 24 hours."),
    "unseenSeconds": constrain_field(
        "For so many seconds of it no controller looked; nodes that came and went then are missing.",
        format="int64",
    ),
}

SPEND_FIELDS: dict[str, FieldSchema] = {
    "spec": constrain_field("What NodePools may cost, and when.", required=True),
    "spec.nodePools": constrain_field("Which NodePools: by labels or by names; all of them without either."),
    "spec.nodePools.matchLabels": constrain_field("Labels that a NodePool has.", maxProperties=20),
    "spec.nodePools.matchExpressions": constrain_field(
        "Requirements that a NodePool's labels meet.", maxItems=20
    ),
    "spec.nodePools.matchExpressions[].key": constrain_field("The label this is about.", required=True),
    "spec.nodePools.matchExpressions[].operator": constrain_field(
        "How the label relates to the values.",
        required=True,
        enum=["In", "NotIn", "Exists", "DoesNotExist"],
    ),
    "spec.nodePools.matchExpressions[].values": constrain_field("The values.", listType="atomic"),
    "spec.nodePools.names": constrain_field("The names of NodePools.", maxItems=100),
    "spec.includeUnmanaged": constrain_field(
        "Count nodes of no NodePool, too: as nodes and resources, and in dollars where the type is known."
    ),
    **mount_fields("spec", _AMOUNTS),
    "spec.basis": constrain_field(
        "Count what is left to pay after commitments, or what the price list says.",
        enum=["Effective", "Listed"],
        default="Effective",
    ),
    "spec.mode": constrain_field(
        "Hold nodes back, or only say what would be held.", enum=_MODES, default="Enforce"
    ),
    "spec.overlap": constrain_field(
        "How far replacements may stand beside what they replace, in per cent of the limit.",
        pattern=patterns.PERCENTAGE,
        default="10%",
    ),
    "spec.windows": constrain_field(
        "Other numbers for some hours; the last window that is active counts.", maxItems=MOST_WINDOWS
    ),
    "spec.windows[].schedule": constrain_field(
        "When the window opens: five cron fields in the limit's time zone.",
        required=True,
        pattern=patterns.CRON,
        maxLength=128,
    ),
    "spec.windows[].duration": constrain_field(
        "How long it is open.", required=True, pattern=patterns.BUDGET_DURATION, maxLength=32
    ),
    **mount_fields("spec.windows[]", _AMOUNTS),
    "spec.windows[].mode": constrain_field("The mode while the window is open.", enum=_MODES),
    "spec.timeZone": constrain_field(
        "The IANA name of the time zone of windows and months.", default="UTC", maxLength=64
    ),
    "spec.priorityAtLeast": constrain_field(
        "Pods of this priority are not held, and still count.", format="int32"
    ),
    "status": constrain_field("What the NodePools cost, and who waits because of it."),
    "status.observedGeneration": constrain_field("The generation this was said of.", format="int64"),
    "status.hourly": constrain_field("Dollars an hour, now."),
    "status.hourly.limit": constrain_field("The most that is allowed now."),
    "status.hourly.spent": constrain_field("What nodes cost that are launched."),
    "status.hourly.inFlight": constrain_field("What nodes cost at most that are ordered and not launched."),
    "status.month": constrain_field("This calendar month."),
    **mount_fields("status.month", _MONTH),
    "status.lastMonth": constrain_field("The calendar month before."),
    **mount_fields("status.lastMonth", _MONTH),
    "status.heldPods": constrain_field("Pods that wait because of the limit."),
    "status.conditions": PLAIN_CONDITIONS,
    **mount_fields("status.conditions[]", CONDITION),
}


def _has_number(part: Any, _: Any) -> bool:
    return any(name in part for name in _NUMBERS)


def _is_selected_one_way(pools: Any, _: Any) -> bool:
    return "names" not in pools or not ("matchLabels" in pools or "matchExpressions" in pools)


_ANY_NUMBER = " || ".join(f"has(self.{name})" for name in _NUMBERS)
SPEND_RULES: tuple[AdmissionRule, ...] = (
    AdmissionRule(
        "SL-1",
        "spec",
        "needs at least one of hourly, monthly, nodes and resources",
        _ANY_NUMBER,
        _has_number,
    ),
    AdmissionRule(
        "SL-2",
        "spec.windows[]",
        "needs at least one of hourly, monthly, nodes and resources",
        _ANY_NUMBER,
        _has_number,
    ),
    AdmissionRule(
        "SL-3",
        "spec.nodePools",
        "names excludes matchLabels and matchExpressions",
        "!has(self.names) || !(has(self.matchLabels) || has(self.matchExpressions))",
        _is_selected_one_way,
    ),
)

SPENDLIMIT = CrdDefinition(
    SpendLimit,
    "The most that NodePools may cost.",
    SPEND_FIELDS,
    SPEND_RULES,
    (
        PrinterColumn("Limit", ".status.hourly.limit"),
        PrinterColumn("Spent", ".status.hourly.spent"),
        PrinterColumn("Month", ".status.month.spent"),
        PrinterColumn("Held", ".status.heldPods", "integer"),
        PrinterColumn("Mode", ".spec.mode", priority=1),
        READY,
        AGE,
    ),
    short_names=("sl",),
)
