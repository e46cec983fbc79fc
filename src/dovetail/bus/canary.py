"""A synthetic event, sent through the same rules and queues as the real ones: a dead rule shows itself."""

from __future__ import annotations

import json
from datetime import datetime

from dovetail.aws import Aws
from dovetail.bus.events import CANARY_SOURCE, BusPlace

__all__ = ["send_canary"]


async def send_canary(aws: Aws, place: BusPlace, now: datetime) -> None:
    """Put one event on the default bus; the router recognises it and notes how long it took."""
    entry = {
        "Source": CANARY_SOURCE,
        "DetailType": "Dovetail Bus Canary",
        "Detail": json.dumps({"account": place.account, "region": place.region}),
        "Time": now,
    }
    await aws.call("events", "PutEvents", {"Entries": [entry]})
