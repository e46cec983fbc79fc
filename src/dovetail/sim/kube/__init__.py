"""The Kubernetes wire: a small API server that clients cannot tell from a real one.

It runs no controllers; those live in sim.cluster.
"""
