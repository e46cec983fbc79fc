"""Spend limits: how much of each is in use, its hours today, its month, and who is held."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from dovetail.api.spend_limit import (
    MonthSpend,
    SpendLimit,
    find_month,
    find_window,
    read_dollars,
    read_time_zone,
)
from dovetail.picture import Picture, SeenSpend
from dovetail.scheduling.spend_report import SpendLine
from dovetail.web.chart import ChartPath, WebChart
from dovetail.web.page import (
    Cell,
    Fact,
    WebPage,
    WebTable,
    format_count,
    number_cell,
    price_cell,
    prose_cell,
    share_cell,
    text_cell,
    word_cell,
)

__all__ = ["build_spend_page"]

LIMITS = (
    ("limit", "Limit"),
    ("share", "In use"),
    ("spent", "$/h spent"),
    ("ordered", "$/h ordered"),
    ("hourly", "$/h allowed"),
    ("window", "Window"),
    ("mode", "Mode"),
    ("nodes", "Nodes"),
    ("mostNodes", "Nodes allowed"),
    ("month", "Month"),
    ("monthShare", "Of the month"),
    ("monthSpent", "$ spent"),
    ("projected", "$ at its end"),
    ("monthly", "$ allowed"),
    ("held", "Held pods"),
    ("state", "State"),
)
HELD = (("pod", "Pod"), ("limit", "Limit"), ("since", "Pending since"), ("why", "Why"))
# From this share on a limit deserves a look, as the alert has it.
NEARLY = 0.8
# Windows open and close by the minute; a chart of a day shows quarters of an hour.
QUARTER, DAY = timedelta(minutes=15), timedelta(days=1)
# So many limits have charts; the table has all of them.
MOST_CHARTS = 12


def build_spend_page(picture: Picture) -> WebPage:
    """Every limit as a bar, the limits' hours and months as lines, and the pods that are held."""
    seen = picture.spend
    if not seen.lines:
        told = "There is no SpendLimit here, or the controller does not follow them (SPEND_LIMITS)."
        return WebPage("Spend limits", told)
    limits = {each.name: each for each in seen.limits}
    held = sorted({name for line in seen.lines if not line.warns for name in line.held})
    full = [line.limit for line in seen.lines if line.held and not line.warns]
    sentence = (
        f"{', '.join(full)}: {format_count(len(held), 'pod')} held." if full else "No limit holds a pod."
    )
    ordered = sorted(seen.lines, key=lambda line: (-(line.share or 0.0), line.limit))
    return WebPage(
        "Spend limits",
        sentence,
        facts=tuple(_list_facts(ordered[0], held)),
        tables=(
            WebTable("limits", "Limits", LIMITS, tuple(_build_row(each, limits) for each in ordered), ""),
            WebTable("held", "Held pods", HELD, tuple(_list_held(picture, ordered)), "No pod is held."),
        ),
        charts=tuple(_list_charts(picture.now, ordered, limits, seen)),
        remarks=() if seen.limits else ("Windows and months are known of a live cluster alone.",),
    )


def _list_facts(tightest: SpendLine, held: list[str]) -> Iterator[Fact]:
    if tightest.share is not None:
        yield Fact("tightest", f"Tightest: {tightest.limit}", share_cell(tightest.share, full=NEARLY))
    yield Fact("held", "Held pods", number_cell(len(held), tone="bad" if held else ""))


def _build_row(line: SpendLine, limits: dict[str, SpendLimit]) -> tuple[Cell, ...]:
    limit = limits.get(line.limit)
    month = (limit.status.month if limit is not None else None) or MonthSpend()
    monthly = read_dollars(limit.spec.monthly if limit is not None else None)
    spent = read_dollars(month.spent or None)
    used = spent / monthly if spent is not None and monthly else None
    return (
        text_cell(line.limit),
        share_cell(line.share, full=NEARLY),
        price_cell(line.spent, 2),
        price_cell(line.in_flight, 2),
        _build_dollars(line.hourly),
        text_cell(line.window or None),
        text_cell("Warn" if line.warns else "Enforce"),
        number_cell(line.nodes),
        number_cell(line.most_nodes) if line.most_nodes is not None else text_cell(None),
        text_cell(month.of or None),
        share_cell(used, full=NEARLY),
        _build_dollars(spent),
        _build_dollars(read_dollars(month.projected or None)),
        _build_dollars(monthly),
        number_cell(len(line.held), tone="bad" if line.held and not line.warns else ""),
        _build_state(line),
    )


def _build_state(line: SpendLine) -> Cell:
    if line.problem:
        return prose_cell(f"cannot be read: {line.problem}", tone="bad")
    if line.unpriced:
        return prose_cell(f"nobody knows the price of {', '.join(line.unpriced)}", tone="warn")
    if line.held:
        return word_cell("would hold" if line.warns else "holds", "warn" if line.warns else "bad")
    return word_cell("has room", "good")


def _build_dollars(amount: float | None) -> Cell:
    return text_cell(None) if amount is None else price_cell(amount, 2)


def _list_held(picture: Picture, lines: list[SpendLine]) -> Iterator[tuple[Cell, ...]]:
    snapshot = picture.snapshot
    pods = {pod.full_name: pod for pod in (*snapshot.pods, *snapshot.moving)}
    for line in lines:
        for name in line.held:
            pod = pods.get(name)
            created = pod.metadata.creation_timestamp if pod is not None else None
            would = f"would be held by SpendLimit {line.limit}, which only warns" if line.warns else ""
            yield (
                text_cell(name, link=f"pods/{name}" if pod is not None else ""),
                text_cell(line.limit),
                text_cell(created.isoformat(" ", "seconds") if created else None),
                prose_cell(would or picture.plan.deferred.get(name, line.told)),
            )


def _list_charts(
    now: datetime, lines: list[SpendLine], limits: dict[str, SpendLimit], seen: SeenSpend
) -> Iterator[WebChart]:
    for line in [each for each in lines if each.limit in limits and not each.problem][:MOST_CHARTS]:
        limit = limits[line.limit]
        if limit.spec.windows and line.hourly is not None:
            yield _draw_day(now, line, limit)
        if limit.status.month is not None:
            yield _draw_month(now, limit, limit.status.month, seen)


def _draw_day(now: datetime, line: SpendLine, limit: SpendLimit) -> WebChart:
    """What the limit allows by the hour today, on its own clocks, and what is in use now."""
    zone = read_time_zone(limit.spec.time_zone)
    begins = now.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0).astimezone(UTC)
    allowed: list[tuple[datetime, float]] = []
    for number in range(DAY // QUARTER + 1):
        at = (begins + QUARTER * number).astimezone(zone)
        window = find_window(limit.spec, at.astimezone(UTC))
        text = window.hourly if window is not None and window.hourly is not None else limit.spec.hourly
        dollars = read_dollars(text)
        if dollars is not None:
            if allowed and allowed[-1][1] != dollars:
                allowed.append((at, allowed[-1][1]))
            allowed.append((at, dollars))
    used = line.spent + line.in_flight
    today = tuple((at.astimezone(zone), used) for at in (begins, begins + DAY))
    paths = (ChartPath("allowed", tuple(allowed)), ChartPath("spent and ordered now", today, dashed=True))
    told = f"{line.limit}: dollars an hour today ({limit.spec.time_zone or 'UTC'})"
    return WebChart(f"day-{line.limit}", told, paths)


def _draw_month(now: datetime, limit: SpendLimit, month: MonthSpend, seen: SeenSpend) -> WebChart:
    """The month as it was counted, and how it ends at the rate of the last day."""
    until = month.until or now
    _, begins, ends = find_month(until, read_time_zone(limit.spec.time_zone))
    created = limit.metadata.creation_timestamp
    counted = {max(begins, created) if created is not None else begins: 0.0}
    counted |= {at: dollars for at, dollars in seen.points.get(limit.name, ()) if begins <= at < until}
    spent = read_dollars(month.spent) or 0.0
    counted[until] = spent
    paths = [ChartPath("spent", tuple(sorted(counted.items())))]
    projected = read_dollars(month.projected)
    if projected is not None:
        paths.append(ChartPath("projected", ((until, spent), (ends, projected)), dashed=True))
    monthly = read_dollars(limit.spec.monthly)
    if monthly is not None:
        paths.append(ChartPath("allowed", ((begins, monthly), (ends, monthly)), dashed=True))
    return WebChart(f"month-{limit.name}", f"{limit.name}: dollars of {month.of}", tuple(paths))
