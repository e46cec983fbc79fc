"""The kubeconfig of an embedded cluster: a file of our own, readable by its owner only."""

from __future__ import annotations

import base64
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dovetail.api import labels, manifests
from dovetail.errors import Misconfigured

__all__ = ["NAME", "begin_log", "claim_kubeconfig", "default_kubeconfig", "write_kubeconfig"]

NAME = "dovetail"
# Clusters that may run beside each other without being told where to write.
MOST = 100
# By this kubectl's users and we ourselves know a file that `dovetail up` has written.
MARK = {"name": labels.DOVETAIL, "extension": {"provider": "dovetail up"}}


def default_kubeconfig() -> Path:
    """A place of our own, away from where kubectl looks by itself."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "dovetail" / "kubeconfig"


@contextmanager
def claim_kubeconfig(named: Path | None) -> Iterator[Path]:
    """The path of a kubeconfig that no other running cluster writes, kept for this one until the block ends.

    Without a name it is the usual one, and beside a cluster that has it the next: kubeconfig-2 and so on.
    """
    usual = default_kubeconfig()
    numbered = (usual.with_name(f"{usual.name}-{number}") for number in range(2, MOST))
    for path in (named,) if named is not None else (usual, *numbered):
        lock = _take_lock(path)
        if lock is not None:
            try:
                yield path
            finally:
                _lock_path(path).unlink(missing_ok=True)
                os.close(lock)
            return
    raise Misconfigured(
        f"writing the kubeconfig {named or usual}: another `dovetail up` is using it; "
        "choose another --kubeconfig"
    )


def _lock_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def _take_lock(path: Path) -> int | None:
    """A descriptor that holds the path's lock until it is closed; None while another process holds it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            lock = os.open(_lock_path(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                return None
            if _is_current(lock, _lock_path(path)):
                return lock
            os.close(lock)
    except OSError as error:
        raise _describe_write_error(path, error) from error


def _is_current(lock: int, path: Path) -> bool:
    """Whether the file is still the one at its path: who ends takes it away, and it may be another by now."""
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False


def _describe_write_error(path: Path, error: OSError) -> Misconfigured:
    return Misconfigured(f"writing the kubeconfig {path}: {error.strerror}; choose another --kubeconfig")


def write_kubeconfig(path: Path, url: str, token: str, authority: bytes, name: str = NAME) -> None:
    """Write it in one piece. A file that is there and not one of ours is somebody's, and stays."""
    try:
        if path.exists() and not _is_ours(path):
            raise Misconfigured(
                f"writing the kubeconfig {path}: it holds something else; choose another --kubeconfig"
            )
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        with open(aside, "w", opener=_open_private, encoding="utf-8") as file:
            file.write(manifests.write_manifest(_build_document(url, token, authority, name)))
        os.replace(aside, path)
    except OSError as error:
        raise _describe_write_error(path, error) from error


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL, 0o600)


def _is_ours(path: Path) -> bool:
    """What we have written has this one cluster and no other; an empty file is nobody's."""
    found = manifests.parse_manifests(path.read_bytes(), str(path))
    if not found.documents and not found.complaints:
        return True
    return [_count_clusters(each.value) for each in found.documents] == [1]


def _count_clusters(document: Any) -> int:
    """How many clusters a kubeconfig has, each of them one of ours; -1 where one is not."""
    clusters = document.get("clusters") if isinstance(document, dict) else None
    listed = clusters if isinstance(clusters, list) else []
    return len(listed) if all(map(_is_embedded, listed)) else -1


def _is_embedded(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    extensions = (entry.get("cluster") or {}).get("extensions") or ()
    # Files of versions that had no mark have the one name that clusters had.
    return entry.get("name") == NAME or MARK["name"] in [each.get("name") for each in extensions]


def _build_document(url: str, token: str, authority: bytes, name: str) -> dict[str, Any]:
    trusted = base64.b64encode(authority).decode()
    cluster = {"server": url, "certificate-authority-data": trusted, "extensions": [MARK]}
    context = {"cluster": name, "user": name, "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": context}],
        "current-context": name,
    }


NAMED = re.compile(r"up-([0-9]+)\.log")


def begin_log(given: Path | None, level: str, *, verbose: bool) -> Path:
    """Write lines to this file, or to one of our own; with `verbose` to stderr as well. Returns the file."""
    from dovetail.runtime import logs

    path = given or _choose_log_path()
    logs.configure_logging(level, (str(path), "stderr") if verbose else (str(path),))
    return path


def _choose_log_path() -> Path:
    """One for each process, beside kubeconfigs of ours; those of processes that are no more go."""
    folder = default_kubeconfig().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for each in folder.iterdir():
            named = NAMED.fullmatch(each.name)
            if named is not None and not _is_running(int(named[1])):
                each.unlink(missing_ok=True)
    except OSError as error:
        raise Misconfigured(
            f"writing the log into {folder}: {error.strerror}; choose a --log-file"
        ) from error
    return folder / f"up-{os.getpid()}.log"


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
