"""``dovetail version``: which Dovetail this is."""

from __future__ import annotations

import platform

from dovetail import __version__
from dovetail.cli.views.output import Output, OutputOption, print_structured, print_text


def version(output: OutputOption = Output.table) -> None:
    """Print the version."""
    if output is Output.table:
        print_text(f"dovetail {__version__}\n")
        return
    print_structured({"dovetail": __version__, "python": platform.python_version()}, output)
