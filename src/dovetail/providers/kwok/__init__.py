"""Nodes that exist only as objects: the smallest complete provider, and the one to read first.

A launch creates a Node and a deletion removes it, so it serves the embedded cluster and any real API
server where kwok plays the kubelets. Nothing here costs money.
"""
