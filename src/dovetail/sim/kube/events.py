"""Events have two faces, `v1` and `events.k8s.io/v1`, over one store. The core face is what is kept."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core
    from dovetail.sim.kube.store import Event, Key

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


class Forgetting:
    """Events are forgotten an hour after they were last written."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._written: deque[tuple[datetime, Key, int]] = deque()
        core.store.on_commit(self.heard, _HOME)

    def heard(self, event: Event) -> None:
        """Note when an event was written."""
        if event.type != "DELETED":
            self._written.append((self.core.clock.now(), event.new.key, event.rv))

    def tick(self) -> None:
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
