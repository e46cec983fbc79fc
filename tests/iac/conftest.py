"""Tests of the deploy kit that need more than Python: helm installing, node for the CDK, terraform.

They run only when asked for: `make test-iac`.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from support.terraform import mirror

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Plain `pytest` passes by."""
    asked = any(Path(arg.split("::")[0]).resolve().is_relative_to(HERE) for arg in config.args)
    return None if asked else True


@pytest.fixture(scope="session")
def terraform() -> str:
    """The terraform on the PATH."""
    found = shutil.which("terraform")
    if found is None:
        pytest.fail("the Terraform modules are tested with terraform, and there is none on the PATH", False)
    return found


@pytest.fixture(scope="session")
def providers() -> Path:
    """A mirror with the providers of the Terraform modules in it."""
    found = mirror()
    if found is None:
        pytest.fail(
            "terraform validate, plan and apply need a mirror of the aws and helm providers, and there is "
            "none; build one with hack/terraform-mirror, or set DOVETAIL_TERRAFORM_MIRROR to one",
            pytrace=False,
        )
    return found


@pytest.fixture(scope="session")
def node() -> str:
    """The node on the PATH, which the CDK's constructs run in."""
    found = shutil.which("node")
    if found is None:
        pytest.fail(
            "the CDK constructs are tested with Node.js 20 or newer, and there is none on the PATH", False
        )
    os.environ["JSII_SILENCE_WARNING_DEPRECATED_NODE_VERSION"] = "1"
    os.environ["JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION"] = "1"
    return found
