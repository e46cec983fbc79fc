"""Topology spread, pod affinity and anti-affinity: which domains a pod may still go to."""
