"""A simulated AWS: what the provider and the interruption bus ask for, in memory and in any clock's time.

It knows nothing about nodes or pools; it is the cloud that Dovetail asks.
"""

from __future__ import annotations

from dovetail.sim.aws.asking import Ask, Json, Subject, operation
from dovetail.sim.aws.cloud import Call, SimulatedAws

__all__ = ["Ask", "Call", "Json", "SimulatedAws", "Subject", "operation"]
