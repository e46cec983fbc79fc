"""The kubeconfig of an embedded cluster: a file of our own, readable by its owner only."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

from dovetail.api import manifests
from dovetail.errors import Misconfigured

__all__ = ["default_kubeconfig", "write_kubeconfig"]

NAME = "dovetail"


def default_kubeconfig() -> Path:
    """A place of our own, away from where kubectl looks by itself."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "dovetail" / "kubeconfig"


def write_kubeconfig(path: Path | None, url: str, token: str, authority: bytes) -> Path:
    """Write it in one piece. A file that is there and not one of ours is somebody's, and stays."""
    path = path or default_kubeconfig()
    try:
        if path.exists() and not _ours(path):
            raise Misconfigured(
                f"writing the kubeconfig {path}: it holds something else; choose another --kubeconfig"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        with open(aside, "w", opener=_private, encoding="utf-8") as file:
            file.write(manifests.write(_document(url, token, authority)))
        os.replace(aside, path)
    except OSError as error:
        raise Misconfigured(
            f"writing the kubeconfig {path}: {error.strerror}; choose another --kubeconfig"
        ) from error
    return path


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL, 0o600)


def _ours(path: Path) -> bool:
    """What we have written has this one cluster and no other; an empty file is nobody's."""
    found = manifests.read(path.read_bytes(), str(path))
    if not found.documents and not found.complaints:
        return True
    names = [_names(each.value) for each in found.documents]
    return names == [[NAME]]


def _names(document: Any) -> list[Any]:
    clusters = document.get("clusters") if isinstance(document, dict) else None
    listed = clusters if isinstance(clusters, list) else []
    return [each.get("name") if isinstance(each, dict) else each for each in listed]


def _document(url: str, token: str, authority: bytes) -> dict[str, Any]:
    trusted = base64.b64encode(authority).decode()
    context = {"cluster": NAME, "user": NAME, "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": {"server": url, "certificate-authority-data": trusted}}],
        "users": [{"name": NAME, "user": {"token": token}}],
        "contexts": [{"name": NAME, "context": context}],
        "current-context": NAME,
    }
