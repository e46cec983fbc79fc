"""Runs beside one another: in processes of this machine, or on the workers of a Dask cluster.

Whoever waits sees how many are over, and Ctrl-C ends it with what is done.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import active_children
from signal import SIG_IGN, SIGINT, signal
from time import sleep
from typing import Any, TypeVar

from dovetail.cli.views.output import print_note
from dovetail.cli.views.progress import count_interrupts, draw_bar, wipe_bar
from dovetail.errors import Misconfigured

__all__ = ["play_in_processes", "play_on_dask"]

T = TypeVar("T")
# How often it is asked whether a person wants to stop.
PATIENCE = 0.2


def play_in_processes(
    play: Callable[..., T], given: Sequence[tuple[Any, ...]], workers: int | None
) -> dict[int, T]:
    """What each call gives, by its number; fewer than all when a person ended it early."""
    done: dict[int, T] = {}
    known = set(active_children())
    with (
        ProcessPoolExecutor(workers, initializer=signal, initargs=(SIGINT, SIG_IGN)) as pool,
        _count_runs(len(given)) as stops,
    ):
        coming = {pool.submit(play, *arguments): number for number, arguments in enumerate(given)}
        left = set(coming)
        while left and not stops(len(done)):
            finished, left = wait(left, PATIENCE, FIRST_COMPLETED)
            done |= {coming[future]: future.result() for future in finished}
        stops(len(done))
        if left:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in set(active_children()) - known:
                worker.terminate()
    _tell_stopped(len(done), len(given))
    return done


def play_on_dask(play: Callable[..., T], given: Sequence[tuple[Any, ...]], address: str) -> dict[int, T]:
    """The same on the workers of a Dask cluster, which must have Dovetail and what the calls name."""
    try:
        from distributed import Client, as_completed
    except ImportError as error:
        raise Misconfigured(
            "playing on Dask: the dask extra is not installed; run pip install 'dovetail[dask]'"
        ) from error
    try:
        client = Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise Misconfigured(f"playing on Dask: no scheduler answers at {address}; is it running?") from error
    done: dict[int, T] = {}
    with client, _count_runs(len(given)) as stops:
        coming = {
            client.submit(play, *arguments, pure=False): number for number, arguments in enumerate(given)
        }
        finished = as_completed(list(coming), loop=client.loop)
        while len(done) < len(coming) and not stops(len(done)):
            batch = finished.next_batch(block=False)
            done |= {coming[future]: future.result() for future in batch}
            if not batch:
                sleep(PATIENCE)
        stops(len(done))
    _tell_stopped(len(done), len(given))
    return done


def _tell_stopped(done: int, of: int) -> None:
    if done < of:
        print_note(f"stopped early; {done} of {of} runs were over")


@contextmanager
def _count_runs(of: int) -> Iterator[Callable[[int], bool]]:
    """Draws how many runs are over, and says whether a person wants to stop."""
    with count_interrupts() as interrupted:

        def stops(done: int) -> bool:
            if sys.stderr.isatty():
                draw_bar(done / of, f"{done} of {of} runs")
            return interrupted[0] > 0

        yield stops
    if sys.stderr.isatty():
        wipe_bar()
