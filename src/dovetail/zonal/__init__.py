"""Zonal shift: a zone is impaired, so nothing is launched or disrupted there until ARC says it is over.

model         what a shift asks of NodePools, Nodes and launches, and its exact undo; pure
controller    carries it out in the cluster
store         where ZoneShifts are kept
ingest        messages that say: look at ARC
options       what was chosen, by settings and by the policy; policy_map reads that from its ConfigMap
wiring        all of it as one service; lambda_entry is the same as a Lambda function
"""
