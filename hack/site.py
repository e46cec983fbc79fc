"""What MkDocs needs help with: links out of docs/, and pages nobody put in the navigation.

The pages are read in the repository as well, where links lead to the source. In the site such a link leads to
a copy of the file, kept below `source/`; a link to a folder is only its text there.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
COPIES = "source"


def target(page: str, link: str) -> str:
    """The path in the repository that a page's link leads to."""
    return posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))


def rewritten(markdown: str, page: str) -> str:
    """A page's text with links that stay within the site."""

    def link(found: re.Match[str]) -> str:
        path = target(page, found[2])
        if (ROOT / path).is_dir():
            return found[1]
        if path.startswith("docs/"):
            return found[0]
        return f"[{found[1]}]({posixpath.relpath(f'{COPIES}/{path}.txt', posixpath.dirname(page) or '.')})"

    return LINK.sub(link, markdown)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages of a folder that the navigation does not name to the end of its section."""
    named = set(_named(config.nav))
    for section in config.nav or ():
        for pages in section.values() if isinstance(section, dict) else ():
            if isinstance(pages, list) and pages:
                folder = Path(config.docs_dir) / Path(next(_named(pages[0]))).parent
                found = sorted(f"{folder.name}/{path.name}" for path in folder.glob("*.md"))
                pages += [path for path in found if path not in named]
    return config


def _named(nav: Any) -> Any:
    match nav:
        case str():
            yield nav
        case dict():
            for inside in nav.values():
                yield from _named(inside)
        case list():
            for inside in nav:
                yield from _named(inside)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Copy every file of the repository that a page links to."""
    linked = {
        path
        for page in files.documentation_pages()
        for _, link, _ in LINK.findall(page.content_string)
        if not (path := target(page.src_uri, link)).startswith("docs/") and (ROOT / path).is_file()
    }
    for path in sorted(linked):
        files.append(File.generated(config, f"{COPIES}/{path}.txt", abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return rewritten(markdown, page.file.src_uri)
