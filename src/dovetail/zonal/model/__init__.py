"""What a zonal shift asks for, decided without I/O: polls, messages and objects go in, changes come out.

shifts         what ARC says, by kind and policy     nodes       marks on nodes and their undo
pools, clone   edits of NodePools and their undo     events      what a message says; never the truth
state_machine  one shift from Pending to Restored    gates       zones closed for launches and disruption
records        a shift and its ZoneShift object
"""
