"""A fence before every write to AWS: a process that no longer leads starts none, and repeats none.

Asked twice. Here, before a request is made; and by `Boto` in the thread that sends it, before every attempt:
a request may wait long for a thread, and longer between two attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final

from dovetail.aws.errors import AwsError, aws_error
from dovetail.aws.port import Answer, Aws

__all__ = ["NOT_LEADING", "FencedAws", "check_fence"]

NOT_LEADING: Final = "NotLeading"
# Receiving hides messages from others for a while, so it is a write; assuming a role changes nothing.
READS: Final = ("Describe", "Get", "List", "BatchGet", "Query", "Scan", "Head", "Assume", "Simulate")
_MAY_SEND: ContextVar[Callable[[], bool] | None] = ContextVar("may_send", default=None)


class FencedAws:
    """The Aws port of a process that may fall: its writes are refused while `may_write` says no."""

    def __init__(self, aws: Aws, may_write: Callable[[], bool]) -> None:
        self._aws = aws
        self._may_write = may_write

    @property
    def region(self) -> str:
        return self._aws.region

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any], /, *, retried: bool = True
    ) -> Answer:
        if _reads(operation, parameters):
            return await self._aws.call(service, operation, parameters, retried=retried)
        if not self._may_write():
            raise _refusal(f"{service}:{operation}")
        token = _MAY_SEND.set(self._may_write)
        try:
            return await self._aws.call(service, operation, parameters, retried=retried)
        finally:
            _MAY_SEND.reset(token)

    def at(self, *, region: str = "", role: str = "", external_id: str = "") -> FencedAws:
        return FencedAws(self._aws.at(region=region, role=role, external_id=external_id), self._may_write)


def check_fence(doing: str) -> None:
    """Refuse what is about to be sent if it stands behind a fence that is closed."""
    may_send = _MAY_SEND.get()
    if may_send is not None and not may_send():
        raise _refusal(doing)


def _reads(operation: str, parameters: Mapping[str, Any]) -> bool:
    return operation.startswith(READS) or bool(parameters.get("DryRun"))


def _refusal(doing: str) -> AwsError:
    return aws_error(doing, NOT_LEADING, "this process no longer leads")
