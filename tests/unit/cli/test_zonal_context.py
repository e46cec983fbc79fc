"""`zonal-shift` takes the context of a kubeconfig by either spelling, as every command takes `--context`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.commands import dovetail


@pytest.mark.parametrize("flag", ["--context", "--kube-context"])
def test_both_spellings_name_the_context(tmp_path: Path, flag: str) -> None:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
        "current-context": "here",
    }
    file = tmp_path / "config"
    file.write_text(json.dumps(document))

    ended = dovetail("zonal-shift", "status", "--kubeconfig", str(file), flag, "elsewhere")

    assert ended.code != 0
    assert "elsewhere" in ended.err
    assert "127.0.0.1" not in ended.err, "the current context was asked instead"
