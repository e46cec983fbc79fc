"""Lists that AWS answers with, read item by item: one that cannot be read is left out, the others are not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from dovetail.api.meta import Object
from dovetail.aws import Answer, Aws, list_pages
from dovetail.logs import get_logger
from dovetail.metrics import counter

__all__ = [
    "UNEXPECTED",
    "UNREADABLE",
    "Filter",
    "describe_all",
    "filter_by",
    "filter_by_tags",
    "key_of",
    "read_items",
]

T = TypeVar("T")
UNREADABLE = counter(
    "dovetail_aws_unreadable_items_total",
    "Items of AWS's answers that could not be read and were left out.",
    ("operation",),
)
# What reading a thing raises that is not as it should be; anything else is a bug, and is heard of as one.
UNEXPECTED: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
NAMED_MOST: Final = 1000
SHOWN: Final = 120
_named: set[tuple[str, str]] = set()
log = get_logger()


def read_items(operation: str, items: Iterable[Any], read: Callable[[Any], T]) -> Iterator[T]:
    """Every item that can be read. The others are counted, and named in the log, each once."""
    for item in items:
        try:
            made = read(item)
        except UNEXPECTED as error:
            UNREADABLE.labels(operation).inc()
            _name_once(operation, item, error)
        else:
            yield made


def _name_once(operation: str, item: Any, error: Exception) -> None:
    shown = str(item)[:SHOWN]
    if (operation, shown) in _named or len(_named) >= NAMED_MOST:
        return
    _named.add((operation, shown))
    log.error(
        "an item of AWS's answer cannot be read and is left out",
        operation=operation,
        item=shown,
        error=f"{type(error).__name__}: {str(error)[:SHOWN]}",
    )


Filter = Mapping[str, Any]
ANY_VALUE = "*"


def filter_by(name: str, values: Iterable[str]) -> Filter:
    """What has one of these values."""
    return {"Name": name, "Values": list(values)}


def filter_by_tags(tags: Mapping[str, str]) -> list[Filter]:
    """What carries all of these tags; a star means the key with any value. EC2's own wildcards pass."""
    return [
        filter_by("tag-key", [key]) if value == ANY_VALUE else filter_by(f"tag:{key}", [value])
        for key, value in tags.items()
    ]


def key_of(thing: Object) -> tuple[str, int]:
    """A class as it is written now: what was found for it holds until it is written again."""
    return thing.uid, thing.metadata.generation


async def describe_all(aws: Aws, operation: str, parameters: Mapping[str, Any], items: str) -> list[Answer]:
    """All items of an EC2 answer, page by page."""
    found: list[Answer] = []
    async for page in list_pages(aws, "ec2", operation, parameters):
        found += page.get(items) or ()
    return found
