"""A whole cluster in one process, over HTTP in real time or in virtual time.

It decides nothing about nodes; it is the world that Dovetail acts upon.
"""
