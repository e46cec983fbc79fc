"""What AWS refuses, by meaning: one table from its codes to what a caller does next.

AwsError
├── AwsAbsent     (Gone)           the thing is not there
├── AwsDenied     (NotAuthorized)  a person must grant something, or renew credentials
├── AwsInvalid    (Refused)        understood, and not taken as it is
├── AwsTrouble    (Retry)          throttled, a server fault, no answer: ask again later
└── DryRunPassed  (Refused)        a dry run would have worked

Callers that must tell two refusals apart compare `code`, never the text.
"""

from __future__ import annotations

from dovetail.errors import DovetailError, Gone, NotAuthorized, Refused, Throttled

__all__ = [
    "AwsAbsent",
    "AwsDenied",
    "AwsError",
    "AwsInvalid",
    "AwsTrouble",
    "DryRunPassed",
    "aws_error",
]


class AwsError(DovetailError):
    """A refusal with its code, AWS's own sentence and the HTTP status (0 when there was no answer)."""

    code: str
    message: str
    status: int
    operation: str


class AwsAbsent(AwsError, Gone):
    """The thing is not there."""


class AwsDenied(AwsError, NotAuthorized):
    """A person must grant something, or renew credentials."""


class AwsInvalid(AwsError, Refused):
    """Understood, and not taken as it is."""


class AwsTrouble(AwsError, Throttled):
    """Throttled, a server fault, or no answer at all: ask again later."""


class DryRunPassed(AwsError, Refused):
    """A dry run would have worked."""


ABSENT = frozenset(
    {
        "AWS.SimpleQueueService.NonExistentQueue",
        "InvalidAMIID.NotFound",
        "InvalidCapacityReservationId.NotFound",
        "InvalidGroup.NotFound",
        "InvalidInstanceID.NotFound",
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateName.NotFoundException",
        "InvalidPlacementGroup.Unknown",
        "InvalidPlacementGroupId.NotFound",
        "InvalidSubnetID.NotFound",
        "NoSuchBucket",
        "NoSuchEntity",
        "NoSuchKey",
        "ParameterNotFound",
        "QueueDoesNotExist",
        "ResourceNotFoundException",
    }
)
DENIED = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "NoCredentials",
        "OptInRequired",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnauthorizedOperation",
        "UnrecognizedClientException",
    }
)
TROUBLE = frozenset(
    {
        "EC2ThrottledException",
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "NoAnswer",
        "PriorRequestNotComplete",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "Unavailable",
    }
)


def aws_error(operation: str, code: str, message: str, status: int = 0) -> AwsError:
    """The error an AWS code means; a 5xx is trouble whatever its code, an unknown 4xx is invalid."""
    error = _find_kind(code, status)(f"{operation}: {code}: {message}")
    error.code, error.message, error.status, error.operation = code, message, status, operation
    return error


def _find_kind(code: str, status: int) -> type[AwsError]:
    if code == "DryRunOperation":
        return DryRunPassed
    if code in TROUBLE or status >= 500:
        return AwsTrouble
    if code in ABSENT:
        return AwsAbsent
    if code in DENIED:
        return AwsDenied
    return AwsInvalid
