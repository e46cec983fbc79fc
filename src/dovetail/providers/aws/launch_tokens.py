"""Client tokens of fleets: EC2 carries out one request for a token, whoever sends it and however often.

Claims alike share a fleet, and the next process may gather them otherwise than the last one did. So a token
does not name the claims of one request: it names what claims that may share a fleet have in common, and the
number of the attempt.

    group      cluster, owner, creation time, generation and requirements, the same for every process
    attempt    goes on only when EC2 is known to have used the token up: by an answer, or by refusing the
               token for other parameters; after a lost answer the same token is sent again

One attempt of a group at a time. Then a request of an earlier leader that is still on its way has the token
that the next leader must use up before it can use another, and only one of the two is carried out.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from hashlib import sha256
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim

__all__ = ["TOKEN_USED", "LaunchAttempts", "launch_group"]

# EC2's answer to a token it knows with other parameters.
TOKEN_USED: Final = "IdempotentParameterMismatch"
GROUPS_KEPT: Final = 4096
LENGTH: Final = 32


def launch_group(claim: NodeClaim, cluster: str) -> str:
    """The name of all claims that may be launched together with this one, the same in every process."""
    owner = next((each.uid for each in claim.metadata.owner_references), "")
    created = claim.metadata.creation_timestamp
    told = (
        cluster,
        owner or claim.labels.get(labels.NODEPOOL) or claim.uid,
        claim.metadata.generation,
        "" if created is None else created.isoformat(),
        sorted(msgspec.json.encode(each).decode() for each in claim.spec.requirements),
    )
    return sha256(msgspec.json.encode(told)).hexdigest()[:LENGTH]


class LaunchAttempts:
    """The number of the next attempt of each group, as far as this process knows.

    `refused` counts how often EC2 knew a token already: whoever asked before that must look for the instances
    of the earlier request first.
    """

    def __init__(self) -> None:
        self._next: OrderedDict[str, int] = OrderedDict()
        self._refused: OrderedDict[str, int] = OrderedDict()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def find_lock(self, group: str) -> asyncio.Lock:
        """One attempt of a group at a time."""
        return self._turns.setdefault(group, asyncio.Lock())

    def next_token(self, group: str) -> str:
        """The token of the group's next attempt, of at most 64 characters."""
        return f"{group}-{self._next.get(group, 0)}"

    def count_refused(self, group: str) -> int:
        return self._refused.get(group, 0)

    def mark_used(self, group: str, *, refused: bool = False) -> None:
        """EC2 has used the token up: the next attempt has another."""
        _increment_count(self._next, group)
        if refused:
            _increment_count(self._refused, group)


def _increment_count(counts: OrderedDict[str, int], group: str) -> None:
    counts[group] = counts.pop(group, 0) + 1
    if len(counts) > GROUPS_KEPT:
        counts.popitem(last=False)
