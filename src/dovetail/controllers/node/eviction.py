"""eviction-queue: pods that were asked to leave, and asked again until they do.

Items are remembered here; the controller's work queue holds their keys and spaces the attempts. A drain
may offer the same pod every second: only the first offer counts, and a nearer deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from dovetail import metrics
from dovetail.api import conditions, predicates
from dovetail.api.conditions import DISRUPTION_REASON
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.pod import Pod
from dovetail.controllers.base import DONE, SOON, Backoff, ConcurrencyRange, Result, Trigger
from dovetail.controllers.context import ControllerContext
from dovetail.controllers.node import termination_events
from dovetail.controllers.node.drain import compute_grace_left
from dovetail.controllers.ownership import find_claim_of_node
from dovetail.errors import Conflict, DovetailError, Gone, KubeStatus, Refused, Retry, Throttled
from dovetail.history.drafts import of_pod
from dovetail.history.record import RecordKind

__all__ = ["EvictionQueue"]

PACE = ConcurrencyRange(100, 5000)
CAPACITY = 10_000
FORCEFUL = "Forceful Termination"
DRAINING = frozenset((RecordKind.NODE_DRAINING,))
# The API server's words for it (registry/core/pod/storage/eviction.go); no code tells it apart.
SEVERAL_BUDGETS = "more than one PodDisruptionBudget"
ANSWERS = ((Gone, 404), (Conflict, 409), (Throttled, 429))

EVICTIONS = metrics.counter(
    "karpenter_pods_eviction_requests_total", "Answers of the eviction API, by status code.", ("code",)
)
PODS_DRAINED = metrics.counter(
    "karpenter_pods_drained_total", "Pods that were evicted from their node, by reason.", ("reason",)
)


@dataclass(slots=True)
class _Item:
    """A pod to be rid of. Without a deadline it is only ever asked."""

    uid: str
    deadline: datetime | None

    def tighten_deadline(self, deadline: datetime | None) -> None:
        if deadline is not None and (self.deadline is None or deadline < self.deadline):
            self.deadline = deadline


class EvictionQueue:
    """Asks pods to leave, and deletes those whose time is up."""

    name = "eviction-queue"
    singleton = False
    triggers: tuple[Trigger, ...] = ()

    def __init__(self, context: ControllerContext, *, capacity: int = CAPACITY) -> None:
        self._kube = context.kube
        self._pods = context.pods
        self._nodes = context.nodes
        self._claims = context.claims
        self._clock = context.clock
        self._recorder = context.recorder
        self._history = context.history
        self._capacity = capacity
        self._items: dict[str, _Item] = {}
        self._wake: Callable[[str], None] = _wake_nobody
        self.concurrency = PACE.scale_to(context.millicores)
        self.backoff = Backoff(0.1, 10.0, per_second=self.concurrency, burst=10 * self.concurrency)

    def on_item(self, wake: Callable[[str], None]) -> None:
        """Whom to tell that a key has work: the `add` of this controller's queue."""
        self._wake = wake
        for key in self._items:
            wake(key)

    def add(self, pods: Iterable[Pod], deadline: datetime | None) -> None:
        """Have these pods asked to leave. Whoever finds no room is offered again by the next drain step."""
        for pod in pods:
            key = pod.full_name
            item = self._items.get(key)
            if item is not None and item.uid == pod.uid:
                item.tighten_deadline(deadline)
            elif item is not None or len(self._items) < self._capacity:
                self._items[key] = _Item(pod.uid, deadline)
                self._wake(key)

    def __contains__(self, pod: Pod) -> bool:
        item = self._items.get(pod.full_name)
        return item is not None and item.uid == pod.uid

    def __len__(self) -> int:
        return len(self._items)

    async def reconcile(self, key: str) -> Result:
        item = self._items.get(key)
        if item is None:
            return DONE
        namespace, _, name = key.rpartition("/")
        pod = self._pods.get(name, namespace)
        if pod is None or pod.uid != item.uid:
            # It is gone. A namesake in its place has done nothing to us.
            return self._forget_pod(key)
        now = self._clock.now()
        if item.deadline is not None and predicates.must_delete_now(pod, item.deadline, now):
            await self.force_delete(pod, item.deadline)
            return DONE
        if not predicates.is_active(pod):
            return self._forget_pod(key)
        if not predicates.is_evictable(pod, now):
            termination_events.record_do_not_disrupt(self._recorder, pod, predicates.do_not_disrupt(pod, now))
            return SOON
        return await self._evict_pod(key, pod)

    async def force_delete(self, pod: Pod, deadline: datetime) -> None:
        """Delete a pod whose node waits no longer, with the time that is left. No budget is asked."""
        key = pod.full_name
        # Taken out first: queue and drain may both find that its time is up.
        item = self._items.pop(key, None) if pod in self else None
        grace = compute_grace_left(deadline, self._clock.now())
        termination_events.record_forced_pod(self._recorder, pod, deadline, grace)
        try:
            await self._kube.delete(pod, grace=grace, guarded=True)
        except Gone:
            return
        except DovetailError as error:
            if item is not None:
                self._items.setdefault(key, item)
            raise _make_retryable(error) from error
        reason = self._find_reason(pod)
        self._note_pod(RecordKind.POD_FORCED, pod, reason, f"given {grace} s to end")
        PODS_DRAINED.labels(reason).inc()

    async def _evict_pod(self, key: str, pod: Pod) -> Result:
        try:
            await self._kube.evict(pod)
        except DovetailError as error:
            return self._handle_refusal(key, pod, error)
        EVICTIONS.labels("200").inc()
        reason = self._find_reason(pod)
        termination_events.record_evicted_pod(self._recorder, pod, reason)
        self._note_pod(RecordKind.POD_EVICTED, pod, reason, f"asked to leave node {pod.node_name}")
        PODS_DRAINED.labels(reason).inc()
        return self._forget_pod(key)

    def _handle_refusal(self, key: str, pod: Pod, error: DovetailError) -> Result:
        code, message = _read_answer(error)
        if code is not None:
            EVICTIONS.labels(str(code)).inc()
        if code in (404, 409):
            return self._forget_pod(key)
        if code == 429:
            return self._report_blocked(pod, "evicting pod violates a PDB")
        if SEVERAL_BUDGETS in message:
            return self._report_blocked(pod, "eviction does not support multiple PDBs")
        raise _make_retryable(error) from error

    def _report_blocked(self, pod: Pod, why: str) -> Result:
        node = self._nodes.get(pod.node_name)
        if node is not None:
            termination_events.record_failing_drain(self._recorder, node, f"{why} (Pod={pod.full_name})")
        return SOON

    def _forget_pod(self, key: str) -> Result:
        self._items.pop(key, None)
        return DONE

    def _find_reason(self, pod: Pod) -> str:
        """Why the pod's node is given up, as far as anyone said."""
        claim = self._find_claim(pod)
        if claim is None:
            return ""
        said = conditions.find_condition(claim, DISRUPTION_REASON)
        return said.reason if said is not None and said.status == conditions.TRUE else FORCEFUL

    def _find_claim(self, pod: Pod) -> NodeClaim | None:
        node = self._nodes.get(pod.node_name)
        return find_claim_of_node(node, self._claims) if node is not None else None

    def _note_pod(self, kind: RecordKind, pod: Pod, reason: str, told: str) -> None:
        if not self._history.recording:
            return
        claim = self._find_claim(pod)
        parent = self._history.find_cause(claim.name, DRAINING) if claim is not None else ""
        self._history.note_decision(of_pod(kind, pod.full_name, claim, reason, told), parent=parent)


def _read_answer(error: DovetailError) -> tuple[int | None, str]:
    """The server's code and words, if it was the server that spoke."""
    cause = error.__cause__
    if isinstance(cause, KubeStatus):
        return cause.code, cause.message
    return next((code for kind, code in ANSWERS if isinstance(error, kind)), None), str(error)


def _make_retryable(error: DovetailError) -> DovetailError:
    """An item that nobody tries again would hold its node for ever, so no refusal is final here."""
    return Retry(str(error)) if isinstance(error, Refused) else error


def _wake_nobody(key: str) -> None:
    """Before the queue is wired up, items wait in the table."""
