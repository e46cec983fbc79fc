"""What came of a spec, and the table of all of them that the documentation shows."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

PASS, FAIL, KILLED = "pass", "FAIL", "killed"
BEGIN, END = "<!-- upstream suite: made by make test-upstream -->", "<!-- end of upstream suite -->"


@dataclass(frozen=True)
class SpecRun:
    """One run of one spec: seconds by the clock, the controller's processor seconds and peak memory."""

    id: str
    name: str
    verdict: str
    seconds: float
    cpu: float
    peak_mb: float
    message: str = ""

    def __str__(self) -> str:
        numbers = f"{self.seconds:7.1f}s  cpu {self.cpu:6.2f}s  peak {self.peak_mb:5.0f}MB"
        said = f"\n      {self.message.splitlines()[0][:160]}" if self.message else ""
        return f"{self.id:<5} {self.verdict:<6} {numbers}  {self.name}{said}"


def save_run(run: SpecRun, file: Path) -> None:
    with file.open("a") as lines:
        lines.write(json.dumps(asdict(run)) + "\n")


def read_runs(file: Path) -> list[SpecRun]:
    return [SpecRun(**json.loads(line)) for line in file.read_text().splitlines()]


def read_report(text: str) -> tuple[str, float, str]:
    """The verdict, the seconds and what was said, of the one spec that a ginkgo report tells of."""
    reports = json.loads(text)[0]["SpecReports"]
    ran = [each for each in reports if each["State"] not in ("skipped", "pending")]
    its = [each for each in ran if each["LeafNodeType"] == "It"]
    bad = [each for each in ran if each["State"] != "passed"]
    said = "; ".join(each.get("Failure", {}).get("Message", each["State"]) for each in bad)
    verdict = PASS if its and not bad else FAIL
    return verdict, sum(each["RunTime"] for each in its) / 1e9, said


def summed_up(runs: list[SpecRun]) -> str:
    """One line for all runs."""
    passed = sum(run.verdict == PASS for run in runs)
    cpu, peak = sum(run.cpu for run in runs), max((run.peak_mb for run in runs), default=0.0)
    return f"{passed} of {len(runs)} runs pass, {cpu:.0f} CPU seconds, highest peak {peak:.0f} MB"


def as_table(runs: list[SpecRun], *, who: str, when: str) -> str:
    """The section of the documentation: every spec with its verdicts and the medians of its runs."""
    by_id: dict[str, list[SpecRun]] = {}
    for run in runs:
        by_id.setdefault(run.id, []).append(run)
    always = sum(all(run.verdict == PASS for run in each) for each in by_id.values())
    times = min(len(each) for each in by_id.values())
    lines = [
        f"{who}, {when}: **{always} of {len(by_id)}** specs passed every time, each run {times} "
        f"{'time' if times == 1 else 'times'}. Seconds, processor seconds and memory are of the controller,",
        "medians over the runs, with several clusters side by side on one machine.",
        "",
        "| id | spec | passed | s | CPU s | MB |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(_row(each) for each in by_id.values())])


def _row(runs: list[SpecRun]) -> str:
    passed = sum(run.verdict == PASS for run in runs)
    verdict = f"{passed}/{len(runs)}" if passed == len(runs) else f"**{passed}/{len(runs)}**"
    seconds, cpu, peak = (
        statistics.median(getattr(run, column) for run in runs) for column in ("seconds", "cpu", "peak_mb")
    )
    name = runs[0].name.replace("|", "\\|")
    return f"| {runs[0].id} | {name} | {verdict} | {seconds:.0f} | {cpu:.1f} | {peak:.0f} |"


def with_table(page: str, table: str) -> str:
    """The page with the table between its marks."""
    if BEGIN not in page or END not in page:
        raise ValueError(f"the page has no marks {BEGIN} and {END}")
    before, rest = page.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    return f"{before}{BEGIN}\n{table}\n{END}{after}"
