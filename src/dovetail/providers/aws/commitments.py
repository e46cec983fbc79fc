"""Savings Plans and reserved instances of the account, read as Commitments would say them.

Nothing is written and nothing is bought. What cannot cover a node of this region is left out: plans for other
services or for a family elsewhere, reserved instances with dedicated tenancy or with licences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any, Final, NamedTuple

from dovetail.api import labels
from dovetail.api.commitment import (
    COMPUTE_PLAN,
    FAMILY_PLAN,
    LINUX,
    RESERVED,
    RESERVED_IN_ZONE,
    WINDOWS,
    CommitmentSpec,
    find_family,
)
from dovetail.aws import Aws, list_pages
from dovetail.providers.aws.queries import filter_by, read_items

__all__ = [
    "DESCRIBE_PLANS",
    "DESCRIBE_RATES",
    "DESCRIBE_RESERVED",
    "PLAN_PREFIX",
    "RESERVED_PREFIX",
    "AccountUsage",
    "CommitmentReader",
    "choose_rates",
]

DESCRIBE_PLANS: Final = "savingsplans:DescribeSavingsPlans"
DESCRIBE_RATES: Final = "savingsplans:DescribeSavingsPlanRates"
DESCRIBE_RESERVED: Final = "ec2:DescribeReservedInstances"
PLAN_PREFIX, RESERVED_PREFIX = "aws-sp-", "aws-ri-"
# Those that are paid for, or will be from a day that is known.
STATES: Final = ("active", "queued")
PAGE: Final = 1000
# As Savings Plans say Linux instances that share their machine with others.
LINUX_RATES: Final = (
    ("productType", "EC2"),
    ("productDescription", "Linux/UNIX"),
    ("tenancy", "shared"),
)
PLATFORMS: Final = {
    "Linux/UNIX": LINUX,
    "Linux/UNIX (Amazon VPC)": LINUX,
    "Windows": WINDOWS,
    "Windows (Amazon VPC)": WINDOWS,
}
# Families whose reserved instances hold for their own size alone, though they are of a region.
INFLEXIBLE: Final = frozenset(
    (
        *("g4ad", "g4dn", "g5", "g5g", "g6", "g6e", "g6f", "gr6", "gr6f", "hpc7a", "inf1", "inf2", "p5"),
        *("u7i-6tb", "u7i-8tb", "u7i-12tb", "u7in-16tb", "u7in-24tb", "u7in-32tb", "u7inh-32tb"),
    )
)
MOST_RATES, MOST_BYTES = 800, 20 * 1024


class AccountUsage(NamedTuple):
    """On-demand instances that commitments of the account cannot tell apart."""

    instance_type: str
    zone: str
    windows: bool


class CommitmentReader:
    """Asks AWS what the account has committed to, and what it runs."""

    def __init__(self, aws: Aws, cluster: str) -> None:
        self._aws = aws
        self._cluster = cluster

    async def read_plans(self) -> dict[str, CommitmentSpec]:
        """Savings Plans that can cover instances of this region, by the name of their Commitment."""
        found: dict[str, CommitmentSpec] = {}
        asked = {"states": list(STATES), "maxResults": PAGE}
        async for page in list_pages(self._aws, "savingsplans", "DescribeSavingsPlans", asked):
            listed = page.get("savingsPlans") or ()
            for name, spec in read_items("DescribeSavingsPlans", listed, partial(_read_plan, self._region)):
                if spec is not None:
                    found[name] = spec
        return found

    async def read_rates(self, name: str) -> dict[str, str]:
        """Dollars an hour of instance types under the plan of this Commitment, in this region."""
        filters = [
            {"name": key, "values": [value]} for key, value in (("region", self._region), *LINUX_RATES)
        ]
        asked = {"savingsPlanId": name.removeprefix(PLAN_PREFIX), "filters": filters, "maxResults": PAGE}
        found: dict[str, str] = {}
        async for page in list_pages(self._aws, "savingsplans", "DescribeSavingsPlanRates", asked):
            listed = page.get("searchResults") or ()
            found |= dict(read_items("DescribeSavingsPlanRates", listed, _read_rate))
        return found

    async def read_reserved(self) -> dict[str, CommitmentSpec]:
        """Reserved instances of this region, by the name of their Commitment."""
        answer = await self._aws.call(
            "ec2", "DescribeReservedInstances", {"Filters": [filter_by("state", STATES)]}
        )
        listed = answer.get("ReservedInstances") or ()
        read = read_items("DescribeReservedInstances", listed, partial(_read_reserved, self._region))
        return {name: spec for name, spec in read if spec is not None}

    async def count_others(self) -> Counter[AccountUsage]:
        """On-demand instances that run in this region beside those that were launched for NodeClaims."""
        counts: Counter[AccountUsage] = Counter()
        asked = {"Filters": [filter_by("instance-state-name", ("pending", "running"))], "MaxResults": PAGE}
        async for page in list_pages(self._aws, "ec2", "DescribeInstances", asked):
            for reservation in page.get("Reservations") or ():
                listed = reservation.get("Instances") or ()
                found = read_items("DescribeInstances", listed, partial(_read_usage, self._cluster))
                counts.update(usage for usage in found if usage is not None)
        return counts

    @property
    def _region(self) -> str:
        return self._aws.region


def _read_usage(cluster: str, instance: Mapping[str, Any]) -> AccountUsage | None:
    """What commitments see of an instance; None if they cannot pay for it, or if it is the cluster's own."""
    placement = instance["Placement"]
    if instance.get("InstanceLifecycle") or placement.get("Tenancy", "default") != "default":
        return None
    tags = {each["Key"]: each["Value"] for each in instance.get("Tags") or ()}
    if tags.get(labels.EKS_CLUSTER_TAG) == cluster and labels.NODEPOOL in tags:
        return None
    windows = str(instance.get("Platform", "")).lower() == "windows"
    return AccountUsage(instance["InstanceType"], placement["AvailabilityZone"], windows)


def _read_plan(region: str, plan: Mapping[str, Any]) -> tuple[str, CommitmentSpec | None]:
    name = PLAN_PREFIX + plan["savingsPlanId"]
    kind = {"Compute": COMPUTE_PLAN, "EC2Instance": FAMILY_PLAN}.get(plan["savingsPlanType"])
    where = plan.get("region") or ""
    if kind is None or (kind == FAMILY_PLAN and where != region):
        return name, None
    return name, CommitmentSpec(
        kind=kind,
        hourly=_format_dollars(plan["commitment"]),
        family=plan["ec2InstanceFamily"] if kind == FAMILY_PLAN else "",
        region=where,
        starts=_parse_time(plan["start"]),
        ends=_parse_time(plan["end"]),
        currency=plan.get("currency") or "USD",
    )


def _read_rate(entry: Mapping[str, Any]) -> tuple[str, str]:
    told = {one["name"]: one["value"] for one in entry["properties"]}
    return told["instanceType"], _format_dollars(entry["rate"])


def _read_reserved(region: str, entry: Mapping[str, Any]) -> tuple[str, CommitmentSpec | None]:
    name, platform = (
        RESERVED_PREFIX + entry["ReservedInstancesId"],
        PLATFORMS.get(entry["ProductDescription"]),
    )
    if platform is None or entry.get("InstanceTenancy", "default") != "default":
        return name, None
    kind = RESERVED if entry["Scope"] == "Region" else RESERVED_IN_ZONE
    family = find_family(entry["InstanceType"])
    flexible = kind == RESERVED and platform == LINUX and family not in INFLEXIBLE
    return name, CommitmentSpec(
        kind=kind,
        hourly=_format_dollars(_sum_hourly(entry) * entry["InstanceCount"]),
        family=family if flexible else "",
        instance_type=entry["InstanceType"],
        zone=entry["AvailabilityZone"] if kind == RESERVED_IN_ZONE else "",
        count=entry["InstanceCount"],
        region=region,
        starts=_drop_fraction(entry["Start"]),
        ends=_drop_fraction(entry["End"]),
        platform=platform,
        currency=entry.get("CurrencyCode") or "USD",
    )


def _sum_hourly(entry: Mapping[str, Any]) -> Decimal:
    """What one reserved instance comes to in an hour, its payment in advance spread over the term."""
    hours = Decimal(entry["Duration"]) / 3600
    recurring = sum(
        (Decimal(str(one["Amount"])) for one in entry.get("RecurringCharges") or ()), start=Decimal()
    )
    once = Decimal(str(entry.get("FixedPrice") or 0))
    return recurring + Decimal(str(entry.get("UsagePrice") or 0)) + (once / hours if hours else once)


def _format_dollars(amount: str | Decimal) -> str:
    """Dollars as a Commitment spells them: no more digits than there are, and six after the point at most."""
    value = Decimal(amount)
    if not value.is_finite() or not 0 <= value < 1_000_000_000:
        raise ValueError(f"{amount} is no amount of dollars")
    whole, _, part = f"{value:.6f}".partition(".")
    return f"{whole}.{part.rstrip('0').ljust(2, '0')}"


def _parse_time(text: str) -> datetime:
    return _drop_fraction(datetime.fromisoformat(text))


def _drop_fraction(when: datetime) -> datetime:
    """To the second, as objects keep it."""
    return when.astimezone(UTC).replace(microsecond=0)


def choose_rates(rates: Mapping[str, str], running: Collection[str]) -> dict[str, str]:
    """As many rates as a status holds: of types that run first, then the cheapest."""
    by_worth = sorted(rates, key=lambda name: (name not in running, float(rates[name]), name))
    return dict(sorted(_fit_rates(rates, by_worth)))


def _fit_rates(rates: Mapping[str, str], names: Collection[str]) -> Iterator[tuple[str, str]]:
    size = 2
    for name, _ in zip(names, range(MOST_RATES), strict=False):
        size += len(name) + len(rates[name]) + len('"":"",')
        if size > MOST_BYTES:
            return
        yield name, rates[name]
