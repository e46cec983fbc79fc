"""The disruption methods: the rule by which each finds nodes to remove."""
