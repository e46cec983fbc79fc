"""Where should each pending pod go?

Pure: no I/O, no clock, no logging; a Snapshot goes in, a Plan comes out. It launches nothing and binds no
pod: a plan is a proposal, with its reasons.

    model/       snapshot, plan, requirements, reasons    solve        the whole batch at once, for price
    sequential/  one pod after another, as Karpenter      packing/     pods of one shape together
    topology/    spread, affinity, anti-affinity          postprocess  headroom, splitting, default placement
    verify       does a plan keep every rule?             explain      why a pod is unschedulable
    bad_objects  decide without objects that cannot       missing_resources  what no NodePool can buy
                 be read
"""
