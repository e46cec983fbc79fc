"""Settings of zonal shift that are more than one word, or that need another setting."""

from __future__ import annotations

from dovetail.api import cron
from dovetail.errors import Misconfigured
from dovetail.settings import Settings

__all__ = ["prescale", "schedule"]


def prescale(settings: Settings) -> bool:
    """Whether room is bought for what may be lost; Misconfigured where nothing could buy it."""
    if settings.zonal_shift_prescale and not settings.feature_gates.capacity_buffer:
        raise Misconfigured(
            "ZONAL_SHIFT_PRESCALE is true, but room is bought by CapacityBuffers, which are off: "
            "add CapacityBuffer=true to FEATURE_GATES"
        )
    return settings.zonal_shift_prescale


def schedule(text: str) -> cron.Schedule | None:
    """When zones are rehearsed; None for never."""
    if not text:
        return None
    try:
        return cron.parse(text)
    except ValueError as error:
        raise Misconfigured(
            f'ZONAL_SHIFT_REHEARSAL is "{text}", but must be a cron schedule such as @weekly: {error}'
        ) from error
