"""The stylesheet: words stand out from what is behind them, by day and by night (WCAG AA)."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

CSS = (files("dovetail.web") / "static" / "style.css").read_text(encoding="utf-8")
PAIRS = [
    *(
        (ink, back)
        for ink in ("ink", "soft", "accent", "good", "warn", "bad", "quiet")
        for back in ("paper", "card")
    ),
    *((tone, f"{tone}-back") for tone in ("good", "warn", "bad", "quiet")),
    ("ink", "quiet-back"),
    ("soft", "quiet-back"),
]


def schemes() -> dict[str, dict[str, str]]:
    light, dark = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    named = re.compile(r"--([\w-]+): (#[0-9a-f]{6})").findall
    return {"light": dict(named(light)), "dark": dict(named(light)) | dict(named(dark))}


def luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("ink", "back"), PAIRS)
def test_words_can_be_read(scheme: str, ink: str, back: str) -> None:
    known = schemes()[scheme]
    high, low = sorted((luminance(known[ink]), luminance(known[back])), reverse=True)

    assert (high + 0.05) / (low + 0.05) >= 4.5


def test_nothing_is_fetched_from_elsewhere() -> None:
    script = (files("dovetail.web") / "static" / "live.js").read_text(encoding="utf-8")
    layout = (files("dovetail.web") / "templates" / "page.html").read_text(encoding="utf-8")

    for text in (CSS, script, layout):
        assert "//" not in re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
        assert "@import" not in text
        assert "eval(" not in text
