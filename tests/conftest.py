"""Which tests run where: those against a real control plane only when asked for."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("DOVETAIL_TEST_CLUSTER") else ["cluster"]
