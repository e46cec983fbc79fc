"""The image's recipe and its bill of materials."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "hack"))
import write_sbom  # type: ignore[import-not-found]  # noqa: E402  # hack is not a package

RECIPE = (ROOT / "deploy" / "image" / "Containerfile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_both_stages_start_from_the_base_that_can_be_pinned() -> None:
    assert re.findall(r"^FROM (\S+)", RECIPE, re.MULTILINE) == ["${BASE}", "${BASE}"]
    assert RECIPE.index("ARG BASE=") < RECIPE.index("FROM ")


def test_it_runs_as_the_user_the_chart_expects_and_locked() -> None:
    assert re.search(r"^USER 65532:65532$", RECIPE, re.MULTILINE)
    assert all("--frozen" in line for line in RECIPE.splitlines() if "uv sync" in line)
    assert f"ARG VERSION={PROJECT['version']}" in RECIPE
    assert 'ENTRYPOINT ["dovetail"]' in RECIPE


def test_what_it_copies_is_there() -> None:
    for line in re.findall(r"^COPY (?!--from)(.*)$", RECIPE, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source


def test_the_bill_names_everything_that_is_installed_and_its_licence() -> None:
    packages = write_sbom.closure("dovetail", ["aws"])
    bill = write_sbom.bill(packages)

    named = {each["name"] for each in bill["components"]}
    needed = {write_sbom.normal(Requirement(text).name) for text in PROJECT["dependencies"]}
    assert needed <= named
    assert {"boto3", "botocore", "multidict"} <= named
    assert not {"moto", "pytest", "aws-cdk-lib"} & named
    assert all(
        each["licenses"][0]["license"]["name"] not in ("", "not stated") for each in bill["components"]
    )
    assert write_sbom.bill(packages) == bill
    assert "| boto3 |" in write_sbom.licences(packages)
