"""Room already paid for comes first: fill running nodes one by one, several ways at once."""

from __future__ import annotations

import numpy as np

from dovetail.scheduling.packing.batch import Running
from dovetail.scheduling.packing.fill import fill, tilted
from dovetail.scheduling.packing.hosts import Hosts
from dovetail.scheduling.packing.problem import Bools, Floats, Ints, Problem
from dovetail.scheduling.packing.realise import Filled
from dovetail.scheduling.packing.scopes import Scope

__all__ = ["fill_running"]

_WAYS = 16


def fill_running(
    scope: Scope,
    running: Running,
    nodes: Ints,
    takes: Bools,
    worth: Floats,
    hosts: Hosts,
    rng: np.random.Generator,
) -> tuple[dict[int, dict[int, int]], Ints]:
    """Pods by group for each node, and the pods of each group that are left. `takes` is class x node."""
    members = scope.members()
    problem = scope.problem
    left = problem.count.copy()
    cap = problem.cap()
    drive = tilted(problem, worth)
    weights = np.exp(rng.normal(0.0, 0.8, (_WAYS, problem.request.shape[1])))
    placed: dict[int, dict[int, int]] = {}
    for at, node in enumerate(nodes.tolist()):
        useful = takes[:, at] & (left > 0) & (problem.request <= running.room[node]).all(axis=1)
        if not useful.any():
            continue
        room = np.maximum(running.room[node], 0.0)
        counts = _fullest(problem, room, useful, drive, worth, left, cap, weights)
        filled = Filled(-1, hosts.state(running.counted.get(node, ()), running.owned.get(node, ())))
        for index in np.flatnonzero(counts).tolist():
            taken = members.take(index, int(counts[index]), filled.state if scope.ruled[index] else None)
            filled.add(taken)
            left[index] -= sum(pods for _, pods in taken)
        if filled.pods:
            placed[node] = filled.pods
    rest = scope.count.copy()
    for pods in placed.values():
        for group, n in pods.items():
            rest[group] -= n
    return placed, rest


def _fullest(
    problem: Problem,
    room: Floats,
    useful: Bools,
    drive: Floats,
    worth: Floats,
    left: Ints,
    cap: Ints,
    weights: Floats,
) -> Ints:
    """The most worth this room can hold, of several fills."""
    one = Problem(
        problem.request,
        left,
        room[None, :],
        np.ones(1),
        useful[:, None],
        problem.family,
        problem.limit,
    )
    counts = fill(one, np.zeros(len(weights), np.int64), weights, drive, left, cap)
    return np.asarray(counts[int((counts @ worth).argmax())])
