"""Where should each pending pod go?

Pure: no I/O, no clock, no logging; a Snapshot goes in, a Plan comes out. It launches nothing and binds
nobody: a plan is a proposal, with its reasons.

    model       snapshot, plan, reasons           solve       the whole batch at once
    sequential  one pod after another             packing     pods of one shape together, for price
    topology    spread, affinity, anti-affinity   verify      does a plan keep every rule?
    explain     why a pod is unschedulable        postprocess headroom, splitting, default placement
"""
