"""Which nodes should go, and in exchange for what?

Pure: a Snapshot and some settings go in, commands with their reasons come out. It deletes nothing and
waits for nothing.
"""
