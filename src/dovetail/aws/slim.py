"""AWS over HTTP for a function that starts cold: botocore alone, no metrics library, few threads.

The same port as `BotoAws`, without its counting; a function's own metrics are log lines.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import botocore.exceptions
import botocore.session
from botocore import xform_name
from botocore.config import Config

from dovetail import __version__
from dovetail.aws.errors import AwsError, aws_error
from dovetail.aws.port import Answer

__all__ = ["SlimAws", "translate_error"]


def translate_error(doing: str, error: Exception) -> tuple[AwsError, int]:
    """The error's meaning, and how often the client had tried again before."""
    if isinstance(error, botocore.exceptions.ClientError):
        told, facts = error.response.get("Error", {}), error.response.get("ResponseMetadata", {})
        code, message = told.get("Code") or "Unknown", told.get("Message") or "no reason was given"
        return aws_error(doing, code, message, facts.get("HTTPStatusCode", 0)), facts.get("RetryAttempts", 0)
    if isinstance(
        error, botocore.exceptions.NoCredentialsError | botocore.exceptions.PartialCredentialsError
    ):
        return aws_error(doing, "NoCredentials", "no AWS credentials were found; give the process a role"), 0
    if isinstance(error, botocore.exceptions.ParamValidationError):
        return aws_error(doing, "InvalidParameterValue", str(error).replace("\n", " "), 400), 0
    return aws_error(doing, "NoAnswer", str(error)), 0


THREADS = 16
ATTEMPTS_MOST = 3


class SlimAws:
    """The Aws port over botocore. Clients are made when they are first needed."""

    def __init__(
        self, region: str, *, session: botocore.session.Session | None = None, name: str = "dovetail-bus"
    ) -> None:
        self._session = session or botocore.session.get_session()
        self._region, self._name = region, name
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="aws")
        self._clients: dict[tuple[str, bool], Any] = {}
        self._lock = threading.Lock()

    @property
    def region(self) -> str:
        return self._region

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any], /, *, retried: bool = True
    ) -> Answer:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._pool, self._call_client, service, operation, dict(parameters), retried
        )

    def scope_to(self, *, region: str = "", role: str = "", external_id: str = "") -> SlimAws:
        session = self._assume_role(role, external_id) if role else self._session
        other = SlimAws.__new__(SlimAws)
        other._session, other._region, other._pool = session, region or self._region, self._pool
        other._name = self._name
        other._clients, other._lock = {}, threading.Lock()
        return other

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _call_client(self, service: str, operation: str, parameters: dict[str, Any], retried: bool) -> Answer:
        try:
            client = self._find_client(service, retried)
            answer: dict[str, Any] = getattr(client, xform_name(operation))(**parameters)
        except (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError) as error:
            raise translate_error(f"{service}:{operation}", error)[0] from error
        answer.pop("ResponseMetadata", None)
        return answer

    def _find_client(self, service: str, retried: bool) -> Any:
        with self._lock:
            client = self._clients.get((service, retried))
            if client is None:
                config = Config(
                    user_agent_extra=f"{self._name}-{__version__}",
                    connect_timeout=2,
                    read_timeout=10,
                    max_pool_connections=THREADS,
                    retries={"mode": "standard", "total_max_attempts": ATTEMPTS_MOST if retried else 1},
                )
                client = self._clients[service, retried] = self._session.create_client(
                    service, region_name=self._region, config=config
                )
            return client

    def _assume_role(self, role: str, external_id: str) -> botocore.session.Session:
        from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials

        source = self._session
        extra = {"RoleSessionName": self._name} | ({"ExternalId": external_id} if external_id else {})
        fetcher = AssumeRoleCredentialFetcher(
            lambda *args, **kwargs: source.create_client(*args, **{**kwargs, "region_name": self._region}),
            source.get_credentials(),
            role,
            extra_args=extra,
        )
        fresh = botocore.session.get_session()
        fresh._credentials = DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")
        return fresh
