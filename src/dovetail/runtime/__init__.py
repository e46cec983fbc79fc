"""The machinery: how Dovetail speaks to a Kubernetes, and how controllers are run.

It knows no rule about pods or nodes.
"""
