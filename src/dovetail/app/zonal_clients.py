"""ARC's refusals, each as what a person can do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from dovetail.api.meta import Object
from dovetail.api.zoneshift import ZoneShift
from dovetail.aws import Answer, Aws, AwsError
from dovetail.errors import DovetailError, Gone, Misconfigured, Refused
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.kube import KubeClient
from dovetail.zonal.store.table_store import TableStore

__all__ = ["TableKubeClient", "call_arc"]

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


async def call_arc(aws: Aws, operation: str, zone: str, **asked: str) -> Answer:
    """Ask ARC; its refusal comes as one sentence."""
    try:
        return await aws.call(SERVICE, operation, asked)
    except AwsError as error:
        raise _explain_refusal(operation, zone, error) from error


def _explain_refusal(operation: str, zone: str, error: AwsError) -> DovetailError:
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


T = TypeVar("T", bound=Object)


class TableKubeClient(KubeClient):
    """A cluster that has some of its ZoneShifts in a table."""

    def __init__(self, *given: Any, table: str, cluster: str) -> None:
        super().__init__(*given)
        self._table, self._cluster = table, cluster

    async def list(
        self, kind: type[T], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> tuple[T, ...]:
        if kind is not ZoneShift:
            return await super().list(kind, namespace, labels=labels, fields=fields)
        try:
            objects = await super().list(kind, namespace, labels=labels, fields=fields)
        except Gone:
            objects = ()  # the kind need not be installed where a table is used
        return (*objects, *cast(tuple[T, ...], await self._list_table_shifts()))

    async def _list_table_shifts(self) -> tuple[ZoneShift, ...]:
        from dovetail.aws.boto import BotoAws

        if not self._cluster:
            raise Misconfigured("no cluster is named; give --cluster-name=NAME to find its shifts in a table")
        aws = BotoAws()
        try:
            found = await aws.call("eks", "DescribeCluster", {"name": self._cluster})

            async def arn() -> str:
                return str(found["cluster"]["arn"])

            return await TableStore(aws, self._table, arn, SystemClock()).list()
        finally:
            aws.close()
