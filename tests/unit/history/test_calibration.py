"""How sure a replay is, by the days that its model gets wrong."""

from __future__ import annotations

import pytest

from dovetail.history.calibration import Calibration, calibrate, compute_certainty


def test_the_largest_error_of_a_day_counts() -> None:
    found = calibrate({"a": 100.0, "b": 200.0}, [{"a": 98.0, "b": 202.0}, {"a": 96.0, "b": 204.0}])
    assert found.error == pytest.approx(0.0)
    assert found.largest == pytest.approx(0.03)
    assert found.days == {"a": pytest.approx(-0.03), "b": pytest.approx(0.015)}


def test_a_day_that_has_hardly_begun_says_nothing() -> None:
    found = calibrate({"a": 100.0, "b": 0.01}, [{"a": 100.0, "b": 0.02}])
    assert found.largest == 0.0
    assert list(found.days) == ["a"]


def test_nothing_that_was_paid_calibrates_nothing() -> None:
    for found in (calibrate({"a": 0.0}, [{"a": 1.0}]), calibrate({"a": 1.0}, [])):
        assert found == Calibration(known=False)
        assert not compute_certainty(found, [100.0]).can_tell(-0.99)


@pytest.mark.parametrize(
    ("difference", "told"), [(-0.061, True), (0.061, True), (-0.059, False), (0.059, False), (0.0, False)]
)
def test_a_difference_below_certainty_cannot_be_told(difference: float, told: bool) -> None:
    certainty = compute_certainty(Calibration(largest=0.02), [98.0, 102.0], 0.0)
    assert certainty.within == pytest.approx(0.06)
    assert certainty.can_tell(difference) is told


def test_a_model_that_agrees_with_one_recording_is_no_surer_than_its_trials() -> None:
    certainty = compute_certainty(Calibration(largest=0.0), [100.0, 100.0])
    assert not certainty.can_tell(-0.0149)
    assert certainty.can_tell(-0.0151)
