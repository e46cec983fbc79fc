"""Which tests run where: those against a real control plane only when asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import Phase, settings

from support.containment import bugs_contained
from support.logs import kept_logs

# No wall-clock limits: a slow machine is not a failure. The same tree gives the same examples, so that a red
# run means a change; DOVETAIL_HYPOTHESIS=explore looks at new ones, and "mutants" (hack/mutants.py) does not
# look for the smallest example that fails, for nobody reads it.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.register_profile("mutants", deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
settings.load_profile(os.environ.get("DOVETAIL_HYPOTHESIS", "steady"))

collect_ignore = [] if os.environ.get("DOVETAIL_TEST_CLUSTER") else ["cluster"]


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """A test that configures logs does so for itself alone."""
    with kept_logs():
        yield


@pytest.fixture(autouse=True)
def no_bug_is_contained(request: pytest.FixtureRequest) -> Iterator[None]:
    """A bug of ours that is survived, so that others are served, is a bug; absurd values are not.

    Tests that bring one about on purpose say so with the marker `contains_bugs`.
    """
    with bugs_contained() as bugs:
        yield
    if bugs and request.node.get_closest_marker("contains_bugs") is None:
        raise bugs[0]
