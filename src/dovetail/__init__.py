"""Dovetail: a node autoscaler platform for Kubernetes."""

__version__ = "0.1.0"
