"""EC2 and its friends: what can be bought there, what a node of it offers, and what it costs.

Deciding what to buy is not done here. Today the room holds the catalogue; it needs no AWS account.
"""

from __future__ import annotations

from dovetail.providers.aws.catalog import Terms, instance_type
from dovetail.providers.aws.estimate import offline_types
from dovetail.providers.aws.facts import Facts, Tables

__all__ = ["Facts", "Tables", "Terms", "instance_type", "offline_types"]
