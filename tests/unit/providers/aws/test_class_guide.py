"""The guide to node classes names every reason a class can have, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from dovetail.api import conditions, reasons

ROOT = Path(__file__).parents[4]
GUIDE = ROOT / "docs" / "guides" / "node-classes.md"


def test_the_guide_names_every_condition_and_reason_of_a_class() -> None:
    source = (ROOT / "src" / "dovetail" / "api" / "reasons.py").read_text(encoding="utf-8")
    of_classes = source.partition("# EC2NodeClass\n")[2]
    written = set(re.findall(r'Final = "(\w+)"', of_classes))
    assert reasons.USER_DATA_INVALID in written
    rows = re.findall(
        r"^\| (?:`(\w+)`)? ?\| (?:`(\w+)`)? ?\|", GUIDE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {reason for _, reason in rows if reason} == written
    assert {kind for kind, _ in rows if kind} == set(conditions.EC2_NODECLASS.dependents)
