"""Launch: one instance for one claim, and never a second one.

The answer of the cloud is remembered until the claim's status says so too: a write that is lost
after a launch must not lead to another launch. Where an answer may have been lost, or was given to a
process that is no more, the cloud is asked first what it has for the claim.
"""

from __future__ import annotations

from collections import OrderedDict

from msgspec.structs import replace

from dovetail.api import conditions, labels, reasons
from dovetail.api.conditions import LAUNCHED, REGISTERED
from dovetail.api.nodeclaim import NodeClaim
from dovetail.controllers.claim_history import ORDERED
from dovetail.controllers.claim_messages import log_failed_launch, log_launched_claim
from dovetail.controllers.claim_metrics import count_disrupted_claim
from dovetail.controllers.nodeclaim.lifecycle import StageResult
from dovetail.errors import ClassNotReady, CreateFailed, DovetailError, Gone, InsufficientCapacity, Retry
from dovetail.history.drafts import of_claim
from dovetail.history.record import RecordKind
from dovetail.ports import Clock, Cloud, DecisionSink, Instance, Kube, Recorder

__all__ = ["Launch"]

REMEMBER_SECONDS = 3600.0
LONGEST = 300


class Launch:
    """Asks the cloud for the instance of a claim."""

    def __init__(
        self, kube: Kube, cloud: Cloud, clock: Clock, recorder: Recorder, history: DecisionSink
    ) -> None:
        self._kube = kube
        self._cloud = cloud
        self._clock = clock
        self._recorder = recorder
        self._history = history
        self._launched: OrderedDict[str, tuple[float, Instance]] = OrderedDict()
        self._first_tries: set[str] = set()

    def expect_first_try(self, claim: NodeClaim) -> None:
        """Nobody can have tried to launch this claim before: its finalizer was not there yet."""
        self._first_tries.add(claim.uid)

    async def step(self, claim: NodeClaim) -> StageResult:
        now = self._clock.now()
        state = conditions.find_condition(claim, LAUNCHED)
        if state is not None and state.status != conditions.UNKNOWN:
            if state.status == conditions.TRUE:
                claim = await self._complete_labels(claim)
            return StageResult(conditions.set_condition(claim, state, now))
        try:
            instance = await self._get_or_launch(claim)
        except InsufficientCapacity as error:
            log_failed_launch(claim, error)
            note = f"NodeClaim {claim.name} event: {_shorten_text(str(error))}"
            self._recorder.publish_event(
                claim, "InsufficientCapacityError", note, warning=True, dedupe=(claim.name,)
            )
            return await self._delete_claim(claim, "insufficient_capacity", error)
        except ClassNotReady as error:
            log_failed_launch(claim, error)
            return await self._delete_claim(claim, "nodeclass_not_ready", error)
        except CreateFailed as error:
            failed = conditions.set_unknown(claim, LAUNCHED, now, error.reason, error.message)
            if failed != claim:
                self._note_refusal(claim, error.reason, error)
            return StageResult(failed, error=error)
        except DovetailError as error:
            failed = conditions.set_unknown(
                claim, LAUNCHED, now, reasons.LAUNCH_FAILED, _shorten_text(str(error))
            )
            return StageResult(failed, error=error)
        return StageResult(conditions.set_true(_fill_claim(claim, instance), LAUNCHED, self._clock.now()))

    async def _get_or_launch(self, claim: NodeClaim) -> Instance:
        now = self._clock.monotonic()
        while self._launched and next(iter(self._launched.values()))[0] < now - REMEMBER_SECONDS:
            self._launched.popitem(last=False)
        known = self._launched.get(claim.uid)
        if known is not None:
            return known[1]
        instance = await self._find_earlier_instance(claim) or await self._cloud.create(claim)
        log_launched_claim(claim, instance)
        self._launched[claim.uid] = (self._clock.monotonic(), instance)
        return instance

    async def _find_earlier_instance(self, claim: NodeClaim) -> Instance | None:
        """What an earlier attempt came to, if it came to anything and we were not told."""
        if claim.uid in self._first_tries:
            self._first_tries.discard(claim.uid)
            return None
        ours = (each for each in await self._cloud.list() if each.claim == claim.name and not each.deleting)
        return min(ours, key=lambda each: each.provider_id, default=None)

    async def _complete_labels(self, claim: NodeClaim) -> NodeClaim:
        """A claim whose status was stored, and perhaps its labels not: we were stopped in between."""
        known = self._launched.pop(claim.uid, None)
        if labels.INSTANCE_TYPE in claim.labels or conditions.is_true(claim, REGISTERED):
            return claim
        if known is not None:
            return _add_instance_labels(claim, known[1])
        try:
            return _add_instance_labels(claim, await self._cloud.get(claim.status.provider_id))
        except (Gone, Retry):
            return claim

    async def _delete_claim(self, claim: NodeClaim, reason: str, error: DovetailError) -> StageResult:
        try:
            await self._kube.delete(claim, guarded=True)
        except Gone:
            return StageResult(claim, over=True)
        self._note_refusal(claim, type(error).__name__, error)
        count_disrupted_claim(claim, reason)
        return StageResult(claim, over=True)

    def _note_refusal(self, claim: NodeClaim, reason: str, error: DovetailError) -> None:
        draft = of_claim(RecordKind.LAUNCH_REFUSED, claim, reason, str(error))
        self._history.note_decision(draft, parent=self._history.find_cause(claim.name, ORDERED))


def _add_instance_labels(claim: NodeClaim, instance: Instance) -> NodeClaim:
    """Its own labels win over the cloud's, the cloud's annotations over its own."""
    metadata = replace(
        claim.metadata,
        labels={**instance.labels, **claim.labels},
        annotations={**claim.annotations, **instance.annotations},
    )
    return replace(claim, metadata=metadata)


def _fill_claim(claim: NodeClaim, instance: Instance) -> NodeClaim:
    """The claim with what came."""
    status = replace(
        claim.status,
        provider_id=instance.provider_id,
        image_id=instance.image_id,
        capacity=instance.capacity,
        allocatable=instance.allocatable,
    )
    return _add_instance_labels(replace(claim, status=status), instance)


def _shorten_text(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "..."
