"""Every error Dovetail raises, grouped by what the caller does next.

DovetailError
├── Retry                   try again later; the queue backs off
│   ├── CreateFailed          the cloud refused a launch for a reason worth showing
│   ├── Conflict              someone wrote first: read again, decide again
│   ├── Throttled             slow down
│   └── Expired               the watch or page is too old: list again
├── Refused                 this attempt is over; say why on the object
│   ├── InsufficientCapacity  avoid these offerings, choose others
│   ├── ClassNotReady         the node class cannot be used yet
│   ├── NotAuthorized         a person must grant something
│   ├── Invalid               the server understood the request and will not take it
│   └── AlreadyExists         someone created it first
├── Gone                    already absent: for a delete, that is success
└── Misconfigured           stop with one clear sentence
    └── BadInput              a file or document a person gave us cannot be used

What the API server said about a failure is its cause, a KubeStatus. An unschedulable pod is not an error. It
is a Decision.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

MOST_SHOWN = 100


def shorten_text(text: str) -> str:
    """A text as a message may show it: a long one by its beginning and its length."""
    if len(text) <= MOST_SHOWN:
        return text
    return f"{text[:MOST_SHOWN]}… ({len(text):,} characters)"


# What a terminal obeys rather than shows: control characters but for line ends and tabs, and marks that turn
# the direction of text. Names and messages come from files and clusters that others have written.
_OBEYED = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def escape_text(text: str) -> str:
    """The text with such characters spelled out, as JSON spells them."""
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class DovetailError(Exception):
    """Anything Dovetail raises on purpose."""


class Retry(DovetailError):
    """Try again later; the queue backs off, but for no longer than ``within`` seconds if that is given."""

    within: float | None = None

    def __init__(self, *about: object, within: float | None = None) -> None:
        super().__init__(*about)
        self.within = within


class Conflict(Retry):
    """Someone wrote first: read again, decide again."""


class CreateFailed(Retry):
    """The cloud refused a launch. `reason` is a word for the Launched condition, `message` a sentence."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Throttled(Retry):
    """Slow down. ``after`` is how long the other side asked us to wait, in seconds."""

    def __init__(self, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class Expired(Retry):
    """The place we wanted to resume from is gone: list again."""


class Refused(DovetailError):
    """This attempt is over; say why on the object."""


class InsufficientCapacity(Refused):
    """The cloud has none of these offerings now: choose others."""


class ClassNotReady(Refused):
    """The node class cannot be used yet."""


class NotAuthorized(Refused):
    """A person must grant something."""


class Invalid(Refused):
    """The server understood the request and will not take it."""


class AlreadyExists(Refused):
    """Someone created it first."""


class Gone(DovetailError):
    """Already absent: for a delete, that is success."""


class Misconfigured(DovetailError):
    """Stop with one clear sentence: what, why, and what to do."""


class BadInput(Misconfigured):
    """A file or document a person gave us cannot be used."""


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


def describe_error(error: Exception) -> str:
    """What went wrong, in words: of a group each different one, not that there were some."""
    words = (str(each) or type(each).__name__ for each in flatten_errors(error))
    return "; ".join(dict.fromkeys(words))


def note_contained(error: Exception) -> None:
    """Tell whoever audits this process of a failure that is survived, so that others are served.

    Where one object, message or controller fails and the others go on, the failure may be a bug of ours. The
    tests listen to this audit event, and a bug that is contained fails the test.
    """
    sys.audit("dovetail.contained", error)


def flatten_errors(error: Exception) -> Iterator[Exception]:
    """The errors a group holds, however deep; an error that is no group is its own."""
    if isinstance(error, ExceptionGroup):
        for inner in error.exceptions:
            yield from flatten_errors(inner)
    else:
        yield error
