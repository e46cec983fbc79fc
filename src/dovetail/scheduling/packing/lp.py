"""HiGHS, spoken to in arrays: the only module here that knows the solver."""

from __future__ import annotations

import highspy
import numpy as np

from dovetail.scheduling.packing.problem import Floats, Ints, PackingProblem, find_column_kinds

__all__ = ["MasterProgram", "compute_worths", "solve_interior_duals", "solve_lp"]


def _create_solver() -> highspy.Highs:
    solver = highspy.Highs()  # type: ignore[no-untyped-call]  # its wheel has stubs for everything else
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("random_seed", 0)
    return solver


def _build_model(
    price: Floats, upper: Floats, low: Floats, start: Ints, index: Ints, value: Floats
) -> highspy.HighsLp:
    """min price.x with low <= A x, 0 <= x <= upper; A by columns."""
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(price), len(low)
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = price, np.zeros(len(price)), upper
    lp.row_lower_, lp.row_upper_ = low, np.full(len(low), highspy.kHighsInf)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = start.astype(np.int32)
    lp.a_matrix_.index_ = index.astype(np.int32)
    lp.a_matrix_.value_ = value
    return lp


def solve_lp(price: Floats, matrix: Floats, low: Floats) -> Floats:
    """The prices of the rows in min price.x, matrix x >= low, x >= 0."""
    columns = matrix.T
    where = columns != 0
    start = np.concatenate(([0], np.cumsum(where.sum(axis=1))))
    infinite = np.full(len(price), highspy.kHighsInf)
    solver = _create_solver()
    solver.setOptionValue("presolve", "off")
    solver.passModel(_build_model(price, infinite, low, start, np.nonzero(where)[1], columns[where]))
    solver.run()
    duals: Floats = np.maximum(np.array(solver.getSolution().row_dual), 0.0)
    return duals


def solve_interior_duals(
    price: Floats, upper: Floats, low: Floats, start: Ints, index: Ints, value: Floats
) -> Floats:
    """Row prices from the interior point method without crossover: quick, and only nearly right."""
    solver = _create_solver()
    solver.setOptionValue("solver", "ipm")
    solver.setOptionValue("run_crossover", "off")
    solver.setOptionValue("ipm_optimality_tolerance", 1e-6)
    solver.passModel(_build_model(price, upper, low, start, index, value))
    solver.run()
    return np.array(solver.getSolution().row_dual)


class MasterProgram:
    """The linear program over patterns: buy fractions of known nodes until every class is covered."""

    def __init__(self, demand: Ints) -> None:
        self._solver = _create_solver()
        self._solver.setOptionValue("presolve", "off")
        self.rows = len(demand)
        empty: Ints = np.zeros(0, np.int32)
        none: Floats = np.zeros(0)
        top = np.full(self.rows, highspy.kHighsInf)
        self._solver.addRows(self.rows, demand.astype(float), top, 0, empty, empty, none)

    def add(self, price: Floats, patterns: Ints) -> None:
        """More patterns, one a row."""
        where = patterns != 0
        start = np.concatenate(([0], np.cumsum(where.sum(axis=1))))[:-1].astype(np.int32)
        index = np.nonzero(where)[1].astype(np.int32)
        top = np.full(len(price), highspy.kHighsInf)
        self._solver.addCols(
            len(price),
            price,
            np.zeros(len(price)),
            top,
            len(index),
            start,
            index,
            patterns[where].astype(float),
        )

    def set_demand(self, demand: Ints) -> None:
        for row, need in enumerate(demand.tolist()):
            self._solver.changeRowBounds(row, float(need), highspy.kHighsInf)

    def solve(self) -> tuple[float, Floats, Floats]:
        """(value, how much of each pattern, what one more pod of each class would cost)."""
        self._solver.run()
        solution = self._solver.getSolution()
        duals = np.maximum(np.array(solution.row_dual), 0.0)
        return float(self._solver.getInfo().objective_function_value), np.array(solution.col_value), duals


def compute_worths(problem: PackingProblem) -> Floats:
    """Dollars an hour that each pod of a class is worth."""
    groups = _list_option_sets(problem)
    needed = problem.request * problem.count[:, None]
    resources = problem.request.shape[1]
    scale = np.maximum(problem.room.max(axis=0), 1.0)
    rows, demand = [], []
    for options, covered in groups:
        for k in range(resources):
            rows.append(np.where(options, problem.room[:, k] / scale[k], 0.0))
            demand.append(needed[covered, k].sum() / scale[k])
    demands = problem.list_host_demands()
    fits = problem.compute_fits() if demands else problem.allowed
    for members, limit in demands:
        rows.append(np.where(fits[members].any(axis=0), float(limit), 0.0))
        demand.append(float(problem.count[members].sum()))
    dual = solve_lp(problem.price, np.array(rows), np.array(demand))
    worth = np.zeros(problem.classes)
    for g, (_, covered) in enumerate(groups):
        worth[covered] += (problem.request[covered] / scale) @ dual[g * resources : (g + 1) * resources]
    for s, (members, _) in enumerate(demands):
        worth[members] += dual[len(groups) * resources + s]
    return _ensure_positive_worth(problem, worth)


def _list_option_sets(problem: PackingProblem) -> list[tuple[np.ndarray, np.ndarray]]:
    """Each distinct set of options some class accepts, with every class that needs one of just those."""
    first, _ = find_column_kinds(problem.allowed.T)
    out = []
    for index in sorted(first.tolist()):
        options = problem.allowed[index]
        inside = ~(problem.allowed & ~options[None, :]).any(axis=1)
        out.append((options, np.flatnonzero(inside)))
    return out


def _ensure_positive_worth(problem: PackingProblem, worth: Floats) -> Floats:
    """A pod the cover found free still has to go somewhere: give it a trace of worth by its size."""
    scale = np.maximum(problem.room.max(axis=0), 1.0)
    size = (problem.request / scale).max(axis=1) * float(problem.price.max())
    return np.asarray(np.maximum(worth, 0.02 * size))
