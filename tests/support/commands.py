"""Running dovetail as a person would: in this process for speed, or as a process of its own."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from dovetail.cli.main import run


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


def dovetail(*arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Ended:
    """Run a command in this process, with nothing in the environment but ``env`` and a PATH."""
    out, err = io.StringIO(), io.StringIO()
    piped = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    environment = {"PATH": os.environ["PATH"], "COLUMNS": "100", **(env or {})}
    code: object = None
    with (
        patch.dict(os.environ, environment, clear=True),
        patch.object(sys, "stdin", piped),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            run(arguments)
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int)
    return Ended(code, out.getvalue(), err.getvalue())


def process(
    *arguments: str,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 60,
) -> Ended:
    """Run a command as a process of its own."""
    ended = subprocess.run(
        [sys.executable, "-m", "dovetail", *arguments],
        input=stdin,
        capture_output=True,
        env={"PATH": os.environ["PATH"], "COLUMNS": "100", **(env or {})},
        cwd=cwd,
        timeout=timeout,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout.decode(), ended.stderr.decode())
