"""A real terraform on the modules: those that need no provider, and the others with a mirror of providers."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["MODULES", "Root", "TerraformError", "mirror", "outputs", "terraform"]

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
MODULES = DEPLOY / "terraform"
# Where hack/terraform-mirror builds one, and where terraform itself looks for one.
MIRRORS = (
    Path.home() / ".cache" / "dovetail" / "tools" / "terraform-mirror",
    Path("/usr/share/terraform/providers"),
    Path("/usr/local/share/terraform/plugins"),
    Path.home() / ".terraform.d" / "plugins",
)
# The aws provider gives itself three minutes for a queue to go.
PATIENCE = 420
ACCOUNT, REGION = "111122223333", "us-west-2"
Json = dict[str, Any]


class TerraformError(Exception):
    """Terraform refused; the text is what it said."""


def terraform(binary: str, *arguments: str, at: Path, known: Mapping[str, str] | None = None) -> str:
    """Run terraform with nobody's configuration but its own, and give back what it printed."""
    quiet = {"TF_CLI_CONFIG_FILE": os.devnull, "TF_IN_AUTOMATION": "1", "CHECKPOINT_DISABLE": "1"}
    env = {"PATH": os.environ["PATH"], "HOME": str(at), **quiet, **(known or {})}
    try:
        ended = subprocess.run(
            [binary, *arguments],
            cwd=at,
            env=env,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TerraformError(f"{error}: {error.stdout!r}") from error
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


def mirror() -> Path | None:
    """A directory with the providers in it; None where this machine has none."""
    given = os.environ.get("DOVETAIL_TERRAFORM_MIRROR")
    places = [Path(given)] if given else MIRRORS
    return next((each for each in places if list(each.glob("*/hashicorp/aws"))), None)


class Root:
    """A root module in a folder of its own, before an AWS at a URL: what a person has who runs terraform."""

    def __init__(
        self, binary: str, providers: Path, at: Path, url: str = "http://127.0.0.1:1", account: str = ACCOUNT
    ) -> None:
        self.binary, self.providers, self.at, self.account = binary, providers, at, account
        # Keys of the simulation carry the account they are for.
        self.known = {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": f"AKIA{account}0000",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def of_module(self, module: str, variables: Mapping[str, Any]) -> None:
        """A root that is nothing but one module."""
        (self.at / "modules").symlink_to(MODULES)
        said = {"source": f"./modules/{module}", **variables}
        document = {"module": {"m": said}, "output": {"m": {"value": "${module.m}", "sensitive": True}}}
        (self.at / "main.tf.json").write_text(json.dumps(document))

    def of_example(self, example: Path) -> None:
        """An example as it is, beside copies of what it points to: init writes into its folder."""
        whole = self.at / "whole" / "deploy"
        shutil.copytree(DEPLOY / "terraform", whole / "terraform")
        (whole / "helm").symlink_to(DEPLOY / "helm")
        self.at = whole / "terraform" / example.relative_to(MODULES)

    def run(self, *arguments: str) -> str:
        return terraform(self.binary, *arguments, at=self.at, known=self.known)

    def init(self) -> None:
        self.run("init", "-input=false", "-no-color", f"-plugin-dir={self.providers}")

    def valid(self) -> list[Json]:
        """What terraform has to say against it, warnings too."""
        self.init()
        try:
            said = self.run("validate", "-json")
        except TerraformError as error:
            said = str(error)
        found: list[Json] = json.loads(said)["diagnostics"]
        return found

    async def apply(self) -> None:
        await asyncio.to_thread(self.run, "apply", "-auto-approve", "-input=false", "-no-color")

    async def destroy(self) -> str:
        return await asyncio.to_thread(self.run, "destroy", "-auto-approve", "-input=false", "-no-color")

    async def changes(self) -> dict[str, list[str]]:
        """What a plan would do now, by address."""
        await asyncio.to_thread(self.run, "plan", "-input=false", "-no-color", "-out=plan")
        told = json.loads(await asyncio.to_thread(self.run, "show", "-json", "plan"))
        return {
            each["address"]: each["change"]["actions"]
            for each in told.get("resource_changes", ())
            if each["change"]["actions"] not in (["no-op"], ["read"])
        }

    async def outputs(self) -> Json:
        told = json.loads(await asyncio.to_thread(self.run, "output", "-json"))
        return {name: each["value"] for name, each in told.items()}
