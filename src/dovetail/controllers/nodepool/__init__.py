"""Housekeeping of NodePools: hash, counter, readiness, validation, registration health."""
