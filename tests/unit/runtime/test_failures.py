"""Each refusal of a server means one thing to a caller."""

from __future__ import annotations

import msgspec
import pytest

from dovetail import errors
from dovetail.runtime.kube import build_failure, read_retry_after


def status(reason: str = "", message: str = "why", **details: object) -> bytes:
    return msgspec.json.encode({"kind": "Status", "reason": reason, "message": message, "details": details})


@pytest.mark.parametrize(
    ("code", "reason", "meaning"),
    [
        (400, "BadRequest", errors.Invalid),
        (401, "Unauthorized", errors.NotAuthorized),
        (403, "Forbidden", errors.NotAuthorized),
        (404, "NotFound", errors.Gone),
        (405, "MethodNotAllowed", errors.Refused),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Expired),
        (415, "UnsupportedMediaType", errors.Refused),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.Throttled),
        (500, "InternalError", errors.Retry),
        (503, "ServiceUnavailable", errors.Retry),
        (504, "Timeout", errors.Retry),
    ],
)
def test_a_code_and_a_reason_have_one_meaning(
    code: int, reason: str, meaning: type[errors.DovetailError]
) -> None:
    error = build_failure("patching Node a", code, status(reason))
    assert type(error) is meaning
    assert str(error) == "patching Node a: why"
    cause = error.__cause__
    assert isinstance(cause, errors.KubeStatus)
    assert (cause.code, cause.reason, cause.message) == (code, reason, "why")


def test_the_servers_details_stay_attached() -> None:
    error = build_failure(
        "evicting Pod a", 429, status(causes=[{"reason": "DisruptionBudget"}]), {"Retry-After": "7"}
    )
    assert isinstance(error, errors.Throttled)
    assert error.after == 7
    assert isinstance(error.__cause__, errors.KubeStatus)
    assert error.__cause__.causes == ("DisruptionBudget",)


def test_a_proxys_own_words_are_kept_in_part() -> None:
    error = build_failure("reading Node a", 502, b"<html>" + b"x" * 5000)
    assert isinstance(error, errors.Retry)
    assert str(error).startswith("reading Node a: <html>x")
    assert len(str(error)) < 300
    assert str(build_failure("reading Node a", 418, b"")) == "reading Node a: the server answered 418"


def test_only_throttling_and_server_trouble_are_waited_for() -> None:
    assert read_retry_after(429, {"retry-after": "3"}) == 3
    assert read_retry_after(503, {"Retry-After": "1"}) == 1
    assert read_retry_after(409, {"Retry-After": "1"}) is None
    assert read_retry_after(429, {}) is None
    assert read_retry_after(429, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}) is None
