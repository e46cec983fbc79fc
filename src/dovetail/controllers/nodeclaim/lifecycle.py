"""nodeclaim.lifecycle: walks a claim through its life, and through its end.

finalizer ─► launch ─► registration ─► initialization ─► liveness      while it lives
deadline ─► its Nodes go first ─► its instance ─► finalizer removed    once it is deleted
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from dovetail.api import conditions, labels
from dovetail.api.bad_items import reason_of
from dovetail.api.core import Node
from dovetail.api.nodeclaim import NodeClaim
from dovetail.controllers.base import (
    DONE,
    SOON,
    Backoff,
    ConcurrencyRange,
    Result,
    Trigger,
    choose_soonest,
    requeue_after,
    retry_refusals,
    wake_on,
)
from dovetail.controllers.context import ControllerContext
from dovetail.controllers.nodeclaim.finalization import Finalization
from dovetail.controllers.ownership import BY_PROVIDER_ID
from dovetail.errors import Conflict, DovetailError, Gone, Refused, Retry

__all__ = ["Lifecycle", "StageResult"]


@dataclass(frozen=True, slots=True)
class StageResult:
    """The claim as a step leaves it, and when it wants to look again. `over` means it is being deleted."""

    claim: NodeClaim
    result: Result = DONE
    error: Exception | None = None
    over: bool = False


PACE = ConcurrencyRange(1000, 5000)
# How soon to look again when the watch has yet to tell us of our own last write; it wakes us before that.
CATCH_UP = 1.0
REFUSED_AGAIN = 5.0


class LifecycleStage(Protocol):
    """One step of a claim's life."""

    async def step(self, claim: NodeClaim) -> StageResult:
        """Look at the claim and take it further."""


class Lifecycle:
    """One claim at a time, all its steps in order, on one object."""

    name = "nodeclaim.lifecycle"
    singleton = False
    backoff = Backoff(first=1.0, last=60.0)

    def __init__(
        self,
        context: ControllerContext,
        stages: Sequence[LifecycleStage],
        finalization: Finalization,
        *,
        on_new: Callable[[NodeClaim], None] = lambda claim: None,
        also_woken_by: tuple[Trigger, ...] = (),
    ) -> None:
        self._kube = context.kube
        self._claims = context.claims
        self._ownership = context.ownership
        self._stages = stages
        self._finalization = finalization
        self._clock = context.clock
        self._on_new = on_new
        self._also_woken_by = also_woken_by
        self._written: dict[str, str] = {}
        self.concurrency = PACE.scale_to(context.millicores)

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (wake_on(NodeClaim), wake_on(Node, self._find_claims_of_node), *self._also_woken_by)

    def _find_claims_of_node(self, node: Node) -> list[str]:
        provider_id = node.spec.provider_id
        return [c.name for c in self._claims.by(BY_PROVIDER_ID, provider_id)] if provider_id else []

    async def reconcile(self, key: str) -> Result:
        claim = self._claims.get(key)
        if claim is None or not self._ownership.owns_claim(claim):
            self._written.pop(key, None)
            return DONE
        if reason_of(claim) and not claim.deleting:
            # It may be launched already and not say so where we can read it: another would be one too many.
            return DONE
        if not self._has_seen_own_write(claim):
            # Acting on what was true before our own last write would count and do things twice.
            return requeue_after(CATCH_UP)
        with retry_refusals():
            return await (
                self._finalization.reconcile(claim) if claim.deleting else self._reconcile_living(claim)
            )

    def _has_seen_own_write(self, claim: NodeClaim) -> bool:
        written = self._written.get(claim.name, "")
        heard = claim.metadata.resource_version
        if written.isdigit() and heard.isdigit() and int(heard) < int(written):
            return False
        self._written.pop(claim.name, None)
        return True

    async def _reconcile_living(self, claim: NodeClaim) -> Result:
        if labels.TERMINATION not in claim.metadata.finalizers:
            # Nothing may be launched that nobody would clean up.
            metadata = replace(claim.metadata, finalizers=(*claim.metadata.finalizers, labels.TERMINATION))
            try:
                claim = await self._kube.patch(claim, replace(claim, metadata=metadata), guarded=True)
            except Conflict:
                return SOON
            except Gone:
                return DONE
            self._on_new(claim)
        return await self._run_stages(claim)

    async def _run_stages(self, stored: NodeClaim) -> Result:
        claim = conditions.open_conditions(stored, self._clock.now())
        results: list[Result] = []
        errors: list[Exception] = []
        for stage in self._stages:
            try:
                step = await stage.step(claim)
            except Refused as error:
                # Not the cloud, which answers in the step, but the API server: some policy is in the way,
                # and once it is lifted nothing would tell us.
                errors.append(Retry(str(error), within=REFUSED_AGAIN))
                continue
            except DovetailError as error:
                errors.append(error)
                continue
            claim = step.claim
            results.append(step.result)
            if step.error is not None:
                errors.append(step.error)
            if step.over:
                # What is known of the machine is stored even now: its end is found by it.
                await self._store_claim(stored, claim)
                return DONE
        await self._store_claim(stored, claim)
        if errors:
            raise errors[0] if len(errors) == 1 else ExceptionGroup(f"reconciling {claim.name}", errors)
        return choose_soonest(results)

    async def _store_claim(self, stored: NodeClaim, claim: NodeClaim) -> None:
        if claim == stored:
            return
        try:
            # The machine's ID is the one thing that must not be lost, so the status goes first.
            for part in (True, False):
                written = await self._kube.patch(stored, claim, status=part)
                if written is not stored:
                    self._written[claim.name] = written.metadata.resource_version
        except Gone:
            return
