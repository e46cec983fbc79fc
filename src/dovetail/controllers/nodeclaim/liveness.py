"""Liveness: a claim that does not launch, or whose Node does not join in time, is given up."""

from __future__ import annotations

from datetime import datetime, timedelta

from dovetail.api import conditions
from dovetail.api.conditions import LAUNCHED, REGISTERED
from dovetail.api.nodeclaim import NodeClaim
from dovetail.controllers.base import SOON, after
from dovetail.controllers.counts import claim_disrupted
from dovetail.controllers.messages import log_timed_out_claim
from dovetail.controllers.nodeclaim.steps import Step
from dovetail.controllers.nodepool.health import RegistrationHealth
from dovetail.errors import Conflict, Gone
from dovetail.ports import Clock, Kube

__all__ = ["Liveness"]

REGISTRATION = timedelta(minutes=15)


class Liveness:
    """Ends claims whose time is up. Time is counted from when a condition last turned."""

    def __init__(
        self, kube: Kube, clock: Clock, health: RegistrationHealth, launch: timedelta = timedelta(minutes=5)
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._health = health
        self._launch = launch

    async def step(self, claim: NodeClaim) -> Step:
        if conditions.is_true(claim, REGISTERED):
            return Step(claim)
        if not conditions.is_true(claim, LAUNCHED):
            left = self._left(claim, LAUNCHED, self._launch)
            if left > timedelta():
                return Step(claim, after(left))
            return await self._give_up(claim, self._launch, "launch_timeout")
        left = self._left(claim, REGISTERED, REGISTRATION)
        if left > timedelta():
            return Step(claim, after(left))
        return await self._give_up(claim, REGISTRATION, "registration_timeout")

    def _left(self, claim: NodeClaim, kind: str, allowed: timedelta) -> timedelta:
        state = conditions.find(claim, kind)
        since: datetime | None = state.last_transition_time if state else claim.metadata.creation_timestamp
        return allowed - (self._clock.now() - since) if since is not None else allowed

    async def _give_up(self, claim: NodeClaim, allowed: timedelta, reason: str) -> Step:
        try:
            await self._health.failed(claim)
        except Conflict:
            return Step(claim, SOON)
        try:
            await self._kube.delete(claim, guarded=True)
        except Gone:
            return Step(claim, over=True)
        log_timed_out_claim(claim, allowed, reason)
        claim_disrupted(claim, reason)
        return Step(claim, over=True)
