"""The files a person names: what they stand for, and what is said about those that cannot be read."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from dovetail.api.manifests import DEFAULT
from dovetail.cli.views.files import expect_writable, read_manifests, read_text, write_all, write_file
from dovetail.errors import BadInput

POOL = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: %s}\n"


def names(*paths: object) -> list[str]:
    return [document.name for document in read_manifests([str(path) for path in paths]).documents]


def complaints(*paths: object) -> list[str]:
    return [complaint.message for complaint in read_manifests([str(path) for path in paths]).complaints]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Manifests at several depths, and files that are none."""
    for path in ("b.yaml", "a.yml", "deep/er/c.json.yaml", "notes.txt", ".hidden/x.yaml"):
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(POOL % target.stem, encoding="utf-8")
    (tmp_path / "deep" / "d.json").write_text(
        '{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "d"}}', encoding="utf-8"
    )
    return tmp_path


def test_a_directory_stands_for_the_manifests_in_it_and_below_in_order(folder: Path) -> None:
    assert names(folder) == ["a", "b", "d", "c.json"]


def test_a_file_that_is_named_is_read_whatever_it_is_called(folder: Path) -> None:
    assert names(folder / "notes.txt") == ["notes"]


def test_a_pattern_stands_for_what_it_matches(folder: Path) -> None:
    assert names(folder / "*.y*ml") == ["a", "b"]
    assert names(folder / "**" / "*.json") == ["d"]
    assert names(folder / "de*") == ["d", "c.json"]


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "a[1].yaml").write_text(POOL % "brackets", encoding="utf-8")
    assert names(tmp_path / "a[1].yaml") == ["brackets"]


def test_a_file_named_twice_is_read_once(folder: Path) -> None:
    assert names(folder / "a.yml", folder, folder / "a.yml") == ["a", "b", "d", "c.json"]


def test_folders_that_lead_back_to_themselves_are_walked_once(folder: Path) -> None:
    (folder / "deep" / "again").symlink_to(folder)
    assert names(folder) == ["a", "b", "d", "c.json"]


def test_a_pipe_inside_a_directory_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe.yaml")
    assert names(folder) == ["a", "b", "d", "c.json"]


def test_what_cannot_be_read_is_said_and_hides_nothing(folder: Path) -> None:
    (folder / "nowhere.yaml").symlink_to(folder / "gone")
    found = read_manifests([str(folder / "missing.yaml"), str(folder), str(folder / "*.nope"), "a\0b"])
    assert [document.name for document in found.documents] == ["a", "b", "d", "c.json"]
    assert [(Path(complaint.source).name, complaint.message) for complaint in found.complaints] == [
        ("missing.yaml", "there is no such file"),
        ("nowhere.yaml", "there is no such file"),
        ("*.nope", "nothing matches this pattern"),
        ("a\0b", "this is not the name of a file: embedded null byte"),
    ]


def test_a_directory_without_manifests_is_said_to_have_none(tmp_path: Path) -> None:
    assert complaints(tmp_path) == ["the directory holds no file that ends in .yaml, .yml or .json"]


def test_a_file_that_may_not_be_read_is_said_to_be_one(tmp_path: Path) -> None:
    secret = tmp_path / "secret.yaml"
    secret.write_text(POOL % "secret", encoding="utf-8")
    secret.chmod(0)
    if os.access(
        secret, os.R_OK
    ):  # a superuser may read it all the same; any other file of the kernel's does
        assert names(secret) == ["secret"]
        secret = Path("/proc/self/mem")
        assert complaints(secret)[0].startswith("this file cannot be read: ")
    else:
        assert complaints(secret) == ["this file may not be read; check its permissions"]


def test_of_an_endless_file_only_as_much_is_read_as_is_allowed() -> None:
    assert complaints("/dev/zero") == [f"the file is larger than {DEFAULT.size} bytes; split it"]


def test_a_small_file_is_read_without_the_blanks_around_it(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("\n Q0E= \n", encoding="utf-8")
    assert read_text(str(tmp_path / "ca"), "CA bundle") == "Q0E="


def test_a_small_file_that_is_missing_or_no_text_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match=r"reading the CA bundle from .*binary: it is not UTF-8 text"):
        read_text(str(tmp_path / "binary"), "CA bundle")
    with pytest.raises(BadInput, match="there is no such file"):
        read_text(str(tmp_path / "missing"), "CA bundle")


def test_files_are_written_into_a_directory_made_for_them(tmp_path: Path) -> None:
    write_all(str(tmp_path / "new" / "er"), {"a.yaml": "a: 1\n"})
    assert (tmp_path / "new" / "er" / "a.yaml").read_text(encoding="utf-8") == "a: 1\n"
    with pytest.raises(BadInput, match=r"writing .*: "):
        write_all(str(tmp_path / "new" / "er" / "a.yaml"), {"b.yaml": ""})


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    monkeypatch.setattr("dovetail.cli.views.files.PATIENCE", 0.05)
    (complaint,) = read_manifests([str(pipe)]).complaints
    assert complaint.message == "this file cannot be read: nobody writes to this pipe"


def test_a_pipe_with_a_writer_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    writer = Thread(target=lambda: pipe.write_text("kind: Pod\napiVersion: v1\n"))
    writer.start()
    (document,) = read_manifests([str(pipe)]).documents
    writer.join()
    assert document.kind == "Pod"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("gone/page.html", "there is no folder {folder}/gone; make it or choose another file"),
        ("", "is a directory; choose another file"),
        ("/dev/full", "no space left on device; choose another file"),
    ],
)
def test_what_could_not_be_written_is_told_beforehand(tmp_path: Path, name: str, told: str) -> None:
    path = tmp_path / name
    with pytest.raises(BadInput) as refused:
        expect_writable(path)
    assert str(refused.value) == f"writing {path}: {told.format(folder=tmp_path)}"
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_is_told_beforehand_and_what_was_there_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("before")
    script = (
        "import resource, signal\n"
        "from pathlib import Path\n"
        "from dovetail.cli.views.files import expect_writable\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        f"expect_writable(Path({str(page)!r}))\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.stderr.splitlines()[-1].endswith(f"writing {page}: file too large; choose another file")
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]
    assert page.read_text() == "before"


def test_a_private_file_is_its_owners_alone_even_where_it_was_not_before(tmp_path: Path) -> None:
    file = tmp_path / "snapshot.json"
    file.write_text("")
    file.chmod(0o644)
    write_file(file, b"{}", private=True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
