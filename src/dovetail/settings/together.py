"""Settings that only make sense together."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.settings.table import Settings

__all__ = ["complaints"]


def complaints(settings: Settings) -> tuple[str, ...]:
    """One sentence for each that lacks another."""
    return tuple(_zonal(settings))


def _zonal(s: Settings) -> Iterator[str]:
    if s.zonal_shift_store != "Cluster" and not s.zonal_shift_table:
        yield (
            f'ZONAL_SHIFT_STORE is "{s.zonal_shift_store}", but ZONAL_SHIFT_TABLE is empty: '
            "name a DynamoDB table with keys pk and sk, or keep shifts in the Cluster"
        )
    if s.enable_zonal_shift and s.sns_auto_subscribe and not s.zonal_shift_endpoint_url:
        yield (
            "SNS_AUTO_SUBSCRIBE is true, but ZONAL_SHIFT_ENDPOINT_URL is empty: "
            "give the https address at which SNS reaches this process"
        )
    if s.enable_zonal_shift and s.sns_auto_subscribe and not s.zonal_shift_topic_arn:
        yield (
            "SNS_AUTO_SUBSCRIBE is true, but ZONAL_SHIFT_TOPIC_ARN is empty: "
            "name the topics to subscribe to, or leave SNS_AUTO_SUBSCRIBE out"
        )
    if s.zonal_shift_min_healthy_zones < 1:
        yield (
            "ZONAL_SHIFT_MIN_HEALTHY_ZONES is 0, but must be at least 1: "
            "a cluster without any zone could buy nothing"
        )
