"""One packing problem from first plan to best plan.

Effort is counted in rounds, never in seconds, so that the same problem gives the same plan on any
machine under any load; the caller's `should_stop` is only an outer limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dovetail.scheduling.packing.columns import (
    Patterns,
    add_known_patterns,
    find_cheapest_fitting,
    generate_columns,
    start_columns,
)
from dovetail.scheduling.packing.dive import dive_for_plan, repack_nodes, shrink_options
from dovetail.scheduling.packing.fill import build_weights
from dovetail.scheduling.packing.greedy import GreedyPacking, pack_greedily, pack_together
from dovetail.scheduling.packing.lp import compute_worths
from dovetail.scheduling.packing.problem import (
    Bools,
    Floats,
    Ints,
    PackingProblem,
    PackingRow,
    RemainingPods,
    Rows,
    can_share_twins,
    find_column_kinds,
    index_distinct,
    list_distinct,
    sum_cost,
)

__all__ = [
    "QUICK",
    "THOROUGH",
    "Effort",
    "Packing",
    "PackingTask",
    "ProblemComponent",
    "find_patterns",
    "merge_nodes",
    "pack_problem",
    "pack_problems",
    "split_components",
]

_ROWS = 48  # rows looked at in pairs, the cheapest first: small nodes gain most
_TURNS = 6
_SAME = 1e-9


def merge_nodes(problem: PackingProblem, rows: Rows) -> Rows:
    """The same pods on no more nodes, for no more money."""
    larger = [part for row in rows for part in _merge_copies(problem, row)]
    larger.sort(key=lambda row: float(problem.price[row.option]))
    few, rest = larger[:_ROWS], larger[_ROWS:]
    for _ in range(_TURNS):
        pairs = _find_pairs(problem, few)
        if not pairs:
            break
        few = _join_pairs(few, pairs)
    out = few + rest
    return out if can_share_twins(problem, out) else rows


def _merge_copies(problem: PackingProblem, row: PackingRow) -> Rows:
    """Copies of one row, as few larger nodes as the price allows."""
    for times in (8, 6, 4, 3, 2):
        many, left = divmod(row.copies, times)
        if not many:
            continue
        option = _find_option(problem, row.counts[None, :] * times, problem.price[[row.option]] * times)
        if option[0] >= 0:
            larger = _merge_copies(problem, PackingRow(int(option[0]), row.counts * times, many))
            return larger + ([PackingRow(row.option, row.counts, left)] if left else [])
    return [row]


def _find_pairs(problem: PackingProblem, rows: Rows) -> list[tuple[int, int, int]]:
    """Rows that are better off together and the option that holds both, each row at most once."""
    counts = np.array([row.counts for row in rows]).reshape(len(rows), problem.classes)
    price = problem.price[[row.option for row in rows]]
    first, second = np.triu_indices(len(rows), 1)
    paid = price[first] + price[second]
    option = _find_option(problem, counts[first] + counts[second], paid)
    good = np.flatnonzero(option >= 0)
    saved = paid[good] - problem.price[option[good]]
    chosen: list[tuple[int, int, int]] = []
    used: set[int] = set()
    for at in good[np.argsort(-saved, kind="stable")].tolist():
        a, b = int(first[at]), int(second[at])
        if a not in used and b not in used:
            used |= {a, b}
            chosen.append((a, b, int(option[at])))
    return chosen


def _find_option(problem: PackingProblem, counts: Ints, most: np.ndarray) -> Ints:
    """For each row of counts an option that holds them for no more than `most`; -1 for none."""
    out: Ints = np.full(len(counts), -1, np.int64)
    allowed = np.flatnonzero(_check_host_rules(problem, counts))
    if len(allowed):
        option = find_cheapest_fitting(problem, counts[allowed])
        cheap = (option >= 0) & (problem.price[option] <= most[allowed] + _SAME)
        out[allowed[cheap]] = option[cheap]
    return out


def _check_host_rules(problem: PackingProblem, counts: Ints) -> Bools:
    held = (counts <= problem.compute_cap()).all(axis=1)
    for family, limit in enumerate(problem.limit.tolist()):
        held &= counts[:, problem.family == family].sum(axis=1) <= limit
    return np.asarray(held)


def _join_pairs(rows: Rows, pairs: list[tuple[int, int, int]]) -> Rows:
    paired = {at for first, second, _ in pairs for at in (first, second)}
    out = [row for at, row in enumerate(rows) if at not in paired]
    for first, second, option in pairs:
        a, b = rows[first], rows[second]
        copies = min(a.copies, b.copies)
        out.append(PackingRow(option, a.counts + b.counts, copies))
        out += [
            PackingRow(row.option, row.counts, row.copies - copies) for row in (a, b) if row.copies > copies
        ]
    return out


@dataclass(frozen=True, slots=True)
class ProblemComponent:
    """A part of a problem, and where its classes and options are in the whole."""

    problem: PackingProblem
    classes: Ints
    options: Ints

    def widen_rows(self, rows: Rows, total: int) -> Rows:
        """The part's rows, written for the whole problem of `total` classes."""
        out = []
        for row in rows:
            counts = np.zeros(total, np.int64)
            counts[self.classes] = row.counts
            out.append(PackingRow(int(self.options[row.option]), counts, row.copies))
        return out


def split_components(problem: PackingProblem) -> list[ProblemComponent]:
    """The independent parts, in order of their first class."""
    label = _label_classes(problem)
    out = []
    for each in dict.fromkeys(label.tolist()):
        classes = np.flatnonzero(label == each)
        options = np.flatnonzero(problem.allowed[classes].any(axis=0))
        out.append(ProblemComponent(_cut_problem(problem, classes, options), classes, options))
    return out


def _label_classes(problem: PackingProblem) -> Ints:
    """Classes that accept a common option get the same number."""
    label = np.arange(problem.classes)
    kinds, _ = find_column_kinds(problem.allowed)
    columns = problem.allowed[:, kinds]
    while True:
        before = label.copy()
        for j in range(columns.shape[1]):
            inside = columns[:, j]
            if inside.any():
                label[inside] = label[inside].min()
        if (label == before).all():
            return label


def _cut_problem(problem: PackingProblem, classes: Ints, options: Ints) -> PackingProblem:
    families, family = index_distinct(problem.family[classes])
    lowest = int(len(families) > 0 and families[0] == -1)
    return PackingProblem(
        request=problem.request[classes],
        count=problem.count[classes],
        room=problem.room[options],
        price=problem.price[options],
        allowed=problem.allowed[np.ix_(classes, options)],
        family=family - lowest,
        limit=problem.limit[families[families >= 0]],
        twins=tuple(problem.twins[c] for c in classes.tolist()) if problem.twins else (),
        per_twin=problem.per_twin[classes] if len(problem.per_twin) else problem.per_twin,
    )


_ALONE = 2.0  # times the worth of all pods, where they could share one node
_WORTHWHILE = 2.5  # times the worth of all pods for one node: dearer options are not looked at
# Prices are nearly linear in size: without a charge many small nodes look as good as a few large ones.
_CHARGE = 1e-5  # of the dearest option looked at
_MANY_CLASSES = 30
_FEW_PODS = 150  # few nodes are far from any fraction, and repacking them is cheap
_SHARED = 300  # patterns handed on, besides those in use


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to try. Zero rounds is the first complete plan."""

    rounds: int = 24
    dives: int = 6
    greedies: int = 8
    repacks: int = 10
    seed: int = 1
    most_pods: int = 0  # on one new node; zero for as many as fit
    close: float = 0.002  # stop this near the best the patterns could do: the rest is not worth the wait


QUICK = Effort(rounds=0, dives=0, repacks=0)
THOROUGH = Effort()


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """A complete plan and what it costs."""

    rows: Rows
    cost: float


def pack_problem(
    problem: PackingProblem, effort: Effort = THOROUGH, should_stop: Callable[[], bool] = lambda: False
) -> Packing:
    """Pack every pod of one problem."""
    return pack_problems([PackingTask(problem)], effort, should_stop)[0]


@dataclass(frozen=True, slots=True, eq=False)
class PackingTask:
    """A problem to pack. `known` are patterns found for much the same pods, `worth` is what each is worth."""

    problem: PackingProblem
    known: Patterns | None = None
    worth: Floats | None = None


def pack_problems(
    tasks: Sequence[PackingTask], effort: Effort, should_stop: Callable[[], bool], merging: bool = True
) -> list[Packing]:
    """Pack every pod of every problem; their first plans are made together, which is quicker.

    Nodes are merged unless rules the packing does not see make large nodes hard to fill.
    """
    parts = [_split_task(task) for task in tasks]
    every = [part for listed in parts for part in listed]
    greedy = pack_together([part.start_greedy() for part in every])
    packed = iter(
        [
            _pack_part(part, rows, effort, should_stop, merging)
            for part, rows in zip(every, greedy, strict=True)
        ]
    )
    out = []
    for task, listed in zip(tasks, parts, strict=True):
        rows = [row for part in listed for row in part.whole.widen_rows(next(packed), task.problem.classes)]
        out.append(Packing(rows, sum_cost(task.problem, rows)))
    return out


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """An independent part of a task, with the options worth looking at."""

    whole: ProblemComponent
    kept: Ints  # of the options
    problem: PackingProblem
    worth: Floats
    known: Patterns | None

    def start_greedy(self) -> GreedyPacking:
        weights = build_weights(self.problem.request.shape[1])
        ways = 1 if self.problem.count.sum() <= _FEW_PODS else 2
        return GreedyPacking(self.problem, self.worth, weights[:ways])


def _split_task(task: PackingTask) -> list[_Part]:
    worth = compute_worths(task.problem) if task.worth is None else task.worth
    split = split_components(task.problem)
    known = task.known if len(split) == 1 else None
    parts = []
    for each in split:
        own = worth[each.classes]
        kept = _find_worthwhile(each.problem, own)
        parts.append(_Part(each, kept, _keep_options(each.problem, kept), own, known))
    return parts


def find_patterns(problem: PackingProblem, effort: Effort) -> Patterns:
    """Good patterns for a problem, to be shared by problems that are alike."""
    weights = build_weights(problem.request.shape[1])
    worth = compute_worths(problem)
    kept = _find_worthwhile(problem, worth)
    part = _keep_options(problem, kept)
    rng = np.random.Generator(np.random.PCG64(effort.seed))
    columns = start_columns(part, pack_greedily(part, worth, weights[:2]), weights[:3], worth)
    _, amounts, _ = generate_columns(columns, effort.rounds, rng)
    recent = np.arange(max(0, len(columns.options) - _SHARED), len(columns.options))
    return Patterns(columns.build_matrix()[list_distinct(np.append(np.flatnonzero(amounts > 0), recent))])


def _pack_part(
    part: _Part, greedy: Rows, effort: Effort, should_stop: Callable[[], bool], merging: bool
) -> Rows:
    """The greedy plan of a part made as cheap as the effort allows, written for the part as it was."""
    problem = part.problem
    first = shrink_options(problem, greedy)
    best = _improve_plan(part, first, effort, should_stop)
    if merging:
        best = merge_nodes(problem, best)
        first = merge_nodes(problem, first) if effort.rounds else best
    # The charge for a node must never make a plan dearer than the one we started from.
    true = replace(problem, price=part.whole.problem.price[part.kept])
    rows = best if sum_cost(true, best) <= sum_cost(true, first) + 1e-9 else first
    return [PackingRow(int(part.kept[row.option]), row.counts, row.copies) for row in rows]


def _keep_options(problem: PackingProblem, kept: Ints) -> PackingProblem:
    """Only these options, each with a small charge for being one more node to run."""
    price = problem.price[kept]
    return replace(
        problem,
        room=problem.room[kept],
        price=price + _CHARGE * float(price.max()),
        allowed=problem.allowed[:, kept],
    )


def _find_worthwhile(problem: PackingProblem, worth: Floats) -> Ints:
    """Options not far dearer than all there is to put on one node, and each class's own cheapest."""
    needed = RemainingPods(problem).count_nodes_needed()
    factor = _WORTHWHILE if needed > 1 else _ALONE
    cheap = problem.price <= factor * float(problem.count @ worth) / max(1, needed)
    own = np.where(problem.compute_fits(), problem.price[None, :], np.inf).argmin(axis=1)
    cheap[own] = True
    return np.flatnonzero(cheap)


def _improve_plan(part: _Part, first: Rows, effort: Effort, should_stop: Callable[[], bool]) -> Rows:
    """The best plan found from the first one; the first one itself if there is no time."""
    problem, worth, known = part.problem, part.worth, part.known
    rows = first
    if not effort.rounds or should_stop():
        return rows
    weights = build_weights(problem.request.shape[1])
    rng = np.random.Generator(np.random.PCG64(effort.seed))
    columns = start_columns(problem, rows, weights[:3], worth)
    if known is not None:
        add_known_patterns(columns, known)
    value, _, duals = generate_columns(columns, effort.rounds if known is None else effort.rounds // 3, rng)
    enough = value * (1 + effort.close)
    for _ in range(_count_dives(problem, effort, known is not None)):
        if sum_cost(problem, rows) <= enough or should_stop():
            break
        found = dive_for_plan(columns, effort.greedies, rng, sum_cost(problem, rows))
        rows = rows if found is None else _choose_cheaper(problem, rows, found)
    if known is None and problem.classes > 1 and problem.count.sum() <= _FEW_PODS and not should_stop():
        rows = repack_nodes(columns, rows, np.maximum(duals, 0.02 * worth), effort.repacks, rng, enough)
    return rows


def _count_dives(problem: PackingProblem, effort: Effort, shared: bool) -> int:
    """One of several zones gets fewer tries than a whole problem, and one with many classes a single one."""
    if not shared:
        return effort.dives
    return min(effort.dives, 1 if problem.classes > _MANY_CLASSES else 2)


def _choose_cheaper(problem: PackingProblem, old: Rows, new: Rows) -> Rows:
    new = shrink_options(problem, new)
    if (sum_cost(problem, new), _count_nodes(new)) < (sum_cost(problem, old) - 1e-9, _count_nodes(old)):
        return new
    return old


def _count_nodes(rows: Rows) -> int:
    return sum(row.copies for row in rows)
