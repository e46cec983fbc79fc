"""What happens to a fleet between two looks, as records beside them: ends of machines, and nominations."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

from dovetail.api import conditions, labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.history.record import DecisionRecord, RecordDraft, RecordIds, RecordKind, stamp_record
from dovetail.ports import Clock
from dovetail.runtime.events import CoreV1Event

__all__ = ["NOMINATED", "FleetNotes"]

NOMINATED = "Nominated"
"""The reason of the event by which an autoscaler says which NodeClaim a pod waits for."""
# Karpenter since 1.0 and Dovetail write it alike: `Pod should schedule on: nodeclaim/NAME, node/NAME`.
_CLAIM = re.compile(r"\bnodeclaim/([a-z0-9][a-z0-9.-]*)")


class FleetNotes:
    """Hears what informers tell, and hands on a record of what no look may show."""

    def __init__(self, clock: Clock, note: Callable[[DecisionRecord], None], by: str = "") -> None:
        self._clock = clock
        self._note = note
        self._by = by
        self._ids = RecordIds(by)

    def hear_claim(self, before: NodeClaim | None, after: NodeClaim | None) -> bool:
        """A NodeClaim changed; whether that is worth a look at once.

        The last that was heard of one that is gone says when its machine was told to terminate.
        """
        if before is not None and after is None:
            self._note_end(before)
        steps = (conditions.LAUNCHED, conditions.INSTANCE_TERMINATING)
        return (
            before is None
            or after is None
            or any(_find_time(before, step) != _find_time(after, step) for step in steps)
        )

    def hear_event(self, event: CoreV1Event | None) -> None:
        """An event was told; only nominations are kept, and of their text only the NodeClaim."""
        if event is None or event.reason != NOMINATED or event.involved_object.kind != "Pod":
            return
        found = _CLAIM.search(event.message)
        if found is None:
            return
        time = event.last_timestamp or event.metadata.creation_timestamp or self._clock.now()
        pod = f"{event.involved_object.namespace}/{event.involved_object.name}"
        draft = RecordDraft(RecordKind.POD_PLACED, f"pod/{pod}", NOMINATED, names=(found[1],))
        self._note(stamp_record(draft, self._ids.make_id(time), time, self._by))

    def _note_end(self, claim: NodeClaim) -> None:
        if _find_time(claim, conditions.LAUNCHED) is None and not claim.status.provider_id:
            return
        ended = _find_time(claim, conditions.INSTANCE_TERMINATING) or self._clock.now()
        draft = RecordDraft(
            RecordKind.NODE_GONE,
            f"claim/{claim.name}",
            pool=claim.labels.get(labels.NODEPOOL, ""),
            names=(claim.name,),
        )
        self._note(stamp_record(draft, self._ids.make_id(ended), ended, self._by))


def _find_time(claim: NodeClaim, kind: str) -> datetime | None:
    """Since when a condition holds; None while it does not."""
    said = claim.status.find_condition(kind)
    return said.last_transition_time if said is not None and said.status == conditions.TRUE else None
