"""What the server's refusals mean to a caller: one table from HTTP codes to errors.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dovetail.errors import (
    AlreadyExists,
    Conflict,
    DovetailError,
    Expired,
    Gone,
    Invalid,
    NotAuthorized,
    Refused,
    Retry,
    Throttled,
)

__all__ = ["KubeStatus", "failure", "retry_after"]


class KubeStatus(Exception):
    """The server's own words about a failure: the cause behind the error a caller sees."""

    def __init__(self, code: int, reason: str, message: str, details: Mapping[str, Any]) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    @property
    def causes(self) -> tuple[str, ...]:
        """The reasons the server gave in detail, such as DisruptionBudget."""
        return tuple(str(cause.get("reason", "")) for cause in self.details.get("causes") or ())


class _Status(msgspec.Struct):
    reason: str = ""
    message: str = ""
    details: dict[str, Any] | None = None


_MEANING: Mapping[int, type[DovetailError]] = {
    400: Invalid,
    401: NotAuthorized,
    403: NotAuthorized,
    404: Gone,
    408: Retry,
    409: Conflict,
    410: Expired,
    422: Invalid,
}


def failure(doing: str, code: int, body: bytes, headers: Mapping[str, str] | None = None) -> DovetailError:
    """The error that tells a caller what to do next; the server's words stay attached as its cause."""
    try:
        status = msgspec.json.decode(body, type=_Status)
    except msgspec.MsgspecError:
        # A proxy in between answers in its own words; keep the start of them.
        status = _Status(message=body[:200].decode(errors="replace").strip())
    text = f"{doing}: {status.message or status.reason or f'the server answered {code}'}"
    error: DovetailError
    if code == 429:
        error = Throttled(text, retry_after(code, headers or {}))
    elif code == 409 and status.reason == "AlreadyExists":
        error = AlreadyExists(text)
    else:
        error = _MEANING.get(code, Retry if code >= 500 else Refused)(text)
    error.__cause__ = KubeStatus(code, status.reason, status.message, status.details or {})
    return error


def retry_after(code: int, headers: Mapping[str, str]) -> float | None:
    """How long the server asked us to wait before the same request, in seconds."""
    if code != 429 and code < 500:
        return None
    text = next((value for name, value in headers.items() if name.lower() == "retry-after"), "")
    return float(text) if text.isascii() and text.isdigit() else None
