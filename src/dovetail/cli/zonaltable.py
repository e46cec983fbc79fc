"""Shifts that a controller or a function keeps in a DynamoDB table, for the commands that look at them."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from dovetail.api.meta import Object
from dovetail.api.zoneshift import ZoneShift
from dovetail.controllers.zonal.table import TableStore
from dovetail.errors import Gone, Misconfigured
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.kube import KubeClient

__all__ = ["TabledKube"]

T = TypeVar("T", bound=Object)


class TabledKube(KubeClient):
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
        return (*objects, *cast(tuple[T, ...], await self._kept()))

    async def _kept(self) -> tuple[ZoneShift, ...]:
        from dovetail.aws.boto import Boto

        if not self._cluster:
            raise Misconfigured("no cluster is named; give --cluster-name=NAME to find its shifts in a table")
        aws = Boto()
        try:
            found = await aws.call("eks", "DescribeCluster", {"name": self._cluster})

            async def arn() -> str:
                return str(found["cluster"]["arn"])

            return await TableStore(aws, self._table, arn, SystemClock()).list()
        finally:
            aws.close()
