"""Where decisions are logged: `log`, a folder and a place in S3, written `log,file:/dir,s3://bucket/prefix`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from dovetail.settings.value_kinds import SettingKind

__all__ = ["DECISION_LOG", "LogPlace", "parse_log_place", "parse_s3_place"]

ALLOWED = "places such as log, file:/var/lib/dovetail/decisions and s3://bucket/prefix, one of each at most"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
# What S3 takes in keys without further ado.
_PREFIX = re.compile(r"[A-Za-z0-9!_.*'()/=-]{0,512}")


@dataclass(frozen=True, slots=True)
class LogPlace:
    """One place a decision log is written to: the process's own log, a folder, or a prefix in a bucket."""

    kind: Literal["log", "file", "s3"]
    folder: str = ""
    bucket: str = ""
    prefix: str = ""

    def __str__(self) -> str:
        if self.kind == "file":
            return f"file:{self.folder}"
        if self.kind == "s3":
            return f"s3://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")
        return self.kind


def parse_log_place(text: str) -> LogPlace:
    """The place a text names; a ValueError when it names none."""
    if text == "log":
        return LogPlace("log")
    if text.startswith("s3://"):
        return parse_s3_place(text)
    if text.startswith("file:"):
        folder = text.removeprefix("file:")
        if not folder.startswith("/") or not folder.isprintable():
            raise ValueError(f"{text!r} names no folder: write file: and a path that begins with /")
        return LogPlace("file", folder=folder.rstrip("/") or "/")
    raise ValueError(f"{text!r} is no place for a log: write log, file:/folder or s3://bucket/prefix")


def parse_s3_place(text: str) -> LogPlace:
    """The bucket and the prefix of an address that begins with s3://."""
    bucket, _, prefix = text.removeprefix("s3://").partition("/")
    prefix = prefix.strip("/")
    if not _BUCKET.fullmatch(bucket) or ".." in bucket:
        raise ValueError(f"{text!r} names no bucket: write s3://bucket/prefix")
    parts = prefix.split("/") if prefix else []
    if not _PREFIX.fullmatch(prefix) or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{text!r} names no prefix: letters, digits, - and _ with / between them")
    return LogPlace("s3", bucket=bucket, prefix=prefix)


def _parse_places(text: str) -> tuple[LogPlace, ...]:
    places = tuple(parse_log_place(part.strip()) for part in text.split(",") if part.strip())
    kinds = [place.kind for place in places]
    twice = next((kind for kind in kinds if kinds.count(kind) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice} is there twice")
    return places


def _show_places(places: tuple[LogPlace, ...]) -> str:
    return ",".join(map(str, places))


DECISION_LOG = SettingKind(ALLOWED, _parse_places, _show_places, blank=True)
