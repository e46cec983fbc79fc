"""HiGHS, spoken to in arrays: the only module here that knows the solver."""

from __future__ import annotations

import highspy
import numpy as np

from dovetail.scheduling.packing.problem import Floats, Ints

__all__ = ["Master", "interior_duals", "solve_lp"]


def _silent() -> highspy.Highs:
    solver = highspy.Highs()  # type: ignore[no-untyped-call]  # its wheel has stubs for everything else
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("random_seed", 0)
    return solver


def _model(
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
    solver = _silent()
    solver.setOptionValue("presolve", "off")
    solver.passModel(_model(price, infinite, low, start, np.nonzero(where)[1], columns[where]))
    solver.run()
    duals: Floats = np.maximum(np.array(solver.getSolution().row_dual), 0.0)
    return duals


def interior_duals(
    price: Floats, upper: Floats, low: Floats, start: Ints, index: Ints, value: Floats
) -> Floats:
    """Row prices from the interior point method without crossover: quick, and only nearly right."""
    solver = _silent()
    solver.setOptionValue("solver", "ipm")
    solver.setOptionValue("run_crossover", "off")
    solver.setOptionValue("ipm_optimality_tolerance", 1e-6)
    solver.passModel(_model(price, upper, low, start, index, value))
    solver.run()
    return np.array(solver.getSolution().row_dual)


class Master:
    """The linear program over patterns: buy fractions of known nodes until every class is covered."""

    def __init__(self, demand: Ints) -> None:
        self._solver = _silent()
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

    def demand(self, demand: Ints) -> None:
        for row, need in enumerate(demand.tolist()):
            self._solver.changeRowBounds(row, float(need), highspy.kHighsInf)

    def solve(self) -> tuple[float, Floats, Floats]:
        """(value, how much of each pattern, what one more pod of each class would cost)."""
        self._solver.run()
        solution = self._solver.getSolution()
        duals = np.maximum(np.array(solution.row_dual), 0.0)
        return float(self._solver.getInfo().objective_function_value), np.array(solution.col_value), duals
