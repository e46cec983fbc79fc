"""What the steps of a claim's life hand to each other."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.api.nodeclaim import NodeClaim
from dovetail.controllers.base import DONE, Result

__all__ = ["Step"]


@dataclass(frozen=True, slots=True)
class Step:
    """The claim as a step leaves it, and when it wants to look again. `over` means it is being deleted."""

    claim: NodeClaim
    result: Result = DONE
    error: Exception | None = None
    over: bool = False
