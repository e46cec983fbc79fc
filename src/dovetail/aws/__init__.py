"""How AWS is asked: one door for every request, and one table for what its refusals mean.

Nothing is decided here and nothing is remembered but clients. Production knocks through `Boto`; the simulator
stands behind the same door.
"""

from __future__ import annotations

from dovetail.aws.errors import (
    AwsAbsent,
    AwsDenied,
    AwsError,
    AwsInvalid,
    AwsTrouble,
    DryRunPassed,
    aws_error,
)
from dovetail.aws.fence import NOT_LEADING, FencedAws
from dovetail.aws.port import Answer, Aws, pages

__all__ = [
    "NOT_LEADING",
    "Answer",
    "Aws",
    "AwsAbsent",
    "AwsDenied",
    "AwsError",
    "AwsInvalid",
    "AwsTrouble",
    "DryRunPassed",
    "FencedAws",
    "aws_error",
    "pages",
]
