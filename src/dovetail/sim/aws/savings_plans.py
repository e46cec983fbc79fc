"""Savings Plans: what an account has committed to, and the rates that it pays for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar
from zlib import crc32

from dovetail.sim.aws.ec2.types import SimPrices, list_zones_by_type
from dovetail.sim.aws.service import AwsRequest, Json, ServiceState, operation

__all__ = ["SavingsPlan", "SimSavingsPlans"]

T = TypeVar("T")
SERVICE = "savingsplans"
COMPUTE, FAMILY = "Compute", "EC2Instance"
YEAR = timedelta(days=365)
PAGE = 1000
IDS_MOST = 100
# What types of one plan save differs by so much, up and down.
DIFFERS_BY = 0.04
# What a Windows licence adds to a rate: it is paid beside the plan.
WINDOWS_FACTOR = 1.46
DEDICATED_FACTOR = 1.06
TENANCIES = {"shared": 1.0, "dedicated": DEDICATED_FACTOR}
SYSTEMS = {"Linux/UNIX": 1.0, "Windows": WINDOWS_FACTOR}
# Where the simulation knows who sells what, and nobody says which region is meant.
REGIONS = ("us-east-1", "us-west-2")
PLAN_FILTERS: dict[str, Callable[[SavingsPlan], str]] = {
    "region": lambda plan: plan.region,
    "ec2-instance-family": lambda plan: plan.family,
    "instance-family": lambda plan: plan.family,
    "commitment": lambda plan: plan.hourly,
    "savings-plan-type": lambda plan: plan.kind,
    "payment-option": lambda plan: plan.payment,
    "start": lambda plan: _format_time(plan.starts),
    "end": lambda plan: _format_time(plan.ends),
    "term": lambda plan: str(int((plan.ends - plan.starts).total_seconds())),
    "upfront": lambda plan: "0",
}
RATE_FILTERS = (
    *("region", "instanceType", "productDescription", "tenancy"),
    *("productType", "serviceCode", "usageType", "operation"),
)


@dataclass(slots=True)
class SavingsPlan:
    """So many dollars an hour, for a year or three; `kind` is Compute or EC2Instance."""

    id: str
    arn: str
    kind: str
    hourly: str
    starts: datetime
    ends: datetime
    # Only a plan of a family has these.
    region: str = ""
    family: str = ""
    # The share of the on-demand price that it saves, about; `rates` says it of a type to the cent.
    discount: float = 0.28
    rates: Mapping[str, float] = field(default_factory=dict)
    payment: str = "No Upfront"
    currency: str = "USD"
    # As AWS says it where the dates do not: payment-failed, returned.
    state: str = ""

    def state_at(self, now: datetime) -> str:
        if self.state:
            return self.state
        if now < self.starts:
            return "queued"
        return "active" if now < self.ends else "retired"


class SimSavingsPlans(ServiceState):
    """The plans of an account, by id: they are valid in every region."""

    def init_state(self) -> None:
        self.by_id: dict[str, SavingsPlan] = {}

    def add(
        self,
        hourly: str,
        *,
        family: str = "",
        region: str = "",
        starts: datetime | None = None,
        lasts: timedelta = YEAR,
        discount: float = 0.28,
        rates: Mapping[str, float] | None = None,
        currency: str = "USD",
    ) -> SavingsPlan:
        """Buy a plan: of one instance family in one region where a family is named, else of all compute."""
        id_, starts = self.world.random_uuid(), starts or self.clock.now()
        made = SavingsPlan(
            id_,
            f"arn:aws:savingsplans::{self.account}:savingsplan/{id_}",
            FAMILY if family else COMPUTE,
            hourly,
            starts,
            starts + lasts,
            region if family else "",
            family,
            discount,
            dict(rates or {}),
            currency=currency,
        )
        self.by_id[id_] = made
        return made


@operation(SERVICE, "DescribeSavingsPlans")
def describe_plans(request: AwsRequest) -> Json:
    now, ids, arns = (
        request.world.clock.now(),
        request.get("savingsPlanIds", ()),
        request.get("savingsPlanArns", ()),
    )
    if len(arns) > IDS_MOST:
        raise request.refuse("ValidationException", f"savingsPlanArns has more than {IDS_MOST} members.")
    states = request.get("states", ())
    found = [
        plan
        for plan in request.global_state(SimSavingsPlans).by_id.values()
        if (not ids or plan.id in ids)
        and (not arns or plan.arn in arns)
        and (not states or plan.state_at(now) in states)
        and all(
            _read_plan_filter(request, one)(plan) in (one.get("values") or ())
            for one in request.get("filters", ())
        )
    ]
    shown, more = _take_page(request, found)
    return {"savingsPlans": [_render_plan(plan, now) for plan in shown], **more}


def _read_plan_filter(request: AwsRequest, one: Json) -> Callable[[SavingsPlan], str]:
    read = PLAN_FILTERS.get(one.get("name", ""))
    if read is None:
        raise request.refuse("ValidationException", f"The filter {one.get('name')} is not valid.")
    return read


def _render_plan(plan: SavingsPlan, now: datetime) -> Json:
    hours = (plan.ends - plan.starts) / timedelta(hours=1)
    whose = {"ec2InstanceFamily": plan.family, "region": plan.region} if plan.kind == FAMILY else {}
    return {
        "offeringId": plan.id[::-1],
        "savingsPlanId": plan.id,
        "savingsPlanArn": plan.arn,
        "description": f"{round(hours / 8760)} year {plan.payment} {plan.kind} Savings Plan",
        "start": _format_time(plan.starts),
        "end": _format_time(plan.ends),
        "state": plan.state_at(now),
        **whose,
        "savingsPlanType": plan.kind,
        "paymentOption": plan.payment,
        "productTypes": ["EC2"] if plan.kind == FAMILY else ["EC2", "Fargate", "Lambda"],
        "currency": plan.currency,
        "commitment": plan.hourly,
        "upfrontPaymentAmount": "0.0",
        "recurringPaymentAmount": plan.hourly,
        "termDurationInSeconds": int(hours * 3600),
        "tags": {},
    }


def _format_time(when: datetime) -> str:
    return f"{when:%Y-%m-%dT%H:%M:%S}.000Z"


@operation(SERVICE, "DescribeSavingsPlanRates")
def describe_rates(request: AwsRequest) -> Json:
    wanted = request.get_required("savingsPlanId")
    plan = request.global_state(SimSavingsPlans).by_id.get(wanted)
    if plan is None:
        raise request.refuse("ResourceNotFoundException", f"Savings Plan {wanted} was not found.", 404)
    filters: dict[str, Sequence[str]] = {}
    for one in request.get("filters", ()):
        if one.get("name") not in RATE_FILTERS:
            raise request.refuse("ValidationException", f"The filter {one.get('name')} is not valid.")
        filters[one["name"]] = one.get("values") or ()
    found = [rate for rate in _list_rates(request, plan, filters) if _matches_filters(rate, filters)]
    shown, more = _take_page(request, found)
    return {"savingsPlanId": wanted, "searchResults": list(shown), **more}


def _list_rates(
    request: AwsRequest, plan: SavingsPlan, filters: Mapping[str, Sequence[str]]
) -> Iterator[Json]:
    regions = (plan.region,) if plan.region else filters.get("region") or REGIONS
    for region in regions:
        prices = request.world.get_state(SimPrices, request.account, region)
        for name in sorted(list_zones_by_type(region)):
            listed = prices.on_demand_price(name)
            if listed is not None and (not plan.family or name.partition(".")[0] == plan.family):
                yield from _list_type_rates(plan, region, name, listed)
        if plan.kind == COMPUTE:
            yield _render_rate(plan, "0.0292", "Fargate", "AmazonECS", "Fargate-vCPU-Hours:perCPU", region)


def _list_type_rates(plan: SavingsPlan, region: str, name: str, listed: float) -> Iterator[Json]:
    """One rate for each operating system and tenancy."""
    rate = plan.rates.get(name, listed * (1 - _draw_discount(plan, name)))
    for system, dearer in SYSTEMS.items():
        for tenancy, more in TENANCIES.items():
            properties = {
                "region": region,
                "instanceType": name,
                "instanceFamily": name.partition(".")[0],
                "productDescription": system,
                "tenancy": tenancy,
            }
            usage = f"{'Box' if tenancy == 'shared' else 'Dedicated'}Usage:{name}"
            amount = f"{rate * dearer * more:.5f}"
            yield _render_rate(plan, amount, "EC2", "AmazonEC2", usage, region, properties)


def _draw_discount(plan: SavingsPlan, name: str) -> float:
    """What a type saves: about what the plan does, and always the same."""
    drawn = crc32(name.partition(".")[0].encode()) / (1 << 32)
    return plan.discount + DIFFERS_BY * (2 * drawn - 1)


def _render_rate(
    plan: SavingsPlan,
    amount: str,
    product: str,
    service: str,
    usage: str,
    region: str,
    properties: Mapping[str, str] | None = None,
) -> Json:
    told = properties or {"region": region}
    return {
        "rate": amount,
        "currency": plan.currency,
        "unit": "Hrs",
        "productType": product,
        "serviceCode": service,
        "usageType": usage,
        "operation": "RunInstances" if product == "EC2" else "",
        "properties": [{"name": name, "value": value} for name, value in told.items()],
    }


def _matches_filters(rate: Json, filters: Mapping[str, Sequence[str]]) -> bool:
    told = {one["name"]: one["value"] for one in rate["properties"]}
    return all(told.get(name, rate.get(name)) in values for name, values in filters.items())


def _take_page(request: AwsRequest, items: Sequence[T]) -> tuple[Sequence[T], Json]:
    size, token = int(request.get("maxResults", PAGE)), str(request.get("nextToken", "0"))
    if not 1 <= size <= PAGE:
        raise request.refuse("ValidationException", f"maxResults is {size}; it is 1 to {PAGE}.")
    if not token.isdigit() or int(token) > len(items):
        raise request.refuse("ValidationException", f"The token {token} is not valid.")
    start = int(token)
    more = {"nextToken": str(start + size)} if start + size < len(items) else {}
    return items[start : start + size], more
