"""Where should each pending pod go?

Pure: no I/O, no clock, no logging; a Snapshot goes in, a Plan comes out. It launches nothing and binds
nobody: a plan is a proposal, with its reasons.

    snapshot   the whole world, frozen            plan      what to do, and how it becomes NodeClaims
    solve      the whole batch at once            exact     one pod after another, the original's way
    referee    does a plan keep every rule?       verdicts  why a pod has no place
    topology   spread, affinity, anti-affinity    typetable a catalogue arranged for asking
"""
