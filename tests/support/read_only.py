"""Ways to an API server and to AWS on which nothing can be written: attempts are refused and remembered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from dovetail.aws import Answer, Aws
from dovetail.runtime.transport import ApiReply, ApiRequest, Lines, Transport
from dovetail.sim.kube.faults import ApiCall, Fault
from dovetail.sim.kube.status import ApiError

__all__ = ["READ_VERBS", "ReadOnlyAws", "ReadOnlyTransport", "ReadVerbsOnly"]

READ_VERBS = frozenset(("get", "list", "watch"))


class ReadOnlyTransport:
    """Carries GET alone. Whatever else is sent is kept in `attempts`, which a test expects to be empty."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.attempts: list[str] = []
        self.carried = 0

    async def send(self, request: ApiRequest) -> ApiReply:
        self._check(request)
        return await self._inner.send(request)

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[Lines]:
        self._check(request)
        async with self._inner.stream(request) as lines:
            yield lines

    async def close(self) -> None:
        await self._inner.close()

    def _check(self, request: ApiRequest) -> None:
        self.carried += 1
        if request.method != "GET" or request.body:
            self.attempts.append(f"{request.method} {request.path}")
            raise AssertionError(f"something is written: {request!r}")


class ReadOnlyAws:
    """Carries what only describes. Whatever else is asked for, or tried dry, is kept in `attempts`."""

    def __init__(self, inner: Aws) -> None:
        self._inner = inner
        self.attempts: list[str] = []
        self.used: set[str] = set()

    @property
    def region(self) -> str:
        return self._inner.region

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any], /, *, retried: bool = True
    ) -> Answer:
        self.used.add(operation)
        if not operation.startswith(("Describe", "Get", "List")):
            self.attempts.append(f"{service}:{operation}")
            raise AssertionError(f"something is written: {service}:{operation}")
        return await self._inner.call(service, operation, parameters, retried=retried)

    def scope_to(self, *, region: str = "", role: str = "", external_id: str = "") -> ReadOnlyAws:
        scoped = ReadOnlyAws(self._inner.scope_to(region=region, role=role, external_id=external_id))
        scoped.attempts, scoped.used = self.attempts, self.used
        return scoped


class ReadVerbsOnly:
    """RBAC with `get`, `list` and `watch` on everything for one client, and nothing else."""

    def __init__(self, client: str) -> None:
        self._client = client
        self.used: set[str] = set()
        self.refused: set[str] = set()

    def find_fault(self, call: ApiCall) -> Fault | None:
        if call.client != self._client:
            return None
        self.used.add(call.verb)
        if call.verb in READ_VERBS:
            return None
        self.refused.add(f"{call.verb} {call.resource}")
        return Fault(error=ApiError(403, "Forbidden", f"{self._client} cannot {call.verb} {call.resource}"))
