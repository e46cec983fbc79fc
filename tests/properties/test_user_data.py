"""Whatever a class's author writes: the user data is a whole one or the launch ends with a sentence."""

from __future__ import annotations

import tomllib
from email import message_from_string
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import CreateFailed
from dovetail.providers.aws.userdata import Boot, render_user_data, toml
from dovetail.providers.aws.userdata.mime import MimePart, read_archive, write_archive

WORDS = (
    "MIME-Version: 1.0",
    "Content-Type: multipart/mixed;",
    'boundary="b"',
    "--b",
    "--b--",
    "a: b",
    "- x",
    "'",
    '"',
)
SETTINGS = (
    "[settings.kubernetes]",
    "max-pods = 3",
    "[settings]",
    'a = "b"',
    "[[settings.x]]",
    "node-labels = {}",
)
texts = st.lists(
    st.sampled_from((*WORDS, *SETTINGS, "\n", "\r\n", " ", "\t")) | st.text(max_size=5), max_size=14
)
keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
plain = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
)
tables: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.dictionaries(keys, plain, max_size=4),
    lambda inner: st.dictionaries(keys, plain | inner | st.lists(inner | plain, max_size=3), max_size=4),
    max_leaves=12,
)
bodies = st.text(st.characters(codec="ascii", exclude_characters="\r"), max_size=30)


SENTENCE = "the node class's user data cannot be used: "


def written(family: str, custom: str) -> str:
    """The user data, or the sentence a launch ends with."""
    try:
        return render_user_data(
            Boot(family, "demo", "https://demo", service_cidr="10.0.0.0/16", custom=custom)
        )
    except CreateFailed as error:
        return error.message


@given(tables)
def test_settings_that_are_written_are_read_as_they_were(table: dict[str, Any]) -> None:
    assert tomllib.loads(toml.write_toml(table)) == table


@given(texts)
def test_any_text_of_an_author_makes_bottlerocket_settings_or_a_sentence(words: list[str]) -> None:
    text = written("Bottlerocket", "\n".join(words))
    if text.startswith(SENTENCE):
        return
    kubernetes = tomllib.loads(text)["settings"]["kubernetes"]
    assert (kubernetes["cluster-name"], kubernetes["api-server"]) == ("demo", "https://demo")


@given(st.sampled_from(["AL2", "AL2023"]), texts, st.booleans())
def test_any_text_of_an_author_makes_an_archive_or_a_sentence(
    family: str, words: list[str], joined: bool
) -> None:
    custom = ("" if joined else "\n").join(words)
    text = written(family, custom)
    if text.startswith(SENTENCE):
        return
    assert "\r" not in text
    last = [part for part in message_from_string(text).walk() if not part.is_multipart()][-1]
    ours = "# Karpenter Generated NodeConfig" if family == "AL2023" else "#!/bin/bash -xe"
    assert str(last.get_payload()).startswith(ours)


@given(
    st.lists(st.tuples(st.sampled_from(["text/plain", "text/x-shellscript"]), bodies), min_size=1, max_size=4)
)
def test_parts_that_are_archived_are_found_again(given_parts: list[tuple[str, str]]) -> None:
    parts = [MimePart.from_text(kind, body) for kind, body in given_parts if "--//" not in body]
    assert read_archive(write_archive(parts)) == tuple(parts)
