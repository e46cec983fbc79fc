"""Commitments of a simulated account and the controllers that mirror them, pass by pass, in virtual time.

A kill is an API server that answers nothing from some write on; a new leader begins with an empty memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from dovetail.api.commitment import Commitment
from dovetail.api.crds import build_own_manifest
from dovetail.api.nodeclaim import NodeClaim
from dovetail.controllers.base import Result
from dovetail.errors import Retry
from dovetail.providers.aws.commitments import CommitmentReader
from dovetail.providers.aws.controllers.commitment_others import CommitmentObserver
from dovetail.providers.aws.controllers.commitments import CommitmentMirror
from dovetail.providers.aws.pricing import PricingProvider
from dovetail.runtime.informer import Informer
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.transport import ApiReply, ApiRequest
from dovetail.runtime.watch import Follower
from dovetail.settings import Settings
from dovetail.sim.aws.iam.permissions import Principal
from dovetail.sim.clock import VirtualClock
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.transport import LocalTransport
from support.aws import CLUSTER, simulated
from support.contexts import build_context

__all__ = ["COMMITMENTS", "DEFINITIONS", "Killed", "MirrorStage"]

Json = dict[str, Any]
COMMITMENTS = "commitments.dovetail.sh"
DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
MOMENT = 0.01


class Killed(Exception):
    """The process was killed here."""


class MortalTransport(LocalTransport):
    """An API server for a process that is killed at one of its writes: before it, or after it was done."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server)
        self.writes = 0
        # The number of the write, and whether it still happens.
        self.death: tuple[int, bool] | None = None

    async def send(self, request: ApiRequest) -> ApiReply:
        if request.method == "GET":
            return await super().send(request)
        self.writes += 1
        if self.death is None or self.writes < self.death[0]:
            return await super().send(request)
        if self.writes == self.death[0] and self.death[1]:
            await super().send(request)
        raise Killed


class MirrorStage:
    """An account, an API server, and who mirrors the one into the other."""

    def __init__(self, seed: int = 0, *, installed: bool = True) -> None:
        self.clock = VirtualClock()
        self.server = ApiServer(self.clock, Random(seed))
        self.api = self.server.build_local_client("someone")
        self.aws = simulated(self.clock, seed)
        self.transport = MortalTransport(self.server)
        self.kube = KubeClient(self.transport, self.clock)
        self.commitments = Informer(Commitment)
        if installed:
            self.install_kind()
        self.begin_term()

    def install_kind(self) -> None:
        self.api.create(DEFINITIONS, build_own_manifest(Commitment))

    def begin_term(self) -> None:
        """A new leader, who remembers nothing."""
        context = build_context(kube=self.kube, clock=self.clock, claims=Informer(NodeClaim))
        reader = CommitmentReader(self.aws, CLUSTER)
        self.mirror = CommitmentMirror(context, reader, self.commitments)
        prices = PricingProvider(self.aws, self.clock, Settings())
        self.observer = CommitmentObserver(self.kube, self.clock, self.commitments, reader, prices)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[MirrorStage]:
        follower = Follower(self.kube, Commitment, self.commitments, clock=self.clock, rng=Random(2))
        task = asyncio.create_task(follower.run())
        try:
            await self.clock.sleep(MOMENT)
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.kube.transport.close()

    async def mirror_once(self) -> Result | None:
        """One pass of the mirror; None where it wants to try again."""
        await self.clock.sleep(MOMENT)
        try:
            return await self.mirror.reconcile("")
        except Retry:
            return None
        finally:
            await self.clock.sleep(MOMENT)

    async def observe_once(self) -> Result:
        await self.clock.sleep(MOMENT)
        result = await self.observer.reconcile("")
        await self.clock.sleep(MOMENT)
        return result

    async def pass_time(self, seconds: float) -> None:
        await self.clock.sleep(seconds)

    @property
    def stored(self) -> dict[str, Json]:
        return {each["metadata"]["name"]: each for each in self.api.list(COMMITMENTS)}

    def find_condition(self, name: str, kind: str) -> tuple[str, str, str]:
        """Status, reason and message."""
        listed = self.stored[name].get("status", {}).get("conditions", ())
        found = next((each for each in listed if each["type"] == kind), None)
        return ("", "", "") if found is None else (found["status"], found["reason"], found["message"])

    def deny(self, *actions: str) -> None:
        """From now on a policy allows everything but these."""
        allow = {"Effect": "Allow", "Action": "*", "Resource": "*"}
        deny = {"Effect": "Deny", "Action": list(actions), "Resource": "*"}
        who = f"arn:aws:iam::{self.aws.account}:role/controller"
        self.aws.principal = Principal(who, ({"Statement": [allow, deny] if actions else [allow]},))
