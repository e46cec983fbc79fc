"""Where a recording is written: a folder or a place in S3, as `file:/dir` or `s3://bucket/prefix`."""

from __future__ import annotations

from dovetail.settings.decision_log import LogPlace, parse_log_place
from dovetail.settings.value_kinds import SettingKind

__all__ = ["RECORDING", "parse_recording_place"]

ALLOWED = "a place such as file:/var/lib/dovetail/recording or s3://bucket/prefix"


def parse_recording_place(text: str) -> LogPlace:
    """The place a text names; a ValueError when it names none."""
    if not text.startswith(("file:", "s3://")):
        raise ValueError(f"{text!r} is no place for a recording: write file:/folder or s3://bucket/prefix")
    return parse_log_place(text)


def _parse_place(text: str) -> LogPlace | None:
    return parse_recording_place(text.strip()) if text.strip() else None


def _show_place(place: LogPlace | None) -> str:
    return "" if place is None else str(place)


RECORDING = SettingKind(ALLOWED, _parse_place, _show_place, blank=True)
