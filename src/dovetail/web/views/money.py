"""Money: what is committed, which nodes use it, what is lost, and what one more node costs now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import fsum

from dovetail.api import conditions, labels
from dovetail.api.commitment import CURRENT, FULL, PLANS, Commitment
from dovetail.picture import Picture
from dovetail.scheduling.bill import HOURS_A_MONTH, BillLine, PriceList, find_usage
from dovetail.scheduling.commitment_terms import CommitmentTerms
from dovetail.scheduling.commitments import CommitmentUse, Ledger, UsageKind
from dovetail.scheduling.model import state_node as states
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.web.page import (
    Cell,
    Fact,
    WebPage,
    WebTable,
    number_cell,
    price_cell,
    prose_cell,
    share_cell,
    text_cell,
    word_cell,
)
from dovetail.web.views.pools import link_pool

__all__ = ["build_money_page", "has_money"]

COMMITMENTS = (
    ("name", "Commitment"),
    ("kind", "Kind"),
    ("covers", "Pays for"),
    ("state", "State"),
    ("hourly", "$/h of ours"),
    ("used", "Used"),
    ("unused", "Lost $/h"),
    ("others", "By others $/h"),
    ("ends", "Ends"),
    ("why", "Why"),
)
USERS = (("commitment", "Commitment"), ("pool", "Pool"), ("nodes", "Nodes"), ("paid", "Paid $/h"))
COVERAGE = (
    ("pool", "Pool"),
    ("nodes", "Nodes"),
    ("onDemand", "On-demand"),
    ("listed", "Listed $/h"),
    ("paid", "Committed pays $/h"),
    ("effective", "Left to pay $/h"),
    ("coverage", "Covered on-demand"),
)
NEXT = (
    ("type", "Instance type"),
    ("zone", "Zone"),
    ("listed", "Listed $/h"),
    ("now", "One more costs now $/h"),
    ("paidBy", "Paid by"),
)
MOST_NEXT = 20
DUST = 1e-6
UNSEEN = (
    "What other accounts and Fargate use of a plan cannot be seen from here; spec.share says which part of a "
    "commitment is this cluster's."
)


def has_money(picture: Picture) -> bool:
    """Whether anything is known to be committed."""
    return bool(picture.commitments or picture.snapshot.commitments)


def build_money_page(picture: Picture) -> WebPage:
    """What is committed and what becomes of it."""
    return WebPage(
        "Money",
        _describe_money(picture),
        _build_facts(picture),
        (
            WebTable(
                "commitments",
                "Commitments",
                COMMITMENTS,
                tuple(_build_commitment_rows(picture)),
                "There is no Commitment; docs/guides/commitments.md tells how there come to be some.",
            ),
            WebTable(
                "users", "Used by", USERS, tuple(_build_user_rows(picture)), "No node uses a commitment."
            ),
            WebTable(
                "coverage", "By NodePool", COVERAGE, tuple(_build_pool_rows(picture)), "No node has a price."
            ),
            WebTable(
                "next",
                "One more node",
                NEXT,
                tuple(_build_next_rows(picture)),
                "No on-demand node runs whose like a commitment could pay for.",
            ),
        ),
        remarks=(UNSEEN,) if has_money(picture) else (),
    )


def _describe_money(picture: Picture) -> str:
    bill = picture.bill
    if not bill.committed:
        return "Nothing is committed: every node costs what the price list says."
    used = bill.committed - bill.unused
    lost = f"${bill.unused:,.2f} is lost" if bill.unused > DUST else "nothing is lost"
    return f"${bill.committed:,.2f} an hour is committed; nodes use ${used:,.2f} of it, and {lost}."


def _build_facts(picture: Picture) -> tuple[Fact, ...]:
    bill = picture.bill
    used = bill.committed - bill.unused
    share = used / bill.committed if bill.committed else None
    return (
        Fact("listed", "By the price list", price_cell(bill.listed, 2), "an hour"),
        Fact("committed", "Committed", price_cell(bill.committed, 2), "an hour, whatever runs"),
        Fact("used", "Used of it", share_cell(share), f"${used:,.2f} an hour"),
        Fact("unused", "Lost of it", price_cell(bill.unused, 2), _describe_month(bill.unused)),
        Fact("effective", "Left to pay", price_cell(bill.total - bill.committed, 2), "an hour, beside that"),
        Fact("total", "All together", price_cell(bill.total, 2), _describe_month(bill.total)),
    )


def _describe_month(hourly: float) -> str:
    return f"${hourly * HOURS_A_MONTH:,.0f} a month"


# Commitments


def _build_commitment_rows(picture: Picture) -> Iterator[tuple[Cell, ...]]:
    uses = {use.name: use for use in picture.bill.commitments}
    terms = {each.name: each for each in picture.snapshot.commitments}
    objects = {each.name: each for each in picture.commitments}
    for name in sorted(terms.keys() | objects.keys()):
        yield _build_commitment_row(picture, name, uses.get(name), terms.get(name), objects.get(name))


def _build_commitment_row(
    picture: Picture,
    name: str,
    use: CommitmentUse | None,
    terms: CommitmentTerms | None,
    stored: Commitment | None,
) -> tuple[Cell, ...]:
    state, why = _describe_state(picture, name, use, stored)
    kind = stored.spec.kind if stored is not None else terms.kind if terms is not None else ""
    ends = stored.spec.ends if stored is not None else None
    return (
        text_cell(name),
        text_cell(kind),
        text_cell(_describe_cover(terms, stored)),
        state,
        price_cell(use.hourly if use is not None else None),
        share_cell(use.used / use.hourly if use is not None and use.hourly else None),
        price_cell(use.unused if use is not None else None),
        price_cell(use.by_others if use is not None else None),
        Cell(ends.isoformat(), f"{ends:%Y-%m-%d %H:%M}") if ends is not None else text_cell(None),
        prose_cell(why),
    )


def _describe_state(
    picture: Picture, name: str, use: CommitmentUse | None, stored: Commitment | None
) -> tuple[Cell, str]:
    """A word for how it stands, and why where a person should see to it."""
    current = conditions.find_condition(stored, CURRENT) if stored is not None else None
    if current is not None and current.status != conditions.TRUE:
        return word_cell("not counted", "warn"), current.message or current.reason
    told = current.message if current is not None else ""
    if use is None:
        return word_cell("not counted", "quiet"), told
    full = stored is not None and conditions.is_true(stored, FULL)
    if full or (stored is None and name not in picture.snapshot.open_commitments):
        return word_cell("full", "good"), told
    return word_cell("open", ""), told


def _describe_cover(terms: CommitmentTerms | None, stored: Commitment | None) -> str:
    spec = stored.spec if stored is not None else None
    kind = spec.kind if spec is not None else terms.kind if terms is not None else ""
    family = spec.family if spec is not None else terms.family if terms is not None else ""
    where = spec.region if spec is not None else terms.region if terms is not None else ""
    if kind in PLANS:
        what = family or "every type"
        return f"{what} in {where}" if where else what
    instance = spec.instance_type if spec is not None else terms.instance_type if terms is not None else ""
    zone = spec.zone if spec is not None else terms.zone if terms is not None else ""
    count = f"{spec.count} × " if spec is not None and spec.count is not None else ""
    sizes = ", all sizes of it" if family else ""
    return f"{count}{instance} in {zone or where or 'every region'}{sizes}"


# Nodes


def _build_user_rows(picture: Picture) -> Iterator[tuple[Cell, ...]]:
    found: dict[tuple[str, str], list[float]] = {}
    for line in picture.bill.lines:
        if line.covered_by:
            found.setdefault((line.covered_by, line.pool), []).append(line.listed - line.effective)
    for (name, pool), paid in sorted(found.items()):
        yield text_cell(name), _link_pool(pool), number_cell(len(paid)), price_cell(fsum(paid))


def _build_pool_rows(picture: Picture) -> Iterator[tuple[Cell, ...]]:
    pools: dict[str, list[BillLine]] = {}
    for line in picture.bill.lines:
        pools.setdefault(line.pool, []).append(line)
    for pool, lines in sorted(pools.items()):
        bought = [line for line in lines if line.capacity_type == labels.ON_DEMAND]
        listed, paid = (
            fsum(line.listed for line in lines),
            fsum(line.listed - line.effective for line in lines),
        )
        instances = fsum(line.listed - line.extras for line in bought)
        yield (
            _link_pool(pool),
            number_cell(len(lines)),
            number_cell(len(bought)),
            price_cell(listed),
            price_cell(paid),
            price_cell(listed - paid),
            share_cell(paid / instances if instances else None),
        )


def _link_pool(pool: str) -> Cell:
    return text_cell(pool, link=link_pool(pool)) if pool else text_cell("of no NodePool")


def _build_next_rows(picture: Picture) -> Iterator[tuple[Cell, ...]]:
    """What one more of the likes that run would add to the bill."""
    usage = Counter(_list_usage(picture.snapshot))
    ledger = Ledger(picture.snapshot.commitments)
    before = ledger.apply_kinds(usage)
    shown = sorted(usage, key=lambda kind: (-usage[kind], kind))[:MOST_NEXT]
    for kind in sorted(shown):
        after = ledger.apply_kinds(usage + Counter({kind: 1}))
        now = max(0.0, kind.price - (after.saved - before.saved))
        yield (
            text_cell(kind.instance_type),
            text_cell(kind.zone),
            price_cell(kind.price),
            price_cell(now),
            text_cell(
                ", ".join(_find_payers(kind, before.kinds, after.kinds)) if now < kind.price - DUST else None
            ),
        )


def _list_usage(snapshot: Snapshot) -> Iterator[UsageKind]:
    """What commitments see of the nodes that run."""
    prices = PriceList.from_snapshot(snapshot)
    for state in snapshot.nodes:
        known = states.read_labels(state)
        bought = (
            prices.find_offering(states.read_pool_name(state), known) if states.is_managed(state) else None
        )
        usage = find_usage(known[labels.INSTANCE_TYPE], bought, known) if bought is not None else None
        if usage is not None:
            yield usage


def _find_payers(
    kind: UsageKind,
    before: Mapping[UsageKind, tuple[tuple[str, float], ...]],
    after: Mapping[UsageKind, tuple[tuple[str, float], ...]],
) -> list[str]:
    """The commitments that pay more for such instances once there is one more."""
    known = dict(before.get(kind, ()))
    return [name for name, amount in after.get(kind, ()) if amount > known.get(name, 0.0) + DUST]
