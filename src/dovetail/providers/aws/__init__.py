"""EC2 and its friends: what can be bought there, what a node of it costs, and how one is had and let go.

Deciding what to buy is not done here. The catalogue needs no AWS account; the provider is asked through
`dovetail.aws` alone, so that nothing here knows of boto3.
"""

from __future__ import annotations

from dovetail.providers.aws.catalog import NodeClassTerms, build_instance_type
from dovetail.providers.aws.instance_type_info import InstanceTypeInfo, InstanceTypeTables
from dovetail.providers.aws.offline_catalog import list_offline_types
from dovetail.providers.aws.provider import AwsProvider

__all__ = [
    "AwsProvider",
    "InstanceTypeInfo",
    "InstanceTypeTables",
    "NodeClassTerms",
    "build_instance_type",
    "list_offline_types",
]
