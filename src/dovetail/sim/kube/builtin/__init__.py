"""The built-in kinds: which there are, their schemas, defaults and rules.

kinds                which kinds are served
kind_schemas         the schemas of built-in kinds
defaults_workloads   defaults of pods and workloads; those of other kinds in defaults_rest
rules_pods           what is refused in pods; rules_network and rules_rest have the other kinds
autoscalers          HorizontalPodAutoscalers
"""
