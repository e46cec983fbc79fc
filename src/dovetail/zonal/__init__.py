"""Zonal shift: a zone is impaired, so nothing is launched or disrupted there until ARC says it is over.

model       what a shift asks of NodePools, Nodes and launches, and its exact undo; pure
controller  carries it out in the cluster       store   where ZoneShifts are kept
ingest      messages that say: look at ARC      wiring  all of it as one service
lambda_entry  the same as a Lambda function     options what is chosen, by settings and a ConfigMap
"""
