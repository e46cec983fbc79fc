"""Column generation: find the patterns worth buying, priced by what the plan so far pays for a pod."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dovetail.scheduling.packing.fill import Weights, fill_nodes, tilt_worths
from dovetail.scheduling.packing.lp import MasterProgram
from dovetail.scheduling.packing.problem import Floats, Ints, PackingProblem, Rows, list_distinct_rows

__all__ = [
    "Columns",
    "Patterns",
    "add_known_patterns",
    "fill_randomly",
    "find_cheapest_fitting",
    "generate_columns",
    "price_remaining",
    "start_columns",
]

_GAIN = 1e-5
_PATIENCE = 9  # rounds without gain before the patterns count as good enough
_FILLS = 4  # fills of every option a round
_BEST = 40  # patterns kept of a round


@dataclass(slots=True)
class Columns:
    """The patterns known so far, and the linear program over them."""

    problem: PackingProblem
    master: MasterProgram
    counts: list[Ints] = field(default_factory=list)
    options: list[int] = field(default_factory=list)
    _seen: set[tuple[int, bytes]] = field(default_factory=set)

    def add(self, options: Ints, counts: Ints) -> int:
        """Patterns not seen before join the program; returns how many did."""
        fresh = []
        for row, option in enumerate(options.tolist()):
            key = (option, counts[row].tobytes())
            if key not in self._seen and counts[row].any():
                self._seen.add(key)
                fresh.append(row)
        if fresh:
            self.master.add(self.problem.price[options[fresh]], counts[fresh])
            self.counts += list(counts[fresh])
            self.options += options[fresh].tolist()
        return len(fresh)

    def build_matrix(self) -> Ints:
        return np.array(self.counts, np.int64).reshape(len(self.counts), self.problem.classes)


def start_columns(problem: PackingProblem, rows: Rows, weights: Weights, worth: Floats) -> Columns:
    """The plan we have, some fills of every option, and every class alone on its best node."""
    columns = Columns(problem, MasterProgram(problem.count))
    columns.add(np.array([row.option for row in rows], np.int64), np.array([row.counts for row in rows]))
    options = np.repeat(np.arange(len(problem.price)), len(weights))
    tiled = np.tile(weights, (len(problem.price), 1))
    columns.add(options, fill_nodes(problem, options, tiled, tilt_worths(problem, worth), problem.count))
    columns.add(*_pack_alone(problem))
    return columns


def _pack_alone(problem: PackingProblem) -> tuple[Ints, Ints]:
    """For every class its cheapest node per pod with nothing else on it."""
    most = np.full(problem.allowed.shape, np.inf)
    for k in range(problem.room.shape[1]):
        need = problem.request[:, k, None]
        most = np.minimum(most, np.where(need > 0, problem.room[None, :, k] / np.maximum(need, 1e-9), np.inf))
    held = np.minimum(np.where(problem.allowed, np.floor(most + 1e-10), 0), problem.compute_cap()[:, None])
    best = (held / problem.price[None, :]).argmax(axis=1)
    counts = np.diag(held[np.arange(problem.classes), best].astype(np.int64))
    return best.astype(np.int64), counts


@dataclass(frozen=True, slots=True)
class Patterns:
    """Patterns found for one problem, to be tried in another."""

    counts: Ints  # pattern x class


def add_known_patterns(columns: Columns, known: Patterns) -> None:
    """Patterns cut to the pods there are, each on the cheapest option that still holds it."""
    counts = np.minimum(known.counts, columns.problem.compute_cap())
    counts = list_distinct_rows(counts[counts.any(axis=1)])
    options = find_cheapest_fitting(columns.problem, counts)
    held = options >= 0
    columns.add(options[held], counts[held])


def generate_columns(columns: Columns, rounds: int, rng: np.random.Generator) -> tuple[float, Floats, Floats]:
    """Add patterns for up to `rounds` rounds, or until nothing helps."""
    value, amounts, duals = columns.master.solve()
    mean, stalled, best = duals.copy(), 0, value
    for turn in range(rounds):
        # Duals of few patterns swing wildly; their running mean finds patterns that last.
        mean = 0.6 * mean + 0.4 * duals
        price_columns(columns, duals, duals if turn % 3 == 2 else mean, rng)
        value, amounts, duals = columns.master.solve()
        stalled = 0 if value < best * (1 - _GAIN) else stalled + 1
        best = min(best, value)
        if stalled >= _PATIENCE:
            break
    return value, amounts, duals


def price_columns(columns: Columns, duals: Floats, worth: Floats, rng: np.random.Generator) -> int:
    """One round: fill every option at these worths, and keep what the true duals say would pay."""
    return price_remaining(columns, duals, worth, columns.problem.count, None, _FILLS, rng)


def price_remaining(
    columns: Columns,
    duals: Floats,
    worth: Floats,
    left: Ints,
    cap: Ints | None,
    fills: int,
    rng: np.random.Generator,
) -> int:
    """The same for a part of the pods."""
    problem = columns.problem
    options, counts = fill_randomly(problem, worth, np.arange(len(problem.price)), fills, left, cap, rng)
    value = (counts @ duals) / problem.price[options]
    good = np.argsort(-value, kind="stable")[:_BEST]
    good = good[value[good] > 1 + 1e-7]
    return columns.add(options[good], counts[good])


def fill_randomly(
    problem: PackingProblem,
    worth: Floats,
    options: Ints,
    each: int,
    left: Ints,
    cap: Ints | None,
    rng: np.random.Generator,
) -> tuple[Ints, Ints]:
    """Each option filled `each` times, by resource weights and a taste for big pods drawn anew."""
    many = np.repeat(options, each)
    weight = np.exp(rng.normal(0.0, 1.0, (len(many), problem.request.shape[1])))
    jitter = np.exp(rng.normal(0.0, 0.05, problem.classes))
    drive = tilt_worths(problem, worth * jitter, rng.uniform(-0.1, 0.5, len(many)))
    return many, fill_nodes(problem, many, weight, drive, left, cap)


def find_cheapest_fitting(problem: PackingProblem, counts: Ints) -> Ints:
    """For each row of counts the cheapest option that holds them, the first of equals; -1 for none."""
    need = counts @ problem.request
    holds = np.ones((len(counts), len(problem.price)), bool)
    for k in range(need.shape[1]):
        holds &= need[:, k, None] <= problem.room[None, :, k]
    refused = (counts > 0).astype(np.int32) @ (~problem.allowed).astype(np.int32)
    price = np.where(holds & (refused == 0), problem.price[None, :], np.inf)
    best = price.argmin(axis=1)
    return np.where(np.isfinite(price[np.arange(len(best)), best]), best, -1)
