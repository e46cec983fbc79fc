"""One stored state, seen through another served version of its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.sim.kube.autoscalers import to_v1, to_v2
from dovetail.sim.kube.events import to_core, to_events_v1
from dovetail.sim.kube.status import webhook_failed

if TYPE_CHECKING:
    from dovetail.sim.kube.store import Record
    from dovetail.sim.kube.types import TypeInfo


AUTOSCALERS = "horizontalpodautoscalers.autoscaling"


def through(record: Record, info: TypeInfo) -> Record:
    """The record as clients of this version read it."""
    if record.info is info:
        return record
    return record.seen_as(info, lambda obj: convert(obj, info))


def convert(obj: dict[str, Any], info: TypeInfo) -> dict[str, Any]:
    """An object in the shape of another version; custom resources gain defaults added since."""
    if info.storage == "events":
        return to_events_v1(obj) if info.group else to_core(obj)
    if info.storage == AUTOSCALERS:
        return to_v1(obj) if info.version == "v1" else to_v2(obj)
    if obj.get("apiVersion") != info.api_version:
        if info.needs_webhook:
            raise webhook_failed(obj, info)
        obj = {**obj, "apiVersion": info.api_version}
    return info.schema.default(obj) if info.schema else obj
