"""``python -m dovetail`` is the same as ``dovetail``."""

from __future__ import annotations

from dovetail.cli.main import run

if __name__ == "__main__":
    run()
