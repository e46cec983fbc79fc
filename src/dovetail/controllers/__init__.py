"""Make it so: read, ask the core, write.

Controllers decide nothing themselves; what should happen comes from scheduling and disruption.
"""
