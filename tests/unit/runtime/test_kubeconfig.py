"""Kubeconfigs as people have them, and the pod's own way in."""

from __future__ import annotations

import base64
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.errors import Misconfigured
from dovetail.runtime.credentials import Anonymous, ExecPlugin, StaticToken, TokenFile
from dovetail.runtime.kubeconfig import Connection, connect, from_kubeconfig, in_cluster
from dovetail.sim.certificates import ClusterCertificates
from support.apiserver import HandClock
from support.certificates import client_pair

AUTHORITY = ClusterCertificates().authority


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def config(folder: Path, user: dict[str, Any] | None = None, name: str = "config", **cluster: Any) -> Path:
    path = folder / name
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
            {"name": "there", "context": {"cluster": "d", "user": "u"}},
        ],
        "clusters": [
            {"name": "c", "cluster": {"server": "https://here:6443", **cluster}},
            {"name": "d", "cluster": {"server": "https://there:6443", "insecure-skip-tls-verify": True}},
        ],
        "users": [{"name": "u", "user": user or {}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def read(path: Path, context: str = "") -> Connection:
    return from_kubeconfig([path], HandClock(), context)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def test_the_current_context_is_used_and_another_can_be_named(tmp_path: Path) -> None:
    here, there = read(config(tmp_path)), read(config(tmp_path), "there")
    assert (here.server, here.namespace) == ("https://here:6443", "team")
    assert (there.server, there.namespace) == ("https://there:6443", "default")
    assert here.tls is not None
    assert here.tls.verify_mode is ssl.CERT_REQUIRED
    assert there.tls is not None
    assert there.tls.verify_mode is ssl.CERT_NONE


async def test_each_way_to_sign_in_is_understood(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file")
    found = read(config(tmp_path, {"token": "s3cret"})).sign_in()
    assert isinstance(found, StaticToken)
    by_file = read(config(tmp_path, {"tokenFile": "token", "token": "other"})).sign_in()
    assert isinstance(by_file, TokenFile), "a file wins over a token, and is found beside its kubeconfig"
    assert await by_file.build_headers() == {"Authorization": "Bearer from-file"}
    block = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "aws",
        "args": ["eks"],
        "env": None,
    }
    assert isinstance(read(config(tmp_path, {"exec": block})).sign_in(), ExecPlugin)
    assert isinstance(read(config(tmp_path)).sign_in(), Anonymous)


def test_each_transport_signs_in_for_itself(tmp_path: Path) -> None:
    connection = read(config(tmp_path, {"token": "s3cret"}))
    assert connection.sign_in() is not connection.sign_in()


def test_secrets_are_in_no_repr(tmp_path: Path) -> None:
    cluster: dict[str, Any] = {"proxy-url": "http://me:pa55@proxy:3128"}
    connection = read(config(tmp_path, {"token": "s3cret"}, **cluster))
    assert connection.proxy == "http://me:pa55@proxy:3128"
    for secret in ("s3cret", "pa55"):
        assert secret not in repr(connection)
        assert secret not in repr(connection.sign_in())
        assert secret not in repr(connection.open_transport())


@pytest.mark.parametrize("inline", [True, False])
def test_certificates_come_inline_or_as_files_beside_the_kubeconfig(tmp_path: Path, inline: bool) -> None:
    certificate, key = client_pair()
    (tmp_path / "ca.crt").write_bytes(AUTHORITY)
    (tmp_path / "me.crt").write_bytes(certificate)
    (tmp_path / "me.key").write_bytes(key)
    user: dict[str, Any] = {"client-certificate": "me.crt", "client-key": "me.key"}
    cluster: dict[str, Any] = {"certificate-authority": "ca.crt"}
    if inline:
        user = {"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)}
        cluster = {"certificate-authority-data": encoded(AUTHORITY)}
    tls = read(config(tmp_path, user, **cluster)).tls
    assert tls is not None
    assert len(tls.get_ca_certs()) == 1, "this authority, and none of the system's"


def test_the_server_name_and_the_proxy_are_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster: dict[str, Any] = {"tls-server-name": "kubernetes", "proxy-url": "http://proxy:3128"}
    found = read(config(tmp_path, **cluster))
    assert (found.server_name, found.proxy) == ("kubernetes", "http://proxy:3128")
    monkeypatch.setenv("HTTPS_PROXY", "http://outside:8080")
    assert read(config(tmp_path)).proxy == "http://outside:8080"
    monkeypatch.setenv("NO_PROXY", "here")
    assert read(config(tmp_path)).proxy is None
    assert read(config(tmp_path), "there").proxy == "http://outside:8080"


def test_of_several_files_the_first_to_say_a_thing_wins(tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.write_text("apiVersion: v1\nkind: Config\nusers: [{name: u, user: {token: mine}}]\n")
    second = config(tmp_path, {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "x"}})
    found = from_kubeconfig([first, second], HandClock())
    assert found.server == "https://here:6443"
    assert isinstance(found.sign_in(), StaticToken)


@pytest.mark.parametrize(
    ("user", "cluster", "said"),
    [
        ({"exec": {"apiVersion": "client.authentication.k8s.io/v1alpha1"}}, {}, "v1alpha1"),
        ({"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}, {}, "names no command"),
        (
            {
                "exec": {
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "command": "x",
                    "interactiveMode": "Always",
                }
            },
            {},
            "nobody to answer",
        ),
        ({"auth-provider": {"name": "gcp"}}, {}, "use an exec plugin"),
        ({"client-certificate-data": encoded(b"x")}, {}, "must come together"),
        (
            {"client-certificate-data": encoded(b"x"), "client-key-data": encoded(b"y")},
            {},
            "do not fit together",
        ),
        ({}, {"certificate-authority-data": encoded(b"nonsense")}, "not a PEM certificate"),
        ({}, {"certificate-authority": "nowhere.crt"}, "nowhere.crt: No such file"),
        ({}, {"server": ""}, "has no server"),
        ({}, {"proxy-url": "socks5://proxy"}, "http or https"),
    ],
)
def test_what_is_wrong_is_said_at_once(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], said: str
) -> None:
    with pytest.raises(Misconfigured, match=said):
        read(config(tmp_path, user, **cluster))


def test_names_that_do_not_exist_are_told_with_those_that_do(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="no context named 'nowhere'; it has here, there"):
        read(config(tmp_path), "nowhere")
    with pytest.raises(Misconfigured, match="No such file"):
        read(tmp_path / "missing")
    (tmp_path / "broken").write_text("{")
    with pytest.raises(Misconfigured, match="reading the kubeconfig"):
        read(tmp_path / "broken")


async def test_a_pod_finds_its_own_cluster(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("pod-token")
    (tmp_path / "ca.crt").write_bytes(AUTHORITY)
    (tmp_path / "namespace").write_text("karpenter\n")
    env = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    found = in_cluster(HandClock(), tmp_path, env)
    assert found.server == "https://[fd00::1]:443"
    assert found.namespace == "karpenter"
    assert await found.sign_in().build_headers() == {"Authorization": "Bearer pod-token"}
    with pytest.raises(Misconfigured, match="KUBERNETES_SERVICE_HOST"):
        in_cluster(HandClock(), tmp_path, {})
    with pytest.raises(Misconfigured, match="no service account token"):
        in_cluster(HandClock(), tmp_path / "elsewhere", env)


def test_the_way_in_is_looked_for_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(Misconfigured, match="no KUBECONFIG"):
        connect(HandClock())
    monkeypatch.setenv("KUBECONFIG", str(config(tmp_path)))
    assert connect(HandClock()).server == "https://here:6443"
    assert connect(HandClock(), context="there").server == "https://there:6443"
    (tmp_path / ".kube").mkdir()
    config(tmp_path / ".kube", name="config")
    monkeypatch.delenv("KUBECONFIG")
    assert connect(HandClock()).namespace == "team"
