"""How few dollars an hour hold these pods? Counts in, counts out.

The room knows nothing of Kubernetes: pods nobody can tell apart are a group with a count, what can be
bought is an option with room and a price, and a plan says how many of each group go on which node. It
names no pod and reads no label; `scheduling/counting.py` and `seating.py` do.

    zones      which zone each pod goes to, so that every zone is a problem of its own
    existing   room that is paid for is filled first
    greedy     a complete plan in milliseconds
    improve    the same plan made cheaper: column generation, dives, ruin and repack
    realise    which group's pods make up the counts, under the exact host rules
    bound      what no plan can undercut, safe whatever the solver's tolerance was
"""

from __future__ import annotations

from dovetail.scheduling.packing.batch import ANY_ZONE, Batch, BulkNode, BulkPlan, Running
from dovetail.scheduling.packing.bulk import batch_bound, place
from dovetail.scheduling.packing.hosts import HostRule
from dovetail.scheduling.packing.improve import QUICK, THOROUGH, Effort
from dovetail.scheduling.packing.problem import Bools, Floats, Ints
from dovetail.scheduling.packing.zones import Together, ZoneSpread

__all__ = [
    "ANY_ZONE",
    "QUICK",
    "THOROUGH",
    "Batch",
    "Bools",
    "BulkNode",
    "BulkPlan",
    "Effort",
    "Floats",
    "HostRule",
    "Ints",
    "Running",
    "Together",
    "ZoneSpread",
    "batch_bound",
    "place",
]
