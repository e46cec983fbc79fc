"""dovetail crds: definitions that kubectl can apply, printed or written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dovetail.api.manifests import parse_manifests
from support.commands import dovetail

CORE = {
    "nodepools.karpenter.sh",
    "nodeclaims.karpenter.sh",
    "nodeoverlays.karpenter.sh",
    "capacitybuffers.autoscaling.x-k8s.io",
}
CLASS = {"aws": "ec2nodeclasses.karpenter.k8s.aws", "kwok": "kwoknodeclasses.karpenter.kwok.sh"}


@pytest.mark.parametrize("flavour", CLASS)
@pytest.mark.parametrize("output", ["yaml", "json"])
def test_the_definitions_of_a_flavour_are_printed(flavour: str, output: str) -> None:
    ended = dovetail("crds", "--flavour", flavour, "-o", output)
    found = parse_manifests(ended.out, "crds")
    assert (ended.code, ended.err, found.complaints) == (0, "", ())
    assert {document.name for document in found.documents} == CORE | {CLASS[flavour]}
    assert {document.kind for document in found.documents} == {"CustomResourceDefinition"}


def test_the_cloud_is_aws_unless_said_otherwise() -> None:
    assert dovetail("crds").out == dovetail("crds", "--flavour", "aws").out


def test_one_file_is_written_for_each(tmp_path: Path) -> None:
    ended = dovetail("crds", "--output-dir", str(tmp_path / "crds"), "-o", "json")
    assert (ended.code, ended.out) == (0, "")
    written = {
        path.name: json.loads(path.read_text(encoding="utf-8")) for path in (tmp_path / "crds").iterdir()
    }
    assert written["karpenter.sh_nodepools.json"]["metadata"]["name"] == "nodepools.karpenter.sh"
    assert len(written) == 5


def test_a_directory_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    ended = dovetail("crds", "--output-dir", str(tmp_path / "file"))
    assert ended.code == 1
    assert ended.err.startswith(f"dovetail: writing {tmp_path / 'file'}")
    assert ended.err.count("\n") == 1


def test_an_unknown_flavour_is_misuse() -> None:
    assert dovetail("crds", "--flavour", "gcp").code == 2
