"""Dovetail in CDK apps: the account's part, the controller's role, and add-ons shaped like EKS blueprints'.

It makes no decision of its own: policies, rules and queues come from the file every kit shares.
"""

from __future__ import annotations

from dovetail_cdk.account import ControllerPolicies, ControllerRole, InterruptionQueue, NodeRole
from dovetail_cdk.addon import ClusterInfo, Deployed, KarpenterAddOn, KarpenterV1AddOn
from dovetail_cdk.manifests import AddOnRefused
from dovetail_cdk.stacks import (
    InterruptionBus,
    InterruptionBusCluster,
    InterruptionExperiment,
    ZonalShift,
)

__all__ = [
    "AddOnRefused",
    "ClusterInfo",
    "ControllerPolicies",
    "ControllerRole",
    "Deployed",
    "InterruptionBus",
    "InterruptionBusCluster",
    "InterruptionExperiment",
    "InterruptionQueue",
    "KarpenterAddOn",
    "KarpenterV1AddOn",
    "NodeRole",
    "ZonalShift",
]
