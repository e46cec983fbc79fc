"""What every kit shares, read from the file `make iam` writes."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from dovetail_cdk.manifests import AddOnRefused

__all__ = ["Json", "chart", "document", "more", "shared", "template"]

Json = dict[str, Any]


@cache
def shared() -> Json:
    """Policies with ${placeholders}, event rules, and the sizes of queues."""
    found: Json = json.loads(files("dovetail_cdk").joinpath("policies.json").read_text(encoding="utf-8"))
    return found


@cache
def more() -> Json:
    """The same for the interruption bus and zonal shift."""
    found: Json = json.loads(files("dovetail_cdk").joinpath("documents.json").read_text(encoding="utf-8"))
    return found


def template(name: str) -> str:
    """The path of a template of this package."""
    return str(files("dovetail_cdk").joinpath(f"{name}.yaml"))


def chart() -> str:
    """The path of the chart `dovetail`: the one of this package, or of the repository it is worked on in."""
    packaged = Path(str(files("dovetail_cdk"))) / "chart"
    found = packaged if packaged.is_dir() else packaged.parents[2] / "deploy" / "helm" / "dovetail"
    if not found.is_dir():
        raise AddOnRefused(
            "this package came without its chart; say where one is, with `chart` or `repository`"
        )
    return str(found)


def document(statements: list[Json], **more: Any) -> str:
    """A policy as text, placeholders and all."""
    return json.dumps({"Version": "2012-10-17", **more, "Statement": statements})
