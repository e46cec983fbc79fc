"""How AWS is asked: one door for every request, and one table for what its refusals mean.

Nothing is decided here and nothing is remembered but clients. Production calls through `BotoAws`; the
simulator stands behind the same door.
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
from dovetail.aws.port import NOT_LEADING, Answer, Aws, FencedAws, list_pages

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
    "list_pages",
]
