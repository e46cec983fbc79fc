"""ARC's refusals, each as what a person can do about it."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.aws import Answer, Aws, AwsError
from dovetail.errors import DovetailError, Gone, Refused

__all__ = ["arc"]

SERVICE = "arc-zonal-shift"
# Why ARC says no, by the word it uses for it, and what helps.
REASONS: Mapping[str, str] = {
    "ZonalShiftAlreadyExists": "the cluster is shifted away already; cancel or extend that shift, which "
    "`dovetail zonal-shift status` shows",
    "SimultaneousZonalShiftsConflict": "another zone of the cluster is shifted away, and ARC allows one at a "
    "time; cancel that one first",
    "ZonalAutoshiftActive": "AWS itself shifts the cluster away now; wait for its end, or disable autoshift",
    "ZonalShiftStatusNotActive": "the shift is over already",
    "AutoShiftEnabled": "zonal autoshift is enabled for the cluster; disable it first",
    "AutoshiftUpdateNotAllowed": "AWS started this shift, and only AWS ends it",
    "FISExperimentUpdateNotAllowed": "an experiment started this shift; end the experiment",
    "PracticeConfigurationDoesNotExist": "the cluster has no practice run configuration; create one first",
    "PracticeInProgress": "a practice run is going on; cancel it, or wait half an hour",
    "InvalidAz": "ARC knows no such zone here; give the id of a zone of the cluster, such as use1-az1",
    "UnsupportedAz": "only ordinary availability zones can be shifted, no local or wavelength zones",
    "InvalidExpiresIn": "a shift lasts from 1m to 72h, in whole minutes or hours; extend it when it is on",
}


async def arc(aws: Aws, operation: str, zone: str, **asked: str) -> Answer:
    """Ask ARC; its refusal comes as one sentence."""
    try:
        return await aws.call(SERVICE, operation, asked)
    except AwsError as error:
        raise _told(operation, zone, error) from error


def _told(operation: str, zone: str, error: AwsError) -> DovetailError:
    doing = {"StartZonalShift": "starting", "UpdateZonalShift": "extending"}.get(operation, "cancelling")
    known = next((advice for word, advice in REASONS.items() if word in error.message), "")
    if known:
        return Refused(f"{doing} the shift of {zone}: {known}")
    if isinstance(error, Gone) and operation == "StartZonalShift":
        return Gone(
            f"{doing} the shift of {zone}: ARC does not know the cluster; set zonalShiftConfig.enabled=true "
            "on it, or use --local"
        )
    return error
