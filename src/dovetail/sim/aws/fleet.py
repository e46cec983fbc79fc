"""CreateFleet and RunInstances: which pool an instance comes from, and why not from the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dovetail.aws import AwsError
from dovetail.sim.aws.asking import Ask, Json, operation
from dovetail.sim.aws.capacity import Capacity, Shortage
from dovetail.sim.aws.idempotency import carry_out_once
from dovetail.sim.aws.launching import Wanted, checked, launch, refusal, shortage
from dovetail.sim.aws.machine import Machine, shown
from dovetail.sim.aws.prices import SPOT, Prices
from dovetail.sim.aws.selecting import tags_for, tags_of
from dovetail.sim.aws.templates import Templates

__all__ = ["Outcome"]

# EC2 would rather have a deep pool that costs a little more than a cheap one about to be reclaimed.
SHALLOW_COSTS = 0.5
# The market a fleet asks for, the pool it draws from and what DescribeInstances calls its instances.
MARKETS = {
    "spot": ("spot", "spot"),
    "on-demand": ("on-demand", ""),
    "capacity-block": ("reserved", "capacity-block"),
    "reserved-capacity": ("reserved", "interruptible-capacity-reservation"),
}
OVERRIDES_MOST = 300
CONFIGURATIONS_MOST = 50


@dataclass(frozen=True, slots=True)
class Outcome:
    """One override of a fleet that gave nothing, and why."""

    specification: Mapping[str, Any]
    override: Mapping[str, Any]
    why: Shortage


@operation("ec2", "CreateFleet")
def create_fleet(ask: Ask) -> Json:
    return carry_out_once(ask, partial(_create_fleet, ask))


def _create_fleet(ask: Ask) -> Json:
    capacity = ask.need("TargetCapacitySpecification")
    market = capacity.get("DefaultTargetCapacityType", "on-demand")
    if market not in MARKETS:
        raise ask.refuse("InvalidParameterValue", f"Value ({market}) for parameter DefaultTargetCapacityType")
    fleet_id = f"fleet-{ask.ground.uuid()}"
    pools, errors = _pools(ask, market)
    launched: list[tuple[Wanted, Machine]] = []
    if ask.get("Type", "maintain") == "instant":
        errors += _fill(
            ask, _ordered(ask, pools, market), capacity["TotalTargetCapacity"], launched, fleet_id
        )
    return {
        "FleetId": fleet_id,
        "Instances": _instances(launched, market),
        "Errors": [_error(each, market) for each in errors],
    }


def _pools(ask: Ask, market: str) -> tuple[list[Wanted], list[Outcome]]:
    """Every override of every template, checked; those EC2 would not take are errors of the fleet."""
    pools: list[Wanted] = []
    errors: list[Outcome] = []
    templates = ask.here(Templates)
    way, lifecycle = MARKETS[market]
    configured = ask.need("LaunchTemplateConfigs")
    if len(configured) > CONFIGURATIONS_MOST:
        raise ask.refuse(
            "InvalidParameterValue", f"A fleet may have at most {CONFIGURATIONS_MOST} launch template configs"
        )
    for config in configured:
        given = config["LaunchTemplateSpecification"]
        template, number, data = templates.data(ask, given)
        specification = {"LaunchTemplateId": template.id, "Version": str(number)}
        for override in config.get("Overrides") or [{}]:
            try:
                pools.append(
                    checked(
                        ask,
                        _merged(data, override),
                        way,
                        lifecycle,
                        tags=tags_for(ask, "instance") or _own_tags(data, "instance"),
                        volume_tags=tags_for(ask, "volume") or _own_tags(data, "volume"),
                        override=override,
                        specification=specification,
                        template=(template.id, template.name, number),
                    )
                )
            except AwsError as error:
                errors.append(Outcome(specification, override, refusal(error)))
    if len(pools) + len(errors) > OVERRIDES_MOST:
        raise ask.refuse("InvalidParameterValue", f"A fleet may have at most {OVERRIDES_MOST} overrides")
    return pools, errors


def _merged(data: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(data)
    for name in ("InstanceType", "ImageId", "SubnetId"):
        if override.get(name):
            merged[name] = override[name]
    if zone := override.get("AvailabilityZone"):
        merged["Placement"] = {**(data.get("Placement") or {}), "AvailabilityZone": zone}
    return merged


def _own_tags(data: Mapping[str, Any], kind: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for specification in data.get("TagSpecifications") or ():
        if specification.get("ResourceType") == kind:
            found |= tags_of(specification.get("Tags"))
    return found


def _ordered(ask: Ask, pools: Iterable[Wanted], market: str) -> list[Wanted]:
    """Pools in the order the fleet's strategy tries them."""
    prices, capacity = ask.here(Prices), ask.here(Capacity)
    spot = market == SPOT
    options = ask.get("SpotOptions" if spot else "OnDemandOptions", {})
    strategy = options.get("AllocationStrategy", "lowest-price")

    def price(pool: Wanted) -> float:
        asked = prices.spot(pool.type, pool.zone) if spot else prices.on_demand(pool.type)
        return asked if asked is not None else float("inf")

    def depth(pool: Wanted) -> float:
        return capacity.depth(pool.type, pool.zone, pool.way)

    def priority(pool: Wanted) -> float:
        return float(pool.override.get("Priority", float("inf")))

    keys: dict[str, Callable[[Wanted], tuple[float, ...]]] = {
        "lowest-price": lambda pool: (price(pool),),
        "lowestPrice": lambda pool: (price(pool),),
        "prioritized": lambda pool: (priority(pool), price(pool)),
        "price-capacity-optimized": lambda pool: (price(pool) * (1 + SHALLOW_COSTS * (1 - depth(pool))),),
        "capacity-optimized": lambda pool: (-depth(pool), price(pool)),
        # Priorities on a best-effort basis, capacity first: pools about as deep keep the order asked for.
        "capacity-optimized-prioritized": lambda pool: (depth(pool) < 0.5, priority(pool), -depth(pool)),
        "diversified": lambda pool: (price(pool),),
    }
    if strategy not in keys:
        raise ask.refuse(
            "InvalidParameterValue", f"Value ({strategy}) for parameter AllocationStrategy is invalid."
        )
    # Equal pools: the same one every time, by type and zone.
    return sorted(pools, key=lambda pool: (*keys[strategy](pool), pool.type, pool.zone))


def _fill(
    ask: Ask, pools: list[Wanted], count: int, launched: list[tuple[Wanted, Machine]], fleet_id: str
) -> list[Outcome]:
    """Launch from one pool after another until there are enough; what the pools that ran dry said."""
    errors: list[Outcome] = []
    reservation = f"r-0{ask.ground.hexes(16)}"
    for pool in pools:
        why = None
        while len(launched) < count and (why := shortage(ask, pool)) is None:
            tagged = {**pool.tags, "aws:ec2:fleet-id": fleet_id, **_template_tags(pool)}
            launched.append((pool, launch(ask, _with_tags(pool, tagged), reservation)))
        if why is not None:
            errors.append(Outcome(pool.specification, pool.override, why))
        if len(launched) >= count:
            break
    return errors


def _template_tags(pool: Wanted) -> dict[str, str]:
    if pool.template is None:
        return {}
    return {
        "aws:ec2launchtemplate:id": pool.template[0],
        "aws:ec2launchtemplate:version": str(pool.template[2]),
    }


def _with_tags(pool: Wanted, tags: Mapping[str, str]) -> Wanted:
    return replace(pool, tags=tags)


def _instances(launched: list[tuple[Wanted, Machine]], market: str) -> list[Json]:
    """One entry for each override that gave something."""
    grouped: dict[int, tuple[Wanted, list[Machine]]] = {}
    for pool, machine in launched:
        grouped.setdefault(id(pool), (pool, []))[1].append(machine)
    return [
        {
            "LaunchTemplateAndOverrides": _named(pool.specification, pool.override),
            "Lifecycle": "spot" if market == SPOT else "on-demand",
            "InstanceIds": [machine.id for machine in machines],
            "InstanceType": pool.type,
            **({"Platform": "windows"} if pool.image.windows else {}),
        }
        for pool, machines in grouped.values()
    ]


def _error(outcome: Outcome, market: str) -> Json:
    return {
        "LaunchTemplateAndOverrides": _named(outcome.specification, outcome.override),
        "Lifecycle": "spot" if market == SPOT else "on-demand",
        "ErrorCode": outcome.why.code,
        "ErrorMessage": outcome.why.message,
    }


def _named(specification: Mapping[str, Any], override: Mapping[str, Any]) -> Json:
    return {"LaunchTemplateSpecification": dict(specification), "Overrides": dict(override)}


@operation("ec2", "RunInstances")
def run_instances(ask: Ask) -> Json:
    return carry_out_once(ask, partial(_run_instances, ask))


def _run_instances(ask: Ask) -> Json:
    data: dict[str, Any] = dict(ask.given)
    template = None
    if given := ask.get("LaunchTemplate"):
        found, number, contents = ask.here(Templates).data(ask, given)
        data = {**contents, **{key: value for key, value in data.items() if value is not None}}
        template = (found.id, found.name, number)
    market = (data.get("InstanceMarketOptions") or {}).get("MarketType", "on-demand")
    way, lifecycle = MARKETS[market if market in MARKETS else "on-demand"]
    tags = _own_tags(data, "instance")
    wanted = checked(
        ask, data, way, lifecycle, tags=tags, volume_tags=_own_tags(data, "volume"), template=template
    )
    if ask.get("DryRun"):
        raise ask.refuse("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
    reservation = f"r-0{ask.ground.hexes(16)}"
    machines: list[Machine] = []
    for _ in range(ask.get("MaxCount", 1)):
        why = shortage(ask, wanted)
        if why is not None and len(machines) < ask.get("MinCount", 1):
            raise ask.refuse(why.code, why.message, 500 if "Capacity" in why.code else 400)
        if why is not None:
            break
        machines.append(launch(ask, wanted, reservation))
    return {
        "ReservationId": reservation,
        "OwnerId": ask.account,
        "Groups": [],
        "Instances": [shown(machine) for machine in machines],
    }
