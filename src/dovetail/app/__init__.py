"""The services behind the commands, and all wiring: who is constructed with what.

`controller` puts the autoscaler together; `process` runs it in production, `embedded_cluster` in a
simulated cluster, and `dovetail.play` in virtual time. `live_cluster` only looks. Commands parse, ask one of
these, and print.
"""
