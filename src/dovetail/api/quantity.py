"""Exact amounts, as Kubernetes writes them."""

from __future__ import annotations


class Quantity:
    """Placeholder replaced at once by the exact implementation."""
