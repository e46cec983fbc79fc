"""The simulated kube-scheduler: one pending pod at a time, filtered, scored, bound or told why not.

It shares no line with Dovetail's own engine on purpose: it is the judge of that engine's plans.
"""

from __future__ import annotations

from dovetail.sim.cluster.scheduler.loop import KubeScheduler

__all__ = ["KubeScheduler"]
