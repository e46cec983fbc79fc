"""What the dashboard knows of its contact with the cluster: since when a part cannot be read, and why."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dovetail.app.dashboard_watch import PASSING, SERVER, ClusterContact

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Watch:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.seconds)

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def test_a_break_of_a_moment_makes_nothing_stale() -> None:
    clock = Watch()
    contact = ClusterContact(clock)

    contact.mark_lost("pods", "the pods cannot be read")
    clock.seconds = PASSING
    assert contact.find_staleness() is None

    contact.mark_regained("pods")
    clock.seconds = 100 * PASSING
    assert contact.find_staleness() is None


def test_what_lasts_is_stale_since_it_began() -> None:
    clock = Watch()
    contact = ClusterContact(clock)
    contact.mark_lost("pods", "the first reason")
    clock.seconds = PASSING + 1
    contact.mark_lost("pods", "the latest reason")

    assert contact.find_staleness() == (NOON, "the latest reason")


def test_a_server_that_is_gone_is_the_reason_for_every_other_loss() -> None:
    clock = Watch()
    contact = ClusterContact(clock)
    contact.mark_lost("pods", "the pods cannot be read")
    clock.seconds = 1
    contact.mark_lost(SERVER, "the server does not answer")
    clock.seconds = 1 + PASSING + 1

    assert contact.find_staleness() == (NOON, "the server does not answer")


def test_a_server_that_is_back_leaves_stale_what_is_not_yet_read_again() -> None:
    clock = Watch()
    contact = ClusterContact(clock)
    contact.mark_lost(SERVER, "gone")
    contact.mark_lost("pods", "the pods cannot be read")
    clock.seconds = PASSING + 1

    contact.mark_regained(SERVER)
    assert contact.find_staleness() == (NOON, "the pods cannot be read")
    contact.mark_regained("pods")
    assert contact.find_staleness() is None
