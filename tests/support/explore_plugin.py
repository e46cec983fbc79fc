"""A pytest plugin for exploring: properties alone, in an order drawn by seed, until the time is used up.

Over many trees every property gets its turn with examples nobody has seen; `hack/explore.py` starts it.
"""

from __future__ import annotations

import os
import random
import time
from types import FunctionType

import pytest
from hypothesis import is_hypothesis_test, settings

__all__ = ["Exploring", "pytest_configure"]

FEW = 12
_SETTINGS = "_hypothesis_internal_use_settings"  # Hypothesis has no public way to change what a test says


class Exploring:
    """Runs properties until their share of the processor is used up; counts what was run."""

    def __init__(self, seed: str, seconds: float) -> None:
        self.seed = seed
        self.seconds = seconds
        self.found = 0
        self.begun = 0.0
        self.run: list[str] = []

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        properties = [item for item in items if is_hypothesis_test(getattr(item, "obj", None))]
        random.Random(self.seed).shuffle(properties)
        self.found = len(properties)
        items[:] = properties
        for item in properties:
            _with_few_examples(item)
        self.begun = time.process_time()

    @property
    def spent(self) -> float:
        """Seconds of the processor since the first property."""
        return time.process_time() - self.begun

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """True, which means done with, for those that come after the time is up."""
        if self.run and self.spent >= self.seconds:
            return True
        self.run.append(item.nodeid)
        return None

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        told = f"{len(self.run)} of {self.found} properties with new examples in {self.spent:.0f} s"
        terminalreporter.write_line(f"explored {told}; again: DOVETAIL_SEED={self.seed} make explore")


def _with_few_examples(item: pytest.Item) -> None:
    """So that many properties get their turn, not one all of them."""
    test = getattr(item, "obj", None)
    if not isinstance(test, FunctionType):
        return  # a state machine, which keeps its own
    own = getattr(test, _SETTINGS, None) or settings()
    setattr(test, _SETTINGS, settings(own, max_examples=min(FEW, own.max_examples)))


def pytest_configure(config: pytest.Config) -> None:
    seconds = float(os.environ["DOVETAIL_EXPLORE_SECONDS"])
    config.pluginmanager.register(Exploring(os.environ["DOVETAIL_SEED"], seconds))
