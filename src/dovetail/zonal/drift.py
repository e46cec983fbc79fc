"""A pool as its user wants it: what we edited for a shift is no reason to replace a node."""

from __future__ import annotations

from functools import lru_cache

from msgspec.structs import replace

from dovetail.api import codec, labels
from dovetail.api.nodepool import NodePool, Requirement
from dovetail.errors import BadInput
from dovetail.zonal.ledgers import pool_ledger_from
from dovetail.zonal.pools import Zones, wanted

__all__ = ["as_wanted"]

Entries = tuple[Requirement, ...]


def as_wanted(pool: NodePool) -> NodePool:
    """The pool without our edits; the pool itself where there are none, or none that can be told apart."""
    text = pool.annotations.get(labels.ZONE_LEDGER)
    entries = pool.spec.template.spec.requirements
    if text is None or entries is None:
        return pool
    inner = replace(pool.spec.template.spec, requirements=_without_ours(entries, text, pool.uid))
    return replace(pool, spec=replace(pool.spec, template=replace(pool.spec.template, spec=inner)))


# Asked for each claim of a pool, and the answer changes only with the pool.
@lru_cache(maxsize=256)
def _without_ours(entries: Entries, text: str, uid: str) -> Entries:
    try:
        ledger = pool_ledger_from(text, uid)
    except BadInput:
        return entries
    if ledger is None or ledger.uid != uid:
        return entries
    left, _ = wanted([codec.to_dict(each) for each in entries], ledger, Zones())
    return tuple(codec.convert(Requirement, each) for each in left)
