"""The cluster's own controllers, simulated: scheduler, kubelet, workload controllers, storage.

They speak to the API server only through its store, never to each other.
"""
