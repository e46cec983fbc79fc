"""libyaml's view of a text: a flat run of events, pulled one at a time, each knowing its place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, cast

import yaml
from yaml._yaml import CParser


class Mark(Protocol):
    """A place in a text, counted from 0."""

    line: int
    column: int


def events(text: bytes) -> Iterator[yaml.Event]:
    """Every event up to the end of the text; raises yaml.YAMLError where it makes no sense."""
    parser = CParser(text)
    try:
        while True:
            event = parser.get_event()
            if event is None or isinstance(event, yaml.StreamEndEvent):
                return
            yield event
    finally:
        parser.dispose()


def at(event: yaml.Event) -> Mark:
    """Where an event begins; the ones libyaml emits always know."""
    return cast(Mark, event.start_mark)
