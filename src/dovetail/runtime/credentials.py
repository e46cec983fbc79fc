"""Who we are to a cluster: a token, a token file, a plugin's answer, or an AWS signature.

Secrets live in these objects only; their reprs show none of it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

import msgspec

from dovetail.errors import Misconfigured
from dovetail.ports import Clock

__all__ = ["Anonymous", "Credentials", "ExecPlugin", "ExecSpec", "MintedToken", "StaticToken", "TokenFile"]


class Credentials(Protocol):
    """Gives each request its headers."""

    async def build_headers(self) -> dict[str, str]:
        """Headers that say who we are."""

    async def refresh(self, refused: Mapping[str, str]) -> bool:
        """These headers were refused: forget them, if they are still the latest. True when others may help.

        Many calls may be refused at once; only the first of them finds anything to forget.
        """


class Anonymous:
    """No headers: a client certificate says who we are, or nobody asks."""

    async def build_headers(self) -> dict[str, str]:
        return {}

    async def refresh(self, refused: Mapping[str, str]) -> bool:
        return False


class StaticToken:
    """A token that never changes."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def build_headers(self) -> dict[str, str]:
        return _build_bearer(self._token)

    async def refresh(self, refused: Mapping[str, str]) -> bool:
        return False


class TokenFile:
    """A token that is rotated on disk, as in a pod: read again at most a minute later.

    A file that cannot be read for a moment, as while it is being replaced, leaves the last token in use.
    """

    def __init__(self, path: Path, clock: Clock, keep: float = 60.0) -> None:
        self._path = path
        self._clock = clock
        self._keep = keep
        self._token = ""
        self._read_at = float("-inf")

    async def build_headers(self) -> dict[str, str]:
        if self._clock.monotonic() - self._read_at >= self._keep:
            try:
                self._token = self._path.read_text().strip()
            except OSError as error:
                if not self._token:
                    raise Misconfigured(f"reading the token file {self._path}: {error.strerror}") from error
            self._read_at = self._clock.monotonic()
        return _build_bearer(self._token)

    async def refresh(self, refused: Mapping[str, str]) -> bool:
        self._read_at = float("-inf")
        return await self.build_headers() != refused


class MintedToken:
    """A token made by a function that also says how long it is good for."""

    def __init__(self, mint: Callable[[], Awaitable[tuple[str, timedelta]]], clock: Clock) -> None:
        self._mint = mint
        self._clock = clock
        self._token = ""
        self._good_until = float("-inf")
        self._minting = asyncio.Lock()

    async def build_headers(self) -> dict[str, str]:
        async with self._minting:
            if self._clock.monotonic() >= self._good_until:
                self._token, lifetime = await self._mint()
                # A token that dies on the way is a failed call: stop using it a little early.
                self._good_until = self._clock.monotonic() + max(lifetime.total_seconds() - 60, 0)
            return _build_bearer(self._token)

    async def refresh(self, refused: Mapping[str, str]) -> bool:
        if refused == _build_bearer(self._token):
            self._good_until = float("-inf")
        return True


class ExecSpec(msgspec.Struct, frozen=True):
    """How a kubeconfig says to run a credential plugin."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    api_version: str = "client.authentication.k8s.io/v1"
    install_hint: str = ""
    cluster_info: Mapping[str, object] | None = None

    def __repr__(self) -> str:
        # Arguments and variables may hold keys.
        return f"ExecSpec({self.command})"


class _ExecStatus(msgspec.Struct, rename="camel"):
    token: str = ""
    expiration_timestamp: datetime | None = None
    client_certificate_data: str = ""
    client_key_data: str = ""


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    status: _ExecStatus | None = None


EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class ExecPlugin:
    """A program that prints a token, run again when the last one expires or is refused.

    A plugin may hand out a client certificate too; `on_certificate` is told each new one.
    """

    def __init__(
        self,
        spec: ExecSpec,
        clock: Clock,
        on_certificate: Callable[[str, str], None] | None = None,
        timeout: float = 60.0,
    ) -> None:
        self._spec = spec
        self._clock = clock
        self._on_certificate = on_certificate
        self._timeout = timeout
        self._status: _ExecStatus | None = None
        self._running = asyncio.Lock()

    async def build_headers(self) -> dict[str, str]:
        async with self._running:
            if self._status is None or self._is_expired(self._status):
                self._status = await self._run_plugin()
                if self._on_certificate and self._status.client_certificate_data:
                    self._on_certificate(self._status.client_certificate_data, self._status.client_key_data)
            return _build_status_headers(self._status)

    async def refresh(self, refused: Mapping[str, str]) -> bool:
        if self._status is not None and refused == _build_status_headers(self._status):
            self._status = None
        return True

    def _is_expired(self, status: _ExecStatus) -> bool:
        end = status.expiration_timestamp
        # Some plugins forget the offset; the specification says UTC.
        if end is not None and end.tzinfo is None:
            end = end.replace(tzinfo=UTC)
        return end is not None and self._clock.now() >= end - timedelta(seconds=10)

    async def _run_plugin(self) -> _ExecStatus:
        output = await self._read_output()
        try:
            credential = msgspec.json.decode(output, type=_ExecCredential)
        except msgspec.MsgspecError as error:
            raise Misconfigured(
                f"running {self._spec.command}: it printed no ExecCredential ({error})"
            ) from error
        if credential.api_version != self._spec.api_version:
            raise Misconfigured(
                f"running {self._spec.command}: it speaks {credential.api_version}, "
                f"the kubeconfig asks for {self._spec.api_version}"
            )
        status = credential.status
        if status is None or not (status.token or status.client_certificate_data):
            raise Misconfigured(
                f"running {self._spec.command}: its ExecCredential has neither token nor certificate"
            )
        return status

    async def _read_output(self) -> bytes:
        process = await self._start_process()
        try:
            out, err = await asyncio.wait_for(process.communicate(), self._timeout)
        except TimeoutError:
            raise Misconfigured(
                f"running the credential plugin {self._spec.command}: no answer in {self._timeout:.0f} s"
            ) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            # stderr is the plugin's message to a person; stdout could hold a token and is not shown.
            said = err.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
            raise Misconfigured(
                f"running the credential plugin {self._spec.command}: "
                f"exit code {process.returncode}, {said[0]}"
            )
        return out

    async def _start_process(self) -> asyncio.subprocess.Process:
        spec = self._spec
        about = {"interactive": False} | ({"cluster": spec.cluster_info} if spec.cluster_info else {})
        info = {"apiVersion": spec.api_version, "kind": "ExecCredential", "spec": about}
        env = os.environ | dict(spec.env) | {"KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
        try:
            return await asyncio.create_subprocess_exec(
                spec.command,
                *spec.args,
                env=env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = f"; {spec.install_hint.strip()}" if spec.install_hint else ""
            raise Misconfigured(
                f"running the credential plugin {spec.command}: {error.strerror}{hint}"
            ) from error


def _build_status_headers(status: _ExecStatus) -> dict[str, str]:
    return _build_bearer(status.token) if status.token else {}


def _build_bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
