"""The life of a NodeClaim: ordered, launched, registered, initialised, and in the end let go.

One lifecycle controller walks the steps in order on one object; the others watch over it from the side.
"""
