"""Where the log of an embedded cluster's controller goes: a file, so that the terminal stays readable."""

from __future__ import annotations

import os
import re
from pathlib import Path

from dovetail.cli.kubeconfig import default_kubeconfig
from dovetail.errors import Misconfigured

__all__ = ["begin_log"]

NAMED = re.compile(r"up-([0-9]+)\.log")


def begin_log(given: Path | None, level: str, *, verbose: bool) -> Path:
    """Write lines to this file, or to one of our own; with `verbose` to stderr as well. Returns the file."""
    from dovetail.runtime import logs

    path = given or _own()
    logs.configure(level, (str(path), "stderr") if verbose else (str(path),))
    return path


def _own() -> Path:
    """One for each process, beside kubeconfigs of ours; those of processes that are no more go."""
    folder = default_kubeconfig().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for each in folder.iterdir():
            named = NAMED.fullmatch(each.name)
            if named is not None and not _runs(int(named[1])):
                each.unlink(missing_ok=True)
    except OSError as error:
        raise Misconfigured(
            f"writing the log into {folder}: {error.strerror}; choose a --log-file"
        ) from error
    return folder / f"up-{os.getpid()}.log"


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
