"""ClaimHistory: what becomes of each NodeClaim, as records that lead from one to the next.

    ordered ─► launched ─► ready            what ended it ─► draining ─► gone

Who orders a node or ends it notes that itself. What happens to it then is read off the NodeClaim as the
watch tells of it, so that a record says what the cluster says, whoever did it. Each is noted once: what a
process that was killed did not come to note, the next one notes, where a log tells it what was noted before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from msgspec.structs import replace

from dovetail.api import conditions, labels
from dovetail.api.conditions import DISRUPTION_REASON, DRAINED, INITIALIZED, LAUNCHED
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.predicates import is_reschedulable
from dovetail.controllers.ownership import Ownership
from dovetail.history.drafts import of_claim
from dovetail.history.record import RecordDraft, RecordKind
from dovetail.ports import Clock, DecisionSink
from dovetail.state.cluster import Cluster

__all__ = ["ENDINGS", "ClaimHistory"]

ORDERED = frozenset((RecordKind.NODE_ORDERED,))
# What a node is ended by. A command that was taken back ends nothing, and hides what was before it.
ENDINGS = frozenset(
    (
        RecordKind.COMMAND_STARTED,
        RecordKind.COMMAND_TAKEN_BACK,
        RecordKind.INTERRUPTED,
        RecordKind.REPAIRED,
        RecordKind.EXPIRED,
        RecordKind.NODE_GIVEN_UP,
        RecordKind.NODE_RELEASED,
        RecordKind.LAUNCH_REFUSED,
    )
)
LIFE = frozenset((RecordKind.NODE_READY, RecordKind.NODE_LAUNCHED, RecordKind.NODE_ORDERED))
DRAINING = frozenset((RecordKind.NODE_DRAINING,))
OPEN = frozenset((RecordKind.NODE_ORDERED, RecordKind.NODE_GONE))
# The reason of what nobody here did: a person, another controller, or a process that was killed right after.
DELETED = "Deleted"
UNSEEN_ORDER = "ordered by somebody else, or by a process that led before this one"
UNSEEN_END = "was gone when this process began to lead"


class ClaimHistory:
    """Notes what becomes of NodeClaims. `find_price` says what the node of one costs an hour, if known."""

    def __init__(
        self,
        history: DecisionSink,
        clock: Clock,
        cluster: Cluster,
        ownership: Ownership,
        find_price: Callable[[NodeClaim], float | None],
    ) -> None:
        self._history = history
        self._clock = clock
        self._cluster = cluster
        self._ownership = ownership
        self._find_price = find_price

    def observe_claim(self, before: NodeClaim | None, after: NodeClaim | None) -> None:
        """The watch tells of a change."""
        claim = after or before
        if claim is None or not self._history.recording or not self._ownership.owns_claim(claim):
            return
        if after is None:
            self._note_gone(claim)
        elif before is None or before.status is not after.status:
            self._note_changes(after)

    def catch_up(self, claims: Iterable[NodeClaim]) -> None:
        """A term begins: note what became of NodeClaims since the last record that was read back."""
        if not self._history.recording:
            return
        alive = {claim.name: claim for claim in claims if self._ownership.owns_claim(claim)}
        for claim in alive.values():
            if self._is_known(claim):
                self._note_changes(claim)
        for name in self._list_open():
            if name not in alive:
                self._note_found_gone(name)

    def note_draining(self, claim: NodeClaim) -> None:
        """The pods of a node are asked to leave from now on."""
        if not self._is_noted(claim, RecordKind.NODE_DRAINING):
            pods = [
                pod.full_name
                for pod in self._cluster.list_pods_on(claim.status.node_name)
                if is_reschedulable(pod)
            ]
            parent, reason = self._find_end(claim)
            told = f"{reason}: its pods are asked to leave" if reason else ""
            self._history.note_decision(
                of_claim(RecordKind.NODE_DRAINING, claim, reason, told, pods), parent=parent
            )

    def find_draining(self, claim: NodeClaim) -> str:
        """The record of a node's drain: what its pods are evicted for."""
        return self._history.find_cause(claim.name, DRAINING)

    def _note_changes(self, claim: NodeClaim) -> None:
        if conditions.is_true(claim, LAUNCHED) and not self._is_noted(claim, RecordKind.NODE_LAUNCHED):
            self._note_launched(claim)
        if conditions.is_true(claim, INITIALIZED) and not self._is_noted(claim, RecordKind.NODE_READY):
            self._note_ready(claim)
        if conditions.find_condition(claim, DRAINED) is not None:
            self.note_draining(claim)

    def _note_launched(self, claim: NodeClaim) -> None:
        if not self._is_known(claim):
            return
        keys = (labels.INSTANCE_TYPE, labels.CAPACITY_TYPE, labels.ZONE)
        what = (*(claim.labels.get(key, "") for key in keys), claim.status.provider_id)
        told = ", ".join(part for part in what if part)
        draft = of_claim(RecordKind.NODE_LAUNCHED, claim, "Launched", told)
        self._history.note_decision(
            replace(draft, price_before=0.0, price_after=self._find_price(claim)),
            parent=self._find_order(claim),
        )

    def _note_ready(self, claim: NodeClaim) -> None:
        parent = self._history.find_cause(claim.name, LIFE)
        if not parent and not self._is_known(claim):
            return
        created = claim.metadata.creation_timestamp
        after = f"{format_length(self._clock.now() - created)} after it was ordered" if created else ""
        draft = of_claim(RecordKind.NODE_READY, claim, "Initialized", after)
        self._history.note_decision(draft, parent=parent)

    def _note_gone(self, claim: NodeClaim) -> None:
        self._history.forget_verdicts(f"node/{claim.status.node_name}")
        self._history.forget_verdicts(f"claim/{claim.name}")
        if self._is_noted(claim, RecordKind.NODE_GONE):
            return
        now, created = self._clock.now(), claim.metadata.creation_timestamp or self._clock.now()
        lived, price = max(now - created, timedelta()), self._find_price(claim)
        cost = f", cost ${price * lived.total_seconds() / 3600:.2f}" if price is not None else ""
        if not self._history.find_cause(claim.name, LIFE) and self._is_known(claim):
            self._find_order(claim)
        drained = self._history.find_record(claim.name, DRAINING)
        parent, reason = (drained.id, drained.reason) if drained is not None else self._find_end(claim)
        draft = of_claim(RecordKind.NODE_GONE, claim, reason, f"lived {format_length(lived)}{cost}")
        self._history.note_decision(
            replace(draft, price_before=price, price_after=None if price is None else 0.0), parent=parent
        )

    def _note_found_gone(self, name: str) -> None:
        draft = RecordDraft(RecordKind.NODE_GONE, f"claim/{name}", DELETED, UNSEEN_END)
        parent = self._history.find_cause(name, DRAINING)
        parent = parent or self._history.find_cause(name, ENDINGS) or self._history.find_cause(name, LIFE)
        self._history.note_decision(draft, parent=parent)

    def _find_end(self, claim: NodeClaim) -> tuple[str, str]:
        """What ended a node: the record of it, and its reason; without a record, what the claim says."""
        found = self._history.find_record(claim.name, ENDINGS)
        if found is None or found.kind is RecordKind.COMMAND_TAKEN_BACK:
            return "", self._read_reason(claim)
        return found.id, found.reason

    def _read_reason(self, claim: NodeClaim) -> str:
        said = conditions.find_condition(claim, DISRUPTION_REASON)
        return said.reason if said is not None and said.status == conditions.TRUE else DELETED

    def _find_order(self, claim: NodeClaim) -> str:
        """The record of its order; one that nobody here noted is noted now."""
        known = self._history.find_cause(claim.name, ORDERED)
        if known:
            return known
        return self._history.note_decision(of_claim(RecordKind.NODE_ORDERED, claim, "", UNSEEN_ORDER))

    def _is_noted(self, claim: NodeClaim, kind: RecordKind) -> bool:
        return bool(self._history.find_cause(claim.name, frozenset((kind,))))

    def _is_known(self, claim: NodeClaim) -> bool:
        """Whether its beginning is within what is remembered; of what was before, nothing can be said."""
        created: datetime | None = claim.metadata.creation_timestamp
        since = self._history.since
        if created is not None and since is not None and created >= since.replace(microsecond=0):
            return True
        return bool(self._history.find_cause(claim.name, ORDERED))

    def _list_open(self) -> list[str]:
        """NodeClaims that were ordered and are not gone, as far as records tell."""
        found: dict[str, None] = {}
        for record in self._history.list_records(OPEN):
            if record.kind is RecordKind.NODE_ORDERED:
                found[record.subject.removeprefix("claim/")] = None
            else:
                for name in (*record.names, record.subject.partition("/")[2]):
                    found.pop(name, None)
        return list(found)


def format_length(length: timedelta) -> str:
    """A length of time in two units at most: 4h12m, 12m30s, 45s."""
    seconds = int(length.total_seconds())
    hours, minutes = seconds // 3600, seconds // 60 % 60
    if hours:
        return f"{hours}h{minutes}m" if minutes else f"{hours}h"
    rest = f"{seconds % 60}s" if seconds % 60 or not minutes else ""
    return f"{minutes}m{rest}" if minutes else rest
