"""Stepping out of an impaired zone, and back: asking ARC, keeping ZoneShifts, marking nodes, editing pools.

What follows from what is decided in dovetail.zonal; here it is carried out, one write for each object.
"""
