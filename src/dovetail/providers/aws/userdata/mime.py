"""The MIME archive that cloud-init reads: parts of the class's author first, ours last."""

from __future__ import annotations

import quopri
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from itertools import pairwise

from dovetail.providers.aws.userdata.boot import unusable_error

__all__ = ["NODE_CONFIG", "SHELL", "MimePart", "is_archive", "read_archive", "write_archive"]

SHELL = 'text/x-shellscript; charset="us-ascii"'
NODE_CONFIG = "application/node.eks.aws"
BOUNDARY = "//"
CONTENT_TYPE = "Content-Type"
ENCODING = "Content-Transfer-Encoding"
HEAD = f'MIME-Version: 1.0\n{CONTENT_TYPE}: multipart/mixed; boundary="{BOUNDARY}"\n\n'
OURS = "the node class's user data"


@dataclass(frozen=True, slots=True)
class MimePart:
    """One document of an archive."""

    headers: Mapping[str, str]
    body: str

    @staticmethod
    def from_text(content_type: str, body: str) -> MimePart:
        return MimePart({CONTENT_TYPE: content_type}, body)

    def strip_headers(self) -> MimePart:
        """The same with no header but its type."""
        return MimePart.from_text(self.headers.get(CONTENT_TYPE, ""), self.body)


def write_archive(parts: Iterable[MimePart]) -> str:
    """Parts as one text. Lines end in a bare newline, whatever the author's editor wrote."""
    text = "".join(f"--{BOUNDARY}\n{_write_part(part)}\n" for part in parts)
    return f"{HEAD}{text}--{BOUNDARY}--\n".replace("\r", "")


def _write_part(part: MimePart) -> str:
    headers = "".join(f"{name}: {part.headers[name]}\n" for name in sorted(part.headers))
    return f"{headers}\n{part.body}"


def is_archive(text: str) -> bool:
    """Whether a text means to be an archive. It may still be a broken one."""
    return text.lstrip().startswith(("MIME-Version:", f"{CONTENT_TYPE}:"))


def read_archive(text: str) -> tuple[MimePart, ...]:
    """The parts of an archive; CreateFailed when it cannot be read."""
    lines = text.replace("\r\n", "\n").split("\n")
    headers, start = _read_headers(lines, 0)
    return tuple(_split_parts(lines[start:], _find_boundary(headers.get(CONTENT_TYPE, ""))))


def _find_boundary(content_type: str) -> str:
    if not content_type:
        raise unusable_error(OURS, "it looks like a MIME archive but has no Content-Type header")
    header = Message()
    header[CONTENT_TYPE] = content_type
    boundary = header.get_boundary()
    if header.get_content_maintype() != "multipart" or not boundary:
        raise unusable_error(
            OURS,
            f"it looks like a MIME archive but its Content-Type is {content_type!r}, not a multipart one",
        )
    return boundary


def _split_parts(lines: Sequence[str], boundary: str) -> Iterator[MimePart]:
    begins, ends = f"--{boundary}", f"--{boundary}--"
    marks = [(place, line.rstrip()) for place, line in enumerate(lines) if line.rstrip() in (begins, ends)]
    last = next((index for index, (_, mark) in enumerate(marks) if mark == ends), None)
    if last is None:
        raise unusable_error(OURS, f"the MIME archive ends without its closing line {ends!r}")
    places = [place for place, _ in marks[: last + 1]]
    for start, stop in pairwise(places):
        headers, body = _read_headers(lines, start + 1)
        yield _decode_part(headers, "\n".join(lines[body:stop]))


def _decode_part(headers: dict[str, str], body: str) -> MimePart:
    if headers.get(ENCODING, "").lower() == "quoted-printable":
        kept = {name: value for name, value in headers.items() if name != ENCODING}
        return MimePart(kept, quopri.decodestring(body.encode()).decode(errors="replace"))
    return MimePart(headers, body)


def _read_headers(lines: Sequence[str], start: int) -> tuple[dict[str, str], int]:
    """Header lines from a place on, and where the body begins."""
    headers: dict[str, str] = {}
    latest = ""
    for place in range(start, len(lines)):
        line = lines[place]
        if not line:
            return headers, place + 1
        if line[0] in " \t" and latest:
            headers[latest] = f"{headers[latest]} {line.strip()}"
            continue
        name, colon, value = line.partition(":")
        if not colon or line[0] in " \t":
            raise unusable_error(OURS, f"the MIME archive has a line {line!r} where a header should be")
        latest = "-".join(word.capitalize() for word in name.strip().split("-"))
        headers[latest] = value.strip()
    return headers, len(lines)
