"""Senders: what is taken, what is tried again and what is refused; and that no address is ever told."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from dovetail.errors import DovetailError, Refused, Retry, Throttled
from dovetail.history.filters import DueBatch
from dovetail.history.messages import NotifyMessage, render_message
from dovetail.history.notify import HeaderFile, NotifySink, is_link_local
from dovetail.runtime import senders
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.senders import FileSender, GuardedSession, HttpSender, StdoutSender
from dovetail.sim.certificates import ClusterCertificates
from support.decision_records import Stamping
from support.webhooks import SECRET, answer, answer_without_end, break_off, hang, receive

BATCH = DueBatch((Stamping()(message="it is gone"),))
MESSAGE = render_message(BATCH, "text", "prod")


@pytest.fixture
async def session() -> AsyncIterator[GuardedSession]:
    session = GuardedSession()
    yield session
    await session.close()


def sender(session: GuardedSession, url: str, **about: Any) -> HttpSender:
    return HttpSender(NotifySink(name="s", to=url, **about), session, SystemClock())


async def failure(session: GuardedSession, url: str, **about: Any) -> DovetailError:
    """How sending fails; no word of the address or the answer is in it, nor in what caused it."""
    with pytest.raises(DovetailError) as raised:
        await sender(session, url, **about).send_message(MESSAGE, BATCH)
    error: BaseException | None = raised.value
    assert isinstance(error, DovetailError)
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None
    for secret in (url, SECRET, "SECRET", "127.0.0.1", "169.254", "secret"):
        assert secret not in str(error)
    return error


async def test_a_message_is_posted_with_its_headers(session: GuardedSession, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("Bearer one\n")
    headers = {"Authorization": HeaderFile(file=str(token)), "X-Team": "nodes"}
    async with receive() as receiver:
        post = sender(session, receiver.url, headers=headers)
        await post.send_message(MESSAGE, BATCH)
        token.write_text("Bearer two\n")
        await post.send_message(MESSAGE, BATCH)
    assert [each.body for each in receiver.posts] == [MESSAGE.body] * 2
    assert [each.headers["Authorization"] for each in receiver.posts] == ["Bearer one", "Bearer two"]
    assert receiver.posts[0].headers["X-Team"] == "nodes"
    assert receiver.posts[0].headers["Content-Type"] == MESSAGE.content_type
    assert receiver.posts[0].headers["User-Agent"].startswith("dovetail/")


@pytest.mark.spec("NO-9")
@pytest.mark.parametrize("content", [b"two\nlines", b"\xff\xfe", b"x" * 9000, b"nul\0", None])
async def test_a_header_that_cannot_be_sent_is_tried_again(
    session: GuardedSession, tmp_path: Path, content: bytes | None
) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)
    async with receive() as receiver:
        error = await failure(session, receiver.url, headers={"Authorization": HeaderFile(file=str(token))})
    assert isinstance(error, Retry)
    assert "Authorization" in str(error)
    assert not any(word in str(error) for word in ("two", "lines", "xxx", "nul"))
    assert receiver.posts == []


@pytest.mark.spec("NO-8")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_refused(session: GuardedSession, status: int) -> None:
    async with receive() as other, receive() as receiver:
        receiver.manners = answer(status, {"Location": other.url})
        assert isinstance(await failure(session, receiver.url), Refused)
    assert len(receiver.posts) == 1
    assert other.posts == []


@pytest.mark.spec("NO-8")
@pytest.mark.parametrize(
    "host",
    ["169.254.169.254", "2852039166", "0xa9fea9fe", "[fe80::1]", "[::ffff:169.254.170.2]", "[fd00:ec2::254]"],
)
async def test_link_local_addresses_are_refused(session: GuardedSession, host: str) -> None:
    error = await failure(session, f"http://{host}/latest/meta-data?{SECRET}")
    assert isinstance(error, Refused), error
    assert "link-local" in str(error) or "URL cannot be read" in str(error)


@pytest.mark.spec("NO-8")
async def test_a_name_that_comes_to_lead_to_a_link_local_address_is_refused(
    session: GuardedSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name is looked at where it leads when something is sent, and each time: the first answer was good."""
    places = [
        ("127.0.0.1", socket.AF_INET),
        ("169.254.169.254", socket.AF_INET),
        ("fe80::1", socket.AF_INET6),
    ]
    found = iter(places)

    def resolve(host: str, port: int, *about: object) -> list[Any]:
        address, family = next(found)
        place = (address, port) if family == socket.AF_INET else (address, port, 0, 0)
        return [(family, socket.SOCK_STREAM, 6, "", place)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    async with receive() as receiver:
        receiver.manners = answer(200, {"Connection": "close"})
        url = receiver.url.replace("127.0.0.1", "hooks.example.test")
        await sender(session, url).send_message(MESSAGE, BATCH)
        for _ in range(2):
            error = await failure(session, url)
            assert isinstance(error, Refused), error
            assert "hooks" not in str(error)
    assert len(receiver.posts) == 1


@pytest.mark.spec("NO-8")
def test_every_way_to_write_a_link_local_address_is_known() -> None:
    written = (
        *("169.254.0.0", "169.254.255.255", "fe80::1", "fe80::1%eth0", "febf::", "::ffff:a9fe:a9fe"),
        *("2002:a9fe:a9fe::1", "64:ff9b::a9fe:a9fe", "::169.254.169.254", "fd00:ec2::23"),
    )
    assert [host for host in written if not is_link_local(host)] == []
    others = ("127.0.0.1", "::1", "10.0.0.1", "169.253.255.255", "fd00::1", "example.test", "", "169.254")
    assert [host for host in others if is_link_local(host)] == []


@pytest.mark.parametrize("status", [200, 201, 202, 204])
async def test_every_2xx_is_taken(session: GuardedSession, status: int) -> None:
    async with receive() as receiver:
        receiver.manners = answer(status)
        await sender(session, receiver.url).send_message(MESSAGE, BATCH)  # or it raises Retry or Refused
    assert len(receiver.posts) == 1, "and it is sent once"


@pytest.mark.parametrize("status", [401, 403, 404, 408, 410, 418, 500, 502, 504])
async def test_what_a_person_or_time_may_mend_is_tried_again(session: GuardedSession, status: int) -> None:
    async with receive() as receiver:
        receiver.manners = answer(status)
        error = await failure(session, receiver.url)
    assert isinstance(error, Retry)
    assert not isinstance(error, Throttled)
    assert str(status) in str(error)


@pytest.mark.parametrize("status", [400, 413, 415, 422])
async def test_a_message_that_is_not_understood_is_not_sent_again(
    session: GuardedSession, status: int
) -> None:
    async with receive() as receiver:
        receiver.manners = answer(status)
        assert isinstance(await failure(session, receiver.url), Refused)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("said", "least", "most"),
    [
        ("17", 17, 17),
        ("999999999", 3600, 3600),
        ("in half an hour", 1500, 1800),
        ("Mon, 01 Jan 2001 00:00:00 GMT", 0, 0),
    ],
)
async def test_who_asks_for_patience_gets_it(
    session: GuardedSession, status: int, said: str, least: float, most: float
) -> None:
    if said == "in half an hour":  # a date of now in a test's name would be another in every worker
        said = format_datetime(datetime.now(UTC) + timedelta(minutes=30), usegmt=True)
    async with receive() as receiver:
        receiver.manners = answer(status, {"Retry-After": said})
        error = await failure(session, receiver.url)
    assert isinstance(error, Throttled)
    assert error.after is not None
    assert least <= error.after <= most


@pytest.mark.parametrize("said", ["soon", "-5", "1e9", "9" * 400, "Mon, 99 Foo 2001"])
async def test_a_wait_that_cannot_be_read_is_none(session: GuardedSession, said: str) -> None:
    async with receive() as receiver:
        receiver.manners = answer(429, {"Retry-After": said})
        error = await failure(session, receiver.url)
    assert isinstance(error, Throttled)
    assert error.after is None


async def test_a_receiver_that_hangs_or_breaks_off_is_tried_again(
    session: GuardedSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(senders, "SECONDS", 0.2)
    async with receive() as receiver:
        for manners in (hang, break_off):
            receiver.manners = manners
            assert type(await failure(session, receiver.url)) is Retry
        url = receiver.url
    assert type(await failure(session, url)) is Retry  # nobody listens there any more


async def test_an_answer_without_end_is_not_read(session: GuardedSession) -> None:
    async with receive() as receiver:
        receiver.manners = answer_without_end
        await sender(session, receiver.url).send_message(MESSAGE, BATCH)  # who reads on never comes back
    assert len(receiver.posts) == 1, "the message was taken, whatever else was said"


async def test_one_connection_serves_many_messages(session: GuardedSession) -> None:
    async with receive() as receiver:
        ports = set()

        async def note(request: Any) -> Any:
            ports.add(request.transport.get_extra_info("peername")[1])
            return await answer(200)(request)

        receiver.manners = note
        for _ in range(5):
            await sender(session, receiver.url).send_message(MESSAGE, BATCH)
    assert len(ports) == 1


async def test_a_certificate_that_nobody_vouches_for_is_not_trusted(session: GuardedSession) -> None:
    server = await start_tls()
    port = server.sockets[0].getsockname()[1]
    try:
        error = await failure(session, f"https://localhost:{port}/{SECRET}")
    finally:
        server.close()
    assert str(error) == "its certificate is not trusted"


async def start_tls() -> Any:
    async def take(reader: Any, writer: Any) -> None:
        writer.close()

    return await asyncio.start_server(take, "127.0.0.1", 0, ssl=ClusterCertificates().context)


async def test_a_name_that_nobody_knows_is_tried_again(
    session: GuardedSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(*about: object) -> list[Any]:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    error = await failure(session, f"https://hooks.example.test/{SECRET}")
    assert str(error) == "its name was not found"


async def test_a_file_is_appended_to_and_may_be_moved_away(tmp_path: Path) -> None:
    told = tmp_path / "told"
    writer = FileSender(NotifySink(name="s", to=f"file:{told}"))
    await writer.send_message(NotifyMessage("application/json", b"{}"), BATCH)
    await writer.send_message(NotifyMessage("text/plain", b"line\n"), BATCH)
    assert told.read_bytes() == b"{}\nline\n"
    assert told.stat().st_mode & 0o777 == 0o600
    told.rename(tmp_path / "old")
    await writer.send_message(NotifyMessage("text/plain", b"new\n"), BATCH)
    assert told.read_bytes() == b"new\n"


async def test_a_file_that_cannot_be_written_holds_nobody_up(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for place in (tmp_path, tmp_path / "no" / "such", pipe):
        with pytest.raises((Retry, Refused)) as raised:
            await FileSender(NotifySink(name="s", to=f"file:{place}")).send_message(MESSAGE, BATCH)
        assert str(tmp_path) not in str(raised.value)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(Refused, match="regular"):
        await FileSender(NotifySink(name="s", to=f"file:{pipe}")).send_message(MESSAGE, BATCH)
    os.close(reader)


async def test_stdout_gets_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    await StdoutSender().send_message(NotifyMessage("application/json", b"{}"), BATCH)
    assert capsys.readouterr().out == "{}\n"
