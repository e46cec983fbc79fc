"""FIS: experiments. Two actions are really carried out: spot machines are interrupted, zones shifted away."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from dovetail.sim.aws.ec2.instance_record import SimInstance
from dovetail.sim.aws.ec2.instances import SimInstances
from dovetail.sim.aws.ec2.network import zone_ids
from dovetail.sim.aws.eks import Eks
from dovetail.sim.aws.iam.roles import Iam
from dovetail.sim.aws.service import AwsRequest, Json, ServiceState, operation
from dovetail.sim.aws.zonal_shifts import ArcShifts, ManagedResource

__all__ = ["FisExperiments"]

T = TypeVar("T")
INTERRUPT = "aws:ec2:send-spot-instance-interruptions"
SPOT = "aws:ec2:spot-instance"
SHIFT = "aws:arc:start-zonal-autoshift"
MANAGED = "aws:arc:zonal-shift-managed-resource"
LASTS = re.compile(r"PT(?:([0-9]+)H)?(?:([0-9]+)M)?")
LONGEST = 12 * 3600.0
AUTOSHIFT_STATES = ("ENABLED", "DISABLED", "ANY")
NOTICE = 120.0
MINUTES = re.compile(r"PT([2-9]|1[0-5])M")
COUNT = re.compile(r"COUNT\((\d+)\)|ALL")
PARTS = ("description", "stopConditions", "targets", "actions", "roleArn", "logConfiguration")


class FisExperiments(ServiceState):
    """Templates and what was started from them, by id."""

    def init_state(self) -> None:
        self.templates: dict[str, Json] = {}
        self.started: dict[str, Json] = {}
        # What ends the shifts of an experiment, with the status they end in.
        self.ends: dict[str, list[Callable[[str], None]]] = {}


def _find_template(request: AwsRequest, parameter: str = "id") -> Json:
    found = request.regional_state(FisExperiments).templates.get(request.get_required(parameter))
    if found is None:
        said = f"Experiment template {request.get_required(parameter)} not found"
        raise request.refuse("ResourceNotFoundException", said, 404)
    return found


def _check_template(request: AwsRequest, given: Json) -> Json:
    """A template FIS would take: targets that are there, a role, and numbers within bounds."""
    for action in given["actions"].values():
        if action["actionId"] == SHIFT:
            _check_shift(request, action.get("parameters", {}))
        missing = set(action.get("targets", {}).values()) - set(given["targets"])
        if missing:
            raise request.refuse("ValidationException", f"There is no target {min(missing)}.")
        notice = action.get("parameters", {}).get("durationBeforeInterruption", "PT2M")
        if action["actionId"] == INTERRUPT and not MINUTES.fullmatch(notice):
            raise request.refuse("ValidationException", "durationBeforeInterruption is PT2M to PT15M.")
    for target in given["targets"].values():
        if not COUNT.fullmatch(target["selectionMode"]):
            raise request.refuse("ValidationException", f"{target['selectionMode']} selects nothing.")
    if given["roleArn"].rpartition("/")[2] not in request.global_state(Iam).roles:
        raise request.refuse("ValidationException", f"There is no role {given['roleArn']}.")
    return given


def _check_shift(request: AwsRequest, parameters: Json) -> None:
    """A zone that is there, a time within bounds, and resources of the sort there are here."""
    zones = zone_ids(request.account, request.region)
    zone = parameters.get("availabilityZoneIdentifier", "")
    if zone not in zones and zone not in zones.values():
        raise request.refuse(
            "ValidationException", f"availabilityZoneIdentifier is no zone of {request.region}: {zone}"
        )
    if not 60.0 <= _read_duration(parameters) <= LONGEST:
        raise request.refuse("ValidationException", "duration is PT1M to PT12H.")
    if parameters.get("zonalAutoshiftStatus", "ENABLED") not in AUTOSHIFT_STATES:
        raise request.refuse("ValidationException", f"zonalAutoshiftStatus is {', '.join(AUTOSHIFT_STATES)}.")
    if not parameters.get("managedResourceTypes"):
        raise request.refuse("ValidationException", "managedResourceTypes is missing: ALB, ASG, EKS or NLB.")


def _read_duration(parameters: Json) -> float:
    found = LASTS.fullmatch(parameters.get("duration", ""))
    return 3600.0 * int(found[1] or 0) + 60.0 * int(found[2] or 0) if found else 0.0


@operation("fis", "CreateExperimentTemplate")
def create_template(request: AwsRequest) -> Json:
    id_, now = f"EXT{request.world.random_hex(15).upper()}", request.world.clock.now()
    given = _check_template(
        request, {"targets": {}, **{name: request.get(name) for name in PARTS if request.get(name)}}
    )
    options = {"accountTargeting": "single-account", "emptyTargetResolutionMode": "fail"}
    request.regional_state(FisExperiments).templates[id_] = {
        **given,
        "id": id_,
        "arn": f"arn:aws:fis:{request.region}:{request.account}:experiment-template/{id_}",
        "creationTime": now,
        "lastUpdateTime": now,
        "experimentOptions": {**options, **request.get("experimentOptions", {})},
        "tags": dict(request.get("tags", {})),
    }
    return {"experimentTemplate": request.regional_state(FisExperiments).templates[id_]}


@operation("fis", "GetExperimentTemplate")
def get_template(request: AwsRequest) -> Json:
    return {"experimentTemplate": _find_template(request)}


@operation("fis", "UpdateExperimentTemplate")
def update_template(request: AwsRequest) -> Json:
    found = _find_template(request)
    found |= _check_template(
        request, {**found, **{name: request.get(name) for name in PARTS if request.get(name)}}
    )
    found["lastUpdateTime"] = request.world.clock.now()
    return {"experimentTemplate": found}


@operation("fis", "DeleteExperimentTemplate")
def delete_template(request: AwsRequest) -> Json:
    found = _find_template(request)
    del request.regional_state(FisExperiments).templates[found["id"]]
    return {"experimentTemplate": found}


@operation("fis", "ListTagsForResource")
def list_tags(request: AwsRequest) -> Json:
    listed = request.regional_state(FisExperiments).templates.values()
    return {
        "tags": next(
            (each["tags"] for each in listed if each["arn"] == request.get_required("resourceArn")), {}
        )
    }


@operation("fis", "StartExperiment")
def start_experiment(request: AwsRequest) -> Json:
    template, id_ = (
        _find_template(request, "experimentTemplateId"),
        f"EXP{request.world.random_hex(15).upper()}",
    )
    chosen = {name: _choose_targets(request, template, name) for name in template["targets"]}
    failed = not all(chosen.values())
    actions = () if failed else template["actions"].values()
    lasts = max((_carry_out(request, action, chosen, id_) for action in actions), default=0.0)
    made: Json = {
        "id": id_,
        "arn": f"arn:aws:fis:{request.region}:{request.account}:experiment/{id_}",
        "experimentTemplateId": template["id"],
        **{name: template[name] for name in ("roleArn", "stopConditions", "tags")},
        "targets": {
            name: {**template["targets"][name], "resourceArns": [each.arn for each in found]}
            for name, found in chosen.items()
        },
        "actions": template["actions"],
        "startTime": request.world.clock.now(),
        "state": {"status": "failed" if failed else "running"},
    }
    if failed:
        made["state"]["reason"] = "Target resolution returned empty set"
    request.regional_state(FisExperiments).started[id_] = made
    request.world.call_later(lasts, lambda: _complete_experiment(made, failed))
    return {"experiment": made}


def _carry_out(
    request: AwsRequest, action: Json, chosen: dict[str, list[SimInstance] | list[ManagedResource]], id_: str
) -> float:
    """Begin an action; how many seconds it takes."""
    for name in action.get("targets", {}).values():
        for each in chosen[name]:
            if isinstance(each, SimInstance) and action["actionId"] == INTERRUPT:
                _interrupt_instance(request, each, _read_notice(action))
            elif isinstance(each, ManagedResource) and action["actionId"] == SHIFT:
                _shift_resource(request, each, action["parameters"], id_)
    return _read_duration(action["parameters"]) if action["actionId"] == SHIFT else _read_notice(action)


def _shift_resource(request: AwsRequest, resource: ManagedResource, parameters: Json, id_: str) -> None:
    """ARC shifts the resource away from the zone, until the experiment is over or stopped."""
    shifts, zone = request.regional_state(ArcShifts), str(parameters["availabilityZoneIdentifier"])
    made = shifts.start_experiment(resource, zone_ids(request.account, request.region).get(zone, zone))
    request.regional_state(FisExperiments).ends.setdefault(id_, []).append(
        partial(shifts.stop, resource, made)
    )
    request.world.call_later(_read_duration(parameters), partial(shifts.stop, resource, made, "EXPIRED"))


def _complete_experiment(made: Json, failed: bool) -> None:
    if not failed and made["state"]["status"] == "running":
        made["state"] = {"status": "completed"}


@operation("fis", "StopExperiment")
def stop_experiment(request: AwsRequest) -> Json:
    found = _find_experiment(request, "id")
    if found["state"]["status"] != "running":
        raise request.refuse(
            "ConflictException", f"Experiment {found['id']} is {found['state']['status']}.", 409
        )
    for end in request.regional_state(FisExperiments).ends.pop(found["id"], ()):
        end("CANCELED")
    found["state"] = {"status": "stopped", "reason": "Experiment halted by user action."}
    return {"experiment": found}


@operation("fis", "ListExperiments")
def list_experiments(request: AwsRequest) -> Json:
    kept = ("id", "arn", "experimentTemplateId", "state", "tags")
    found = request.regional_state(FisExperiments).started.values()
    return {"experiments": [{name: each[name] for name in kept} for each in found]}


def _read_notice(action: Json) -> float:
    found = MINUTES.fullmatch(action.get("parameters", {}).get("durationBeforeInterruption", "PT2M"))
    return 60.0 * int(found[1]) if found else NOTICE


def _choose_targets(
    request: AwsRequest, template: Json, name: str
) -> list[SimInstance] | list[ManagedResource]:
    """The machines or clusters a target stands for, as many of them as it wants."""
    target = template["targets"][name]
    if target["resourceType"] == MANAGED:
        users = [each for each in template["actions"].values() if name in each.get("targets", {}).values()]
        return _limit_count(
            target, [each for each in _list_clusters(request, target) if _takes_part(each, users)]
        )
    return _limit_count(target, _list_spot_instances(request, target))


def _list_clusters(request: AwsRequest, target: Json) -> list[ManagedResource]:
    """The clusters a target names, by ARN or by all of its tags."""
    shifts, tags, arns = (
        request.regional_state(ArcShifts),
        target.get("resourceTags", {}),
        target.get("resourceArns", ()),
    )
    named = (each for each in request.regional_state(Eks).clusters.values() if not arns or each.arn in arns)
    found = (shifts.find_resource(each.arn) for each in named if tags.items() <= each.tags.items())
    return [each for each in found if each is not None]


def _takes_part(resource: ManagedResource, actions: Sequence[Json]) -> bool:
    """Whether the actions are meant for clusters, and for those whose autoshift is as this one's is."""
    return all(
        "EKS" in each["parameters"]["managedResourceTypes"].split(",")
        and each["parameters"].get("zonalAutoshiftStatus", "ENABLED")
        in ("ANY", "ENABLED" if resource.autoshift else "DISABLED")
        for each in actions
    )


def _list_spot_instances(request: AwsRequest, target: Json) -> list[SimInstance]:
    tags = target.get("resourceTags", {})
    states = [each["values"] for each in target.get("filters", ()) if each["path"] == "State.Name"]
    return [
        each
        for each in request.regional_state(SimInstances).by_id.values()
        if target["resourceType"] == SPOT
        and each.lifecycle == "spot"
        and tags.items() <= each.tags.items()
        and all(each.state in values for values in states)
    ]


def _limit_count(target: Json, found: list[T]) -> list[T]:
    wanted = COUNT.fullmatch(target["selectionMode"])
    return found[: int(wanted[1])] if wanted and wanted[1] else found


def _interrupt_instance(request: AwsRequest, machine: SimInstance, seconds: float) -> None:
    """A recommendation at once, the warning two minutes before the end."""
    request.world.notify_listeners("rebalance", machine)
    request.world.call_later(seconds - NOTICE, lambda: request.world.notify_listeners("interrupt", machine))


def _find_experiment(request: AwsRequest, parameter: str) -> Json:
    found = request.regional_state(FisExperiments).started.get(request.get_required(parameter))
    if found is None:
        raise request.refuse(
            "ResourceNotFoundException", f"Experiment {request.get_required(parameter)} not found", 404
        )
    return found


@operation("fis", "GetExperiment")
def get_experiment(request: AwsRequest) -> Json:
    return {"experiment": _find_experiment(request, "id")}


@operation("fis", "ListExperimentResolvedTargets")
def list_resolved_targets(request: AwsRequest) -> Json:
    found = _find_experiment(request, "experimentId")
    return {
        "resolvedTargets": [
            {
                "resourceType": target["resourceType"],
                "targetName": name,
                "targetInformation": {"arn": arn},
            }
            for name, target in found["targets"].items()
            for arn in target["resourceArns"]
        ]
    }
