"""Latencies of pods: each moment is noted once, and forgotten with the pod."""

from __future__ import annotations

import pytest

from dovetail.state.podtimes import PodTimes
from support.builders import pod

WEB = "default/web"


@pytest.mark.spec("T-259")
def test_the_first_success_is_kept_and_an_error_takes_it_away() -> None:
    times = PodTimes()
    times.saw(pod("web"), 1.0)
    times.saw(pod("web"), 2.0)
    assert times.decided(WEB, 3.0, placed=True) == 2.0
    assert times.decided(WEB, 5.0, placed=True) is None, "the first decision counts"
    found = times.of(WEB)
    assert found is not None
    assert (found.decided, found.placed, found.placed_healthy) == (3.0, 3.0, None)
    times.decided(WEB, 6.0, placed=False)
    assert (found.decided, found.placed) == (3.0, None)
    times.decided(WEB, 7.0, placed=True, healthy=True)
    assert (found.placed, found.placed_healthy) == (7.0, 7.0)


@pytest.mark.spec("T-259")
def test_pods_that_never_waited_have_no_times_and_deleted_ones_lose_theirs() -> None:
    times = PodTimes()
    assert times.decided("default/bound", 1.0, placed=True) is None
    assert times.of("default/bound") is None
    times.saw(pod("web"), 1.0)
    times.forget(WEB)
    assert list(times) == []
