"""A simulated AWS: what the provider and the interruption bus ask for, in memory and in any clock's time.

It knows nothing about nodes or pools; it is the cloud that Dovetail asks.
"""

from __future__ import annotations

from dovetail.sim.aws.cloud import RecordedCall, SimulatedAws
from dovetail.sim.aws.service import AwsRequest, Json, ServiceState, operation

__all__ = ["AwsRequest", "Json", "RecordedCall", "ServiceState", "SimulatedAws", "operation"]
