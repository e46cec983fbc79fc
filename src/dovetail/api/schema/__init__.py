"""The one interpreter of OpenAPI v3 structural schemas, for `dovetail validate` and the embedded API server.

    nodes           a schema as nodes: what may stand at one place
    object_schema   a kind's schema: prune unknown fields, fill in defaults, validate
    validation      the keywords that a value breaks
    formats         string formats such as date-time and duration
    causes          failures in the words of kube-apiserver
    cel             the one home of the CEL library: compile a rule once, evaluate it many times
    cel_rules       the x-kubernetes-validations of a schema, run over an object
    cel_cost        what an evaluation may cost
    cel_functions   Kubernetes' own CEL functions; those over strings are in cel_text

The library is loaded when the first rule is compiled. The words of `dovetail validate` are in
`dovetail.api.validation.schema`.
"""
