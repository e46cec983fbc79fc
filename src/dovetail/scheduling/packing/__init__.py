"""How few dollars an hour hold these pods? Counts in, counts out.

The room knows nothing of Kubernetes: pods of one shape are a class with a count, what can be bought
is an option with room and a price, and a plan says how many of each class go on how many of each
option. It names no pod and reads no label; `scheduling/solve.py` does both.

    greedy    a complete plan in milliseconds
    improve   the same plan made cheaper: column generation, a dive, ruin and repack
    bound     what no plan can undercut, safe whatever the solver's tolerance was
"""

from __future__ import annotations

# from dovetail.scheduling.packing.bound import certified_bound
# from dovetail.scheduling.packing.improve import Effort, Packing, pack
from dovetail.scheduling.packing.problem import Problem, Row, Rows

__all__ = ["Effort", "Packing", "Problem", "Row", "Rows", "certified_bound", "pack"]
