"""A real browser, spoken to over its debugging protocol: go somewhere, look, click, take a picture."""

from __future__ import annotations

import asyncio
import base64
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

__all__ = ["Browser", "browser"]

PATIENCE = 60.0
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run")


class Browser:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        # What the page complained of, such as something its own security policy refused.
        self.complaints: list[str] = []

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            said = await self._socket.receive_json(timeout=PATIENCE)
            if said.get("method") == "Log.entryAdded":
                self.complaints.append(said["params"]["entry"]["text"])
            if said.get("id") == self._number:
                assert "error" not in said, said
                found: dict[str, Any] = said["result"]
                return found

    async def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = await self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, script: str) -> Any:
        """Wait until an expression is true in the page."""
        async with asyncio.timeout(PATIENCE):
            while True:
                if value := await self.run(script):
                    return value
                await asyncio.sleep(0.05)

    async def open(self, url: str) -> None:
        await self.ask("Page.navigate", url=url)
        await self.until(f"document.readyState === 'complete' && location.href === {url!r}")

    async def media(self, scheme: str) -> None:
        """Prefer light or dark."""
        await self.ask(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
        )

    async def picture(self, path: Path, width: int = 1440, height: int = 0) -> None:
        """A PNG of the page, the whole of it unless a height is given."""
        size = {"width": width, "deviceScaleFactor": 1, "mobile": False}
        await self.ask("Emulation.setDeviceMetricsOverride", **size, height=height or 900)
        tall = height or await self.run("document.documentElement.scrollHeight")
        await self.ask("Emulation.setDeviceMetricsOverride", **size, height=tall)
        shot = await self.ask("Page.captureScreenshot", format="png")
        _write(path, base64.b64decode(shot["data"]))


@asynccontextmanager
async def browser(home: Path) -> AsyncIterator[Browser]:
    """A browser with a home of its own, while the block lasts."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        pytest.fail("the dashboard is tried in Chromium, and there is none on the PATH", False)
    process = await asyncio.create_subprocess_exec(
        *(found, *FLAGS, f"--user-data-dir={home}", "--remote-debugging-port=0", "about:blank"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        port = await _port(home / "DevToolsActivePort")
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            async with session.get("/json/list") as answer:
                tabs = await answer.json()
            address = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
            async with session.ws_connect(address, max_msg_size=0) as socket:
                tab = Browser(socket)
                for domain in ("Page", "Log", "Runtime"):
                    await tab.ask(f"{domain}.enable")
                yield tab
    finally:
        process.terminate()
        await process.wait()


async def _port(file: Path) -> int:
    async with asyncio.timeout(PATIENCE):
        while True:
            if said := _read(file):
                return int(said.splitlines()[0])
            await asyncio.sleep(0.05)


def _read(file: Path) -> str:
    return file.read_text().strip() if file.exists() else ""


def _write(file: Path, data: bytes) -> None:
    file.write_bytes(data)
