"""What goes wrong on the way to AWS: refusals, throttling, server faults, answers that are late or lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from dovetail.aws import AwsError
from dovetail.ports import Clock
from dovetail.sim.aws.service import AwsRequest
from dovetail.throttle import Throttle

__all__ = ["AwsFaults"]

# How long a client waits for an answer before it gives up.
PATIENCE = 240.0
STATUS = {
    "RequestLimitExceeded": 503,
    "Throttling": 400,
    "ThrottlingException": 400,
    "InternalError": 500,
    "InternalFailure": 500,
    "ServiceUnavailable": 503,
    "Unavailable": 503,
    "UnauthorizedOperation": 403,
    "AccessDenied": 403,
}


@dataclass(slots=True)
class _Rule:
    """Something that happens to requests for an operation, some number of times."""

    operation: str
    act: Callable[[AwsRequest], AwsError | None]
    left: int | None
    lost: bool = False
    hang: float | None = None

    def applies_to(self, request: AwsRequest) -> bool:
        if self.left == 0:
            return False
        return self.operation in (
            "*",
            request.operation,
            f"{request.service}:{request.operation}",
            f"{request.service}:*",
        )


class AwsFaults:
    """What is to go wrong. The client's own repeats are not played: a refusal is what is left of them."""

    def __init__(self, clock: Clock, rng: Random) -> None:
        self._clock, self._rng = clock, rng
        self._rules: list[_Rule] = []
        # Request budgets as EC2 keeps them, by operation: buckets that fill with time.
        self._budgets: list[tuple[str, Throttle]] = []
        self.expired = False
        # Seconds every answer takes, from and to.
        self.latency: tuple[float, float] = (0.0, 0.0)

    def refuse(
        self, code: str, operation: str = "*", times: int | None = 1, message: str = "", status: int = 0
    ) -> None:
        """Refuse the operation with a code: so many times, or until `clear` with None."""
        said = message or f"the simulation refuses this request with {code}"
        told = status or STATUS.get(code, 400)
        self._rules.append(_Rule(operation, lambda request: request.refuse(code, said, told), times))

    def refuse_sometimes(self, rate: float, codes: Iterable[str], operation: str = "*") -> None:
        """That share of requests is refused, by chance, with one of the codes."""
        choices = tuple(codes)

        def act(request: AwsRequest) -> AwsError | None:
            if self._rng.random() >= rate:
                return None
            code = self._rng.choice(choices)
            return request.refuse(
                code, f"the simulation refuses this request with {code}", STATUS.get(code, 400)
            )

        self._rules.append(_Rule(operation, act, None))

    def hang_requests(self, operation: str = "*", times: int | None = 1, seconds: float = PATIENCE) -> None:
        """No answer comes, until the client gives up."""
        self._rules.append(_Rule(operation, _no_answer, times, hang=seconds))

    def lose_answers(self, operation: str, times: int | None = 1) -> None:
        """The operation is done, and its answer is lost on the way."""
        self._rules.append(_Rule(operation, _no_answer, times, lost=True))

    def throttle(self, operation: str, size: float, fills: float) -> None:
        """A request budget: a bucket of that size that fills by so many requests a second."""
        self._budgets.append((operation, Throttle(self._clock, fills, size)))

    def clear(self) -> None:
        self._rules.clear()
        self._budgets.clear()
        self.expired, self.latency = False, (0.0, 0.0)

    async def apply_before(self, request: AwsRequest) -> None:
        """What happens to a request before it is looked at."""
        if self.latency[1]:
            await self._clock.sleep(self._rng.uniform(*self.latency))
        if self.expired and request.service != "sts":
            raise _build_expired_error(request)
        self._spend_budget(request)
        for rule in [each for each in self._rules if not each.lost and each.applies_to(request)]:
            if rule.hang is not None:
                _count_use(rule)
                await self._clock.sleep(rule.hang)
            error = rule.act(request)
            if error is not None:
                if rule.hang is None:
                    _count_use(rule)
                raise error

    def apply_after(self, request: AwsRequest) -> None:
        """What happens to an answer on its way."""
        for rule in self._rules:
            if rule.lost and rule.applies_to(request):
                _count_use(rule)
                error = rule.act(request)
                if error is not None:
                    raise error

    def _spend_budget(self, request: AwsRequest) -> None:
        for operation, budget in self._budgets:
            if operation in ("*", request.operation) and not budget.try_take():
                code = "RequestLimitExceeded" if request.service == "ec2" else "ThrottlingException"
                raise request.refuse(code, "Request limit exceeded.", STATUS[code])


def _count_use(rule: _Rule) -> None:
    if rule.left is not None:
        rule.left -= 1


def _no_answer(request: AwsRequest) -> AwsError:
    return request.refuse("NoAnswer", "the connection was closed before an answer came", 0)


def _build_expired_error(request: AwsRequest) -> AwsError:
    """Each protocol has its own name for credentials that ran out."""
    if request.service == "ec2":
        return request.refuse("RequestExpired", "Request has expired.")
    code = "ExpiredToken" if request.service in ("iam", "s3", "sts") else "ExpiredTokenException"
    return request.refuse(code, "The security token included in the request is expired", 403)
