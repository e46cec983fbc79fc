"""A real terraform on the modules that need no provider."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["MODULES", "TerraformError", "outputs", "terraform"]

MODULES = Path(__file__).resolve().parents[2] / "deploy" / "terraform"
Json = dict[str, Any]


class TerraformError(Exception):
    """Terraform refused; the text is what it said."""


def terraform(binary: str, *arguments: str, at: Path) -> str:
    """Run terraform with nobody's configuration but its own, and give back what it printed."""
    quiet = {"TF_CLI_CONFIG_FILE": os.devnull, "TF_IN_AUTOMATION": "1", "CHECKPOINT_DISABLE": "1"}
    known = {"PATH": os.environ["PATH"], "HOME": str(at), **quiet}
    ended = subprocess.run(
        [binary, *arguments], cwd=at, env=known, capture_output=True, text=True, timeout=240, check=False
    )
    if ended.returncode:
        raise TerraformError(ended.stdout + ended.stderr)
    return ended.stdout


def outputs(binary: str, module: str, variables: Mapping[str, Any], at: Path) -> Json:
    """What a module without a provider comes to."""
    said = {"m": {"source": str(MODULES / module), **variables}}
    (at / "main.tf.json").write_text(json.dumps({"module": said, "output": {"m": {"value": "${module.m}"}}}))
    terraform(binary, "init", "-input=false", "-no-color", at=at)
    terraform(binary, "apply", "-auto-approve", "-input=false", "-no-color", at=at)
    found: Json = json.loads(terraform(binary, "output", "-json", at=at))["m"]["value"]
    return found
