"""The address for events of others: open only to a sender that proves who it is, over real TLS."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dovetail.errors import Misconfigured, Retry
from dovetail.runtime.clock import SystemClock
from dovetail.settings import read_settings
from dovetail.sim.aws import SimulatedAws
from dovetail.zonal.ingest.signals import SignalStore
from dovetail.zonal.ingest.sns_endpoint import SnsEndpoint, endpoint_wanted
from support.authorities import Authority, Issued

EVENT = {
    "id": "e-1",
    "detail-type": "Autoshift In Progress",
    "source": "aws.arc-zonal-shift",
    "resources": ["arn:aws:eks:us-west-2:111122223333:cluster/test"],
    "detail": {"metadata": {"awayFrom": "usw2-az1"}},
}
TOKEN = "0123456789abcdef-a-long-one"
NOW = datetime.now(UTC)
SERVERS, CLIENTS, STRANGERS = (Authority(name, NOW) for name in ("servers", "clients", "strangers"))


class Failing(SignalStore):
    """A store that cannot keep anything."""

    async def put_signal(self, signal: Any) -> str:
        raise Retry("not now")


class House:
    """An endpoint on a free port of this machine."""

    def __init__(self, folder: Path, *flags: str, failing: bool = False) -> None:
        self.woken: list[str] = []
        SERVERS.leaf("localhost", address="127.0.0.1").written(folder)
        (folder / "token").write_text(TOKEN + "\n")
        (folder / "clients.pem").write_bytes(CLIENTS.issued.pem)
        self.folder, clock = folder, SystemClock()
        given = ("--cluster-name=test", "--zonal-shift-https-port=0", *flags)
        kind = Failing if failing else SignalStore
        store = kind(None, arn=lambda: "", woken=lambda: self.woken.append("woken"))
        self.endpoint = SnsEndpoint(
            read_settings(given, {}, provider="aws"), SimulatedAws(clock), store, clock, directory=folder
        )

    @asynccontextmanager
    async def open(self) -> AsyncIterator[House]:
        running = asyncio.create_task(self.endpoint.run())
        try:
            while not self.endpoint.addresses:
                await asyncio.sleep(0.01)
                assert not running.done(), running.exception()
            yield self
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def post(
        self,
        body: Any = EVENT,
        *,
        shown: Issued | None = None,
        headers: Mapping[str, str] | None = None,
        method: str = "POST",
        path: str = "/events",
    ) -> tuple[int, str]:
        context = ssl.create_default_context(cadata=SERVERS.issued.pem.decode())
        if shown is not None:
            kept = shown.written(self.folder / "client")
            context.load_cert_chain(kept / "tls.crt", kept / "tls.key")
        # Of the two families, each with a port of its own here, this is the one with short addresses.
        port = next(each[1] for each in self.endpoint.addresses if len(each) == 2)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with (
            aiohttp.ClientSession(trust_env=False) as session,
            session.request(
                method, f"https://127.0.0.1:{port}{path}", data=data, headers=headers, ssl=context
            ) as reply,
        ):
            return reply.status, await reply.text()


def bearing(token: str = TOKEN) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def by_token(folder: Path, **more: Any) -> House:
    return House(folder, f"--zonal-shift-events-token-file={folder / 'token'}", **more)


def by_certificate(folder: Path, *flags: str) -> House:
    return House(folder, f"--zonal-shift-events-ca-file={folder / 'clients.pem'}", *flags)


def test_without_token_or_authorities_there_is_no_endpoint(tmp_path: Path) -> None:
    house = House(tmp_path)
    assert not endpoint_wanted(read_settings(("--cluster-name=test",), {}, provider="aws"))
    assert [route.resource for route in house.endpoint.app().router.routes()] == []


async def test_a_new_certificate_is_shown_without_a_restart(tmp_path: Path) -> None:
    house = House(tmp_path, f"--zonal-shift-events-token-file={tmp_path / 'token'}")
    tls = house.endpoint._tls()
    before = house.endpoint._shown
    house.endpoint.renew(tls)
    assert house.endpoint._shown == before

    SERVERS.leaf("renewed", address="127.0.0.1").written(tmp_path)
    house.endpoint.renew(tls)
    renewed = house.endpoint._shown
    assert renewed != before
    (tmp_path / "tls.crt").write_text("half a file")
    house.endpoint.renew(tls)
    assert house.endpoint._shown == renewed  # the last good one stays, and is tried again


async def test_a_sender_with_the_token_is_heard(tmp_path: Path) -> None:
    async with by_token(tmp_path).open() as house:
        assert await house.post(headers=bearing()) == (200, "")
        assert house.woken == ["woken"]
        assert (await house.post(headers=bearing(), path="/sns"))[0] == 404


@pytest.mark.parametrize(
    "headers",
    [
        None,
        {},
        bearing("0123456789abcdef-a-long-two"),
        bearing(""),
        {"Authorization": TOKEN},
        {"X-Token": TOKEN},
    ],
)
async def test_without_it_nobody_is(tmp_path: Path, headers: dict[str, str] | None) -> None:
    async with by_token(tmp_path).open() as house:
        assert await house.post(headers=headers) == (403, "forbidden")
        # Turned away before anything is read: neither form nor method makes a difference.
        assert await house.post(b"no json", headers=headers) == (403, "forbidden")
        assert await house.post(headers=headers, method="PUT") == (403, "forbidden")
        assert house.woken == []


async def test_a_token_that_is_rotated_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with by_token(tmp_path).open() as house:
        assert (await house.post(headers=bearing()))[0] == 200
        (tmp_path / "token").write_text("another-long-token-of-today")
        monkeypatch.setattr(house.endpoint._posted._token, "_keep", 0.0)
        assert (await house.post(headers=bearing("another-long-token-of-today")))[0] == 200
        assert (await house.post(headers=bearing()))[0] == 403


@pytest.mark.parametrize("text", ["", "short"])
async def test_a_token_anybody_could_guess_opens_nothing(tmp_path: Path, text: str) -> None:
    house = by_token(tmp_path)
    (tmp_path / "token").write_text(text)
    with pytest.raises(Misconfigured, match="shorter than 16 characters; write a long random one there"):
        await house.endpoint.run()


async def test_a_client_of_these_authorities_is_heard_and_others_do_not_get_in(tmp_path: Path) -> None:
    async with by_certificate(tmp_path).open() as house:
        assert await house.post(shown=CLIENTS.leaf("sender", client=True)) == (200, "")
        assert house.woken == ["woken"]
        assert await house.post() == (403, "forbidden")
        assert await house.post(headers=bearing()) == (403, "forbidden")
        with pytest.raises(aiohttp.ClientError):
            await house.post(shown=STRANGERS.leaf("sender", client=True))
        assert house.woken == ["woken"]


async def test_either_proof_is_enough_where_both_are_possible(tmp_path: Path) -> None:
    async with by_certificate(
        tmp_path, f"--zonal-shift-events-token-file={tmp_path / 'token'}"
    ).open() as house:
        assert (await house.post(headers=bearing()))[0] == 200
        assert (await house.post(shown=CLIENTS.leaf("sender", client=True)))[0] == 200
        assert (await house.post())[0] == 403


async def test_what_a_known_sender_posts_must_be_an_event(tmp_path: Path) -> None:
    async with by_token(tmp_path).open() as house:
        assert (await house.post(b"no json", headers=bearing()))[0] == 400
        assert (await house.post({**EVENT, "source": "aws.ec2"}, headers=bearing()))[0] == 400
        assert (await house.post(b"x" * 400_000, headers=bearing()))[0] == 413
        assert (await house.post(headers=bearing(), method="GET"))[0] == 405
        assert house.woken == []


async def test_what_cannot_be_kept_is_to_come_again(tmp_path: Path) -> None:
    async with by_token(tmp_path, failing=True).open() as house:
        assert (await house.post(headers=bearing()))[0] == 503
        house.endpoint.draining = True
        assert (await house.post(headers=bearing()))[0] == 503


async def test_authorities_that_are_none_are_told(tmp_path: Path) -> None:
    house = by_certificate(tmp_path)
    (tmp_path / "clients.pem").write_text("nothing")
    with pytest.raises(Misconfigured, match=r"clients.pem holds no certificates in PEM"):
        await house.endpoint.run()
