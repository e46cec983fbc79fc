"""AWS over HTTP, by botocore in a bounded set of threads: the loop never waits for a socket.

The home of boto3. Every request is counted under the names dashboards know from the Go SDK.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, ParamSpec, TypeVar

import boto3
import botocore.exceptions
import botocore.session
from botocore import xform_name
from botocore.config import Config
from botocore.response import StreamingBody
from botocore.utils import IMDSRegionProvider

from dovetail import __version__
from dovetail.aws.port import Answer, check_fence
from dovetail.aws.slim import translate_error
from dovetail.errors import Misconfigured
from dovetail.metrics import counter, histogram

__all__ = ["BotoAws", "DaemonThreads"]

P = ParamSpec("P")
R = TypeVar("R")


class DaemonThreads(Executor):
    """At most so many at once, started as they are needed."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0
        self._closed = False
        self._lock = threading.Lock()

    def submit(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        future: Future[R] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("these threads have been let go of")
            self._work.put((future, lambda: work(*args, **kwargs)))
            if not self._idle.acquire(blocking=False) and self._started < self._most:
                self._started += 1
                threading.Thread(target=self._run, name=f"{self._name}-{self._started}", daemon=True).start()
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:
        """Take nothing more, and give up what has not begun. What has begun ends by itself or with us."""
        with self._lock:
            self._closed = True
        while cancel_futures:
            try:
                left = self._work.get_nowait()
            except Empty:
                break
            if left is not None:
                left[0].cancel()
        for _ in range(self._started):
            self._work.put(None)

    def _run(self) -> None:
        while (asked := self._work.get()) is not None:
            _run_work(*asked)
            # Not held while waiting: an answer would keep its memory until the next request.
            del asked
            self._idle.release()


def _run_work(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001
        # Whatever it is, it belongs to the one who asked.
        future.set_exception(error)


REQUEST_BUCKETS = tuple(0.01 * 1.5**k for k in range(20))
LABELS = ("service", "action", "code")
REQUESTS = counter("aws_sdk_go_request_total", "Requests to AWS.", LABELS)
ATTEMPTS = counter(
    "aws_sdk_go_request_attempt_total", "Attempts of requests to AWS, repeats included.", LABELS
)
DURATION = histogram(
    "aws_sdk_go_request_duration_seconds", "Time of a request to AWS.", LABELS, REQUEST_BUCKETS
)
RETRIES = histogram(
    "aws_sdk_go_request_retry_count", "Repeats of a request to AWS.", LABELS, tuple(range(11))
)

# Long polls of a queue hold a thread for 20 s; the rest answer in well under a second.
THREADS = 24
TIMEOUT = 240
ATTEMPTS_MOST = 5
SESSION_NAME = "dovetail"
SIMULATED = "simulated"


class BotoAws:
    """The Aws port over boto3. One instance for a process; `at` gives its siblings."""

    def __init__(
        self,
        session: boto3.Session | None = None,
        *,
        region: str = "",
        endpoint: str = "",
        threads: int = THREADS,
    ) -> None:
        self._session = session or _own_session(region)
        self._region = region or (session.region_name or "" if session else _region_of(self._session))
        if not self._region:
            raise Misconfigured("no AWS region is known: set AWS_REGION, or a region in the AWS profile")
        self._endpoint = endpoint or None
        self._pool = DaemonThreads(threads, "aws")
        self._clients: dict[tuple[str, bool], Any] = {}
        self._lock = threading.Lock()

    @classmethod
    def for_simulator(cls, endpoint: str, region: str) -> BotoAws:
        """A simulated AWS, asked with a key that opens nothing else: whose keys this shell has stays here."""
        own = dict.fromkeys(("profile", "config_file", "credentials_file"), (None, None, None, None))
        session = botocore.session.Session(session_vars=own)
        session.set_credentials(SIMULATED, SIMULATED)
        return cls(boto3.Session(botocore_session=session, region_name=region), endpoint=endpoint)

    @property
    def region(self) -> str:
        return self._region

    def scope_to(self, *, region: str = "", role: str = "", external_id: str = "") -> BotoAws:
        session = self._assume_role(role, external_id) if role else self._session
        other = BotoAws.__new__(BotoAws)
        other._session, other._region = session, region or self._region
        other._endpoint, other._pool = self._endpoint, self._pool
        other._clients, other._lock = {}, threading.Lock()
        return other

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any], /, *, retried: bool = True
    ) -> Answer:
        loop = asyncio.get_running_loop()
        # The context goes along: it holds the fence that the thread asks before every attempt.
        here = copy_context().run
        return await loop.run_in_executor(
            self._pool, here, self._call_client, service, operation, dict(parameters), retried
        )

    def close(self) -> None:
        """Let go of threads and connections; requests under way are given up."""
        self._pool.shutdown()
        for client in self._clients.values():
            client.close()

    def _call_client(self, service: str, operation: str, parameters: dict[str, Any], retried: bool) -> Answer:
        started = perf_counter()
        try:
            client = self._find_client(service, retried)
            answer: dict[str, Any] = getattr(client, xform_name(operation))(**parameters)
            _read_body(answer)
        except (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError) as error:
            meant, repeats = translate_error(f"{service}:{operation}", error)
            _count_request(service, operation, meant.code, perf_counter() - started, repeats)
            raise meant from error
        facts = answer.pop("ResponseMetadata", {})
        _count_request(
            service,
            operation,
            str(facts.get("HTTPStatusCode", "")),
            perf_counter() - started,
            facts.get("RetryAttempts", 0),
        )
        return answer

    def _find_client(self, service: str, retried: bool) -> Any:
        # Making a client reads its model from disk and is not safe in two threads at once.
        with self._lock:
            client = self._clients.get((service, retried))
            if client is None:
                client = self._clients[service, retried] = self._session.client(
                    service,
                    region_name=self._region,
                    endpoint_url=self._endpoint,
                    config=_build_config(retried),
                )
                client.meta.events.register("before-send", partial(_before_send, service))
            return client

    def _assume_role(self, role: str, external_id: str) -> boto3.Session:
        from botocore.credentials import (
            AssumeRoleCredentialFetcher,
            DeferredRefreshableCredentials,
        )
        from botocore.session import get_session

        source = self._session._session
        extra = {"RoleSessionName": SESSION_NAME} | ({"ExternalId": external_id} if external_id else {})
        fetcher = AssumeRoleCredentialFetcher(
            lambda *args, **kwargs: source.create_client(
                *args, **{**kwargs, "region_name": self._region, "endpoint_url": self._endpoint}
            ),
            source.get_credentials(),
            role,
            extra_args=extra,
        )
        fresh = get_session()
        fresh._credentials = DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")
        return boto3.Session(botocore_session=fresh, region_name=self._region)


def _read_body(answer: dict[str, Any]) -> None:
    """What S3 lets flow is read here, in the thread, so that an answer is a value."""
    body = answer.get("Body")
    if isinstance(body, StreamingBody):
        answer["Body"] = body.read()


def _own_session(region: str) -> boto3.Session:
    """The session that the environment and the files of this user describe."""
    try:
        return boto3.Session(region_name=region or None)
    except botocore.exceptions.BotoCoreError as error:
        # Such as a profile that is named and not there, or a file that cannot be read.
        raise Misconfigured(
            f"reading the AWS configuration: {str(error).rstrip('.')}; check AWS_PROFILE"
        ) from error


def _region_of(session: boto3.Session) -> str:
    """Where a process is at home: as its environment or profile says, else as the machine it runs on says."""
    # The other SDKs, and so every manifest written for Karpenter, call the variable AWS_REGION.
    named = os.environ.get("AWS_REGION") or session.region_name
    return named or IMDSRegionProvider(session._session).provide() or ""


def _before_send(service: str, event_name: str, **given: Any) -> None:
    """Every attempt passes here, the first and the repeated."""
    check_fence(f"{service}:{event_name.rpartition('.')[2]}")


def _build_config(retried: bool) -> Config:
    return Config(
        user_agent_extra=f"karpenter.sh-{__version__}",
        connect_timeout=10,
        read_timeout=TIMEOUT,
        max_pool_connections=THREADS,
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS_MOST if retried else 1},
    )


def _count_request(service: str, operation: str, code: str, seconds: float, repeats: int) -> None:
    named = (service, operation, code)
    REQUESTS.labels(*named).inc()
    ATTEMPTS.labels(*named).inc(1 + repeats)
    DURATION.labels(*named).observe(seconds)
    RETRIES.labels(*named).observe(repeats)
