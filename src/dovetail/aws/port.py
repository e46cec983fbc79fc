"""The shape of AWS as the rest of the code sees it: an operation goes in, its answer comes out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

__all__ = ["Answer", "Aws", "pages"]

# What AWS answers, as boto3 shows it: the operation's output members, times as datetimes, blobs as bytes.
Answer = Mapping[str, Any]

# How a service asks for its next page: the token's name in the answer, and in the request.
TOKENS = (("NextToken", "NextToken"), ("nextToken", "nextToken"), ("Marker", "Marker"))


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

    def at(self, *, region: str = "", role: str = "", external_id: str = "") -> Aws:
        """The same door in another region, or in another account by assuming a role there."""


async def pages(
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
