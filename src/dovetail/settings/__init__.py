"""One frozen Settings, read once from flags and environment."""
