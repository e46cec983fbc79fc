"""The shape of AWS as the rest of the code sees it: an operation goes in, its answer comes out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final, Protocol

from dovetail.aws.errors import AwsError, aws_error

__all__ = ["NOT_LEADING", "Answer", "Aws", "FencedAws", "check_fence", "list_pages"]

# What AWS answers, as boto3 shows it: the operation's output members, times as datetimes, blobs as bytes.
Answer = Mapping[str, Any]

# How a service asks for its next page: the token's name in the answer, and in the request.
TOKENS = (
    *(("NextToken", "NextToken"), ("nextToken", "nextToken"), ("Marker", "Marker")),
    ("NextContinuationToken", "ContinuationToken"),
)


class Aws(Protocol):
    """One account in one region, behind credentials."""

    @property
    def region(self) -> str:
        """The region requests go to."""

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any], /, *, retried: bool = True
    ) -> Answer:
        """Ask for an operation by its API names: `call("ec2", "DescribeSubnets", {...})`.

        Failures come as `AwsError`s, which are also what errors.py calls them. `retried` lets the client
        repeat requests that failed on the way; a dry run is asked once.
        """

    def scope_to(self, *, region: str = "", role: str = "", external_id: str = "") -> Aws:
        """The same door in another region, or in another account by assuming a role there."""


async def list_pages(
    aws: Aws, service: str, operation: str, parameters: Mapping[str, Any], /
) -> AsyncIterator[Answer]:
    """Every page of an answer."""
    asked = dict(parameters)
    while True:
        answer = await aws.call(service, operation, asked)
        yield answer
        following = next(((name, token) for key, name in TOKENS if (token := answer.get(key))), None)
        if following is None or answer.get("IsTruncated") is False:
            return
        asked = {**parameters, following[0]: following[1]}


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
        if _is_read(operation, parameters):
            return await self._aws.call(service, operation, parameters, retried=retried)
        if not self._may_write():
            raise _not_leading_error(f"{service}:{operation}")
        token = _MAY_SEND.set(self._may_write)
        try:
            return await self._aws.call(service, operation, parameters, retried=retried)
        finally:
            _MAY_SEND.reset(token)

    def scope_to(self, *, region: str = "", role: str = "", external_id: str = "") -> FencedAws:
        return FencedAws(
            self._aws.scope_to(region=region, role=role, external_id=external_id), self._may_write
        )


def check_fence(doing: str) -> None:
    """Refuse what is about to be sent if it stands behind a fence that is closed."""
    may_send = _MAY_SEND.get()
    if may_send is not None and not may_send():
        raise _not_leading_error(doing)


def _is_read(operation: str, parameters: Mapping[str, Any]) -> bool:
    return operation.startswith(READS) or bool(parameters.get("DryRun"))


def _not_leading_error(doing: str) -> AwsError:
    return aws_error(doing, NOT_LEADING, "this process no longer leads")
