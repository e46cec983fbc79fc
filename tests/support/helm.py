"""A real helm on the charts of this repository."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from support.kubectl import binary

__all__ = ["CHARTS", "ChartError", "by_name", "helm", "rendered"]

CHARTS = Path(__file__).resolve().parents[2] / "deploy" / "helm"
Json = dict[str, Any]


class ChartError(Exception):
    """Helm refused; the text is what it said."""


def helm(*arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Run helm with a home of its own and give back what it printed."""
    with tempfile.TemporaryDirectory() as home:
        known = {"HOME": home, "PATH": "/usr/bin:/bin", **(environment or {})}
        ended = subprocess.run(
            [binary("helm"), *arguments], env=known, capture_output=True, text=True, timeout=120, check=False
        )
    if ended.returncode:
        raise ChartError(ended.stderr)
    return ended.stdout


def rendered(
    values: Mapping[str, Any] | None = None,
    *,
    chart: str = "dovetail",
    release: str = "karpenter",
    namespace: str = "kube-system",
    apis: tuple[str, ...] = (),
) -> list[Json]:
    """The objects a chart makes of these values; settings.clusterName is given unless it is."""
    given = dict(values or {})
    if chart == "dovetail" and not _named(given):
        given["settings"] = {**given.get("settings", {}), "clusterName": "test-cluster"}
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(given, file)
        file.flush()
        served = [f"--api-versions={each}" for each in apis]
        out = helm("template", release, str(CHARTS / chart), "-n", namespace, "-f", file.name, *served)
    return [document for document in yaml.safe_load_all(out) if document]


def _named(values: Mapping[str, Any]) -> bool:
    return "clusterName" in values.get("settings", {}) or values.get("provider") == "kwok"


def by_name(objects: list[Json], kind: str, name: str) -> Json:
    """The one object of this kind and name."""
    (found,) = (each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name)
    return found
