"""Serving schemas: what the API server does with them beyond what `dovetail.api.schema` says of a value.

crd          a CustomResourceDefinition as a type that is served
crd_checks   what a real server refuses in a CustomResourceDefinition
prune        unknown fields dropped and reported as a client asks; quantities in one spelling
"""
