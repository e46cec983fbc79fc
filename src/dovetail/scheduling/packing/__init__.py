"""How few dollars an hour hold these pods? Counts in, counts out.

The room knows nothing of Kubernetes: pods nobody can tell apart are a group with a count, what can be
bought is an option with room and a price, and a plan says how many of each group go on which node. It
names no pod and reads no label; `adapter/to_groups.py` and `adapter/from_groups.py` do.

    zones      which zone each pod goes to, so that every zone is a problem of its own
    existing   room that is paid for is filled first
    greedy     a complete plan in milliseconds
    improve    the same plan made cheaper: column generation, dives, ruin and repack
    realise    which group's pods make up the counts, under the exact host rules
    bound      what no plan can undercut, safe whatever the solver's tolerance was
"""

from __future__ import annotations

from dovetail.scheduling.packing.batch import ANY_ZONE, ExistingCapacity, PackedNode, PackedPlan, PackingBatch
from dovetail.scheduling.packing.bulk import compute_batch_bound, pack_batch
from dovetail.scheduling.packing.host_rules import HostRule
from dovetail.scheduling.packing.improve import QUICK, THOROUGH, Effort
from dovetail.scheduling.packing.problem import Bools, Floats, Ints
from dovetail.scheduling.packing.zone_assignment import ZoneAffinity, ZoneSpread

__all__ = [
    "ANY_ZONE",
    "QUICK",
    "THOROUGH",
    "Bools",
    "Effort",
    "ExistingCapacity",
    "Floats",
    "HostRule",
    "Ints",
    "PackedNode",
    "PackedPlan",
    "PackingBatch",
    "ZoneAffinity",
    "ZoneSpread",
    "compute_batch_bound",
    "pack_batch",
]
