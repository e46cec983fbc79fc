"""How to reach a cluster: from a kubeconfig, or from inside a pod."""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import msgspec

from dovetail.api import manifests
from dovetail.errors import Misconfigured
from dovetail.ports import Clock
from dovetail.runtime.credentials import (
    EXEC_VERSIONS,
    Anonymous,
    Credentials,
    ExecPlugin,
    ExecSpec,
    StaticToken,
    TokenFile,
)
from dovetail.runtime.transport import USER_AGENT, HttpTransport

__all__ = ["Connection", "connect", "from_kubeconfig", "in_cluster", "trust_authority"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Connection(msgspec.Struct, frozen=True):
    """One cluster, and who we are to it."""

    server: str
    sign_in: Callable[[], Credentials]
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    proxy: str | None = None
    namespace: str = "default"
    # The authority the cluster is trusted by, in PEM; empty where the system's are used.
    authority: str = ""

    def __repr__(self) -> str:
        # Neither credentials nor a proxy's password.
        return f"Connection({self.server})"

    def open_transport(self, user_agent: str = USER_AGENT) -> HttpTransport:
        """A way there, for one event loop; each has credentials of its own, which refresh on that loop."""
        return HttpTransport(
            self.server,
            self.sign_in(),
            tls=self.tls,
            server_name=self.server_name,
            proxy=self.proxy,
            user_agent=user_agent,
        )


def connect(clock: Clock, path: str = "", context: str = "") -> Connection:
    """The kubeconfig named, else $KUBECONFIG, else the pod we run in, else ~/.kube/config."""
    named = path or os.environ.get("KUBECONFIG", "")
    if named:
        return from_kubeconfig([Path(p) for p in named.split(os.pathsep) if p], clock, context)
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(clock)
    home = Path.home() / ".kube" / "config"
    if not home.exists():
        raise Misconfigured(f"finding a cluster: no --kubeconfig, no KUBECONFIG, not in a pod, and no {home}")
    return from_kubeconfig([home], clock, context)


def in_cluster(clock: Clock, root: Path = SERVICE_ACCOUNT, env: Mapping[str, str] = os.environ) -> Connection:
    """The cluster whose pod this process is; the token is read again as it is rotated."""
    host, port = env.get("KUBERNETES_SERVICE_HOST", ""), env.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise Misconfigured(
            "finding the cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set"
        )
    token, authority, namespace = root / "token", root / "ca.crt", root / "namespace"
    if not token.exists():
        raise Misconfigured(f"finding the cluster: there is no service account token at {token}")
    return Connection(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        sign_in=lambda: TokenFile(token, clock),
        tls=_build_tls({"certificate-authority": str(authority)}, root),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        authority=_read_authority({"certificate-authority": str(authority)}, root),
    )


def from_kubeconfig(paths: list[Path], clock: Clock, context: str = "") -> Connection:
    """One context of a kubeconfig; of several files, the first to say a thing wins, as with kubectl."""
    merged = _merge_files(paths)
    name = context or merged["current-context"]
    if not name:
        raise Misconfigured(f"reading {paths[0]}: no current-context; choose one with --context")
    ctx = _find_entry(merged, "contexts", name, paths)
    cluster = _find_entry(merged, "clusters", str(ctx.get("cluster", "")), paths)
    user = _find_entry(merged, "users", str(ctx["user"]), paths) if ctx.get("user") else {}
    base = Path(str(cluster.get(_ORIGIN, paths[0].parent)))
    if not cluster.get("server"):
        raise Misconfigured(f"reading {paths[0]}: the cluster of context {name} has no server")
    tls, server = _build_tls(cluster, base, user), str(cluster["server"])
    sign_in = partial(_build_credentials, user, cluster, tls, clock)
    sign_in()  # what is wrong with the user is said now, not at the first call
    return Connection(
        server=server,
        sign_in=sign_in,
        tls=tls,
        server_name=cluster.get("tls-server-name") or None,
        proxy=_find_proxy(str(cluster.get("proxy-url") or ""), server),
        namespace=str(ctx.get("namespace") or "default"),
        authority=_read_authority(cluster, base),
    )


def _find_proxy(named: str, server: str) -> str | None:
    """The proxy the kubeconfig names, else the environment's, unless NO_PROXY spares this server."""
    address = urlsplit(server)
    if not named and not proxy_bypass(address.hostname or ""):
        named = getproxies_environment().get(address.scheme, "")
    if not named:
        return None
    scheme = urlsplit(named).scheme
    if scheme not in ("http", "https"):
        raise Misconfigured(
            f"reaching {server}: its proxy must have an http or https address, not {scheme or 'a bare one'}"
        )
    return named


_ORIGIN = "\0from"


def _merge_files(paths: list[Path]) -> dict[str, Any]:
    merged: dict[str, Any] = {"current-context": "", "contexts": {}, "clusters": {}, "users": {}}
    for path in paths:
        document = _read_file(path)
        merged["current-context"] = merged["current-context"] or str(document.get("current-context") or "")
        for part, inner in (("contexts", "context"), ("clusters", "cluster"), ("users", "user")):
            for entry in document.get(part) or []:
                if isinstance(entry, dict) and isinstance(entry.get("name"), str):
                    body = entry.get(inner) or {}
                    merged[part].setdefault(entry["name"], dict(body) | {_ORIGIN: str(path.parent)})
    return merged


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise Misconfigured(f"reading the kubeconfig {path}: {error.strerror}") from error
    found = manifests.parse_manifests(_add_header(text), str(path))
    wrong = [c for c in found.complaints if c.severity is manifests.Severity.ERROR]
    if wrong or len(found.documents) != 1:
        why = wrong[0].message if wrong else "it is not one YAML document"
        raise Misconfigured(f"reading the kubeconfig {path}: {why}")
    return found.documents[0].value


def _add_header(text: bytes) -> bytes:
    """A kubeconfig may leave out what kind of document it is; kubectl takes it for granted."""
    if text.lstrip().startswith(b"{"):
        return text
    lines = text.splitlines()
    heads = (b"apiVersion: v1", b"kind: Config")
    missing = [head for head in heads if not any(line.startswith(head.split()[0]) for line in lines)]
    return b"\n".join((*missing, text))


def _find_entry(merged: Mapping[str, Any], part: str, name: str, paths: list[Path]) -> dict[str, Any]:
    known: dict[str, dict[str, Any]] = merged[part]
    if name not in known:
        have = ", ".join(sorted(known)) or "none"
        raise Misconfigured(f"reading {paths[0]}: there is no {part[:-1]} named {name!r}; it has {have}")
    return known[name]


def _build_credentials(
    user: Mapping[str, Any], cluster: Mapping[str, Any], tls: ssl.SSLContext | None, clock: Clock
) -> Credentials:
    if user.get("tokenFile"):
        return TokenFile(Path(str(user[_ORIGIN])) / str(user["tokenFile"]), clock)
    if user.get("token"):
        return StaticToken(str(user["token"]))
    if user.get("exec"):
        spec = _exec_spec(user["exec"], cluster, Path(str(user[_ORIGIN])))
        return ExecPlugin(spec, clock, lambda cert, key: _load_pair(tls, cert, key))
    if user.get("auth-provider"):
        raise Misconfigured(
            "signing in: Kubernetes no longer has the kubeconfig's auth-provider; use an exec plugin instead"
        )
    return Anonymous()


def _exec_spec(block: Mapping[str, Any], cluster: Mapping[str, Any], home: Path) -> ExecSpec:
    version, command = str(block.get("apiVersion", "")), str(block.get("command") or "")
    if version not in EXEC_VERSIONS:
        raise Misconfigured(
            f"signing in: exec plugins of version {version!r} are not known; {', '.join(EXEC_VERSIONS)} are"
        )
    if not command:
        raise Misconfigured("signing in: the kubeconfig's exec block names no command")
    if block.get("interactiveMode") == "Always":
        raise Misconfigured(f"signing in: {command} wants to ask questions, and there is nobody to answer")
    given = [e for e in block.get("env") or [] if isinstance(e, dict) and "name" in e]
    info = {k: v for k, v in cluster.items() if k != _ORIGIN} if block.get("provideClusterInfo") else None
    return ExecSpec(
        # A bare name is looked up on the PATH; one with a slash is found from the kubeconfig's folder.
        command=str(home / command) if "/" in command else command,
        args=tuple(str(a) for a in block.get("args") or ()),
        env={str(e["name"]): str(e.get("value", "")) for e in given},
        api_version=version,
        install_hint=str(block.get("installHint") or ""),
        cluster_info=info,
    )


def _build_tls(
    cluster: Mapping[str, Any], base: Path, user: Mapping[str, Any] | None = None
) -> ssl.SSLContext | None:
    if str(cluster.get("server", "https:")).startswith("http:"):
        return None
    if cluster.get("insecure-skip-tls-verify"):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    else:
        context = trust_authority(_read_bytes(cluster, "certificate-authority", base))
    if user:
        home = Path(str(user.get(_ORIGIN, base)))
        cert = _read_bytes(user, "client-certificate", home)
        key = _read_bytes(user, "client-key", home)
        if cert and key:
            _load_chain(context, cert, key)
        elif cert or key:
            raise Misconfigured("reading the kubeconfig: a client certificate and its key must come together")
    return context


def _read_authority(cluster: Mapping[str, Any], base: Path) -> str:
    return (_read_bytes(cluster, "certificate-authority", base) or b"").decode("ascii", "replace")


def trust_authority(authority: bytes | None) -> ssl.SSLContext:
    """A client's TLS that trusts this authority and no other; without one, those of the system."""
    try:
        context = ssl.create_default_context(cadata=authority.decode("ascii") if authority else None)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise Misconfigured(
            "reading the kubeconfig: its certificate-authority is not a PEM certificate"
        ) from error
    # Python 3.13 turned on rules that the certificates of many clusters do not meet.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _read_bytes(block: Mapping[str, Any], key: str, base: Path) -> bytes | None:
    """`<key>-data` inline in base64, or the file `<key>` names, relative to its kubeconfig."""
    if block.get(f"{key}-data"):
        try:
            return base64.b64decode(str(block[f"{key}-data"]), validate=False)
        except binascii.Error as error:
            raise Misconfigured(f"reading the kubeconfig: {key}-data is not base64") from error
    if not block.get(key):
        return None
    path = base / str(block[key])
    try:
        return path.read_bytes()
    except OSError as error:
        raise Misconfigured(f"reading the kubeconfig: {key} {path}: {error.strerror}") from error


def _load_pair(context: ssl.SSLContext | None, certificate: str, key: str) -> None:
    if context is not None:
        _load_chain(context, certificate.encode(), key.encode())


def _load_chain(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    # ssl reads certificates from files alone; this one is ours only, and gone at once.
    with tempfile.TemporaryDirectory(prefix="dovetail-") as folder:
        path = Path(folder) / "client.pem"
        path.touch(mode=0o600)
        path.write_bytes(certificate + b"\n" + key)
        try:
            context.load_cert_chain(path)
        except ssl.SSLError as error:
            raise Misconfigured(
                "reading the kubeconfig: the client certificate and key do not fit together"
            ) from error
