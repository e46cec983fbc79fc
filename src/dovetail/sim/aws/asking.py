"""One request to the simulated AWS, and the desk every service's operations are registered at.

A service is a module: it keeps its state in a class that is made once for an account and a region, and
registers a handler for each operation. Handlers answer in boto3's shape and refuse by `ask.refuse`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from dovetail.aws import AwsError, aws_error

if TYPE_CHECKING:
    from dovetail.sim.aws.ground import Ground

__all__ = ["OPERATIONS", "Ask", "Handler", "Json", "Subject", "operation"]

Json = dict[str, Any]


class Subject:
    """What one service remembers, for one account in one region (`""` where a service is global)."""

    def __init__(self, ground: Ground, account: str, region: str) -> None:
        self.ground, self.account, self.region = ground, account, region
        self.clock, self.rng = ground.clock, ground.rng
        self.begin()

    def begin(self) -> None:
        """Set up what it remembers."""


S = TypeVar("S", bound=Subject)


@dataclass(frozen=True, slots=True)
class Ask:
    """A request: who asks where for what."""

    ground: Ground
    account: str
    region: str
    service: str
    operation: str
    given: Mapping[str, Any] = field(default_factory=dict)

    def get(self, name: str, default: Any = None) -> Any:
        """A parameter; nothing that was given counts as not given."""
        value = self.given.get(name)
        return default if value is None else value

    def need(self, name: str) -> Any:
        value = self.given.get(name)
        if value is None:
            raise self.refuse("MissingParameter", f"The request must contain the parameter {name}")
        return value

    def here(self, subject: type[S]) -> S:
        """A regional service's memory."""
        return self.ground.subject(subject, self.account, self.region)

    def everywhere(self, subject: type[S]) -> S:
        """A global service's memory, of the account."""
        return self.ground.subject(subject, self.account, "")

    def refuse(self, code: str, message: str, status: int = 400) -> AwsError:
        return aws_error(f"{self.service}:{self.operation}", code, message, status)


Handler = Callable[[Ask], Json | Awaitable[Json]]
OPERATIONS: dict[tuple[str, str], Handler] = {}


def operation(service: str, *names: str) -> Callable[[Handler], Handler]:
    """Register the function as the answer to these operations."""

    def register(handler: Handler) -> Handler:
        for name in names:
            OPERATIONS[service, name] = handler
        return handler

    return register
