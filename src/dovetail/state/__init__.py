"""What do we believe right now?

Watch events are folded into one picture of nodes, claims and pods, from which a Snapshot is taken in
one breath. It decides nothing and writes nothing; it is touched on the loop only, never across an await.
"""

from __future__ import annotations

from dovetail.state.capture import Capture, ClusterStores, DeviceStores
from dovetail.state.cluster import Cluster
from dovetail.state.tracked_node import TrackedNode

__all__ = ["Capture", "Cluster", "ClusterStores", "DeviceStores", "TrackedNode"]
