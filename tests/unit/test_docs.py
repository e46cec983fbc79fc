"""Documentation that cannot drift: pages match the code, links lead somewhere, examples work."""

from __future__ import annotations

import html
import json
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail import errors
from dovetail.cli.main import COMMANDS
from dovetail.cli.views import output
from dovetail.settings import SETTINGS
from support.commands import dovetail, process

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md"), ROOT / "hack" / "README.md"]
)
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
LEGACY = sorted((ROOT / "examples" / "legacy").glob("*.yaml"))


def page(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def rows(text: str) -> list[list[str]]:
    """The cells of every table row, without headings and rulers."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    ruled = [index for index, row in enumerate(cells) if set(row[0]) == {"-"}]
    return [row for index, row in enumerate(cells) if index not in ruled and index + 1 not in ruled]


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    """Every page made from the code, made in a process that knows nothing of these tests."""
    program = "import json, runpy; print(json.dumps(runpy.run_path('hack/write_docs.py')['pages']()))"
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=600, check=True
    )
    pages: dict[str, str] = json.loads(ended.stdout)
    return pages


@pytest.mark.parametrize(
    "name",
    [
        *("cli.md", "conditions.md", "crds.md", "events.md", "logs.md", "metrics.md", "settings.md"),
        "decision.schema.json",
    ],
)
def test_a_generated_page_matches_the_code(name: str, generated: dict[str, str]) -> None:
    assert generated[name] == page(f"docs/reference/{name}"), "run `make docs` and commit what it wrote"


def test_the_reference_names_metrics_and_events_that_dashboards_and_people_know() -> None:
    metrics, events = page("docs/reference/metrics.md"), page("docs/reference/events.md")
    assert all(f"`karpenter_{name}`" in metrics for name in ("nodeclaims_created_total", "nodepools_usage"))
    assert all(f"`{name}`" in events for name in ("FailedScheduling", "Nominated", "Unconsolidatable"))


def test_the_reference_names_every_command_and_setting() -> None:
    assert all(f"## dovetail {name}" in page("docs/reference/cli.md") for name in COMMANDS)
    settings = page("docs/reference/settings.md")
    assert all(f"`{each.variable}`" in settings and f"`{each.flag}`" in settings for each in SETTINGS)


def test_the_reference_names_every_error_and_what_it_is_a_kind_of() -> None:
    described = {row[0].strip("`"): row[1].strip("`") for row in rows(page("docs/reference/errors.md"))}
    real = {
        name: (value.__bases__[0].__name__ if value is not errors.DovetailError else "")
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.DovetailError)
    }
    assert described == real


def test_the_reference_names_every_exit_code() -> None:
    described = {int(row[0]) for row in rows(page("docs/reference/exit-codes.md"))}
    ours = {output.FINE, output.COMPLAINTS, output.MISUSE, output.LEFT_OUT, output.INTERNAL}
    assert described == ours | {output.BROKEN_PIPE, 130}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    # Expressions have brackets too; a link's text may be code, its target never is.
    text = re.sub(r"`[^`\n]*`", "", path.read_text(encoding="utf-8"))
    links = re.findall(r"\]\((?!https?://)([^)#]+)", text)
    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_in_the_docs_exists(path: Path) -> None:
    called = re.findall(r"(?:\$ |`|\| )dovetail ([a-z][a-z-]*)", path.read_text(encoding="utf-8"))
    assert set(called) <= set(COMMANDS)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_valid(path: Path) -> None:
    ended = dovetail("validate", "-f", str(path))
    assert (ended.code, ": error: " in ended.out) == (0, False), ended.out


@pytest.mark.parametrize("path", LEGACY, ids=lambda path: path.name)
def test_every_example_of_old_converts_into_something_valid(path: Path) -> None:
    made = dovetail("convert", "-f", str(path), "--cluster-name", "my-cluster")
    ended = dovetail("validate", "-f", "-", stdin=made.out.encode())
    assert (made.code, ended.code) == (0, 0), made.err + ended.out


def test_the_console_lines_of_the_readme_work() -> None:
    lines = re.findall(r"^\$ dovetail ([^#|\n]+)", page("README.md"), re.MULTILINE)
    ended = {line.strip(): process(*shlex.split(line), cwd=ROOT) for line in lines}
    assert len(ended) == 7
    assert {line: end.err for line, end in ended.items() if end.code} == {}


def test_every_example_is_listed() -> None:
    listed = {row[0].strip("`") for row in rows(page("examples/README.md"))}
    folders = {f"{path.name}/" for path in (ROOT / "examples").iterdir() if path.is_dir()}
    assert {path.name for path in EXAMPLES} | folders == listed


def test_the_glossary_is_in_order_and_means_one_thing_by_each_word() -> None:
    table = rows(page("docs/glossary.md").partition("## Nouns of the code")[0])
    words = [row[0] for row in table]
    assert words == sorted(words, key=str.lower)
    assert len(words) == len(set(words))
    forbidden = {word.strip() for row in table for word in row[2].split(",")}
    assert not forbidden & set(words)


def test_every_program_in_hack_is_listed() -> None:
    listed = [row[0].strip("`") for row in rows(page("hack/README.md"))]
    programs = {path.name for path in (ROOT / "hack").iterdir()} - {"README.md", "__pycache__"}
    assert set(listed) == programs
    assert len(listed) == len(programs)


def test_every_row_of_the_compatibility_page_takes_a_side() -> None:
    written = page("docs/compatibility.md").partition("<!-- upstream suite")[0]
    sides = {row[1] for row in rows(written)}
    assert all(side.startswith(("same", "different", "not yet")) for side in sides)
    assert {"same", "different on purpose"} <= sides


def test_contributing_names_every_target_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*##", page("Makefile"), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)`", page("CONTRIBUTING.md")))
    assert named == targets


def test_each_walk_of_the_tour_has_at_most_ten_hops_and_leads_from_file_to_file() -> None:
    tour = page("docs/tour.md").split("\n## ")
    walks = [[row for row in rows(part) if row[0].isdigit()] for part in tour]
    walks = [walk for walk in walks if walk]
    assert len(walks) == 2
    for walk in walks:
        assert [row[0] for row in walk] == [str(hop) for hop in range(1, len(walk) + 1)]
        assert len(walk) <= 10
        files = [re.findall(r"\]\((\.\./src/[^)]+\.py)\)", row[1]) for row in walk]
        assert all(len(found) == 1 for found in files)
        assert len({found[0] for found in files}) == len(walk), "a walk does not come back to a file"


def test_every_file_and_name_of_the_tour_is_there() -> None:
    for row in rows(page("docs/tour.md")):
        for link in re.findall(r"\]\((\.\./src/[^)]+)\)", " ".join(row)):
            text = (DOCS / link).read_text(encoding="utf-8")
            if row[0].isdigit():
                names = re.findall(r"\w+", row[3])
                assert [name for name in names if not re.search(rf"(class|def) {name}\b", text)] == []


def test_the_index_leads_to_every_page() -> None:
    linked = {
        (DOCS / link).resolve() for link in re.findall(r"\]\(([a-z0-9/-]+\.md)\)", page("docs/index.md"))
    }
    missing = {path for path in DOCS.rglob("*.md") if path.name != "index.md"} - linked
    assert not missing, "add a line to docs/index.md for each"


def test_measured_numbers_are_those_that_were_kept() -> None:
    chart = runpy.run_path(str(ROOT / "hack" / "chart_growth.py"))
    assert chart["page"](page("docs/benchmarks.md")) == page("docs/benchmarks.md")
    assert chart["readme"](page("README.md")) == page("README.md")
    assert chart["picture"]() == page("docs/images/growth.svg")


def test_the_readme_tells_the_story_of_its_picture() -> None:
    told = re.search(r"```text\n(.*?)```", page("README.md"), re.DOTALL)
    assert told is not None
    drawn = re.findall(r"<text[^>]*>([^<]*)</text>", page("docs/images/demo.svg"))
    letters = re.sub(r"\s", "", html.unescape("".join(drawn)))
    assert all(re.sub(r"\s", "", line) in letters for line in told[1].splitlines())


def test_the_demo_ends_well() -> None:
    ended = subprocess.run(
        [sys.executable, str(ROOT / "hack" / "demo.py")],
        capture_output=True,
        text=True,
        timeout=900,  # it takes seconds; only a demo that hangs meets this, however busy the machine is
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    assert "Manifests that are right" in ended.stdout
    assert "empty nodes were drained, their instances terminated and forgotten" in ended.stdout


def kept_lines(whose: str) -> dict[str, dict[str, Any]]:
    lines = page(f"docs/guides/log/{whose}.jsonl").splitlines()
    return {line["message"]: line for line in map(json.loads, lines)}


def test_the_log_has_karpenters_messages_levels_and_keys_in_karpenters_order() -> None:
    """Both logs are of the same story, the other one of upstream's own controller."""
    ours, theirs = kept_lines("dovetail"), kept_lines("karpenter")
    assert len(theirs) == 10
    # Its build had no revision; its earlier releases had the other two.
    more = {"commit", "command-id", "reason"}
    for message, line in theirs.items():
        keys = [key for key in ours[message] if key not in more]
        if message == "initialized nodeclaim" and "Node" not in line:
            keys.remove("Node")  # its own first line of a node that registers and is ready in one visit
        assert (ours[message]["level"], keys) == (line["level"], list(line)), message


def test_the_page_of_the_log_shows_the_lines_that_are_kept() -> None:
    text = page("docs/guides/log.md")
    for whose in ("dovetail", "karpenter"):
        for line in kept_lines(whose).values():
            line.pop("said")
            assert json.dumps(line, separators=(",", ":")) in text
