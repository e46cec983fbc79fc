"""Latencies of pods: each moment is noted once, and forgotten with the pod."""

from __future__ import annotations

import pytest

from dovetail.state.pod_times import PodTimes
from support.builders import pod

WEB = "default/web"


@pytest.mark.spec("T-259")
def test_the_first_success_is_kept_and_an_error_takes_it_away() -> None:
    times = PodTimes()
    times.record_seen(pod("web"), 1.0)
    times.record_seen(pod("web"), 2.0)
    assert times.record_decision(WEB, 3.0, placed=True) == 2.0
    assert times.record_decision(WEB, 5.0, placed=True) is None, "the first decision counts"
    found = times.find_times(WEB)
    assert found is not None
    assert (found.decided, found.placed, found.placed_healthy) == (3.0, 3.0, None)
    times.record_decision(WEB, 6.0, placed=False)
    assert (found.decided, found.placed) == (3.0, None)
    times.record_decision(WEB, 7.0, placed=True, healthy=True)
    assert (found.placed, found.placed_healthy) == (7.0, 7.0)


@pytest.mark.spec("T-259")
def test_pods_that_never_waited_have_no_times_and_deleted_ones_lose_theirs() -> None:
    times = PodTimes()
    assert times.record_decision("default/bound", 1.0, placed=True) is None
    assert times.find_times("default/bound") is None
    times.record_seen(pod("web"), 1.0)
    times.forget_pod(WEB)
    assert list(times) == []
