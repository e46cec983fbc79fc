"""What may share a host: which rules become caps for the packing, and the exact check when pods get names.

A rule names owners, who carry it, and members, whom it counts. It is judged by the finished node, in
whatever order its pods came: where an owner is, at most `limit` members may be, itself included; under
anti-affinity no member but itself.

    twin      owners and members are one group: at most `limit` of that group a node
    family    owners and members are the same groups: at most `limit` of them together a node
    crossed   anything else: nothing for the packing, all for the realiser
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.scheduling.packing.problem import MANY, Bools, Ints

__all__ = ["HostRule", "HostRules", "HostState"]


@dataclass(frozen=True, slots=True)
class HostRule:
    """One anti-affinity or spread over hosts; groups by index."""

    owners: frozenset[int]
    members: frozenset[int]
    limit: int = 1
    apart: bool = False  # anti-affinity


class HostRules:
    """The host rules of a batch, sorted into kinds."""

    def __init__(self, groups: int, rules: Sequence[HostRule]) -> None:
        self.twin: Ints = np.full(groups, MANY, np.int64)  # group: most of it on one node
        self.family: Ints = np.full(groups, -1, np.int64)
        self.limits: list[int] = []
        self.rules: list[HostRule] = []
        self._inside: list[int] = []  # rule as given -> index into `rules`, or -1 - group for a twin
        for rule in rules:
            self._classify_rule(rule)
        self.twin_limit: list[int] = self.twin.tolist()
        self.member_of: list[list[int]] = [[] for _ in range(groups)]
        # Per group, one bit a rule. Blocked where the count has reached the limit; where it is past it;
        # and where an owner is there and the limit reached, for those who only are counted.
        self.full, self.over, self.counted, self.owns = ([0] * groups for _ in range(4))
        self.apart = sum(1 << s for s, rule in enumerate(self.rules) if rule.apart)
        for s, rule in enumerate(self.rules):
            self._index_rule(s, rule)
        touched = [bool(f | o | c) for f, o, c in zip(self.full, self.over, self.counted, strict=True)]
        self.touched: Bools = np.array(touched, bool).reshape(groups)

    @property
    def crossed(self) -> bool:
        """Whether some rule is for the realiser alone."""
        return len(self.rules) > len(self.limits)

    def _index_rule(self, s: int, rule: HostRule) -> None:
        bit = 1 << s
        for group in rule.owners:
            self.owns[group] |= bit
            if rule.apart or group in rule.members:
                self.full[group] |= bit
            else:
                self.over[group] |= bit
        for group in rule.members:
            self.counted[group] |= bit
            self.member_of[group].append(s)

    def _classify_rule(self, rule: HostRule) -> None:
        if rule.owners == rule.members and len(rule.owners) == 1:
            (group,) = rule.owners
            self.twin[group] = min(int(self.twin[group]), rule.limit)
            self._inside.append(-1 - group)
            return
        self._inside.append(len(self.rules))
        self.rules.append(rule)
        members = list(rule.members)
        if rule.owners == rule.members and (self.family[members] < 0).all():
            self.family[members] = len(self.limits)
            self.limits.append(rule.limit)

    def build_state(self, counted: Sequence[tuple[int, int]] = (), owned: Sequence[int] = ()) -> HostState:
        """A host where pods already run: how many each rule counts, and which rules they carry."""
        state = HostState(self)
        for rule, pods in counted:
            inside = self._inside[rule]
            if inside >= 0:
                state.count_pods(inside, pods)
            else:
                state.own[-1 - inside] = state.own.get(-1 - inside, 0) + pods
        for rule in owned:
            if self._inside[rule] >= 0:
                state.owned |= 1 << self._inside[rule]
        return state


class HostState:
    """One node's view of the rules."""

    __slots__ = ("counts", "full", "hosts", "over", "own", "owned")

    def __init__(self, hosts: HostRules) -> None:
        self.hosts = hosts
        self.counts: dict[int, int] = {}
        self.full = 0  # rules whose count has reached the limit
        self.over = 0  # rules whose count is past it
        self.owned = 0  # rules some pod here carries
        self.own: dict[int, int] = {}  # pods of twin groups

    def allows_group(self, group: int) -> bool:
        """May one more pod of the group come here?"""
        hosts = self.hosts
        if hosts.full[group] & self.full or hosts.over[group] & self.over:
            return False
        if hosts.counted[group] & self.owned & (self.full | hosts.apart):
            return False
        return self.own.get(group, 0) < hosts.twin_limit[group]

    def add(self, group: int) -> None:
        hosts = self.hosts
        if hosts.twin_limit[group] < MANY:
            self.own[group] = self.own.get(group, 0) + 1
        self.owned |= hosts.owns[group]
        for s in hosts.member_of[group]:
            self.count_pods(s, 1)

    def count_pods(self, rule: int, pods: int) -> None:
        """Pods the rule counts, whoever they are."""
        have = self.counts[rule] = self.counts.get(rule, 0) + pods
        limit = 1 if self.hosts.rules[rule].apart else self.hosts.rules[rule].limit
        if have >= limit:
            self.full |= 1 << rule
        if have > limit:
            self.over |= 1 << rule
