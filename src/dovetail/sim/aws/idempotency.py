"""Client tokens: EC2 carries out a request once and gives whoever repeats it the first answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from dovetail.sim.aws.asking import Ask, Json, Subject

__all__ = ["ClientTokens", "carry_out_once"]

LONGEST = 64
REMEMBERED = timedelta(days=1)


class ClientTokens(Subject):
    """The requests of the last day that named a token, by operation and token, with their answers."""

    def begin(self) -> None:
        self.known: dict[tuple[str, str], tuple[datetime, Mapping[str, Any], Json]] = {}

    def forget_old(self) -> None:
        now = self.clock.now()
        while self.known and next(iter(self.known.values()))[0] < now - REMEMBERED:
            del self.known[next(iter(self.known))]


def carry_out_once(ask: Ask, work: Callable[[], Json]) -> Json:
    """The answer to a request; a token that came with other parameters before is refused.

    A request that EC2 refused as a whole has not used its token up.
    """
    token = ask.get("ClientToken", "")
    if not token:
        return work()
    if len(token) > LONGEST or not token.isascii():
        raise ask.refuse(
            "InvalidParameterValue",
            f"Value for parameter ClientToken is longer than {LONGEST} ASCII characters",
        )
    tokens, key = ask.here(ClientTokens), (ask.operation, token)
    tokens.forget_old()
    if key not in tokens.known:
        answer = work()
        tokens.known[key] = tokens.clock.now(), dict(ask.given), answer
    _, given, answer = tokens.known[key]
    if given != dict(ask.given):
        raise ask.refuse(
            "IdempotentParameterMismatch",
            "The client token was used with other parameters; use another token or the same parameters.",
        )
    return dict(answer)
