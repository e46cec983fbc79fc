"""Pods from the wire: how fast, and how small."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from dovetail.api.codec import Interner, decode_list
from dovetail.api.pod import Pod

from .registry import Figure, best_of, scenario
from .workload import page, pods

PAGE = 500
MANY = 20_000
CLUSTER = 200_000


@cache
def pages() -> tuple[bytes, ...]:
    """Forty pages of pods, about 5 KB each."""
    everything = pods(MANY)
    return tuple(page(everything[start : start + PAGE]) for start in range(0, MANY, PAGE))


@scenario("codec: a page of pods")
def one_page() -> Iterator[Figure]:
    data = pages()[0]
    table = Interner()
    yield Figure("size of a pod", len(data) / PAGE, "bytes")
    yield Figure(
        "500 pods, all shapes new", 1e3 * best_of(5, lambda: decode_list(Pod, data, Interner())), "ms", 50
    )
    yield Figure("500 pods, shapes known", 1e3 * best_of(9, lambda: decode_list(Pod, data, table)), "ms", 50)


@scenario("codec: 20,000 pods")
def many_pods() -> Iterator[Figure]:
    """Kept, as a watcher keeps them; and dropped page by page, where json.loads is at its best."""
    data = pages()
    kept, dropped = _race(data, list), _race(data, len)
    yield Figure("decoded and kept, interning included", kept[0], "s")
    yield Figure("json.loads of the same bytes, kept", kept[1], "s")
    yield Figure("times faster than json.loads", kept[1] / kept[0], "×", 5, more_is_better=True)
    yield Figure("times faster, results dropped", dropped[1] / dropped[0], "×", 5, more_is_better=True)
    yield Figure("per pod, results dropped", 1e6 * dropped[0] / MANY, "µs")


def _race(data: tuple[bytes, ...], keep: Callable[[list[Any]], object]) -> tuple[float, float]:
    """Our time and that of json.loads, taken in turns so that a busy moment of the machine troubles both."""

    def ours() -> list[object]:
        table = Interner()
        return [keep(decode_list(Pod, each, table).items) for each in data]

    def plain() -> list[object]:
        return [keep(json.loads(each)["items"]) for each in data]

    times = [(best_of(1, ours), best_of(1, plain)) for _ in range(3)]
    return min(first for first, _ in times), min(second for _, second in times)


@scenario("codec: 200,000 pods held")
def a_large_cluster() -> Iterator[Figure]:
    found = _held(CLUSTER)
    assert found["distinct"] == CLUSTER
    yield Figure("peak memory of the process", found["peak"] / 1e6, "MB", 400)
    yield Figure("of which before the first pod", found["empty"] / 1e6, "MB")
    yield Figure("per pod", (found["peak"] - found["empty"]) / CLUSTER, "bytes")
    yield Figure("decoding", found["decoding"], "s")
    yield Figure("shapes", found["shapes"], "")


def _held(count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(pages()):
            Path(folder, f"{number:03d}.json").write_bytes(data)
        child = [sys.executable, "-m", f"{__package__}.hold_pods", folder, str(count)]
        done = subprocess.run(
            child, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
        )
    found: dict[str, Any] = json.loads(done.stdout)
    return found
