"""A change gives one answer, whatever form the world it is applied to has."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dovetail.app.cluster_source import SeenCluster
from dovetail.app.snapshot_file import encode_snapshot
from dovetail.cli.views.file_plans import FilePlanner
from dovetail.cli.views.world_files import WorldReader
from support.commands import dovetail
from support.random_changes import build_change, build_world

SEEDS = int(os.environ.get("DOVETAIL_CHANGES", "10"))


@pytest.mark.spec("VF-1")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_files_and_a_snapshot_of_the_same_world_give_the_same_answer(seed: int, tmp_path: Path) -> None:
    now, change, taken = (tmp_path / name for name in ("now.json", "change.json", "taken.json"))
    objects, deleted = build_change(seed)
    now.write_text(json.dumps(build_world(seed)))
    change.write_text(json.dumps(objects))
    reader = WorldReader()
    reader.read_files([str(now)])
    taken.write_bytes(encode_snapshot(SeenCluster(FilePlanner(reader, "", "", quick=True).build_situation())))
    asked = ["-o", "json"] + [word for name in deleted for word in ("--delete", name)]
    asked += ["--change", str(change)] if objects["items"] else []
    files = dovetail("plan", "-f", str(now), *asked)
    snapshot = dovetail("plan", "--snapshot", str(taken), *asked)
    assert files.code in (0, 3), files.err
    assert json.loads(files.out) == json.loads(snapshot.out), (files.err, snapshot.err)
    assert files.code == snapshot.code
