"""The endpoint as a process: what it takes reaches the autoscaler, what breaks it does not."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from dovetail.errors import Misconfigured
from dovetail.runtime.clock import SystemClock
from dovetail.settings import read_settings
from dovetail.sim.aws import SimulatedAws
from dovetail.zonal import shift_metrics
from dovetail.zonal.ingest.signals import SignalStore
from dovetail.zonal.ingest.sns_process import INHERITED, Ask, EndpointProcess
from support.authorities import Authority
from support.sns import TOPIC

TOKEN = "0123456789abcdef-a-long-one"
SERVERS = Authority("servers", datetime.now(UTC))
EVENT = {
    "id": "e-1",
    "detail-type": "Autoshift In Progress",
    "source": "aws.arc-zonal-shift",
    "resources": ["arn:aws:eks:us-west-2:111122223333:cluster/test"],
    "detail": {"metadata": {"awayFrom": "usw2-az1"}},
}
BEARING = {"Authorization": f"Bearer {TOKEN}"}


async def until(met: Callable[[], bool]) -> None:
    while not met():
        await asyncio.sleep(0.02)
        assert asyncio.current_task() is not None


class Home:
    """An autoscaler's side, as far as the endpoint can see it."""

    def __init__(self, folder: Path) -> None:
        self.woken: list[str] = []
        self.folder, clock = folder, SystemClock()
        (folder / "token").write_text(TOKEN)
        flags = (
            "--cluster-name=test",
            "--zonal-shift-https-port=0",
            f"--zonal-shift-events-token-file={folder / 'token'}",
            f"--zonal-shift-topic-arn={TOPIC}",
        )
        store = SignalStore(None, arn=lambda: "", woken=lambda: self.woken.append("woken"))
        settings = read_settings(flags, {}, provider="aws")
        self.process = EndpointProcess(settings, SimulatedAws(clock), store, clock, directory=folder)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Home]:
        SERVERS.leaf("localhost", address="127.0.0.1").written(self.folder)
        running = asyncio.create_task(self.process.run())
        try:
            await until(lambda: bool(self.process.addresses) or running.done())
            assert not running.done(), running
            yield self
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def post(self, **headers: str) -> int:
        port = next(each[1] for each in self.process.addresses if len(each) == 2)  # of IPv4
        tls = ssl.create_default_context(cadata=SERVERS.issued.pem.decode())
        tls.check_hostname = False
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"https://127.0.0.1:{port}/events", json=EVENT, headers=headers, ssl=tls) as reply,
        ):
            return reply.status


async def test_what_the_process_takes_is_kept_by_the_autoscaler_and_what_it_refuses_is_counted(
    tmp_path: Path,
) -> None:
    async with Home(tmp_path).open() as home:
        before = shift_metrics.SIGNATURES.labels("events-sender")._value.get()
        assert home.process.pid != os.getpid()
        assert await home.post(**BEARING) == 200
        assert home.woken == ["woken"]
        assert await home.post(Authorization="Bearer guessed") == 403
        await until(lambda: shift_metrics.SIGNATURES.labels("events-sender")._value.get() > before)

        # Killed, it is started again; the autoscaler has lost nothing but a listener for a moment.
        first = home.process.pid
        os.kill(first, signal.SIGKILL)
        await until(lambda: home.process.pid != first and bool(home.process.addresses))
        assert await home.post(**BEARING) == 200


async def test_an_endpoint_that_cannot_start_says_why(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with pytest.raises(Misconfigured, match=r"has no tls\.crt and tls\.key"):
        await home.process.run()


def test_the_process_inherits_no_credentials() -> None:
    assert not any(name.startswith(("AWS_", "KUBERNETES_", "ZONAL_")) for name in INHERITED)


@pytest.mark.parametrize(
    "parameters",
    [
        {"TopicArn": "arn:aws:sns:us-west-2:111122223333:other"},
        {"TopicArn": TOPIC, "Endpoint": "https://evil.test/"},
    ],
)
async def test_the_process_may_not_call_sns_about_anything_else(tmp_path: Path, parameters: Any) -> None:
    home = Home(tmp_path)
    for operation in ("Subscribe", "ConfirmSubscription", "DeleteTopic"):
        with pytest.raises(Misconfigured, match="may not call"):
            await home.process._do(Ask("call", operation=operation, parameters=parameters))
    with pytest.raises(Misconfigured, match="may not call DeleteTopic"):
        await home.process._do(Ask("call", operation="DeleteTopic", parameters={"TopicArn": TOPIC}))


@pytest.mark.parametrize("line", [b"nonsense", b"{}", b'{"kind":"run"}', b'{"kind":"call","more":1}', b"[]"])
def test_what_the_process_says_is_read_strictly(line: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(line, type=Ask)


def test_reasons_of_a_process_that_was_broken_into_are_bounded(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.process._count({f"reason-{number}": 1 for number in range(1_000)})
    assert len(home.process._reasons) <= 65
    assert json.dumps(sorted(home.process._reasons)).count("other") == 1
