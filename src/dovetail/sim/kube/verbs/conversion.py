"""One stored state, seen through another served version of its kind."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from dovetail.sim.kube.builtin.autoscalers import to_v1, to_v2
from dovetail.sim.kube.status import webhook_failed

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core
    from dovetail.sim.kube.store import Key, StoredRecord, StoreEvent
    from dovetail.sim.kube.types import TypeInfo


_NAMES = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
)
_TO_NEW = dict(_NAMES)
_TO_CORE = {new: core for core, new in _NAMES}

KEPT_FOR = timedelta(hours=1)
_HOME = "events"


class EventExpiry:
    """Events are forgotten an hour after they were last written."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._written: deque[tuple[datetime, Key, int]] = deque()
        core.store.on_commit(self.handle_commit, _HOME)

    def handle_commit(self, event: StoreEvent) -> None:
        """Note when an event was written."""
        if event.type != "DELETED":
            self._written.append((self.core.clock.now(), event.new.key, event.rv))

    def expire_events(self) -> None:
        """Forget what is old and was not written again since."""
        until = self.core.clock.now() - KEPT_FOR
        while self._written and self._written[0][0] <= until:
            _, key, revision = self._written.popleft()
            record = self.core.store.get(_HOME, key)
            if record is not None and record.rv == revision:
                self.core.store.drop(record.info, key)


def to_core(obj: dict[str, Any]) -> dict[str, Any]:
    """An event of either face as `v1` spells it."""
    return {_TO_CORE.get(key, key): value for key, value in obj.items()} | {"apiVersion": "v1"}


def to_events_v1(obj: dict[str, Any]) -> dict[str, Any]:
    """An event of either face as `events.k8s.io/v1` spells it."""
    renamed = {_TO_NEW.get(key, key): value for key, value in obj.items()}
    return renamed | {"apiVersion": "events.k8s.io/v1"}


AUTOSCALERS = "horizontalpodautoscalers.autoscaling"


def convert_record(record: StoredRecord, info: TypeInfo) -> StoredRecord:
    """The record as clients of this version read it."""
    if record.info is info:
        return record
    return record.convert_to(info, lambda obj: convert_object(obj, info))


def convert_object(obj: dict[str, Any], info: TypeInfo) -> dict[str, Any]:
    """An object in the shape of another version; custom resources gain defaults added since."""
    if info.storage == "events":
        return to_events_v1(obj) if info.group else to_core(obj)
    if info.storage == AUTOSCALERS:
        return to_v1(obj) if info.version == "v1" else to_v2(obj)
    if obj.get("apiVersion") != info.api_version:
        if info.needs_webhook:
            raise webhook_failed(obj, info)
        obj = {**obj, "apiVersion": info.api_version}
    return info.schema.apply_defaults(obj) if info.schema else obj
