"""SSM parameters that name images, remembered: AWS's own for a day, people's for minutes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from dovetail.aws import Aws, AwsAbsent
from dovetail.ports import Clock
from dovetail.providers.aws.cached import Cached

__all__ = ["ParameterStore", "Remembered"]

KEPT: Final = timedelta(hours=24)
CUSTOM_KEPT: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Remembered:
    """A parameter's value; a mutable one names another image some day."""

    value: str
    mutable: bool


class ParameterStore:
    """Reads parameters one by one."""

    def __init__(self, aws: Aws, clock: Clock) -> None:
        self._aws = aws
        self._public: Cached[str, Remembered] = Cached(clock, KEPT)
        self._custom: Cached[str, Remembered] = Cached(clock, CUSTOM_KEPT)

    async def public(self, name: str, mutable: bool) -> str | None:
        """The value of one of AWS's own parameters; None where there is no such parameter."""
        return await self._read(self._public, name, mutable)

    async def custom(self, name: str) -> str | None:
        """The value of a parameter somebody keeps for us."""
        return await self._read(self._custom, name, mutable=True)

    async def _read(self, kept: Cached[str, Remembered], name: str, mutable: bool) -> str | None:
        known = kept.get(name)
        if known is not None:
            return known.value
        try:
            answer = await self._aws.call("ssm", "GetParameter", {"Name": name})
        except AwsAbsent:
            return None
        value = str(answer["Parameter"]["Value"])
        kept.put(name, Remembered(value, mutable))
        return value

    def mutable(self) -> tuple[tuple[str, str], ...]:
        """Names and values of what may change."""
        held = (*self._public.items(), *self._custom.items())
        return tuple((name, entry.value) for name, entry in held if entry.mutable)

    def forget(self, name: str) -> None:
        self._public.drop(name)
        self._custom.drop(name)
