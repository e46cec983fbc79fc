"""nodeclass: everything an EC2NodeClass selects is found, judged, and written into its status."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from dovetail.api import conditions, labels
from dovetail.api.bad_items import reason_of
from dovetail.api.conditions import DRIFTED, ReadinessRules
from dovetail.api.hashes import NODECLASS_HASH_VERSION, hash_nodeclass
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.aws import AwsDenied
from dovetail.controllers.base import (
    DONE,
    SOON,
    Backoff,
    Cache,
    Result,
    Trigger,
    choose_soonest,
    requeue_after,
    retry_refusals,
    run_all,
    wake_on,
)
from dovetail.errors import Conflict, DovetailError, Gone
from dovetail.ports import Clock, Kube, Recorder
from dovetail.providers.aws.cluster_discovery import ClusterDiscovery
from dovetail.providers.aws.controllers.nodeclass_status import StatusOutcome, StatusReconciler
from dovetail.providers.aws.controllers.nodeclass_validation import ValidationReconciler
from dovetail.providers.aws.instance_profiles import InstanceProfileProvider
from dovetail.providers.aws.launch_templates import LaunchTemplateProvider

__all__ = [
    "NodeClassController",
    "NodeClassFinalizer",
    "NodeClassHashController",
    "find_readiness_rules",
    "refers_to",
]

FINALIZE_INTERVAL: Final = timedelta(minutes=10)
NAMED_AT_MOST: Final = 5


def refers_to(claim: NodeClaim, name: str) -> bool:
    """Whether a claim was made from the class of this name."""
    reference, kind = claim.spec.node_class_ref, EC2NodeClass.KIND
    return (reference.group, reference.kind, reference.name) == (kind.group, kind.kind, name)


class NodeClassFinalizer:
    """Waits for the claims of a class, then removes its instance profiles and launch templates."""

    def __init__(
        self,
        kube: Kube,
        recorder: Recorder,
        claims: Cache[NodeClaim],
        profiles: InstanceProfileProvider,
        templates: LaunchTemplateProvider,
        validation: ValidationReconciler,
        isolated: bool,
    ) -> None:
        self._kube = kube
        self._recorder = recorder
        self._claims = claims
        self._profiles = profiles
        self._templates = templates
        self._validation = validation
        self._isolated = isolated

    async def finalize_class(self, node_class: EC2NodeClass) -> Result:
        """One step toward the end; the finalizer goes last."""
        if labels.EC2_NODECLASS_TERMINATION not in node_class.metadata.finalizers:
            return DONE
        using = sorted(claim.name for claim in self._claims if refers_to(claim, node_class.name))
        if using:
            self._recorder.publish_event(
                node_class, "WaitingOnNodeClaimTermination", _describe_waiting(using)
            )
            return requeue_after(FINALIZE_INTERVAL)
        with retry_refusals():
            if not self._isolated:
                await self._profiles.delete_for(node_class)
            await self._templates.delete_for(node_class.name)
        kept = tuple(f for f in node_class.metadata.finalizers if f != labels.EC2_NODECLASS_TERMINATION)
        try:
            await self._kube.patch(
                node_class,
                replace(node_class, metadata=replace(node_class.metadata, finalizers=kept)),
                guarded=True,
            )
        except Conflict:
            return SOON
        except Gone:
            pass
        self._validation.forget_class(node_class.name)
        return DONE


def _describe_waiting(claims: list[str]) -> str:
    named = ", ".join(claims[:NAMED_AT_MOST])
    more = f" and {len(claims) - NAMED_AT_MOST} more" if len(claims) > NAMED_AT_MOST else ""
    return f"Waiting on NodeClaim termination for {named}{more}"


UNRESOLVED: Final = "ResolutionFailed"


def find_readiness_rules(reserved_capacity: bool) -> ReadinessRules:
    """What a class's readiness is made of; reservations count where their gate is on."""
    return conditions.EC2_NODECLASS if reserved_capacity else conditions.EC2_NODECLASS_WITHOUT_RESERVATIONS


class NodeClassController:
    """Takes one step for each condition, in a fixed order. A step that fails does not stop the others."""

    name = "nodeclass"
    singleton = False
    concurrency = 10
    # A step that fails for long must not keep the others from their minute.
    backoff = Backoff(first=0.1, last=60.0)

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        classes: Cache[EC2NodeClass],
        steps: Sequence[StatusReconciler],
        finalizing: NodeClassFinalizer,
        rules: ReadinessRules,
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._classes = classes
        self._steps = tuple(steps)
        self._finalizing = finalizing
        self._rules = rules

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (wake_on(EC2NodeClass), Trigger(NodeClaim, _find_class_of_deleted_claim))

    async def reconcile(self, key: str) -> Result:
        node_class = self._classes.get(key)
        if node_class is None:
            return DONE
        if node_class.deleting:
            return await self._finalizing.finalize_class(node_class)
        if reason_of(node_class):
            return DONE
        # What AWS does not know is Gone as well, so only the writes may take that for the end of the class.
        try:
            held = await self._add_finalizer(node_class)
        except Conflict:
            return SOON
        except Gone:
            return DONE
        resolved, results, errors = await self._resolve_status(held)
        if resolved != held:
            try:
                await self._kube.patch(held, resolved, status=True, guarded=True)
            except Conflict:
                return SOON
            except Gone:
                return DONE
        with retry_refusals():
            if errors:
                raise errors[0] if len(errors) == 1 else ExceptionGroup("resolving the class", errors)
        return choose_soonest(results)

    async def _add_finalizer(self, node_class: EC2NodeClass) -> EC2NodeClass:
        """The class with our finalizer: from now on it leaves nothing behind."""
        finalizers = node_class.metadata.finalizers
        if labels.EC2_NODECLASS_TERMINATION in finalizers:
            return node_class
        held = replace(node_class.metadata, finalizers=(*finalizers, labels.EC2_NODECLASS_TERMINATION))
        return await self._kube.patch(node_class, replace(node_class, metadata=held), guarded=True)

    async def _resolve_status(
        self, node_class: EC2NodeClass
    ) -> tuple[EC2NodeClass, list[Result], list[DovetailError]]:
        known = self._drop_unknown_conditions(node_class)
        node_class = conditions.open_conditions(known, self._clock.now(), self._rules)
        results: list[Result] = []
        errors: list[DovetailError] = []
        for step in self._steps:
            outcome = await self._take_step(step, node_class)
            node_class = outcome.node_class
            results.append(outcome.result)
            if outcome.error is not None:
                errors.append(outcome.error)
        return node_class, results, errors

    def _drop_unknown_conditions(self, node_class: EC2NodeClass) -> EC2NodeClass:
        """A condition whose gate was switched off is no longer kept."""
        left = conditions.CAPACITY_RESERVATIONS_READY
        return (
            node_class
            if self._rules.owns_condition(left)
            else conditions.clear_condition(node_class, left, self._rules)
        )

    async def _take_step(self, step: StatusReconciler, node_class: EC2NodeClass) -> StatusOutcome:
        try:
            return await step.reconcile_status(node_class)
        except DovetailError as error:
            return StatusOutcome(self._mark_unknown(node_class, step.condition, error), error=error)

    def _mark_unknown(self, node_class: EC2NodeClass, kind: str, error: DovetailError) -> EC2NodeClass:
        """A condition nobody could decide yet says why. One decided for the class as it is now stays."""
        held = conditions.find_condition(node_class, kind)
        current = held is not None and held.observed_generation == node_class.metadata.generation
        if held is not None and held.status != conditions.UNKNOWN and current:
            return node_class
        now = self._clock.now()
        return conditions.set_unknown(
            node_class, kind, now, UNRESOLVED, _describe_error(error), rules=self._rules
        )


def _describe_error(error: DovetailError) -> str:
    """What went wrong; where somebody must grant something, what that is."""
    if not isinstance(error, AwsDenied):
        return str(error)
    return (
        f"the controller may not call {error.operation} ({error.code}: {error.message}); let its role do so"
    )


def _find_class_of_deleted_claim(before: NodeClaim | None, now: NodeClaim | None) -> Iterable[str]:
    """A claim that is gone may have been the last of its class."""
    if before is None or now is not None:
        return ()
    return (before.spec.node_class_ref.name,)


class NodeClassHashController:
    """Writes the hash annotations. A new way of hashing must not look like a change of the classes."""

    name = "nodeclass.hash"
    singleton = False
    concurrency = 10
    backoff = Backoff()

    def __init__(
        self, kube: Kube, classes: Cache[EC2NodeClass], claims: Cache[NodeClaim], discovery: ClusterDiscovery
    ) -> None:
        self._kube = kube
        self._classes = classes
        self._claims = claims
        self._discovery = discovery

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (wake_on(EC2NodeClass),)

    async def reconcile(self, key: str) -> Result:
        node_class = self._classes.get(key)
        if node_class is None or reason_of(node_class):
            # The hash of what is left of a class would make all of its nodes drift.
            return DONE
        fingerprint = hash_nodeclass(node_class, self._discovery.facts.ca_bundle)
        if node_class.annotations.get(labels.EC2_NODECLASS_HASH_VERSION) != NODECLASS_HASH_VERSION:
            mine = [claim for claim in self._claims if refers_to(claim, key)]
            await run_all(self._restamp_claim(claim, fingerprint) for claim in mine)
        wanted = {
            labels.EC2_NODECLASS_HASH: fingerprint,
            labels.EC2_NODECLASS_HASH_VERSION: NODECLASS_HASH_VERSION,
        }
        if not wanted.items() <= node_class.annotations.items():
            annotations = {**node_class.annotations, **wanted}
            marked = replace(node_class, metadata=replace(node_class.metadata, annotations=annotations))
            try:
                await self._kube.patch(node_class, marked)
            except Gone:
                return DONE
        return DONE

    async def _restamp_claim(self, claim: NodeClaim, fingerprint: str) -> None:
        if claim.annotations.get(labels.EC2_NODECLASS_HASH_VERSION) == NODECLASS_HASH_VERSION:
            return
        annotations = {**claim.annotations, labels.EC2_NODECLASS_HASH_VERSION: NODECLASS_HASH_VERSION}
        if conditions.find_condition(claim, DRIFTED) is None:
            # One that has drifted already keeps its old hash, so that it stays drifted.
            annotations[labels.EC2_NODECLASS_HASH] = fingerprint
        marked = replace(claim, metadata=replace(claim.metadata, annotations=annotations))
        try:
            await self._kube.patch(claim, marked)
        except Gone:
            return
