"""Interruptions for many clusters: one rule set, one central queue, and each event sent where it belongs.

    parse → deduplicate → resolve → route → send → acknowledge

A Lambda handler and a daemon share every line but the loop. The bus drains nothing and touches no cluster:
it moves messages between queues and keeps nothing whose loss could lose one.
"""

from __future__ import annotations

from typing import Any

__all__ = ["lambda_handler"]


def lambda_handler(event: Any, context: Any) -> dict[str, Any]:
    """What Lambda calls, under the short name."""
    from dovetail.bus import handler

    return handler.lambda_handler(event, context)
