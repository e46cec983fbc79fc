"""A recording replayed for a person: surveyed, played under each variation and seed, and put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Literal, NamedTuple

from dovetail.cli.views.output import format_count, print_note, print_remark
from dovetail.cli.views.progress import watch_progress
from dovetail.cli.views.recordings import open_recordings, tell_missing
from dovetail.cli.views.variations import VariationParser
from dovetail.cli.views.worker_runs import play_in_processes, play_on_dask
from dovetail.errors import BadInput, Misconfigured
from dovetail.play.recorded_cloud import Assumption
from dovetail.play.replay_meter import ReplayBill
from dovetail.play.replay_report import KARPENTER, ReplayedVariation, ReplayReport, build_report
from dovetail.play.replay_sections import (
    RecordingSurvey,
    ReplaySection,
    ReplayTask,
    add_bills,
    cut_slices,
    play_section,
    survey_recording,
)
from dovetail.play.replaying import ReplayFacts, Variation

__all__ = ["ReplayChoices", "play_recording"]

# Under this much time nothing is said about money; under that much, only with a remark.
LEAST, LITTLE = timedelta(hours=1), timedelta(hours=6)
# Each variation is played under so many seeds, to see what chance does.
SEEDS = 5
OURS = "dovetail"


@dataclass(frozen=True, slots=True)
class ReplayChoices:
    """What a person asked for; `how` is the length of slices, the workers, and a Dask scheduler."""

    tried: tuple[str, ...] = ()
    vary: tuple[str, ...] = ()
    whose: Literal["recorded", "karpenter", "dovetail"] = "dovetail"
    seed: int = 1
    assume: Assumption = "observed"
    bounds: bool = False
    how: tuple[timedelta | None, int, str] = (None, 1, "")


class _Job(NamedTuple):
    """One task, and which column of the report it belongs to: variation, seed and assumption."""

    column: int
    seed: int
    assume: Assumption
    part: int
    task: ReplayTask


def play_recording(
    places: Sequence[str], begin: datetime | None, end: datetime | None, choices: ReplayChoices
) -> ReplayReport:
    """Replay what is recorded at these places; BadInput when it is too short to say anything."""
    survey = _survey(places, begin, end)
    length = survey.length
    if length < LEAST:
        minutes = format_count(round(length.total_seconds() / 60), "minute")
        raise BadInput(
            f"replaying {places[0]}: {minutes} are too short to say anything about money; at least 6 hours"
        )
    if length < LITTLE:
        print_remark(
            f"{length.total_seconds() / 3600:.1f} hours say little about a week; at least 6 are better"
        )
    variations, baseline = _list_variations(survey, choices)
    slices, workers, dask = choices.how
    sections = cut_slices(survey.sections, slices)
    # First the rules that were in force: without them nothing can be said about others.
    jobs = sorted(
        _list_jobs(sections, variations, choices), key=lambda job: variations[job.column].name != baseline
    )
    bills = _play_jobs(places, jobs, survey.facts, workers, dask)
    played = [
        found
        for column, variation in enumerate(variations)
        if (found := _put_together(variation, column, jobs, bills, choices)) is not None
    ]
    return build_report(survey, played, baseline, choices.seed, choices.assume)


def _survey(places: Sequence[str], begin: datetime | None, end: datetime | None) -> RecordingSurvey:
    with open_recordings(places) as reader:
        first, last = begin or reader.segments[0].head.began, end or reader.segments[-1].head.began
        with watch_progress(first, last) as tell:
            survey = survey_recording(reader, begin, end, tell)
        tell_missing(reader)
    if survey.stopped:
        raise KeyboardInterrupt
    if not survey.sections:
        raise BadInput(f"replaying {places[0]}: there are no two looks in this time")
    return survey


def _list_variations(survey: RecordingSurvey, choices: ReplayChoices) -> tuple[list[Variation], str]:
    """The columns after what was; and which of them has the rules that were in force."""
    if choices.whose == "recorded":
        if choices.tried or choices.vary:
            raise Misconfigured("--as recorded only adds up what was: nothing can be tried with it")
        return [], ""
    parser = VariationParser(survey, choices.whose)
    # A controller of ours decided, and not the way Karpenter does.
    ours = survey.decisions > 0 and survey.settings.get("PLANNER") != "one-by-one"
    found = [parser.build_plain(KARPENTER, "karpenter")]
    if ours or choices.whose == "dovetail":
        found.append(parser.build_plain(OURS, "dovetail"))
    tried = [parser.parse_with(text) for text in choices.tried]
    tried += [each for text in choices.vary for each in parser.parse_vary(text)]
    names = [each.name for each in (*found, *tried)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadInput(f'two variations are called "{twice}"; name one, as in --with other={twice}')
    return [*found, *tried], OURS if ours else KARPENTER


def _list_jobs(
    sections: Sequence[ReplaySection], variations: Sequence[Variation], choices: ReplayChoices
) -> Iterator[_Job]:
    for column, variation in enumerate(variations):
        runs: list[tuple[int, Assumption]] = [
            (choices.seed + number, choices.assume) for number in range(SEEDS)
        ]
        if choices.bounds:
            kinds: tuple[Assumption, ...] = ("optimistic", "observed", "pessimistic")
            runs += [(choices.seed, each) for each in kinds if each != choices.assume]
        for seed, assume in runs:
            for part, section in enumerate(sections):
                yield _Job(column, seed, assume, part, ReplayTask(section, variation, seed, assume))


def _put_together(
    variation: Variation,
    column: int,
    jobs: Sequence[_Job],
    bills: dict[int, ReplayBill],
    choices: ReplayChoices,
) -> ReplayedVariation | None:
    """A column of the report; None when its first seed was not played to its end."""
    runs: dict[tuple[int, Assumption], list[ReplayBill | None]] = {}
    for number, job in enumerate(jobs):
        if job.column == column:
            runs.setdefault((job.seed, job.assume), []).append(bills.get(number))
    whole = {
        key: add_bills([bill for bill in parts if bill is not None])
        for key, parts in runs.items()
        if all(bill is not None for bill in parts)
    }
    first = whole.get((choices.seed, choices.assume))
    if first is None:
        return None
    seeds = [bill for (_, assume), bill in whole.items() if assume == choices.assume]
    spans = [bill.dollars for (seed, _), bill in whole.items() if seed == choices.seed]
    return ReplayedVariation(
        variation.name,
        variation,
        first,
        tuple(bill.dollars for bill in seeds),
        tuple(bill.sum_days() for bill in seeds),
        (min(spans), max(spans)) if choices.bounds else None,
    )


def _play_jobs(
    places: Sequence[str], jobs: Sequence[_Job], facts: ReplayFacts, workers: int, dask: str
) -> dict[int, ReplayBill]:
    """The bills by the number of their job; fewer than all when a person ended it early."""
    if not jobs:
        return {}
    if dask or workers > 1:
        given = [(list(places), job.task, facts) for job in jobs]
        return play_on_dask(play_task, given, dask) if dask else play_in_processes(play_task, given, workers)
    done: dict[int, ReplayBill] = {}
    total = sum((job.task.section.length for job in jobs), timedelta())
    before = timedelta()
    for number, job in enumerate(jobs):
        section = job.task.section
        begin = section.counted - before
        with watch_progress(begin, begin + total) as tell:
            bill = play_section(partial(open_recordings, places), job.task, facts, tell)
        if bill is None:
            print_note(f"stopped early; {number} of {len(jobs)} runs were over")
            break
        done[number] = bill
        before += section.length
    return done


def play_task(places: Sequence[str], task: ReplayTask, facts: ReplayFacts) -> ReplayBill:
    """One task in a process of its own."""
    bill = play_section(partial(open_recordings, places), task, facts)
    assert bill is not None  # nobody there to end it early
    return bill
