"""The recording of what decisions saw: the sequence of Situations as differences, exact. Pure.

    Situation ─► encoder ─► segment (lines, gzip, digest)      rows: what a line holds
    Situation ◄─ decoder ◄─ reader (at a time, or all looks)   answers: what was asked and decided
                                                               anonymise: the same without its names

A segment begins with a keyframe: the first look, which holds everything. Every other look holds what differs
from the one before. Nothing here reads a file or a clock; runtime/recording.py does.
"""
