"""Fixtures of the wire tests."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from dovetail.runtime.clock import SystemClock
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.kube.faults import ApiCall, Fault
from dovetail.sim.kube.status import too_many_requests
from support.apiserver import Http, serving

_BY_CLIENT = {
    "stale": Fault(behind=1),
    "busy": Fault(delay=0.01, error=too_many_requests("slow down", 7)),
    "reset": Fault(reset=True),
    "late": Fault(reset=True, after_commit=True),
    "expire": Fault(watch_events=1, watch_end="expired"),
}


class ByClient:
    """Each client gets the fault it is named for."""

    def find_fault(self, call: ApiCall) -> Fault | None:
        return _BY_CLIENT.get(call.client)


@pytest.fixture
async def http_with_faults() -> AsyncIterator[Http]:
    server = ApiServer(SystemClock(), random.Random(1), faults=ByClient())
    async with serving(server) as http:
        yield http
