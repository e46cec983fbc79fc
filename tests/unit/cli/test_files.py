"""The files a person names: what they stand for, and what is said about those that cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dovetail.api.manifests import DEFAULT
from dovetail.cli.files import manifests_in, text_of, write_all
from dovetail.errors import BadInput

POOL = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: %s}\n"


def names(*paths: object) -> list[str]:
    return [document.name for document in manifests_in([str(path) for path in paths]).documents]


def complaints(*paths: object) -> list[str]:
    return [complaint.message for complaint in manifests_in([str(path) for path in paths]).complaints]


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
    found = manifests_in([str(folder / "missing.yaml"), str(folder), str(folder / "*.nope"), "a\0b"])
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
    assert text_of(str(tmp_path / "ca"), "CA bundle") == "Q0E="


def test_a_small_file_that_is_missing_or_no_text_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match=r"reading the CA bundle from .*binary: it is not UTF-8 text"):
        text_of(str(tmp_path / "binary"), "CA bundle")
    with pytest.raises(BadInput, match="there is no such file"):
        text_of(str(tmp_path / "missing"), "CA bundle")


def test_files_are_written_into_a_directory_made_for_them(tmp_path: Path) -> None:
    write_all(str(tmp_path / "new" / "er"), {"a.yaml": "a: 1\n"})
    assert (tmp_path / "new" / "er" / "a.yaml").read_text(encoding="utf-8") == "a: 1\n"
    with pytest.raises(BadInput, match=r"writing .*: "):
        write_all(str(tmp_path / "new" / "er" / "a.yaml"), {"b.yaml": ""})
