"""Commitment as admitted: dovetail.sh/v1alpha1."""

from __future__ import annotations

from typing import Any

from dovetail.api.commitment import PLANS, Commitment
from dovetail.api.crds import patterns
from dovetail.api.crds.definition import (
    AGE,
    CONDITION,
    PLAIN_CONDITIONS,
    AdmissionRule,
    CrdDefinition,
    FieldSchema,
    PrinterColumn,
    constrain_field,
    mount_fields,
)

__all__ = ["COMMITMENT"]

MOST_RATES = 800
_KINDS = ["ComputePlan", "FamilyPlan", "Reserved", "ReservedInZone"]

COMMITMENT_FIELDS: dict[str, FieldSchema] = {
    "spec": constrain_field("What is paid for, and which part of it is this cluster's.", required=True),
    "spec.kind": constrain_field(
        "A savings plan for all compute or for one family, or reserved instances of a region or a zone.",
        required=True,
        enum=_KINDS,
    ),
    "spec.hourly": constrain_field(
        "Dollars an hour: of a plan what is committed, of reserved instances what all of them come to.",
        pattern=patterns.DOLLARS,
    ),
    "spec.family": constrain_field(
        "The family of a FamilyPlan; on Reserved it says that sizes of the family count in units.",
        maxLength=63,
    ),
    "spec.instanceType": constrain_field("The instance type that is reserved.", maxLength=63),
    "spec.zone": constrain_field("The zone of ReservedInZone.", maxLength=63),
    "spec.count": constrain_field("How many instances are reserved.", minimum=0, format="int32"),
    "spec.region": constrain_field("The region it holds in; every one if empty.", maxLength=63),
    "spec.starts": constrain_field("When it begins."),
    "spec.ends": constrain_field("When it ends."),
    "spec.platform": constrain_field(
        "What reserved instances run.", enum=["Linux", "Windows"], default="Linux"
    ),
    "spec.currency": constrain_field(
        "What is paid in; only dollars are counted.", pattern=patterns.CURRENCY, default="USD"
    ),
    "spec.rates": constrain_field(
        "Dollars an hour of instance types under it.",
        maxProperties=MOST_RATES,
        inner={"pattern": patterns.DOLLARS},
    ),
    "spec.discount": constrain_field(
        "By how much it is cheaper than the price list, instead of rates.", pattern=patterns.PERCENTAGE
    ),
    "spec.share": constrain_field("This cluster's part of it.", pattern=patterns.PERCENTAGE, default="100%"),
    "spec.observe": constrain_field(
        "Count the use of this cluster alone, or subtract what the rest of the account runs.",
        enum=["Cluster", "Account"],
        default="Cluster",
    ),
    "status": constrain_field("What this cluster has of it, and uses."),
    "status.observedGeneration": constrain_field("The generation this was said of.", format="int64"),
    "status.rates": constrain_field(
        "Dollars an hour of instance types under it, as the cloud tells them.", maxProperties=MOST_RATES
    ),
    "status.hourly": constrain_field("Dollars an hour of it that are this cluster's."),
    "status.used": constrain_field("Dollars an hour of those that nodes use."),
    "status.byOthers": constrain_field("Dollars an hour of it that the rest of the account uses."),
    "status.unused": constrain_field("Dollars an hour of this cluster's that nothing uses."),
    "status.conditions": PLAIN_CONDITIONS,
    **mount_fields("status.conditions[]", CONDITION),
}


def _is_plan(spec: Any) -> bool:
    return spec.get("kind") in PLANS


def _says_one_price(spec: Any, _: Any) -> bool:
    return "rates" not in spec or "discount" not in spec


def _has_hourly(spec: Any, _: Any) -> bool:
    return not _is_plan(spec) or "hourly" in spec


def _has_family(spec: Any, _: Any) -> bool:
    return spec.get("kind") != "FamilyPlan" or "family" in spec


def _has_instances(spec: Any, _: Any) -> bool:
    reserved = spec.get("kind") in ("Reserved", "ReservedInZone")
    return not reserved or ("instanceType" in spec and "count" in spec)


def _has_zone(spec: Any, _: Any) -> bool:
    return spec.get("kind") != "ReservedInZone" or ("zone" in spec and "family" not in spec)


COMMITMENT_RULES: tuple[AdmissionRule, ...] = (
    AdmissionRule(
        "CM-1",
        "spec",
        "say either rates or discount",
        "!has(self.rates) || !has(self.discount)",
        _says_one_price,
    ),
    AdmissionRule(
        "CM-2",
        "spec",
        "a ComputePlan or FamilyPlan needs hourly",
        "!(self.kind in ['ComputePlan', 'FamilyPlan']) || has(self.hourly)",
        _has_hourly,
    ),
    AdmissionRule(
        "CM-3",
        "spec",
        "a FamilyPlan needs family",
        "self.kind != 'FamilyPlan' || has(self.family)",
        _has_family,
    ),
    AdmissionRule(
        "CM-4",
        "spec",
        "reserved instances need instanceType and count",
        "!(self.kind in ['Reserved', 'ReservedInZone']) || (has(self.instanceType) && has(self.count))",
        _has_instances,
    ),
    AdmissionRule(
        "CM-5",
        "spec",
        "ReservedInZone needs zone, and has no family, as sizes are not flexible in a zone",
        "self.kind != 'ReservedInZone' || (has(self.zone) && !has(self.family))",
        _has_zone,
    ),
)

COMMITMENT = CrdDefinition(
    Commitment,
    "A savings plan or reserved instances that are paid for, whatever runs.",
    COMMITMENT_FIELDS,
    COMMITMENT_RULES,
    (
        PrinterColumn("Kind", ".spec.kind"),
        PrinterColumn("Hourly", ".status.hourly"),
        PrinterColumn("Used", ".status.used"),
        PrinterColumn("Unused", ".status.unused"),
        PrinterColumn("Full", '.status.conditions[?(@.type=="Full")].status'),
        PrinterColumn("Current", '.status.conditions[?(@.type=="Current")].status'),
        PrinterColumn("Ends", ".spec.ends", "date", priority=1),
        AGE,
    ),
    short_names=("cmt",),
)
