"""The files a person names: paths, directories, patterns, and ``-`` for what is piped in.

Nothing here stops at the first bad file. Whatever cannot be opened becomes a complaint, beside
those about the files that could be.
"""

from __future__ import annotations

import errno
import glob
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Thread
from typing import Annotated

import typer

from dovetail.api.manifests import DEFAULT, ManifestComplaint, Manifests, parse_manifests
from dovetail.errors import BadInput

# What a page of a run or a small snapshot takes, in bytes.
ROOM = 1_000_000
# Seconds in which a pipe has to get a writer.
PATIENCE = 5.0
SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"

_FILES = typer.Option(
    "--filename",
    "-f",
    metavar="PATH",
    help="A file, a directory (with all below it), a pattern such as 'pools/*.yaml', or - for stdin. "
    "May be given more than once.",
)
FilesOption = Annotated[list[str], _FILES]
OptionalFiles = Annotated[list[str] | None, _FILES]
# Where a shell replaces a pattern by several names, all but the first end up here.
MoreFiles = Annotated[list[str] | None, typer.Argument(metavar="PATH", hidden=True)]


def read_manifests(paths: Sequence[str]) -> Manifests:
    """Everything in the named files; a file named twice is read once."""
    return Manifests.join_manifests(list(_read_each(paths)))


def _read_each(paths: Sequence[str]) -> Iterator[Manifests]:
    seen: set[str] = set()
    for path in paths:
        found = [STDIN] if path == STDIN else _expand_path(path)
        if not found:
            yield _build_complaint(path, _why_nothing(path))
        for name in found:
            if name not in seen:
                seen.add(name)
                yield _read_file(name)


def _expand_path(path: str) -> list[str]:
    """The files a path stands for. A name that exists is never taken for a pattern."""
    if os.path.isdir(path):
        return _list_manifests(path)
    if os.path.lexists(path) or not glob.has_magic(path):
        return [path]
    matches = sorted(glob.glob(path, recursive=True))
    return [
        name for match in matches for name in (_list_manifests(match) if os.path.isdir(match) else [match])
    ]


def _list_manifests(directory: str) -> list[str]:
    """The manifests in a directory and below it; hidden directories are somebody else's business."""
    found = []
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        candidates = (os.path.join(folder, name) for name in sorted(names) if name.endswith(SUFFIXES))
        found += [name for name in candidates if os.path.isfile(name) or os.path.islink(name)]
    return found


def _why_nothing(path: str) -> str:
    if os.path.isdir(path):
        return f"the directory holds no file that ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
    return "nothing matches this pattern"


def _read_file(name: str) -> Manifests:
    source = "stdin" if name == STDIN else name
    try:
        # One byte more than allowed is enough to know that there is too much.
        if name == STDIN:
            return parse_manifests(sys.stdin.buffer.read(DEFAULT.size + 1), source)
        with open(name, "rb", opener=_without_waiting) as file:
            return parse_manifests(file.read(DEFAULT.size + 1), source)
    except (OSError, ValueError) as error:
        return _build_complaint(source, _why_unreadable(error))


def _without_waiting(path: str, flags: int) -> int:
    """Open for reading. Opening a pipe waits for a writer, and one that never gets any is told of instead."""
    if not stat.S_ISFIFO(os.stat(path).st_mode):
        return os.open(path, flags)
    opened: list[int] = []
    opening = Thread(target=lambda: opened.append(os.open(path, flags)), daemon=True)
    opening.start()
    opening.join(PATIENCE)
    if not opened:
        raise OSError(errno.EPIPE, "nobody writes to this pipe")
    return opened[0]


def _why_unreadable(error: OSError | ValueError) -> str:
    match error:
        case FileNotFoundError():
            return "there is no such file"
        case PermissionError():
            return "this file may not be read; check its permissions"
        case OSError():
            return f"this file cannot be read: {(error.strerror or str(error)).lower()}"
        case _:
            return f"this is not the name of a file: {error}"


def _build_complaint(source: str, message: str) -> Manifests:
    return Manifests(complaints=(ManifestComplaint(source, None, None, "", message),))


def read_text(name: str, what: str) -> str:
    """The text of one small file, without blanks around it; BadInput says why there is none."""
    try:
        return Path(name).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        why = "it is not UTF-8 text" if isinstance(error, UnicodeError) else _why_unreadable(error)
        raise BadInput(f"reading the {what} from {name}: {why}") from error


def expect_writable(path: Path, room: int = ROOM) -> None:
    """Try whether a file can be written there, with room on the disk, before work is done for it.

    What is there stays as it is; BadInput says why nothing could be written.
    """
    try:
        if path.exists() and not path.is_file():
            # A device or a pipe: a line end harms no text, and one that nobody reads is not waited for.
            with open(os.open(path, os.O_WRONLY | os.O_NONBLOCK), "wb", buffering=0) as file:
                file.write(b"\n")
            return
        if path.exists():
            os.close(os.open(path, os.O_WRONLY))
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.") as probe:
            probe.write(bytes(room))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        raise _describe_write_error(path, error) from error


def write_file(path: Path, data: bytes, *, private: bool = False) -> None:
    """Write a file, for its owner alone where that is wanted; BadInput says why it could not be written."""
    try:
        with open(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if private else 0o666), "wb"
        ) as file:
            if private and path.is_file():
                os.fchmod(file.fileno(), 0o600)
            file.write(data)
    except OSError as error:
        raise _describe_write_error(path, error) from error


def _describe_write_error(path: Path, error: OSError) -> BadInput:
    if isinstance(error, FileNotFoundError):
        return BadInput(f"writing {path}: there is no folder {path.parent}; make it or choose another file")
    if error.errno == errno.ENXIO:
        return BadInput(f"writing {path}: nobody reads this pipe; choose a file")
    return BadInput(f"writing {path}: {(error.strerror or str(error)).lower()}; choose another file")


def write_all(directory: str, texts: dict[str, str]) -> None:
    """Write files into a directory, made if need be; BadInput says which one could not be written."""
    for name, text in texts.items():
        path = Path(directory, name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _describe_write_error(path, error) from error
        write_file(path, text.encode())
