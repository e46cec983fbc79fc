"""How a message reaches a sink: posted over HTTP, appended to a file, or written to stdout.

A sender raises Retry when a message may be taken later, Throttled when it was told when, and Refused when it
will not be taken. None of them repeats an address, a header or an answer: those may hold secrets.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import stat
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from dovetail import __version__
from dovetail.errors import DovetailError, Refused, Retry, Throttled
from dovetail.history.filters import DueBatch
from dovetail.history.messages import NotifyMessage
from dovetail.history.notify import HeaderFile, NotifySink, is_link_local
from dovetail.ports import Clock, RunBlocking
from dovetail.runtime.decision_log import run_inline

__all__ = ["FileSender", "GuardedSession", "HttpSender", "Sender", "StdoutSender"]

SECONDS = 5.0
# Of an answer that is short, the end is awaited for so long, so that its connection can be used again.
DRAIN_SECONDS, DRAIN_BYTES = 1.0, 16_384
MOST_HEADER = 8_192
# No wait that an answer asks for is longer than a message is kept.
LONGEST_WAIT = 3_600.0
RESOLVING_AT_ONCE = 4
# What these say is about the message, not about the sink: the next one may be taken.
NEVER_TAKEN = frozenset((400, 413, 415, 422))
_UNPRINTABLE = re.compile(r"[^\t\x20-\x7e\x80-\U0010ffff]")


class Sender(Protocol):
    """The way to one sink."""

    async def send_message(self, message: NotifyMessage, batch: DueBatch, /) -> None:
        """Hand over one message; returns when it was taken."""


class LinkLocalRefused(OSError):
    """A name led to an address that is never written to."""


class _OwnResolver(AbstractResolver):
    """Looks names up in threads of its own: names that hang keep nobody else waiting for a thread."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(RESOLVING_AT_ONCE, "notify-names")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        ask = partial(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        return [
            ResolveResult(
                hostname=host, host=str(place[0]), port=int(place[1]), family=kind, proto=proto, flags=flags
            )
            for kind, _, proto, _, place in found
        ]

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _open_socket(info: tuple[Any, ...]) -> socket.socket:
    """A socket for the address that is connected to, however it was found; link-local ones get none."""
    family, kind, proto, _, place = info
    if is_link_local(str(place[0])):
        raise LinkLocalRefused("link-local addresses are never written to")
    return socket.socket(family, kind, proto)


class GuardedSession:
    """The connections to all sinks with a URL. Opened when first needed, on the loop that needs it."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    def ensure_open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=0, ssl=True, resolver=_OwnResolver(), use_dns_cache=False, socket_factory=_open_socket
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                headers={"User-Agent": f"dovetail/{__version__}"},
                timeout=aiohttp.ClientTimeout(total=SECONDS),
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()


class HttpSender:
    """Posts messages to a URL: no redirects, TLS verified, an answer within five seconds."""

    def __init__(
        self, sink: NotifySink, session: GuardedSession, clock: Clock, run_blocking: RunBlocking = run_inline
    ) -> None:
        self._url = sink.to
        self._headers = sink.headers
        self._session = session
        self._clock = clock
        self._run_blocking = run_blocking

    async def send_message(self, message: NotifyMessage, batch: DueBatch) -> None:
        headers = await self._run_blocking(partial(_read_headers, self._headers))
        headers["Content-Type"] = message.content_type
        try:
            answer = await self._session.ensure_open().post(
                self._url, data=message.body, headers=headers, allow_redirects=False
            )
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            # Without the cause: what aiohttp says names the address.
            raise _describe_failure(error) from None
        try:
            self._check_answer(answer)
            await _drain_answer(answer)
        finally:
            answer.close()

    def _check_answer(self, answer: aiohttp.ClientResponse) -> None:
        status = answer.status
        if 200 <= status < 300:
            return
        said = f"it answered {status}"
        if 300 <= status < 400:
            raise Refused(f"{said}, and redirects are not followed")
        if status in NEVER_TAKEN:
            raise Refused(said)
        if status in (429, 503):
            raise Throttled(said, self._read_wait(answer.headers.get("Retry-After", "")))
        raise Retry(said)

    def _read_wait(self, text: str) -> float | None:
        """The seconds of a Retry-After, which is a number or a date."""
        if re.fullmatch(r"[0-9]{1,9}", text):
            return min(float(text), LONGEST_WAIT)
        try:
            date = parsedate_to_datetime(text)
        except (ValueError, TypeError, OverflowError):
            return None
        until = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
        return min(max((until - self._clock.now()).total_seconds(), 0.0), LONGEST_WAIT)


async def _drain_answer(answer: aiohttp.ClientResponse) -> None:
    """Read an answer that is short; one that is long or slow is cut off. It was taken either way."""
    if answer.content_length is None or answer.content_length > DRAIN_BYTES:
        return
    with suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(DRAIN_SECONDS):
            await answer.content.read(DRAIN_BYTES)
            answer.release()


def _read_headers(headers: Mapping[str, HeaderFile | str]) -> dict[str, str]:
    """The headers of a sink, each read anew: tokens are renewed."""
    read = {}
    for name, value in headers.items():
        text = _read_header(name, Path(value.file)) if isinstance(value, HeaderFile) else value
        if _UNPRINTABLE.search(text):
            raise Retry(f"the value of the header {name} is not one line of text")
        read[name] = text
    return read


def _read_header(name: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            found = file.read(MOST_HEADER + 1)
    except OSError as error:
        raise Retry(f"reading the file of the header {name}: {error.strerror}") from None
    if len(found) > MOST_HEADER:
        raise Retry(f"the file of the header {name} is longer than {MOST_HEADER} bytes")
    try:
        return found.decode().strip()
    except UnicodeDecodeError:
        raise Retry(f"the value of the header {name} is not one line of text") from None


def _describe_failure(error: BaseException) -> DovetailError:
    """What went wrong on the way, in words of our own."""
    if _is_refused_address(error):
        return Refused("it is a link-local address, and those are never written to")
    if isinstance(error, TimeoutError):
        return Retry(f"no answer within {SECONDS:.0f} s")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Retry("its name was not found")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return Retry("its certificate is not trusted")
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return Retry("no TLS connection could be made")
    if isinstance(error, aiohttp.ClientConnectorError):
        return Retry(
            f"no connection could be made ({os.strerror(error.errno) if error.errno else 'refused'})"
        )
    if isinstance(error, aiohttp.InvalidURL):
        return Refused("its URL cannot be read")
    return Retry("the connection broke off")


def _is_refused_address(error: BaseException | None) -> bool:
    """Whether a link-local address was behind a failure, alone or among others that failed as well."""
    if isinstance(error, LinkLocalRefused):
        return True
    if isinstance(error, BaseExceptionGroup):
        return any(map(_is_refused_address, error.exceptions))
    inner = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else None
    cause = inner or (error.__cause__ if error is not None else None)
    return cause is not None and _is_refused_address(cause)


class FileSender:
    """Appends each message to a file, opened anew each time: it may be moved away meanwhile."""

    def __init__(self, sink: NotifySink, run_blocking: RunBlocking = run_inline) -> None:
        self._path = sink.to.removeprefix("file:")
        self._run_blocking = run_blocking

    async def send_message(self, message: NotifyMessage, batch: DueBatch) -> None:
        await self._run_blocking(partial(self._append, end_line(message.body)))

    def _append(self, body: bytes) -> None:
        # A pipe that nobody reads would hold us for ever.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            with open(os.open(self._path, flags, 0o600), "ab", buffering=0) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise Refused("it is no regular file")
                if file.write(body) != len(body):
                    raise Retry("the file could not be written to its end")
        except OSError as error:
            raise Retry(f"the file cannot be written: {error.strerror}") from None


class StdoutSender:
    """Writes each message to stdout."""

    async def send_message(self, message: NotifyMessage, batch: DueBatch) -> None:
        try:
            sys.stdout.write(end_line(message.body).decode())
            sys.stdout.flush()
        except (OSError, ValueError):
            raise Retry("stdout cannot be written") from None


def end_line(body: bytes) -> bytes:
    """The body of a message as lines of a file."""
    return body if body.endswith(b"\n") else body + b"\n"
