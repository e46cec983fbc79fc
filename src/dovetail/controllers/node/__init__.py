"""The end of a Node, and the repair of one: taint, drain, volumes, instance; and which nodes are beyond hope.

It orders nothing new and chooses no node to give up: a Node that is being deleted is all it needs to know.
"""
