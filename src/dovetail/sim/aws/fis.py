"""FIS: experiments, of which one is really carried out: spot machines are interrupted on purpose."""

from __future__ import annotations

import re

from dovetail.sim.aws.asking import Ask, Json, Subject, operation
from dovetail.sim.aws.iam import Iam
from dovetail.sim.aws.instances import Instances
from dovetail.sim.aws.machine import Machine

__all__ = ["Experiments"]

INTERRUPT = "aws:ec2:send-spot-instance-interruptions"
SPOT = "aws:ec2:spot-instance"
NOTICE = 120.0
MINUTES = re.compile(r"PT([2-9]|1[0-5])M")
COUNT = re.compile(r"COUNT\((\d+)\)|ALL")
PARTS = ("description", "stopConditions", "targets", "actions", "roleArn", "logConfiguration")


class Experiments(Subject):
    """Templates and what was started from them, by id."""

    def begin(self) -> None:
        self.templates: dict[str, Json] = {}
        self.started: dict[str, Json] = {}


def _template(ask: Ask, parameter: str = "id") -> Json:
    found = ask.here(Experiments).templates.get(ask.need(parameter))
    if found is None:
        said = f"Experiment template {ask.need(parameter)} not found"
        raise ask.refuse("ResourceNotFoundException", said, 404)
    return found


def _checked(ask: Ask, given: Json) -> Json:
    """A template FIS would take: targets that are there, a role, and numbers within bounds."""
    for action in given["actions"].values():
        missing = set(action.get("targets", {}).values()) - set(given["targets"])
        if missing:
            raise ask.refuse("ValidationException", f"There is no target {min(missing)}.")
        notice = action.get("parameters", {}).get("durationBeforeInterruption", "PT2M")
        if action["actionId"] == INTERRUPT and not MINUTES.fullmatch(notice):
            raise ask.refuse("ValidationException", "durationBeforeInterruption is PT2M to PT15M.")
    for target in given["targets"].values():
        if not COUNT.fullmatch(target["selectionMode"]):
            raise ask.refuse("ValidationException", f"{target['selectionMode']} selects nothing.")
    if given["roleArn"].rpartition("/")[2] not in ask.everywhere(Iam).roles:
        raise ask.refuse("ValidationException", f"There is no role {given['roleArn']}.")
    return given


@operation("fis", "CreateExperimentTemplate")
def create_template(ask: Ask) -> Json:
    id_, now = f"EXT{ask.ground.hexes(15).upper()}", ask.ground.clock.now()
    given = _checked(ask, {"targets": {}, **{name: ask.get(name) for name in PARTS if ask.get(name)}})
    options = {"accountTargeting": "single-account", "emptyTargetResolutionMode": "fail"}
    ask.here(Experiments).templates[id_] = {
        **given,
        "id": id_,
        "arn": f"arn:aws:fis:{ask.region}:{ask.account}:experiment-template/{id_}",
        "creationTime": now,
        "lastUpdateTime": now,
        "experimentOptions": {**options, **ask.get("experimentOptions", {})},
        "tags": dict(ask.get("tags", {})),
    }
    return {"experimentTemplate": ask.here(Experiments).templates[id_]}


@operation("fis", "GetExperimentTemplate")
def get_template(ask: Ask) -> Json:
    return {"experimentTemplate": _template(ask)}


@operation("fis", "UpdateExperimentTemplate")
def update_template(ask: Ask) -> Json:
    found = _template(ask)
    found |= _checked(ask, {**found, **{name: ask.get(name) for name in PARTS if ask.get(name)}})
    found["lastUpdateTime"] = ask.ground.clock.now()
    return {"experimentTemplate": found}


@operation("fis", "DeleteExperimentTemplate")
def delete_template(ask: Ask) -> Json:
    found = _template(ask)
    del ask.here(Experiments).templates[found["id"]]
    return {"experimentTemplate": found}


@operation("fis", "ListTagsForResource")
def list_tags(ask: Ask) -> Json:
    listed = ask.here(Experiments).templates.values()
    return {"tags": next((each["tags"] for each in listed if each["arn"] == ask.need("resourceArn")), {})}


@operation("fis", "StartExperiment")
def start(ask: Ask) -> Json:
    template, id_ = _template(ask, "experimentTemplateId"), f"EXP{ask.ground.hexes(15).upper()}"
    chosen = {name: _chosen(ask, target) for name, target in template["targets"].items()}
    failed = not all(chosen.values())
    lasts = 0.0
    for action in template["actions"].values():
        if not failed and action["actionId"] == INTERRUPT:
            seconds = _seconds(action)
            lasts = max(lasts, seconds)
            for machine in chosen[action["targets"]["SpotInstances"]]:
                _interrupt(ask, machine, seconds)
    made: Json = {
        "id": id_,
        "arn": f"arn:aws:fis:{ask.region}:{ask.account}:experiment/{id_}",
        "experimentTemplateId": template["id"],
        **{name: template[name] for name in ("roleArn", "stopConditions", "tags")},
        "targets": {
            name: {**template["targets"][name], "resourceArns": [each.arn for each in found]}
            for name, found in chosen.items()
        },
        "actions": template["actions"],
        "startTime": ask.ground.clock.now(),
        "state": {"status": "failed" if failed else "running"},
    }
    if failed:
        made["state"]["reason"] = "Target resolution returned empty set"
    ask.here(Experiments).started[id_] = made
    ask.ground.later(lasts, lambda: _ended(made, failed))
    return {"experiment": made}


def _ended(made: Json, failed: bool) -> None:
    if not failed:
        made["state"] = {"status": "completed"}


def _seconds(action: Json) -> float:
    found = MINUTES.fullmatch(action.get("parameters", {}).get("durationBeforeInterruption", "PT2M"))
    return 60.0 * int(found[1]) if found else NOTICE


def _chosen(ask: Ask, target: Json) -> list[Machine]:
    """The machines a target stands for, as many of them as it wants."""
    tags = target.get("resourceTags", {})
    states = [each["values"] for each in target.get("filters", ()) if each["path"] == "State.Name"]
    found = [
        each
        for each in ask.here(Instances).by_id.values()
        if target["resourceType"] == SPOT
        and each.lifecycle == "spot"
        and tags.items() <= each.tags.items()
        and all(each.state in values for values in states)
    ]
    wanted = COUNT.fullmatch(target["selectionMode"])
    return found[: int(wanted[1])] if wanted and wanted[1] else found


def _interrupt(ask: Ask, machine: Machine, seconds: float) -> None:
    """A recommendation at once, the warning two minutes before the end."""
    ask.ground.tell("rebalance", machine)
    ask.ground.later(seconds - NOTICE, lambda: ask.ground.tell("interrupt", machine))


@operation("fis", "GetExperiment")
def get_experiment(ask: Ask) -> Json:
    found = ask.here(Experiments).started.get(ask.need("id"))
    if found is None:
        raise ask.refuse("ResourceNotFoundException", f"Experiment {ask.need('id')} not found", 404)
    return {"experiment": found}


@operation("fis", "ListExperimentResolvedTargets")
def resolved_targets(ask: Ask) -> Json:
    found = ask.here(Experiments).started.get(ask.need("experimentId"))
    if found is None:
        said = f"Experiment {ask.need('experimentId')} not found"
        raise ask.refuse("ResourceNotFoundException", said, 404)
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
