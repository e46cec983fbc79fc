"""`dovetail up` in a process of its own, with kubectl and plain requests to try it."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import signal
import ssl
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from support.kubectl import kubectl_binary

READY = b"Ctrl-C stops it."
# Machines that run tests are busy with other things, too.
PATIENCE = 120.0


@dataclass
class Up:
    """A cluster in a process of its own."""

    process: asyncio.subprocess.Process
    said: str
    home: Path
    kubeconfig: Path

    @property
    def url(self) -> str:
        found = re.search(r"https://127\.0\.0\.1:\d+", self.said)
        assert found is not None
        return found[0]

    def credentials(self) -> tuple[str, ssl.SSLContext]:
        """What the kubeconfig lets in: a token, and whom to trust."""
        document: dict[str, Any] = yaml.safe_load(self.kubeconfig.read_text())
        authority = base64.b64decode(document["clusters"][0]["cluster"]["certificate-authority-data"])
        return document["users"][0]["user"]["token"], ssl.create_default_context(cadata=authority.decode())

    async def ask(self, path: str, method: str = "GET", token: str | None = None, **more: Any) -> Any:
        known, trusted = self.credentials()
        headers = {"Authorization": f"Bearer {known if token is None else token}"}
        async with (
            aiohttp.ClientSession(self.url, headers=headers) as session,
            session.request(method, path, ssl=trusted, **more) as response,
        ):
            return response.status, await response.json()

    async def kubectl(self, *arguments: str) -> str:
        ended = await asyncio.create_subprocess_exec(
            str(kubectl_binary()),
            *arguments,
            env={"HOME": str(self.home), "PATH": os.environ["PATH"], "KUBECONFIG": str(self.kubeconfig)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await asyncio.wait_for(ended.communicate(), PATIENCE)
        assert ended.returncode == 0, out.decode()
        return out.decode()

    async def stop(self, how: signal.Signals = signal.SIGINT) -> tuple[int, float]:
        """Its exit code, and the seconds it took."""
        began = time.monotonic()
        self.process.send_signal(how)
        code = await asyncio.wait_for(self.process.wait(), PATIENCE)
        return code, time.monotonic() - began


@asynccontextmanager
async def up(home: Path, *options: str, cwd: Path | None = None) -> AsyncIterator[Up]:
    """Run it until the block ends; stdout is read up to the invitation."""
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dovetail", "up", *options),
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        cwd=cwd or home,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert running.stdout is not None
    assert running.stderr is not None
    try:
        try:
            said = await asyncio.wait_for(running.stdout.readuntil(READY), PATIENCE)
        except asyncio.IncompleteReadError as error:
            raise AssertionError((await running.stderr.read()).decode()) from error
        found = re.search(r"KUBECONFIG=(.*)", said.decode())
        assert found is not None
        yield Up(running, said.decode(), home, Path(found[1].strip("'")))
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()
