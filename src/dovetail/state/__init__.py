"""What do we believe right now?

Watch events are folded into one picture of nodes, claims and pods, from which a Snapshot is taken in
one breath. It decides nothing and writes nothing; it is touched on the loop only, never across an await.
"""

from __future__ import annotations

from dovetail.state.capture import Capture, DeviceShelves, Shelves
from dovetail.state.cluster import Cluster
from dovetail.state.place import Place

__all__ = ["Capture", "Cluster", "DeviceShelves", "Place", "Shelves"]
