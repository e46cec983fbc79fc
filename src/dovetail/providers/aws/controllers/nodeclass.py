"""nodeclass: everything an EC2NodeClass selects is found, judged, and written into its status."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from dovetail.api import conditions, labels
from dovetail.api.conditions import Readiness
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.setaside import reason_of
from dovetail.aws import AwsDenied
from dovetail.controllers.base import DONE, SOON, Backoff, Cache, Result, Trigger, insisting, on, soonest
from dovetail.errors import Conflict, DovetailError, Gone
from dovetail.ports import Clock, Kube
from dovetail.providers.aws.controllers.finalizing import Finalizing
from dovetail.providers.aws.controllers.resolving import Outcome, Step

__all__ = ["NodeClass", "rules_of"]

UNRESOLVED: Final = "ResolutionFailed"


def rules_of(reserved_capacity: bool) -> Readiness:
    """What a class's readiness is made of; reservations count where their gate is on."""
    return conditions.EC2_NODECLASS if reserved_capacity else conditions.EC2_NODECLASS_WITHOUT_RESERVATIONS


class NodeClass:
    """Takes one step for each condition, in a fixed order. A step that fails does not stop the others."""

    name = "nodeclass"
    concurrency = 10
    # A step that fails for long must not keep the others from their minute.
    backoff = Backoff(first=0.1, last=60.0)

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        classes: Cache[EC2NodeClass],
        steps: Sequence[Step],
        finalizing: Finalizing,
        rules: Readiness,
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._classes = classes
        self._steps = tuple(steps)
        self._finalizing = finalizing
        self._rules = rules

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (on(EC2NodeClass), Trigger(NodeClaim, _class_of_ended))

    async def reconcile(self, key: str) -> Result:
        node_class = self._classes.get(key)
        if node_class is None:
            return DONE
        if node_class.deleting:
            return await self._finalizing.finish(node_class)
        if reason_of(node_class):
            return DONE
        # What AWS does not know is Gone as well, so only the writes may take that for the end of the class.
        try:
            held = await self._held(node_class)
        except Conflict:
            return SOON
        except Gone:
            return DONE
        resolved, results, errors = await self._resolved(held)
        if resolved != held:
            try:
                await self._kube.patch(held, resolved, status=True, guarded=True)
            except Conflict:
                return SOON
            except Gone:
                return DONE
        with insisting():
            if errors:
                raise errors[0] if len(errors) == 1 else ExceptionGroup("resolving the class", errors)
        return soonest(results)

    async def _held(self, node_class: EC2NodeClass) -> EC2NodeClass:
        """The class with our finalizer: from now on it leaves nothing behind."""
        finalizers = node_class.metadata.finalizers
        if labels.EC2_NODECLASS_TERMINATION in finalizers:
            return node_class
        held = replace(node_class.metadata, finalizers=(*finalizers, labels.EC2_NODECLASS_TERMINATION))
        return await self._kube.patch(node_class, replace(node_class, metadata=held), guarded=True)

    async def _resolved(
        self, node_class: EC2NodeClass
    ) -> tuple[EC2NodeClass, list[Result], list[DovetailError]]:
        known = self._without_strangers(node_class)
        node_class = conditions.open_conditions(known, self._clock.now(), self._rules)
        results: list[Result] = []
        errors: list[DovetailError] = []
        for step in self._steps:
            outcome = await self._taken(step, node_class)
            node_class = outcome.node_class
            results.append(outcome.result)
            if outcome.error is not None:
                errors.append(outcome.error)
        return node_class, results, errors

    def _without_strangers(self, node_class: EC2NodeClass) -> EC2NodeClass:
        """A condition whose gate was switched off is no longer kept."""
        left = conditions.CAPACITY_RESERVATIONS_READY
        return node_class if self._rules.owns(left) else conditions.clear(node_class, left, self._rules)

    async def _taken(self, step: Step, node_class: EC2NodeClass) -> Outcome:
        try:
            return await step.take(node_class)
        except DovetailError as error:
            return Outcome(self._unsettled(node_class, step.condition, error), error=error)

    def _unsettled(self, node_class: EC2NodeClass, kind: str, error: DovetailError) -> EC2NodeClass:
        """A condition nobody could decide yet says why. One decided for the class as it is now stays."""
        held = conditions.find(node_class, kind)
        current = held is not None and held.observed_generation == node_class.metadata.generation
        if held is not None and held.status != conditions.UNKNOWN and current:
            return node_class
        now = self._clock.now()
        return conditions.set_unknown(node_class, kind, now, UNRESOLVED, _sentence(error), rules=self._rules)


def _sentence(error: DovetailError) -> str:
    """What went wrong; where somebody must grant something, what that is."""
    if not isinstance(error, AwsDenied):
        return str(error)
    return (
        f"the controller may not call {error.operation} ({error.code}: {error.message}); let its role do so"
    )


def _class_of_ended(before: NodeClaim | None, now: NodeClaim | None) -> Iterable[str]:
    """A claim that is gone may have been the last of its class."""
    if before is None or now is not None:
        return ()
    return (before.spec.node_class_ref.name,)
