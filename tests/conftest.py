"""Which tests run where: those against a real control plane only when asked for."""

from __future__ import annotations

import os

from hypothesis import settings

# No wall-clock limits: a slow machine is not a failure. The same tree gives the same examples, so that a red
# run means a change; DOVETAIL_HYPOTHESIS=explore looks at new ones.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("DOVETAIL_HYPOTHESIS", "steady"))

collect_ignore = [] if os.environ.get("DOVETAIL_TEST_CLUSTER") else ["cluster"]
