"""The nouns: frozen records of every kind Dovetail reads or writes, cloud-neutral where they can be.

No I/O, no clock, no decisions about nodes.
"""
