"""The operations of ARC zonal shift."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import TypeVar

from dovetail.sim.aws.asking import Ask, Json, operation
from dovetail.sim.aws.network import zone_ids
from dovetail.sim.aws.shifts import AUTO, MANUAL, PRACTICE, Managed, Shift, Shifts

__all__: list[str] = []

T = TypeVar("T")
SERVICE = "arc-zonal-shift"
LASTS = re.compile(r"([1-9][0-9]*)([mh])")
LONGEST, COMMENT_MOST, PAGE = timedelta(hours=72), 128, 100
SETTINGS = ("blockingAlarms", "outcomeAlarms", "blockedWindows", "allowedWindows", "blockedDates")


def _resource(ask: Ask) -> Managed:
    arn = ask.need("resourceIdentifier")
    found = ask.here(Shifts).managed(arn)
    if found is None:
        raise ask.refuse("ResourceNotFoundException", f"The resource {arn} is not registered with ARC.", 404)
    return found


def _shift(ask: Ask) -> tuple[Managed, Shift]:
    wanted = ask.need("zonalShiftId")
    for resource in ask.here(Shifts).all_managed():
        for each in resource.shifts:
            if each.id == wanted:
                return resource, each
    raise ask.refuse("ResourceNotFoundException", f"There is no zonal shift {wanted}.", 404)


def _zone(ask: Ask) -> str:
    away = str(ask.need("awayFrom"))
    if away not in zone_ids(ask.account, ask.region).values():
        raise ask.refuse("ValidationException", f"InvalidAz: {away} is not a zone id of {ask.region}.")
    return away


def _lasts(ask: Ask) -> timedelta:
    found = LASTS.fullmatch(ask.need("expiresIn"))
    if found is None:
        raise ask.refuse(
            "ValidationException", "InvalidExpiresIn: a whole number followed by m or h is needed."
        )
    lasts = timedelta(**{"minutes" if found[2] == "m" else "hours": int(found[1])})
    if lasts > LONGEST:
        raise ask.refuse("ValidationException", "InvalidExpiresIn: a zonal shift lasts at most 72 hours.")
    return lasts


def _comment(ask: Ask) -> str:
    comment = str(ask.get("comment", ""))
    if len(comment) > COMMENT_MOST:
        raise ask.refuse("ValidationException", "The comment has more than 128 characters.")
    return comment


@operation(SERVICE, "GetManagedResource")
def get_resource(ask: Ask) -> Json:
    found, shifts = _resource(ask), ask.here(Shifts)
    answer: Json = {
        "arn": found.arn,
        "name": found.name,
        "appliedWeights": _weights(ask, shifts, found),
        "zonalShifts": _active(ask, shifts, found),
        "autoshifts": _autoshifts(shifts, found),
        "zonalAutoshiftStatus": _enabled(found.autoshift),
    }
    if found.practice:
        answer["practiceRunConfiguration"] = dict(found.practice)
    return answer


@operation(SERVICE, "ListManagedResources")
def list_resources(ask: Ask) -> Json:
    shifts = ask.here(Shifts)
    items = [
        {
            "arn": each.arn,
            "name": each.name,
            "availabilityZones": list(zone_ids(ask.account, ask.region).values()),
            "appliedWeights": _weights(ask, shifts, each),
            "zonalShifts": _active(ask, shifts, each),
            "autoshifts": _autoshifts(shifts, each),
            "zonalAutoshiftStatus": _enabled(each.autoshift),
            "practiceRunStatus": _enabled(each.practice is not None),
        }
        for each in shifts.all_managed()
    ]
    return _paged(ask, items)


@operation(SERVICE, "ListZonalShifts")
def list_shifts(ask: Ask) -> Json:
    now, status, arn = ask.ground.clock.now(), ask.get("status"), ask.get("resourceIdentifier")
    found = [
        each
        for resource in ask.here(Shifts).all_managed()
        for each in resource.shifts
        if arn in (None, each.resource) and status in (None, each.status(now))
    ]
    found.sort(key=lambda each: each.started, reverse=True)
    return _paged(ask, [_summary(ask, each) for each in found])


@operation(SERVICE, "ListAutoshifts")
def list_autoshifts(ask: Ask) -> Json:
    wanted = ask.get("status", "ACTIVE")
    items = [
        {
            "awayFrom": each.away,
            "startTime": each.started,
            "status": "COMPLETED" if each.ended else "ACTIVE",
            **({"endTime": each.ended} if each.ended else {}),
        }
        for each in ask.here(Shifts).autoshifts
        if wanted == ("COMPLETED" if each.ended else "ACTIVE")
    ]
    return _paged(ask, items)


@operation(SERVICE, "StartZonalShift")
def start_shift(ask: Ask) -> Json:
    shifts, resource = ask.here(Shifts), _resource(ask)
    away, lasts, comment = _zone(ask), _lasts(ask), _comment(ask)
    if any(each.kind == MANUAL for each in shifts.active(resource)):
        raise ask.refuse(
            "ConflictException", f"ZonalShiftAlreadyExists: {resource.arn} already has a zonal shift.", 409
        )
    return _told(ask, shifts.start(resource, away, lasts, comment))


@operation(SERVICE, "UpdateZonalShift")
def update_shift(ask: Ask) -> Json:
    resource, found = _shift(ask)
    now = ask.ground.clock.now()
    if found.kind != MANUAL:
        raise ask.refuse(
            "ValidationException", "AutoshiftUpdateNotAllowed: only a person's shift can be updated."
        )
    if found.status(now) != "ACTIVE":
        raise ask.refuse("ConflictException", "ZonalShiftStatusNotActive: the zonal shift is over.", 409)
    if ask.get("expiresIn"):
        found.expires = now + _lasts(ask)
    if ask.get("comment"):
        found.comment = _comment(ask)
    ask.here(Shifts).say("Manual Shift Updated", found.away, [resource.arn])
    return _told(ask, found)


@operation(SERVICE, "CancelZonalShift", "CancelPracticeRun")
def cancel_shift(ask: Ask) -> Json:
    resource, found = _shift(ask)
    if found.status(ask.ground.clock.now()) != "ACTIVE":
        raise ask.refuse("ConflictException", "ZonalShiftStatusNotActive: the zonal shift is over.", 409)
    ask.here(Shifts).stop(resource, found, "CANCELED", "INTERRUPTED" if found.kind == PRACTICE else "")
    return _told(ask, found)


@operation(SERVICE, "StartPracticeRun")
def start_practice(ask: Ask) -> Json:
    shifts, resource, away = ask.here(Shifts), _resource(ask), _zone(ask)
    if resource.practice is None:
        raise ask.refuse(
            "ConflictException",
            "PracticeConfigurationDoesNotExist: there is no practice run configuration.",
            409,
        )
    if resource.autoshift and shifts.running_autoshifts():
        raise ask.refuse("ConflictException", "ZonalAutoshiftActive: an autoshift is in progress.", 409)
    if shifts.active(resource):
        raise ask.refuse("ConflictException", "ZonalShiftAlreadyExists: another shift is active.", 409)
    return _told(ask, shifts.practise(resource, away, _comment(ask)))


@operation(SERVICE, "CreatePracticeRunConfiguration", "UpdatePracticeRunConfiguration")
def configure_practice(ask: Ask) -> Json:
    resource = _resource(ask)
    exists = resource.practice is not None
    if exists and ask.operation == "CreatePracticeRunConfiguration":
        raise ask.refuse("ConflictException", "PracticeConfigurationAlreadyExists: update it instead.", 409)
    given = {name: ask.get(name) for name in SETTINGS if ask.get(name) is not None}
    resource.practice = {**(resource.practice or {}), **given}
    return {
        "arn": resource.arn,
        "name": resource.name,
        "zonalAutoshiftStatus": _enabled(resource.autoshift),
        "practiceRunConfiguration": dict(resource.practice),
    }


@operation(SERVICE, "DeletePracticeRunConfiguration")
def drop_practice(ask: Ask) -> Json:
    resource = _resource(ask)
    if resource.autoshift:
        raise ask.refuse("ConflictException", "AutoShiftEnabled: disable zonal autoshift first.", 409)
    resource.practice = None
    return {"arn": resource.arn, "name": resource.name, "zonalAutoshiftStatus": "DISABLED"}


@operation(SERVICE, "UpdateZonalAutoshiftConfiguration")
def configure_autoshift(ask: Ask) -> Json:
    resource, wanted = _resource(ask), ask.need("zonalAutoshiftStatus")
    if wanted == "ENABLED" and resource.practice is None:
        raise ask.refuse(
            "ValidationException", "MissingValue: zonal autoshift needs a practice run configuration first."
        )
    resource.autoshift = wanted == "ENABLED"
    return {"resourceIdentifier": resource.arn, "zonalAutoshiftStatus": wanted}


@operation(SERVICE, "GetAutoshiftObserverNotificationStatus")
def get_observer(ask: Ask) -> Json:
    return {"status": _enabled(ask.here(Shifts).observer)}


@operation(SERVICE, "UpdateAutoshiftObserverNotificationStatus")
def set_observer(ask: Ask) -> Json:
    ask.here(Shifts).observer = ask.need("status") == "ENABLED"
    return {"status": ask.need("status")}


def _enabled(on: bool) -> str:
    return "ENABLED" if on else "DISABLED"


def _weights(ask: Ask, shifts: Shifts, resource: Managed) -> Json:
    away = shifts.applied(resource)[1]
    return {zone: 0.0 if zone == away else 1.0 for zone in zone_ids(ask.account, ask.region).values()}


def _active(ask: Ask, shifts: Shifts, resource: Managed) -> list[Json]:
    kind, away = shifts.applied(resource)
    return [
        {
            **{name: value for name, value in _summary(ask, each).items() if name != "status"},
            "appliedStatus": "APPLIED" if (each.kind, each.away) == (kind, away) else "NOT_APPLIED",
        }
        for each in shifts.active(resource)
    ]


def _autoshifts(shifts: Shifts, resource: Managed) -> list[Json]:
    if not resource.autoshift:
        return []
    applied = shifts.applied(resource)
    return [
        {
            "awayFrom": each.away,
            "startTime": each.started,
            "appliedStatus": "APPLIED" if applied == (AUTO, each.away) else "NOT_APPLIED",
        }
        for each in shifts.running_autoshifts()
    ]


def _told(ask: Ask, each: Shift) -> Json:
    return {
        name: value
        for name, value in _summary(ask, each).items()
        if name not in ("shiftType", "practiceRunOutcome")
    }


def _summary(ask: Ask, each: Shift) -> Json:
    now = ask.ground.clock.now()
    return {
        "zonalShiftId": each.id,
        "resourceIdentifier": each.resource,
        "awayFrom": each.away,
        "expiryTime": each.expiry(now),
        "startTime": each.started,
        "status": each.status(now),
        "comment": each.comment,
        "shiftType": each.kind,
        **({"practiceRunOutcome": each.outcome} if each.outcome else {}),
    }


def _paged(ask: Ask, items: Sequence[Json]) -> Json:
    start, size = int(ask.get("nextToken") or 0), ask.get("maxResults", PAGE)
    more = {"nextToken": str(start + size)} if start + size < len(items) else {}
    return {"items": list(items[start : start + size]), **more}
