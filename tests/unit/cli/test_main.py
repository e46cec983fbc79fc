"""The entrance: names, help, completion, exit codes, and what is said when something fails."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dovetail import __version__
from dovetail.cli import main, version
from dovetail.cli.main import COMMANDS, DeferredCommand, build_cli
from dovetail.errors import BadInput, DovetailError, InsufficientCapacity, Misconfigured
from support.commands import dovetail, process

HEAVY = ("aiohttp", "highspy", "jinja2", "msgspec", "numpy", "rich", "structlog", "yaml")


def test_help_lists_every_command_with_its_sentence() -> None:
    ended = dovetail("--help")
    assert ended.code == 0
    for name, sentence in COMMANDS.items():
        assert f"{name} " in ended.out
        assert sentence in ended.out


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_opens_its_help_with_the_sentence_of_the_list(name: str) -> None:
    command = build_cli().commands[name]
    assert isinstance(command, DeferredCommand)
    assert (command.load().help or "").split("\n")[0] == COMMANDS[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    ended = dovetail(name, "--help")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"Usage: dovetail {name}")


@pytest.mark.parametrize("flags", [["--version"], ["version"]])
def test_the_version_is_printed(flags: list[str]) -> None:
    assert dovetail(*flags).out == f"dovetail {__version__}\n"


def test_asking_for_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom dovetail.cli.main import run\n"
        "try:\n    run(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print('HEAVY', [name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert shown.stdout.splitlines()[-1] == "HEAVY []"


def test_asking_for_help_costs_little() -> None:
    # CPU, not wall time, so that a busy machine does not decide; the best of three, for the same reason.
    costs = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert process("--help").code == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        costs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(costs) <= 0.35


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("dovetail ", "validate"), ("dovetail ver", "version"), ("dovetail version --out", "--output")],
)
def test_a_shell_can_complete_commands_and_options(typed: str, offered: str) -> None:
    words = {"_DOVETAIL_COMPLETE": "complete_bash", "COMP_WORDS": typed}
    words["COMP_CWORD"] = str(len(typed.split(" ")) - 1)
    ended = process(env=words)
    assert ended.code == 0
    assert offered in ended.out.split()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["vresion"], "Did you mean 'version'"),
        (["version", "--bogus"], "No such option"),
        (["version", "-o", "xml"], "xml"),
        (["validate"], "--filename"),
    ],
)
def test_misuse_ends_with_2_and_says_what_is_wrong(arguments: list[str], said: str) -> None:
    ended = dovetail(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


def test_a_call_without_arguments_shows_the_help_and_ends_with_2() -> None:
    ended = dovetail()
    assert ended.code == 2
    assert "Usage: dovetail" in ended.out + ended.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Misconfigured("METRICS_PORT is wrong"), 2),
        (BadInput("pools.yaml is wrong"), 1),
        (InsufficientCapacity("no m5 left"), 1),
        (DovetailError("something else"), 1),
    ],
)
def test_an_error_of_ours_is_one_sentence(
    error: DovetailError, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(version, "print_text", fails)
    ended = dovetail("version")
    assert (ended.code, ended.err) == (code, f"dovetail: {error}\n")


def test_a_bug_is_one_sentence_and_shows_its_traceback_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(version, "print_text", fails)
    ended = dovetail("version")
    assert ended.code == 70
    assert ended.err == (
        "dovetail: this is a bug (RuntimeError: two lines); "
        "run it again with DOVETAIL_DEBUG=1 to see the traceback\n"
    )
    with pytest.raises(RuntimeError, match="two"):
        dovetail("version", env={main.DEBUG: "1"})


def test_ctrl_c_ends_with_130_and_no_traceback(tmp_path: Path) -> None:
    slow = tmp_path / "slow.yaml"
    os.mkfifo(slow)
    waiting = subprocess.Popen(
        [sys.executable, "-m", "dovetail", "validate", "-f", str(slow)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A test run in the background of a shell has inherited that Ctrl-C is ignored; a person's has not.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    with waiting:
        writer = _opened_once_read(slow, waiting)
        waiting.send_signal(signal.SIGINT)
        _, said = waiting.communicate(timeout=60)
        os.close(writer)
    assert waiting.returncode == 130
    assert b"Traceback" not in said


def _opened_once_read(pipe: Path, reader: subprocess.Popen[bytes]) -> int:
    """The pipe's writing end, as soon as the process has opened the other: it is inside its work then."""
    while reader.poll() is None:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            time.sleep(0.01)
    raise AssertionError("the command ended before it read its file")


def test_a_reader_who_leaves_early_is_not_complained_to() -> None:
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run(
        [sys.executable, "-m", "dovetail", "version"],
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    os.close(write)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_text_the_terminal_cannot_show_is_escaped() -> None:
    ended = process("validate", "-f", "größe.yaml", env={"PYTHONIOENCODING": "ascii"})
    assert ended.code == 1
    assert "gr\\xf6\\xdfe.yaml" in ended.out
