"""Build the interruption bus's Lambda package: a zip with the handler and what it imports, and nothing else.

What goes in is found by importing the handler in a fresh interpreter; botocore comes with the Lambda runtime.
The same sources give the same bytes. Compiled modules go along, since a function cannot keep its own.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from py_compile import PycInvalidationMode
from py_compile import compile as compiled
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
TARGET = ROOT / "build" / "lambda" / "interruption-bus.zip"
HANDLER = "dovetail.bus.handler.lambda_handler"
ENTRANCES = ("dovetail.bus.handler", "dovetail.aws.slim")
# What the runtime has, beside the standard library.
THERE = {
    "botocore",
    "boto3",
    "urllib3",
    "jmespath",
    "dateutil",
    "six",
    "s3transfer",
    "certifi",
    "awscrt",
    "brotli",
}
LONG_AGO = (2020, 1, 1, 0, 0, 0)

PROBE = """
import json, sys
before = set(sys.modules)
for name in {entrances!r}:
    __import__(name)
ours = {{name: module.__file__ for name, module in sys.modules.items()
        if name.split(".")[0] == "dovetail" and getattr(module, "__file__", None)}}
others = sorted({{name.split(".")[0] for name in set(sys.modules) - before}} - set(sys.stdlib_module_names))
print(json.dumps([ours, others]))
"""


def contents() -> tuple[dict[str, Path], list[str]]:
    """The package's files by their names in the zip, and the foreign packages they import."""
    program = PROBE.format(entrances=ENTRANCES)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    ours, others = json.loads(ended.stdout)
    files = {str(Path(file).relative_to(SOURCE)): Path(file) for file in ours.values()}
    return files, [name for name in others if name != "dovetail" and not name.startswith("_")]


def build(target: Path = TARGET) -> Path:
    """Write the zip; a foreign package that the runtime does not have is a mistake."""
    files, others = contents()
    strangers = sorted(set(others) - THERE)
    if strangers:
        raise SystemExit(f"the handler imports {', '.join(strangers)}, which Lambda does not have")
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as package,
        TemporaryDirectory() as scratch,
    ):
        for name, path in sorted(files.items()):
            _add(package, name, path.read_bytes())
            cached = importlib.util.cache_from_source(name)
            made = Path(scratch) / "module.pyc"
            compiled(
                str(path),
                str(made),
                f"/var/task/{name}",
                True,
                invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
            )
            _add(package, cached, made.read_bytes())
    return target


def _add(package: zipfile.ZipFile, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name, LONG_AGO)
    info.external_attr, info.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
    package.writestr(info, data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=TARGET)
    target = build(parser.parse_args().output.resolve())
    size, digest = target.stat().st_size, hashlib.sha256(target.read_bytes()).hexdigest()
    with zipfile.ZipFile(target) as package:
        count = sum(name.endswith(".py") for name in package.namelist())
    print(f"{target}: {count} modules, {size / 1024:.0f} KiB, sha256 {digest[:16]}…; handler {HANDLER}")


if __name__ == "__main__":
    main()
