"""The only file that imports the CDK, and it does so by name: type checkers need minutes for its stubs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["Part", "cdk", "eks", "events", "iam", "include", "sqs"]


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            f"dovetail_cdk needs {name}, which is not installed; install dovetail with its extra `cdk`"
        ) from error


cdk: Any = _imported("aws_cdk")
eks: Any = _imported("aws_cdk.aws_eks")
events: Any = _imported("aws_cdk.aws_events")
iam: Any = _imported("aws_cdk.aws_iam")
include: Any = _imported("aws_cdk.cloudformation_include")
sqs: Any = _imported("aws_cdk.aws_sqs")


class Part(_imported("constructs").Construct):  # type: ignore[misc]
    """A construct of this package."""
