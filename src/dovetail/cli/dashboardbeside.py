"""A dashboard beside an embedded cluster, in a process of its own so that neither slows the other."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from dovetail.cli.output import note
from dovetail.errors import Misconfigured

__all__ = ["shown"]


@asynccontextmanager
async def shown(bind: str, kubeconfig: Path) -> AsyncIterator[str]:
    """Its address, while the block lasts; Misconfigured says why there is none."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dovetail", "dashboard", "--bind", bind, "--kubeconfig", str(kubeconfig)),
        stdout=PIPE,
        stderr=PIPE,
        # Ctrl-C is for the cluster, which ends this one in its turn.
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    address = (await process.stdout.readline()).decode().strip()
    if not address:
        told = (await process.stderr.read()).decode().strip().removeprefix("dovetail: ")
        await process.wait()
        raise Misconfigured(told.replace("--bind", "--dashboard"))
    listening = asyncio.create_task(_passed_on(process.stderr))
    try:
        yield address
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        await listening


async def _passed_on(remarks: asyncio.StreamReader) -> None:
    async for line in remarks:
        if line.startswith(b"dovetail: "):
            note(f"dashboard: {line.decode().strip().removeprefix('dovetail: ')}")
