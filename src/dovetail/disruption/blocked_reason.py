"""The kinds of reason for which a node is blocked: one word each, for tables, programs and tests."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["PASSING", "BlockedReason"]


class BlockedReason(StrEnum):
    """Why a node is blocked. Add freely, never rename: programs read these."""

    UNSAID = "unsaid"
    # The node itself
    UNDER_WAY = "under-way"
    UNMANAGED = "unmanaged"
    NO_NODE = "no-node"
    UNINITIALIZED = "uninitialized"
    DELETING = "deleting"
    NOMINATED = "nominated"
    NODE_DO_NOT_DISRUPT = "node-do-not-disrupt"
    NO_POOL = "no-pool"
    SET_ASIDE = "set-aside"
    ZONAL_SHIFT = "zonal-shift"
    # Its pods
    POD_DO_NOT_DISRUPT = "pod-do-not-disrupt"
    PDB = "pdb"
    BUFFERED = "buffer"
    AWAITED = "awaited"
    # Its pool
    STATIC = "static"
    DISABLED = "consolidation-disabled"
    NOT_YET = "not-yet"
    BUDGET = "budget"
    RATE = "rate"
    PAUSED = "paused"
    BACKED_OFF = "backed-off"
    UNREADABLE = "unreadable-annotation"
    SPEND = "spend-limit"
    # The bargain
    NO_CHEAPER = "no-cheaper-place"
    SAVING = "saving-too-small"
    PAYBACK = "payback-too-long"
    RESTING = "moved-lately"
    UNBALANCED = "unbalanced"
    COMMITTED = "committed"


# These reasons pass by themselves; a drifted node that anything else blocks needs a person.
PASSING = frozenset(
    (
        BlockedReason.BUDGET,
        BlockedReason.RATE,
        BlockedReason.BACKED_OFF,
        BlockedReason.UNDER_WAY,
        BlockedReason.DELETING,
        BlockedReason.NOMINATED,
        BlockedReason.UNINITIALIZED,
        BlockedReason.NO_NODE,
        BlockedReason.UNSAID,
        BlockedReason.ZONAL_SHIFT,
        BlockedReason.SPEND,
    )
)
