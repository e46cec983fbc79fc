"""The followers of a shadow by role: one-step differences, the twin, and the twin that calibrates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from dovetail.history.differences import DifferenceTracker, decide_as_dovetail
from dovetail.history.shadow import ShadowFold
from dovetail.play.shadowing import LookConsumer

__all__ = ["DIFFERENCES", "FoldConsumer", "ShadowTwins", "TellingConsumer", "build_consumer"]

DIFFERENCES: Final = "differences"


@dataclass(frozen=True, slots=True)
class ShadowTwins:
    """Which followers a shadow has, and what the twin decides with."""

    roles: tuple[str, ...] = (DIFFERENCES,)
    settings: tuple[tuple[str, str], ...] = ()
    seed: int = 0


class TellingConsumer(LookConsumer, Protocol):
    """Takes looks, and says as JSON what they came to."""

    def encode_result(self) -> bytes:
        """What is known so far."""


class FoldConsumer(ShadowFold):
    """The one-step differences and what was paid."""

    def encode_result(self) -> bytes:
        """The report, without twins."""
        return msgspec.json.encode(self.build_report())


def build_consumer(role: str, twins: ShadowTwins) -> TellingConsumer:
    """The follower of a role."""
    return FoldConsumer(DifferenceTracker(decide_as_dovetail))
