"""The operations of ARC zonal shift."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta

from dovetail.sim.aws.ec2.network import zone_ids
from dovetail.sim.aws.service import AwsRequest, Json, operation
from dovetail.sim.aws.zonal_shifts import AUTO, MANUAL, PRACTICE, ArcShift, ArcShifts, ManagedResource

__all__: list[str] = []

SERVICE = "arc-zonal-shift"
LASTS = re.compile(r"([1-9][0-9]*)([mh])")
LONGEST, COMMENT_MOST, PAGE = timedelta(hours=72), 128, 100
SETTINGS = ("blockingAlarms", "outcomeAlarms", "blockedWindows", "allowedWindows", "blockedDates")


def _find_resource(request: AwsRequest) -> ManagedResource:
    arn = request.get_required("resourceIdentifier")
    found = request.regional_state(ArcShifts).find_resource(arn)
    if found is None:
        raise request.refuse(
            "ResourceNotFoundException", f"The resource {arn} is not registered with ARC.", 404
        )
    return found


def _find_shift(request: AwsRequest) -> tuple[ManagedResource, ArcShift]:
    wanted = request.get_required("zonalShiftId")
    for resource in request.regional_state(ArcShifts).list_resources():
        for each in resource.shifts:
            if each.id == wanted:
                return resource, each
    raise request.refuse("ResourceNotFoundException", f"There is no zonal shift {wanted}.", 404)


def _read_zone(request: AwsRequest) -> str:
    away = str(request.get_required("awayFrom"))
    if away not in zone_ids(request.account, request.region).values():
        raise request.refuse(
            "ValidationException", f"InvalidAz: {away} is not a zone id of {request.region}."
        )
    return away


def _read_duration(request: AwsRequest) -> timedelta:
    found = LASTS.fullmatch(request.get_required("expiresIn"))
    if found is None:
        raise request.refuse(
            "ValidationException", "InvalidExpiresIn: a whole number followed by m or h is needed."
        )
    lasts = timedelta(**{"minutes" if found[2] == "m" else "hours": int(found[1])})
    if lasts > LONGEST:
        raise request.refuse("ValidationException", "InvalidExpiresIn: a zonal shift lasts at most 72 hours.")
    return lasts


def _read_comment(request: AwsRequest) -> str:
    comment = str(request.get("comment", ""))
    if len(comment) > COMMENT_MOST:
        raise request.refuse("ValidationException", "The comment has more than 128 characters.")
    return comment


@operation(SERVICE, "GetManagedResource")
def get_resource(request: AwsRequest) -> Json:
    found, shifts = _find_resource(request), request.regional_state(ArcShifts)
    answer: Json = {
        "arn": found.arn,
        "name": found.name,
        "appliedWeights": _build_weights(request, shifts, found),
        "zonalShifts": _list_active_shifts(request, shifts, found),
        "autoshifts": _list_resource_autoshifts(shifts, found),
        "zonalAutoshiftStatus": _describe_status(found.autoshift),
    }
    if found.practice:
        answer["practiceRunConfiguration"] = dict(found.practice)
    return answer


@operation(SERVICE, "ListManagedResources")
def list_resources(request: AwsRequest) -> Json:
    shifts = request.regional_state(ArcShifts)
    items = [
        {
            "arn": each.arn,
            "name": each.name,
            "availabilityZones": list(zone_ids(request.account, request.region).values()),
            "appliedWeights": _build_weights(request, shifts, each),
            "zonalShifts": _list_active_shifts(request, shifts, each),
            "autoshifts": _list_resource_autoshifts(shifts, each),
            "zonalAutoshiftStatus": _describe_status(each.autoshift),
            "practiceRunStatus": _describe_status(each.practice is not None),
        }
        for each in shifts.list_resources()
    ]
    return _build_page(request, items)


@operation(SERVICE, "ListZonalShifts")
def list_shifts(request: AwsRequest) -> Json:
    now, status, arn = request.world.clock.now(), request.get("status"), request.get("resourceIdentifier")
    found = [
        each
        for resource in request.regional_state(ArcShifts).list_resources()
        for each in resource.shifts
        if arn in (None, each.resource) and status in (None, each.status_at(now))
    ]
    found.sort(key=lambda each: each.started, reverse=True)
    return _build_page(request, [_summarize_shift(request, each) for each in found])


@operation(SERVICE, "ListAutoshifts")
def list_autoshifts(request: AwsRequest) -> Json:
    wanted = request.get("status", "ACTIVE")
    items = [
        {
            "awayFrom": each.away,
            "startTime": each.started,
            "status": "COMPLETED" if each.ended else "ACTIVE",
            **({"endTime": each.ended} if each.ended else {}),
        }
        for each in request.regional_state(ArcShifts).autoshifts
        if wanted == ("COMPLETED" if each.ended else "ACTIVE")
    ]
    return _build_page(request, items)


@operation(SERVICE, "StartZonalShift")
def start_shift(request: AwsRequest) -> Json:
    shifts, resource = request.regional_state(ArcShifts), _find_resource(request)
    away, lasts, comment = _read_zone(request), _read_duration(request), _read_comment(request)
    if any(each.kind == MANUAL for each in shifts.list_active(resource)):
        raise request.refuse(
            "ConflictException", f"ZonalShiftAlreadyExists: {resource.arn} already has a zonal shift.", 409
        )
    return _describe_shift(request, shifts.start(resource, away, lasts, comment))


@operation(SERVICE, "UpdateZonalShift")
def update_shift(request: AwsRequest) -> Json:
    resource, found = _find_shift(request)
    now = request.world.clock.now()
    if found.kind != MANUAL:
        raise request.refuse(
            "ValidationException", "AutoshiftUpdateNotAllowed: only a person's shift can be updated."
        )
    if found.status_at(now) != "ACTIVE":
        raise request.refuse("ConflictException", "ZonalShiftStatusNotActive: the zonal shift is over.", 409)
    if request.get("expiresIn"):
        found.expires = now + _read_duration(request)
    if request.get("comment"):
        found.comment = _read_comment(request)
    request.regional_state(ArcShifts).publish_event("Manual Shift Updated", found.away, [resource.arn])
    return _describe_shift(request, found)


@operation(SERVICE, "CancelZonalShift", "CancelPracticeRun")
def cancel_shift(request: AwsRequest) -> Json:
    resource, found = _find_shift(request)
    if found.status_at(request.world.clock.now()) != "ACTIVE":
        raise request.refuse("ConflictException", "ZonalShiftStatusNotActive: the zonal shift is over.", 409)
    request.regional_state(ArcShifts).stop(
        resource, found, "CANCELED", "INTERRUPTED" if found.kind == PRACTICE else ""
    )
    return _describe_shift(request, found)


@operation(SERVICE, "StartPracticeRun")
def start_practice(request: AwsRequest) -> Json:
    shifts, resource, away = request.regional_state(ArcShifts), _find_resource(request), _read_zone(request)
    if resource.practice is None:
        raise request.refuse(
            "ConflictException",
            "PracticeConfigurationDoesNotExist: there is no practice run configuration.",
            409,
        )
    if resource.autoshift and shifts.list_running_autoshifts():
        raise request.refuse("ConflictException", "ZonalAutoshiftActive: an autoshift is in progress.", 409)
    if shifts.list_active(resource):
        raise request.refuse("ConflictException", "ZonalShiftAlreadyExists: another shift is active.", 409)
    return _describe_shift(request, shifts.start_practice(resource, away, _read_comment(request)))


@operation(SERVICE, "CreatePracticeRunConfiguration", "UpdatePracticeRunConfiguration")
def configure_practice(request: AwsRequest) -> Json:
    resource = _find_resource(request)
    exists = resource.practice is not None
    if exists and request.operation == "CreatePracticeRunConfiguration":
        raise request.refuse(
            "ConflictException", "PracticeConfigurationAlreadyExists: update it instead.", 409
        )
    given = {name: request.get(name) for name in SETTINGS if request.get(name) is not None}
    resource.practice = {**(resource.practice or {}), **given}
    return {
        "arn": resource.arn,
        "name": resource.name,
        "zonalAutoshiftStatus": _describe_status(resource.autoshift),
        "practiceRunConfiguration": dict(resource.practice),
    }


@operation(SERVICE, "DeletePracticeRunConfiguration")
def drop_practice(request: AwsRequest) -> Json:
    resource = _find_resource(request)
    if resource.autoshift:
        raise request.refuse("ConflictException", "AutoShiftEnabled: disable zonal autoshift first.", 409)
    resource.practice = None
    return {"arn": resource.arn, "name": resource.name, "zonalAutoshiftStatus": "DISABLED"}


@operation(SERVICE, "UpdateZonalAutoshiftConfiguration")
def configure_autoshift(request: AwsRequest) -> Json:
    resource, wanted = _find_resource(request), request.get_required("zonalAutoshiftStatus")
    if wanted == "ENABLED" and resource.practice is None:
        raise request.refuse(
            "ValidationException", "MissingValue: zonal autoshift needs a practice run configuration first."
        )
    resource.autoshift = wanted == "ENABLED"
    return {"resourceIdentifier": resource.arn, "zonalAutoshiftStatus": wanted}


@operation(SERVICE, "GetAutoshiftObserverNotificationStatus")
def get_observer(request: AwsRequest) -> Json:
    return {"status": _describe_status(request.regional_state(ArcShifts).observer)}


@operation(SERVICE, "UpdateAutoshiftObserverNotificationStatus")
def set_observer(request: AwsRequest) -> Json:
    request.regional_state(ArcShifts).observer = request.get_required("status") == "ENABLED"
    return {"status": request.get_required("status")}


def _describe_status(on: bool) -> str:
    return "ENABLED" if on else "DISABLED"


def _build_weights(request: AwsRequest, shifts: ArcShifts, resource: ManagedResource) -> Json:
    away = shifts.find_applied_shift(resource)[1]
    return {zone: 0.0 if zone == away else 1.0 for zone in zone_ids(request.account, request.region).values()}


def _list_active_shifts(request: AwsRequest, shifts: ArcShifts, resource: ManagedResource) -> list[Json]:
    kind, away = shifts.find_applied_shift(resource)
    return [
        {
            **{name: value for name, value in _summarize_shift(request, each).items() if name != "status"},
            "appliedStatus": "APPLIED" if (each.kind, each.away) == (kind, away) else "NOT_APPLIED",
        }
        for each in shifts.list_active(resource)
    ]


def _list_resource_autoshifts(shifts: ArcShifts, resource: ManagedResource) -> list[Json]:
    if not resource.autoshift:
        return []
    applied = shifts.find_applied_shift(resource)
    return [
        {
            "awayFrom": each.away,
            "startTime": each.started,
            "appliedStatus": "APPLIED" if applied == (AUTO, each.away) else "NOT_APPLIED",
        }
        for each in shifts.list_running_autoshifts()
    ]


def _describe_shift(request: AwsRequest, each: ArcShift) -> Json:
    return {
        name: value
        for name, value in _summarize_shift(request, each).items()
        if name not in ("shiftType", "practiceRunOutcome")
    }


def _summarize_shift(request: AwsRequest, each: ArcShift) -> Json:
    now = request.world.clock.now()
    return {
        "zonalShiftId": each.id,
        "resourceIdentifier": each.resource,
        "awayFrom": each.away,
        "expiryTime": each.expiry_at(now),
        "startTime": each.started,
        "status": each.status_at(now),
        "comment": each.comment,
        "shiftType": each.kind,
        **({"practiceRunOutcome": each.outcome} if each.outcome else {}),
    }


def _build_page(request: AwsRequest, items: Sequence[Json]) -> Json:
    start, size = int(request.get("nextToken") or 0), request.get("maxResults", PAGE)
    more = {"nextToken": str(start + size)} if start + size < len(items) else {}
    return {"items": list(items[start : start + size]), **more}
