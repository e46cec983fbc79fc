"""CreateFleet and RunInstances: which pool an instance comes from, and why not from the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from dovetail.aws import AwsError
from dovetail.sim.aws.ec2.capacity import Ec2Capacity, Shortage
from dovetail.sim.aws.ec2.instance_record import SimInstance, render_instance
from dovetail.sim.aws.ec2.launch import (
    CheckedLaunch,
    check_launch,
    find_shortage,
    launch_instance,
    shortage_from_error,
)
from dovetail.sim.aws.ec2.templates import SimLaunchTemplates
from dovetail.sim.aws.ec2.types import SPOT, SimPrices
from dovetail.sim.aws.filters import tags_for, tags_of
from dovetail.sim.aws.service import AwsRequest, Json, ServiceState, operation

__all__ = ["ClientTokens", "FailedOverride", "carry_out_once"]

LONGEST = 64
REMEMBERED = timedelta(days=1)


class ClientTokens(ServiceState):
    """The requests of the last day that named a token, by operation and token, with their answers."""

    def init_state(self) -> None:
        self.known: dict[tuple[str, str], tuple[datetime, Mapping[str, Any], Json]] = {}

    def forget_old(self) -> None:
        now = self.clock.now()
        while self.known and next(iter(self.known.values()))[0] < now - REMEMBERED:
            del self.known[next(iter(self.known))]


def carry_out_once(request: AwsRequest, work: Callable[[], Json]) -> Json:
    """The answer to a request; a token that came with other parameters before is refused.

    A request that EC2 refused as a whole has not used its token up.
    """
    token = request.get("ClientToken", "")
    if not token:
        return work()
    if len(token) > LONGEST or not token.isascii():
        raise request.refuse(
            "InvalidParameterValue",
            f"Value for parameter ClientToken is longer than {LONGEST} ASCII characters",
        )
    tokens, key = request.regional_state(ClientTokens), (request.operation, token)
    tokens.forget_old()
    if key not in tokens.known:
        answer = work()
        tokens.known[key] = tokens.clock.now(), dict(request.given), answer
    _, given, answer = tokens.known[key]
    if given != dict(request.given):
        raise request.refuse(
            "IdempotentParameterMismatch",
            "The client token was used with other parameters; use another token or the same parameters.",
        )
    return dict(answer)


# EC2 would rather have a deep pool that costs a little more than a cheap one about to be reclaimed.
SHALLOW_COSTS = 0.5
# The market a fleet asks for, the pool it draws from and what DescribeInstances calls its instances.
CAPACITY_TYPES = {
    "spot": ("spot", "spot"),
    "on-demand": ("on-demand", ""),
    "capacity-block": ("reserved", "capacity-block"),
    "reserved-capacity": ("reserved", "interruptible-capacity-reservation"),
}
OVERRIDES_MOST = 300
CONFIGURATIONS_MOST = 50


@dataclass(frozen=True, slots=True)
class FailedOverride:
    """One override of a fleet that gave nothing, and why."""

    specification: Mapping[str, Any]
    override: Mapping[str, Any]
    why: Shortage


@operation("ec2", "CreateFleet")
def create_fleet(request: AwsRequest) -> Json:
    return carry_out_once(request, partial(_create_fleet, request))


def _create_fleet(request: AwsRequest) -> Json:
    capacity = request.get_required("TargetCapacitySpecification")
    market = capacity.get("DefaultTargetCapacityType", "on-demand")
    if market not in CAPACITY_TYPES:
        raise request.refuse(
            "InvalidParameterValue", f"Value ({market}) for parameter DefaultTargetCapacityType"
        )
    fleet_id = f"fleet-{request.world.random_uuid()}"
    pools, errors = _list_pools(request, market)
    launched: list[tuple[CheckedLaunch, SimInstance]] = []
    if request.get("Type", "maintain") == "instant":
        errors += _launch_from_pools(
            request, _sort_pools(request, pools, market), capacity["TotalTargetCapacity"], launched, fleet_id
        )
    return {
        "FleetId": fleet_id,
        "Instances": _render_instances(launched, market),
        "Errors": [_render_error(each, market) for each in errors],
    }


def _list_pools(request: AwsRequest, capacity_type: str) -> tuple[list[CheckedLaunch], list[FailedOverride]]:
    """Every override of every template, checked; those EC2 would not take are errors of the fleet."""
    pools: list[CheckedLaunch] = []
    errors: list[FailedOverride] = []
    templates = request.regional_state(SimLaunchTemplates)
    way, lifecycle = CAPACITY_TYPES[capacity_type]
    configured = request.get_required("LaunchTemplateConfigs")
    if len(configured) > CONFIGURATIONS_MOST:
        raise request.refuse(
            "InvalidParameterValue", f"A fleet may have at most {CONFIGURATIONS_MOST} launch template configs"
        )
    for config in configured:
        given = config["LaunchTemplateSpecification"]
        template, number, data = templates.read_version(request, given)
        specification = {"LaunchTemplateId": template.id, "Version": str(number)}
        for override in config.get("Overrides") or [{}]:
            try:
                pools.append(
                    check_launch(
                        request,
                        _merge_override(data, override),
                        way,
                        lifecycle,
                        tags=tags_for(request, "instance") or _own_tags(data, "instance"),
                        volume_tags=tags_for(request, "volume") or _own_tags(data, "volume"),
                        override=override,
                        specification=specification,
                        template=(template.id, template.name, number),
                    )
                )
            except AwsError as error:
                errors.append(FailedOverride(specification, override, shortage_from_error(error)))
    if len(pools) + len(errors) > OVERRIDES_MOST:
        raise request.refuse("InvalidParameterValue", f"A fleet may have at most {OVERRIDES_MOST} overrides")
    return pools, errors


def _merge_override(data: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
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


def _sort_pools(
    request: AwsRequest, pools: Iterable[CheckedLaunch], capacity_type: str
) -> list[CheckedLaunch]:
    """Pools in the order the fleet's strategy tries them."""
    prices, capacity = request.regional_state(SimPrices), request.regional_state(Ec2Capacity)
    spot = capacity_type == SPOT
    options = request.get("SpotOptions" if spot else "OnDemandOptions", {})
    strategy = options.get("AllocationStrategy", "lowest-price")

    def price(pool: CheckedLaunch) -> float:
        asked = prices.spot_price(pool.type, pool.zone) if spot else prices.on_demand_price(pool.type)
        return asked if asked is not None else float("inf")

    def depth(pool: CheckedLaunch) -> float:
        return capacity.measure_depth(pool.type, pool.zone, pool.capacity_type)

    def priority(pool: CheckedLaunch) -> float:
        return float(pool.override.get("Priority", float("inf")))

    keys: dict[str, Callable[[CheckedLaunch], tuple[float, ...]]] = {
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
        raise request.refuse(
            "InvalidParameterValue", f"Value ({strategy}) for parameter AllocationStrategy is invalid."
        )
    # Equal pools: the same one every time, by type and zone.
    return sorted(pools, key=lambda pool: (*keys[strategy](pool), pool.type, pool.zone))


def _launch_from_pools(
    request: AwsRequest,
    pools: list[CheckedLaunch],
    count: int,
    launched: list[tuple[CheckedLaunch, SimInstance]],
    fleet_id: str,
) -> list[FailedOverride]:
    """Launch from one pool after another until there are enough; what the pools that ran dry said."""
    errors: list[FailedOverride] = []
    reservation = f"r-0{request.world.random_hex(16)}"
    for pool in pools:
        why = None
        while len(launched) < count and (why := find_shortage(request, pool)) is None:
            tagged = {**pool.tags, "aws:ec2:fleet-id": fleet_id, **_template_tags(pool)}
            launched.append((pool, launch_instance(request, _with_tags(pool, tagged), reservation)))
        if why is not None:
            errors.append(FailedOverride(pool.specification, pool.override, why))
        if len(launched) >= count:
            break
    return errors


def _template_tags(pool: CheckedLaunch) -> dict[str, str]:
    if pool.template is None:
        return {}
    return {
        "aws:ec2launchtemplate:id": pool.template[0],
        "aws:ec2launchtemplate:version": str(pool.template[2]),
    }


def _with_tags(pool: CheckedLaunch, tags: Mapping[str, str]) -> CheckedLaunch:
    return replace(pool, tags=tags)


def _render_instances(launched: list[tuple[CheckedLaunch, SimInstance]], capacity_type: str) -> list[Json]:
    """One entry for each override that gave something."""
    grouped: dict[int, tuple[CheckedLaunch, list[SimInstance]]] = {}
    for pool, machine in launched:
        grouped.setdefault(id(pool), (pool, []))[1].append(machine)
    return [
        {
            "LaunchTemplateAndOverrides": _render_override(pool.specification, pool.override),
            "Lifecycle": "spot" if capacity_type == SPOT else "on-demand",
            "InstanceIds": [machine.id for machine in machines],
            "InstanceType": pool.type,
            **({"Platform": "windows"} if pool.image.windows else {}),
        }
        for pool, machines in grouped.values()
    ]


def _render_error(outcome: FailedOverride, capacity_type: str) -> Json:
    return {
        "LaunchTemplateAndOverrides": _render_override(outcome.specification, outcome.override),
        "Lifecycle": "spot" if capacity_type == SPOT else "on-demand",
        "ErrorCode": outcome.why.code,
        "ErrorMessage": outcome.why.message,
    }


def _render_override(specification: Mapping[str, Any], override: Mapping[str, Any]) -> Json:
    return {"LaunchTemplateSpecification": dict(specification), "Overrides": dict(override)}


@operation("ec2", "RunInstances")
def run_instances(request: AwsRequest) -> Json:
    return carry_out_once(request, partial(_run_instances, request))


def _run_instances(request: AwsRequest) -> Json:
    data: dict[str, Any] = dict(request.given)
    template = None
    if given := request.get("LaunchTemplate"):
        found, number, contents = request.regional_state(SimLaunchTemplates).read_version(request, given)
        data = {**contents, **{key: value for key, value in data.items() if value is not None}}
        template = (found.id, found.name, number)
    market = (data.get("InstanceMarketOptions") or {}).get("MarketType", "on-demand")
    way, lifecycle = CAPACITY_TYPES[market if market in CAPACITY_TYPES else "on-demand"]
    tags = _own_tags(data, "instance")
    wanted = check_launch(
        request, data, way, lifecycle, tags=tags, volume_tags=_own_tags(data, "volume"), template=template
    )
    if request.get("DryRun"):
        raise request.refuse("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
    reservation = f"r-0{request.world.random_hex(16)}"
    machines: list[SimInstance] = []
    for _ in range(request.get("MaxCount", 1)):
        why = find_shortage(request, wanted)
        if why is not None and len(machines) < request.get("MinCount", 1):
            raise request.refuse(why.code, why.message, 500 if "Capacity" in why.code else 400)
        if why is not None:
            break
        machines.append(launch_instance(request, wanted, reservation))
    return {
        "ReservationId": reservation,
        "OwnerId": request.account,
        "Groups": [],
        "Instances": [render_instance(machine) for machine in machines],
    }
