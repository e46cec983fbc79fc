"""The guide lists every key, and the concept names metrics that exist."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from dovetail.bus.config import ADVANCED, ADVANCED_VARIABLE, FIELDS, KEYS, read_config
from dovetail.bus.ports import METRICS

DOCS = Path(__file__).parents[3] / "docs"
GUIDE = (DOCS / "guides" / "multi-cluster-bus.md").read_text(encoding="utf-8")
CONCEPT = (DOCS / "concepts" / "interruption-bus.md").read_text(encoding="utf-8")


def test_the_guide_lists_every_key_and_no_other() -> None:
    listed = re.findall(r"^\| `([A-Za-z0-9.]+)` \| `(DOVETAIL_BUS_[A-Z0-9_]+)` \|", GUIDE, re.MULTILINE)
    keys = [(key.path, key.variable) for key in KEYS] + [(ADVANCED, ADVANCED_VARIABLE)]
    assert listed == keys + [(key.path, key.variable) for key in FIELDS]
    assert len(keys) <= 20


def test_the_guides_configuration_is_good() -> None:
    text = re.search(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    assert text is not None
    config = read_config(msgspec.yaml.decode(text[1]), {})
    assert (len(config.registry), len(config.accounts)) == (1, 2)


def test_alarms_are_about_metrics_that_exist() -> None:
    alarms = CONCEPT.partition("## Alarms worth having")[2].partition("\n## ")[0]
    named = re.findall(r"`([a-z_]+_(?:total|seconds))", alarms)
    assert named
    assert set(named) <= set(METRICS)
