"""Tokens from files, functions and plugins: fresh when they should be, and never shown."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from dovetail.errors import Misconfigured
from dovetail.runtime.credentials import Anonymous, ExecPlugin, ExecSpec, MintedToken, StaticToken, TokenFile
from dovetail.sim.clock import VirtualClock, run_virtual
from support.apiserver import HandClock

V1, V1BETA1 = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"
PLUGIN = """
import json, os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
runs = folder / "runs"
count = int(runs.read_text()) + 1 if runs.exists() else 1
runs.write_text(str(count))
(folder / "info").write_text(os.environ["KUBERNETES_EXEC_INFO"])
(folder / "colour").write_text(os.environ.get("COLOUR", ""))
status = json.loads((folder / "status").read_text())
status = {key: value.replace("COUNT", str(count)) for key, value in status.items()}
print(json.dumps({"kind": "ExecCredential", "apiVersion": sys.argv[2], "status": status}))
"""


def plugin(folder: Path, status: dict[str, str], spoken: str = V1, **more: object) -> ExecSpec:
    (folder / "plugin.py").write_text(PLUGIN)
    (folder / "status").write_bytes(msgspec.json.encode(status))
    args = (str(folder / "plugin.py"), str(folder), spoken)
    return msgspec.structs.replace(ExecSpec(sys.executable, args), **more)


async def test_a_fixed_token_is_sent_and_never_shown() -> None:
    token = StaticToken("s3cret")
    assert await token.build_headers() == {"Authorization": "Bearer s3cret"}
    assert not await token.refresh({}), "asking again would not help"
    assert "s3cret" not in repr(token)
    assert await Anonymous().build_headers() == {}
    assert not await Anonymous().refresh({})


def test_a_rotated_token_is_read_again_within_a_minute(tmp_path: Path) -> None:
    async def main() -> None:
        clock, path = VirtualClock(), tmp_path / "token"
        path.write_text("first\n")
        token = TokenFile(path, clock)
        assert await token.build_headers() == {"Authorization": "Bearer first"}
        path.write_text("second")
        await clock.sleep(59)
        assert await token.build_headers() == {"Authorization": "Bearer first"}
        await clock.sleep(2)
        assert await token.build_headers() == {"Authorization": "Bearer second"}
        path.write_text("third")
        assert await token.refresh({"Authorization": "Bearer second"}), (
            "a refused token is read again at once"
        )
        assert await token.build_headers() == {"Authorization": "Bearer third"}
        refused = {"Authorization": "Bearer third"}
        assert not await token.refresh(refused), "the same token again would be refused again"
        path.unlink()
        await clock.sleep(120)
        assert await token.build_headers() == {"Authorization": "Bearer third"}, (
            "a gap in the rotation is bridged"
        )

    run_virtual(main())


async def test_a_token_file_that_was_never_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"token: No such file"):
        await TokenFile(tmp_path / "token", HandClock()).build_headers()


def test_a_minted_token_is_kept_until_a_minute_before_its_end() -> None:
    async def main() -> list[float]:
        clock, minted = VirtualClock(), []

        async def mint() -> tuple[str, timedelta]:
            minted.append(clock.monotonic())
            return f"token{len(minted)}", timedelta(minutes=5)

        token = MintedToken(mint, clock)
        for _ in range(10):
            await token.build_headers()
            await clock.sleep(30)
        for _ in range(3):
            assert await token.refresh({"Authorization": "Bearer token2"})
            assert await token.build_headers() == {"Authorization": "Bearer token3"}, (
                "made once for all of them"
            )
        return minted

    assert run_virtual(main()) == [0, 240, 300]


@pytest.mark.parametrize("version", [V1, V1BETA1])
async def test_a_plugin_is_asked_once_and_again_when_its_token_expires(tmp_path: Path, version: str) -> None:
    clock = HandClock()
    end = (clock.now() + timedelta(minutes=10)).strftime("%Y-%m-%dT%H:%M:%SZ")
    spec = plugin(
        tmp_path,
        {"token": "token-COUNT", "expirationTimestamp": end},
        version,
        api_version=version,
        env={"COLOUR": "blue"},
        cluster_info={"server": "https://example"},
    )
    token = ExecPlugin(spec, clock)
    assert await token.build_headers() == {"Authorization": "Bearer token-1"}
    assert await token.build_headers() == {"Authorization": "Bearer token-1"}
    clock.advance(595)
    assert await token.build_headers() == {"Authorization": "Bearer token-2"}
    info = msgspec.json.decode((tmp_path / "info").read_bytes())
    assert info["apiVersion"] == version
    assert info["spec"] == {"interactive": False, "cluster": {"server": "https://example"}}
    assert (tmp_path / "colour").read_text() == "blue"
    assert "blue" not in repr(spec)


async def test_a_refused_token_makes_the_plugin_run_again(tmp_path: Path) -> None:
    token = ExecPlugin(plugin(tmp_path, {"token": "token-COUNT"}), HandClock())
    refused = await token.build_headers()
    for _ in range(5):
        assert await token.refresh(refused)
        assert await token.build_headers() == {"Authorization": "Bearer token-2"}, (
            "once for all who were refused"
        )


async def test_a_plugin_may_hand_out_a_certificate(tmp_path: Path) -> None:
    given: list[tuple[str, str]] = []
    status = {"clientCertificateData": "CERT", "clientKeyData": "KEY"}
    token = ExecPlugin(plugin(tmp_path, status), HandClock(), lambda cert, key: given.append((cert, key)))
    assert await token.build_headers() == {}
    assert given == [("CERT", "KEY")]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print('token: s3cret')", "printed no ExecCredential"),
        ("import sys; print('s3cret'); sys.exit('please log in')", "exit code 1, please log in"),
        ("import time; time.sleep(60)", "no answer in 0 s"),
        ('print(\'{"kind":"ExecCredential","apiVersion":"v9","status":{"token":"s3cret"}}\')', "speaks v9"),
        (f'print(\'{{"kind":"ExecCredential","apiVersion":"{V1}","status":{{}}}}\')', "neither token nor"),
    ],
)
async def test_a_plugin_that_fails_is_told_in_one_sentence_without_its_secrets(code: str, said: str) -> None:
    spec = ExecSpec(sys.executable, ("-c", code))
    with pytest.raises(Misconfigured, match=said) as caught:
        await ExecPlugin(spec, HandClock(), timeout=0.4 if "sleep" in code else 30).build_headers()
    assert "s3cret" not in str(caught.value)


async def test_a_plugin_that_is_not_installed_gets_its_hint_shown() -> None:
    spec = ExecSpec("no-such-plugin", install_hint="install it with brew")
    with pytest.raises(
        Misconfigured, match="no-such-plugin: No such file or directory; install it with brew"
    ):
        await ExecPlugin(spec, HandClock()).build_headers()


async def test_an_expiry_without_an_offset_is_read_as_utc(tmp_path: Path) -> None:
    clock = HandClock()
    end = clock.now().astimezone(UTC).replace(tzinfo=None) + timedelta(minutes=1)
    token = ExecPlugin(
        plugin(tmp_path, {"token": "token-COUNT", "expirationTimestamp": end.isoformat()}), clock
    )
    assert await token.build_headers() == {"Authorization": "Bearer token-1"}
    clock.advance(61)
    assert await token.build_headers() == {"Authorization": "Bearer token-2"}
    assert clock.now() > datetime(2030, 1, 1, tzinfo=UTC)
