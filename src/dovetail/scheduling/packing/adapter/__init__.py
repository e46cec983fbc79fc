"""Between pods and counts: groups and purchase options for the packing, and its answer as pods on nodes."""
