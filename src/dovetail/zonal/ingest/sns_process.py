"""The HTTPS endpoint for SNS as a process of its own: whoever breaks it stops nothing but that process.

    autoscaler                                   endpoint (this module as a program)
    keeps signals, calls SNS      ◄── lines ──   listens, verifies, answers
                                   ── lines ─►

The child has no credentials in its environment and bounds on memory and files. What it asks for is read
strictly: a signal to keep, one of two calls to SNS about a topic that was configured, numbers to count. It
ends with its parent, and is started again when it ends by itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from dovetail.aws import Aws
from dovetail.errors import DovetailError, Misconfigured, Retry
from dovetail.logs import get_logger
from dovetail.ports import Clock
from dovetail.runtime.clock import SystemClock
from dovetail.settings import Settings, read_settings
from dovetail.zonal import shift_metrics
from dovetail.zonal.ingest.posted_events import Signals
from dovetail.zonal.ingest.sns_delivery import find_region
from dovetail.zonal.ingest.sns_endpoint import TLS_DIRECTORY, SnsEndpoint
from dovetail.zonal.model.events import ShiftSignal

__all__ = ["EndpointProcess"]

log = get_logger()
MEBIBYTE = 2**20
# Of the child: address space, which is more than it ever touches, and open files.
MOST_MEMORY, MOST_FILES = 2_048 * MEBIBYTE, 1_024
LONGEST_LINE = 1 * MEBIBYTE
AT_ONCE = 16
MOST_REASONS = 64
FIRST_PAUSE, LAST_PAUSE, STEADY = 1.0, 60.0, 300.0
COUNT_SECONDS = 1.0
INHERITED = frozenset(
    ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "TMPDIR")
) | {"SSL_CERT_FILE", "SSL_CERT_DIR"}
OPERATIONS = ("ConfirmSubscription", "Subscribe")
REFUSED = 64  # what the child ends with when it says why it cannot start


class Told(msgspec.Struct):
    """What the child is told first: the settings that concern it, as flags, and where its certificate is."""

    flags: list[str]
    directory: str


def flags_of(settings: Settings) -> list[str]:
    """The settings of the endpoint, and no other."""
    texts = {
        "cluster-name": settings.cluster_name,
        "zonal-shift-https-port": str(settings.zonal_shift_https_port),
        "zonal-shift-topic-arn": ",".join(settings.zonal_shift_topic_arn),
        "zonal-shift-endpoint-url": settings.zonal_shift_endpoint_url,
        "zonal-shift-sns-ca-file": settings.zonal_policy.sns_ca_file,
        "zonal-shift-events-token-file": settings.zonal_shift_events_token_file,
        "zonal-shift-events-ca-file": settings.zonal_shift_events_ca_file,
        "zonal-shift-allow-signature-v1": str(settings.zonal_policy.allow_signature_v1).lower(),
        "sns-auto-subscribe": str(settings.zonal_policy.sns_auto_subscribe).lower(),
    }
    return [f"--{name}={value}" for name, value in texts.items() if value]


class Ask(msgspec.Struct, forbid_unknown_fields=True):
    """What the child asks of the autoscaler."""

    kind: Literal["signal", "call", "counted", "listening", "misconfigured"]
    id: int = 0
    signal: ShiftSignal | None = None
    operation: str = ""
    parameters: dict[str, Any] = {}
    counted: dict[str, int] = {}
    addresses: list[list[Any]] = []
    why: str = ""


class Reply(msgspec.Struct, forbid_unknown_fields=True):
    """What became of it."""

    id: int
    error: str = ""
    result: str = ""


class EndpointProcess:
    """Runs the endpoint, and does for it what needs credentials."""

    def __init__(
        self,
        settings: Settings,
        aws: Aws,
        signals: Signals,
        clock: Clock,
        *,
        directory: Path = TLS_DIRECTORY,
    ) -> None:
        self._settings, self._aws, self._signals, self._clock = settings, aws, signals, clock
        self._directory = directory
        self._reasons: set[str] = set()
        self._refusal = ""
        self.addresses: tuple[tuple[Any, ...], ...] = ()
        self.pid = 0

    async def run(self) -> None:
        """Keep the endpoint running until cancelled; Misconfigured when it says that it cannot."""
        pause = FIRST_PAUSE
        while True:
            began = self._clock.monotonic()
            code = await self._live()
            if self._clock.monotonic() - began > STEADY:
                pause = FIRST_PAUSE
            log.warning("the HTTPS endpoint ended, starting it again", code=code, seconds=pause)
            await self._clock.sleep(pause)
            pause = min(pause * 2, LAST_PAUSE)

    async def _live(self) -> int:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            __name__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if name in INHERITED},
            limit=LONGEST_LINE,
        )
        self.pid = process.pid
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(Told(flags_of(self._settings), str(self._directory))) + b"\n")
        try:
            await self._serve(process.stdout, process.stdin)
            return await process.wait()
        finally:
            self.addresses = ()
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def _serve(self, asked: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        """Do what is asked, so many at once, until the child ends; nonsense ends it."""
        under_way: set[asyncio.Task[None]] = set()
        try:
            while line := await asked.readline():
                if len(under_way) >= AT_ONCE:
                    await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                task = asyncio.create_task(self._answer(msgspec.json.decode(line, type=Ask), answers))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
        except (ValueError, msgspec.DecodeError) as error:
            log.error("the HTTPS endpoint says what makes no sense and is ended", error=error)
        finally:
            await asyncio.gather(*under_way, return_exceptions=True)
        if self._refusal:
            raise Misconfigured(self._refusal)

    async def _answer(self, ask: Ask, answers: asyncio.StreamWriter) -> None:
        if ask.kind == "misconfigured":
            self._refusal = ask.why
        elif ask.kind == "listening":
            self.addresses = tuple(tuple(each) for each in ask.addresses)
        elif ask.kind == "counted":
            self._count(ask.counted)
        else:
            reply = Reply(ask.id)
            try:
                reply.result = await self._do(ask)
            except DovetailError as error:
                reply.error = str(error) or type(error).__name__
            with suppress(ConnectionError):
                answers.write(msgspec.json.encode(reply) + b"\n")
                await answers.drain()

    async def _do(self, ask: Ask) -> str:
        if ask.signal is not None:
            return await self._signals.put_signal(ask.signal)
        topic = str(ask.parameters.get("TopicArn", ""))
        endpoint = ask.parameters.get("Endpoint", self._settings.zonal_shift_endpoint_url)
        known = topic in self._settings.zonal_shift_topic_arn
        if (
            ask.operation not in OPERATIONS
            or not known
            or endpoint != self._settings.zonal_shift_endpoint_url
        ):
            raise Misconfigured(f"the HTTPS endpoint may not call {ask.operation} about {topic}")
        await self._aws.scope_to(region=find_region(topic)).call("sns", ask.operation, ask.parameters)
        return ""

    def _count(self, counted: Mapping[str, int]) -> None:
        """Count what was turned away; words of a child that was broken into are bounded."""
        for reason, times in counted.items():
            if reason not in self._reasons and len(self._reasons) >= MOST_REASONS:
                reason = "other"
            self._reasons.add(reason)
            shift_metrics.SIGNATURES.labels(reason[:MOST_REASONS]).inc(max(0, min(times, 1_000_000)))


# The child


class Line:
    """The child's way to the autoscaler."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._number = 0

    def tell(self, ask: Ask) -> None:
        self._writer.write(msgspec.json.encode(ask) + b"\n")

    async def ask(self, ask: Ask) -> str:
        self._number += 1
        ask.id = self._number
        answered: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[ask.id] = answered
        try:
            self.tell(ask)
            await self._writer.drain()
            reply = await answered
        finally:
            del self._waiting[ask.id]
        if reply.error:
            raise Retry(reply.error)
        return reply.result

    async def hear(self) -> None:
        """Hand answers to who asked, until the autoscaler is gone."""
        while line := await self._reader.readline():
            reply = msgspec.json.decode(line, type=Reply)
            waiting = self._waiting.get(reply.id)
            if waiting is not None and not waiting.done():
                waiting.set_result(reply)

    async def put_signal(self, signal: ShiftSignal) -> str:
        """Keep a signal, as the store of the autoscaler does."""
        return await self.ask(Ask("signal", signal=signal))

    async def count(self) -> None:
        """Tell every second what was turned away since the last time."""
        told: dict[str, float] = {}
        while True:
            await asyncio.sleep(COUNT_SECONDS)
            now = {
                sample.labels["reason"]: sample.value
                for metric in shift_metrics.SIGNATURES.collect()
                for sample in metric.samples
                if "reason" in sample.labels
            }
            more = {reason: int(value - told.get(reason, 0)) for reason, value in now.items()}
            told = now
            if any(more.values()):
                self.tell(Ask("counted", counted={reason: times for reason, times in more.items() if times}))


class DistantAws:
    """The Aws port of the child: the autoscaler makes the calls, and only those about SNS."""

    def __init__(self, line: Line, region: str = "") -> None:
        self._line, self.region = line, region

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any], /, *, retried: bool = True
    ) -> Mapping[str, Any]:
        await self._line.ask(Ask("call", operation=operation, parameters=dict(parameters)))
        return {}

    def scope_to(self, *, region: str = "", role: str = "", external_id: str = "") -> Aws:
        return DistantAws(self._line, region or self.region)


def _bound() -> None:
    """Give up what the endpoint does not need, before it listens."""
    for what, most in (
        (resource.RLIMIT_AS, MOST_MEMORY),
        (resource.RLIMIT_NOFILE, MOST_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (least, least))
    os.nice(5)


async def _main() -> int:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LONGEST_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    line = Line(reader, asyncio.StreamWriter(transport, protocol, None, loop))
    told = msgspec.json.decode(await reader.readline(), type=Told)
    settings = read_settings(told.flags, {}, provider="aws")
    endpoint = SnsEndpoint(settings, DistantAws(line), line, SystemClock(), directory=Path(told.directory))
    serving = [loop.create_task(work) for work in (endpoint.run(), line.count(), line.hear())]
    listening = loop.create_task(endpoint.listening.wait())
    await asyncio.wait([*serving, listening], return_when=asyncio.FIRST_COMPLETED)
    line.tell(Ask("listening", addresses=[list(each) for each in endpoint.addresses]))
    done, _ = await asyncio.wait(serving, return_when=asyncio.FIRST_COMPLETED)
    for task in (*serving, listening):
        task.cancel()
    await asyncio.gather(*serving, listening, return_exceptions=True)
    error = next(iter(done)).exception()
    if isinstance(error, Misconfigured):
        line.tell(Ask("misconfigured", why=str(error)))
        transport.close()
        return REFUSED
    return 0 if error is None else 1


def main() -> int:
    """The endpoint, told what to do by its standard input."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    _bound()
    return asyncio.run(_main())


if __name__ == "__main__":
    sys.exit(main())
