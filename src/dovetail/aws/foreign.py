"""What botocore raises, as what it means here."""

from __future__ import annotations

import botocore.exceptions

from dovetail.aws.errors import AwsError, aws_error

__all__ = ["translated"]


def translated(doing: str, error: Exception) -> tuple[AwsError, int]:
    """The error's meaning, and how often the client had tried again before."""
    if isinstance(error, botocore.exceptions.ClientError):
        told, facts = error.response.get("Error", {}), error.response.get("ResponseMetadata", {})
        code, message = told.get("Code") or "Unknown", told.get("Message") or "no reason was given"
        return aws_error(doing, code, message, facts.get("HTTPStatusCode", 0)), facts.get("RetryAttempts", 0)
    if isinstance(
        error, botocore.exceptions.NoCredentialsError | botocore.exceptions.PartialCredentialsError
    ):
        return aws_error(doing, "NoCredentials", "no AWS credentials were found; give the process a role"), 0
    if isinstance(error, botocore.exceptions.ParamValidationError):
        return aws_error(doing, "InvalidParameterValue", str(error).replace("\n", " "), 400), 0
    return aws_error(doing, "NoAnswer", str(error)), 0
