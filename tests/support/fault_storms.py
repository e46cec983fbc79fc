"""Storms for tests: rules drawn by hypothesis, servers of older days, and a mirror of what was told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Generic, TypeVar, get_args

from hypothesis import strategies as st

from dovetail.api.meta import Object
from dovetail.runtime.transport import ApiRequest, Lines
from dovetail.sim import faults
from dovetail.sim.faults import FaultRule
from dovetail.sim.kube import status
from dovetail.sim.kube.store import encode
from dovetail.sim.transport import LocalTransport

T = TypeVar("T", bound=Object)
ALL_TROUBLES = get_args(faults.Trouble)


def rules(client: str = "karpenter", longest: float = 60.0) -> st.SearchStrategy[FaultRule]:
    """Any trouble for one client, in some window of the story."""
    return st.builds(
        FaultRule,
        trouble=st.sampled_from(ALL_TROUBLES),
        clients=st.just((client,)),
        probability=st.sampled_from((0.1, 0.3, 0.7, 1.0)),
        count=st.none() | st.integers(1, 5),
        start=st.floats(0, longest).map(round),
        amount=st.none() | st.integers(0, 8),
    )


class _Refused:
    status = 422
    headers: Mapping[str, str] = {}

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        for line in (await self.read(),):
            yield [line]

    async def read(self) -> bytes:
        return encode(status.unprocessable_request("sendInitialEvents is forbidden for watch").to_status())


class WithoutStreamedLists(LocalTransport):
    """A server before streamed lists: it says so."""

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[Lines]:
        if "sendInitialEvents" in request.query:
            yield _Refused()
            return
        async with super().stream(request) as lines:
            yield lines


class IgnoringStreamedLists(LocalTransport):
    """Something in between that drops what it does not know, so that the list's end is never marked."""

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[Lines]:
        unknown = ("sendInitialEvents", "resourceVersionMatch")
        query = {key: value for key, value in request.query.items() if key not in unknown}
        plain = ApiRequest(request.method, request.path, query)
        async with super().stream(plain) as lines:
            yield lines


class Mirror(Generic[T]):
    """What a handler was told, put together again; a tale that does not fit together is a failure."""

    def __init__(self) -> None:
        self.objects: dict[str, T] = {}

    def __call__(self, before: T | None, after: T | None) -> None:
        name = (after or before or _nobody()).full_name
        assert self.objects.get(name) == before, f"{name}: told of a change from what was never told"
        if before is not None and after is not None:
            assert before.uid == after.uid, f"{name}: one object became another"
        if after is None:
            del self.objects[name]
        else:
            self.objects[name] = after


def _nobody() -> Object:
    raise AssertionError("told of nothing")
