"""What a zonal shift asks for, decided without I/O: polls, messages and objects go in, changes come out.

shifts         what ARC says, by kind and policy     zone_bound  pods that only an excluded zone could take
pools, clone   edits of NodePools and their undo     nodes       marks on nodes and their undo
state_machine  one shift from Pending to Restored    events      what a message says; never the truth
records        a shift and its ZoneShift object      gates       zones closed for launches and disruption
"""
