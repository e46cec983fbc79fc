"""Which tests run where: those against a real control plane only when asked for."""

from __future__ import annotations

import os

from hypothesis import settings

# No wall-clock limits: a slow machine is not a failure.
settings.register_profile("steady", deadline=None)
settings.load_profile("steady")

collect_ignore = [] if os.environ.get("DOVETAIL_TEST_CLUSTER") else ["cluster"]
