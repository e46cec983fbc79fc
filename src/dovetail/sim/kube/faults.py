"""Where trouble may be let in: every request asks once whether something should go wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from dovetail.sim.kube.status import ApiError


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One request, as a fault rule may want to know it."""

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    client: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one request; fields combine.

    `delay` holds an HTTP request back (in-process calls take no time and ignore it). `error` is
    answered in place of the truth; `after_commit` lets the write happen first, so that the client
    only believes it failed. `reset` drops the connection instead of answering. `behind` makes a
    read show the state that many revisions ago. `watch_events` ends a stream after so many events,
    by a dropped connection or by a 410. `watch_delay` holds back the events of an HTTP stream for so
    many seconds, as long as the stream lasts; those that come meanwhile arrive with them.
    """

    delay: float = 0.0
    error: ApiError | None = None
    after_commit: bool = False
    reset: bool = False
    behind: int = 0
    watch_events: int | None = None
    watch_end: Literal["reset", "expired"] = "reset"
    watch_delay: float = 0.0


class ApiFaults(Protocol):
    """Decides what goes wrong."""

    def find_fault(self, call: ApiCall) -> Fault | None:
        """The fault for this request, or None to let it be."""


class NoFaults:
    """Nothing goes wrong."""

    def find_fault(self, call: ApiCall) -> Fault | None:
        """Let everything be."""
        return None
