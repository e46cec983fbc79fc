"""The documentation as a site: it builds without a warning, and no link of it is broken."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return folder


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {value for name, value in attrs if name in ("href", "src") and value}


def links(page: Path) -> set[str]:
    parser = _Links()
    parser.feed(page.read_text(encoding="utf-8"))
    return {each.partition("#")[0].partition("?")[0] for each in parser.found} - {""}


def test_every_page_is_in_the_site_and_in_its_navigation(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")]
    start = links(site / "index.html")

    assert [str(page) for page in pages if not (site / page).exists()] == []
    assert [str(page) for page in pages if str(page) not in start | {"index.html"}] == []


def test_no_link_of_the_site_is_broken(site: Path) -> None:
    broken = [
        f"{page.relative_to(site)}: {link}"
        for page in site.rglob("*.html")
        if page.name != "404.html"
        for link in links(page)
        if not re.match(r"[a-z]+:", link) and not (page.parent / link).exists()
    ]

    assert broken == []


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    html = (site / "index.html").read_text(encoding="utf-8")

    fetched = re.findall(r"<(?:script|img|link)[^>]+(?:src|href)=\"(https?://[^\"]+)", html)
    assert fetched == []


def test_tables_and_code_are_rendered_as_such(site: Path) -> None:
    kinds = (site / "reference" / "crds.html").read_text(encoding="utf-8")
    guide = (site / "guides" / "observability.html").read_text(encoding="utf-8")

    assert kinds.count("<table>") > 7
    assert "<code>spec.template.spec.requirements[].key</code>" in kinds
    assert "| --- |" not in kinds + guide
    assert 'class="highlight"' in guide
