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


def test_what_builds_it_is_pinned_to_one_version_everywhere() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (version,) = re.findall(r"^UV_VERSION := ([0-9.]+)$", makefile, re.MULTILINE)

    assert f"ARG UV_VERSION={version}" in RECIPE
    installs = [line for line in (makefile + RECIPE).splitlines() if re.search(r"pip install\b", line)]
    assert len(installs) == 2
    assert all("uv==$" in line for line in installs)


def test_make_builds_on_a_base_by_its_digest() -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nimage:")[2].partition("\n\n")[0]

    assert "RepoDigests" in recipe
    assert "--build-arg BASE=$$base" in recipe
    assert "controller.image.digest" in recipe


def test_the_wheel_that_is_built_in_it_finds_the_chart_it_brings_along() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    for source in build["targets"]["wheel"]["force-include"]:
        assert f"COPY {source} ./{source}" in RECIPE
