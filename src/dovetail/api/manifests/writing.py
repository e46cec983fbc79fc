"""Objects as YAML that kubectl reads back to the same objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from dovetail.api.manifests.scalars import BadScalar, plain


class _Writer(yaml.CSafeDumper):
    """Quotes what kubectl would take for something else, and writes long text as blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True  # shared values are written out: the reader of a manifest expects no anchors


def write(value: Mapping[str, Any]) -> str:
    """One object as a YAML document, without a document marker."""
    text: str = yaml.dump(
        value, Dumper=_Writer, sort_keys=False, allow_unicode=True, default_flow_style=False, width=2**30
    )
    return text


def _text(writer: _Writer, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text and "\r" not in text else '"' if _needs_quotes(text) else None
    return writer.represent_scalar("tag:yaml.org,2002:str", text, style)


def _needs_quotes(text: str) -> bool:
    try:
        return plain(text) != text or text == "<<"
    except BadScalar:
        return True


_Writer.add_representer(str, _text)
