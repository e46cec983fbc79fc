"""What a shadow found, for the dashboard: asked of a running shadow again and again, or read from a file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import msgspec

from dovetail.errors import BadInput
from dovetail.history.shadow import FORMAT, ShadowReport
from dovetail.picture import SeenShadow

__all__ = ["ShadowFollower", "read_report"]

EVERY, PATIENCE = 15.0, 10.0
MOST_BYTES = 64 * 1024 * 1024
NOT_YET = "The shadow at {place} has not been asked yet."


class ShadowFollower:
    """The latest report of a shadow: of its `--report` address, or of a file that `-o json` wrote."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._remote = place.startswith(("http://", "https://"))
        self._seen = SeenShadow(why=NOT_YET.format(place=place))
        if not self._remote:
            self._seen = SeenShadow(read_report(_read_file(place), place))

    def find_shadow(self) -> SeenShadow:
        """What is known now; the last report stays, with a word about it, when no newer one can be had."""
        return self._seen

    async def run(self) -> None:
        """Ask again and again, until cancelled; a file is read once."""
        if not self._remote:
            return
        limit = aiohttp.ClientTimeout(total=PATIENCE)
        async with aiohttp.ClientSession(timeout=limit) as session:
            while True:
                self._seen = await self._ask(session)
                await asyncio.sleep(EVERY)

    async def _ask(self, session: aiohttp.ClientSession) -> SeenShadow:
        address = f"{self._place.rstrip('/')}/report.json"
        try:
            # Only where it was told to ask: an answer that leads elsewhere is not followed.
            async with session.get(address, allow_redirects=False) as answer:
                if answer.status != 200:
                    return self._keep(f"it answers {answer.status}")
                data = await answer.content.read(MOST_BYTES + 1)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return self._keep(str(error) or type(error).__name__)
        if len(data) > MOST_BYTES:
            return self._keep("its report is longer than any report is")
        try:
            return SeenShadow(read_report(data, address))
        except BadInput as error:
            return self._keep(str(error))

    def _keep(self, why: str) -> SeenShadow:
        return SeenShadow(self._seen.report, f"The shadow at {self._place} cannot be asked: {why}.")


def read_report(data: bytes, source: str) -> ShadowReport:
    """A report as a shadow writes it; BadInput for anything else."""
    try:
        report = msgspec.json.decode(data, type=ShadowReport)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadInput(f"reading the report {source}: it is none of `dovetail shadow` ({error})") from error
    if report.format != FORMAT:
        raise BadInput(f"reading the report {source}: its format is {report.format[:40]!r}, not {FORMAT!r}")
    return report


def _read_file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadInput(f"reading the report {path}: {why.lower()}") from error
