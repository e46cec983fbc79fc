"""Numbers about the cluster for people who watch: nodes, pods, pools, and how conditions turn.

Upstream has a series per node, pod and condition. Here what is alike is added up and the name is left
empty, unless every single one is asked for: five hundred nodes then cost dozens of series, not thousands.
"""
