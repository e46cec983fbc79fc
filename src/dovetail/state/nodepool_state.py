"""How many claims a static pool has, wants and may have: counted before the watch tells.

    Active ──► PendingDisruption ──► Deleting ──► gone
       └───────────────────────────────┘

Reservations are claims that are about to be created: they count against the limit until they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["NodePoolState"]


@dataclass
class _Account:
    active: set[str] = field(default_factory=set)
    pending: set[str] = field(default_factory=set)
    deleting: set[str] = field(default_factory=set)
    reserved: int = 0

    def drop_claim(self, claim: str) -> None:
        for names in (self.active, self.pending, self.deleting):
            names.discard(claim)


class NodePoolState:
    """One account per pool."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}

    def _find_account(self, pool: str) -> _Account:
        return self._accounts.setdefault(pool, _Account())

    def mark_active(self, pool: str, claim: str) -> None:
        account = self._find_account(pool)
        account.drop_claim(claim)
        account.active.add(claim)

    def update_claim(self, pool: str, claim: str) -> None:
        """The claim is there; one that was chosen for replacement stays chosen."""
        if claim not in self._find_account(pool).pending:
            self.mark_active(pool, claim)

    def mark_pending_disruption(self, pool: str, claim: str) -> None:
        """Chosen for replacement; it still serves until the replacement is there."""
        account = self._find_account(pool)
        account.drop_claim(claim)
        account.pending.add(claim)

    def mark_deleting(self, pool: str, claim: str) -> None:
        account = self._find_account(pool)
        account.drop_claim(claim)
        account.deleting.add(claim)

    def remove_claim(self, pool: str, claim: str) -> None:
        account = self._accounts.get(pool)
        if account is None:
            return
        account.drop_claim(claim)
        if not account.active and not account.pending and not account.deleting:
            # Reservations go too: whoever holds one is about to create a claim, or has failed to.
            del self._accounts[pool]

    def count_claims(self, pool: str) -> tuple[int, int, int]:
        """Active, pending disruption, deleting."""
        account = self._accounts.get(pool)
        if account is None:
            return 0, 0, 0
        return len(account.active), len(account.pending), len(account.deleting)

    def reserve_nodes(self, pool: str, limit: int | None, wanted: int) -> int:
        """How many of the wanted claims may be created now; they count from this moment."""
        account = self._find_account(pool)
        held = len(account.active) + len(account.pending) + len(account.deleting) + account.reserved
        free = wanted if limit is None else max(limit - held, 0)
        granted = max(min(wanted, free), 0)
        account.reserved += granted
        return granted

    def release_nodes(self, pool: str, count: int = 1) -> None:
        """A reserved claim was created, or could not be."""
        account = self._accounts.get(pool)
        if account is not None:
            account.reserved = max(account.reserved - count, 0)
