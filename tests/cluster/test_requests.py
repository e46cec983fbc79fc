"""The embedded server answers as the real one does: codes, reasons, details, objects and events."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from support.two_servers import Script, both

HERE = Path(__file__).parent


def _beside(name: str) -> Any:
    """A module of this folder, which is no package."""
    spec = importlib.util.spec_from_file_location(f"cluster_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPTS: dict[str, Script] = {**_beside("scripts").SCRIPTS, **_beside("workloads").WORKLOADS}


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Where two answers part, one line each."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        found = []
        for key in sorted({*ours, *theirs}):
            found += differences(ours.get(key), theirs.get(key), f"{path}.{key}")
        return found
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [
            line
            for i, pair in enumerate(zip(ours, theirs, strict=True))
            for line in differences(*pair, f"{path}[{i}]")
        ]
    if ours == theirs:
        return []
    return [f"{path}: ours {json.dumps(ours)[:300]}, real {json.dumps(theirs)[:300]}"]


@pytest.mark.parametrize("name", SCRIPTS)
async def test_both_servers_answer_alike(name: str, kubeconfig: Path) -> None:
    ours, theirs = await both(kubeconfig, SCRIPTS[name])
    found: list[str] = []
    for mine, other in zip(ours, theirs, strict=True):
        lines = differences(mine, other)
        found += [f"{mine.get('asked') or mine.get('watched')} {line}" for line in lines]
    assert not found, "\n" + "\n".join(found)
