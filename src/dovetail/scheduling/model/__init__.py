"""The records of scheduling: what is in a snapshot, what a pod requires, what a plan says."""
