"""Build the Lambda packages: a zip with a handler and what it imports, and nothing else.

    interruption-bus   the router; our own modules alone
    zonal-shift        the reconciler of zonal shifts, with the foreign packages it needs

What goes in is found by importing the handler in a fresh interpreter; botocore comes with the Lambda runtime.
The same sources give the same bytes. Compiled modules go along, since a function cannot keep its own. Foreign
packages are those of this environment, so they fit its Python and machine; for another, fill a folder by
`pip install --target FOLDER --platform … --only-binary=:all: …` with what `--requirements` lists.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import platform
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from py_compile import PycInvalidationMode
from py_compile import compile as compiled
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
FOLDER = ROOT / "build" / "lambda"


@dataclass(frozen=True)
class Package:
    """One function: its handler, and whether foreign packages come along."""

    name: str
    handler: str
    whole: bool = False
    # The module of a handler that functions were deployed with before.
    older: tuple[str, ...] = ()

    @property
    def entrances(self) -> tuple[str, ...]:
        return self.handler.rpartition(".")[0], "dovetail.aws.slim", *self.older

    @property
    def target(self) -> Path:
        return FOLDER / f"{self.name}.zip"


BUS = Package("interruption-bus", "dovetail.bus.handler.lambda_handler")
ZONAL = Package(
    "zonal-shift",
    "dovetail.zonal.lambda_entry.lambda_handler",
    whole=True,
    older=("dovetail.runtime.function",),
)
PACKAGES = {each.name: each for each in (BUS, ZONAL)}
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
# What others import if it is there, and do without if it is not.
NOT_NEEDED = frozenset({"rich", "pygments", "colorama"})
# Parts of foreign packages that no function runs.
FOLDERS = ("/tests/", "/__pycache__/", "/include/", "/../")
ENDINGS = (".pyi", ".pxd", ".pyx", ".h", ".a", ".lib", ".pyc")
LONG_AGO = (2020, 1, 1, 0, 0, 0)

PROBE = """
import json, sys
for name in {without!r}:
    sys.modules[name] = None
before = set(sys.modules)
for name in {entrances!r}:
    __import__(name)
ours = {{name: module.__file__ for name, module in sys.modules.items()
        if name.split(".")[0] == "dovetail" and getattr(module, "__file__", None)}}
others = sorted({{name.split(".")[0] for name in set(sys.modules) - before}} - set(sys.stdlib_module_names))
print(json.dumps([ours, others]))
"""


def contents(package: Package = BUS) -> tuple[dict[str, Path], list[str]]:
    """The package's own files by their names in the zip, and the foreign packages they import."""
    program = PROBE.format(entrances=package.entrances, without=tuple(sorted(NOT_NEEDED)))
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    ours, others = json.loads(ended.stdout)
    files = {str(Path(file).relative_to(SOURCE)): Path(file) for file in ours.values()}
    files |= {
        str(path.relative_to(SOURCE)): path
        for folder in {file.parent for file in files.values()}
        for path in folder.iterdir()
        if package.whole and path.is_file() and path.suffix not in (".py", ".pyc")
    }
    known = set(metadata.packages_distributions())
    return files, [name for name in others if name != "dovetail" and name in known]


def distributions(names: Iterable[str]) -> dict[str, metadata.Distribution]:
    """The distributions that hold these modules and do not come with the runtime."""
    homes = metadata.packages_distributions()
    return {
        home: metadata.distribution(home)
        for name in sorted(set(names) - THERE - NOT_NEEDED)
        for home in homes[name]
    }


def foreign(names: Iterable[str], folder: Path | None = None) -> dict[str, Path]:
    """Files of foreign packages by their names in the zip: from a folder, or as they are installed here."""
    if folder is not None:
        found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    else:
        found = {
            str(file): Path(str(file.locate()))
            for each in distributions(names).values()
            for file in each.files or ()
        }
    return {
        name: path
        for name, path in found.items()
        if path.is_file() and not name.endswith(ENDINGS) and not any(each in f"/{name}" for each in FOLDERS)
    }


def build(target: Path | None = None, package: Package = BUS, folder: Path | None = None) -> Path:
    """Write the zip; a foreign package that neither it nor the runtime has is a mistake."""
    files, others = contents(package)
    strangers = sorted(set(others) - THERE)
    if strangers and not package.whole:
        raise SystemExit(f"the handler imports {', '.join(strangers)}, which Lambda does not have")
    if package.whole:
        files |= foreign(others, folder)
    target = target or package.target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=6 if package.whole else 9) as made,
        TemporaryDirectory() as scratch,
    ):
        for name, path in sorted(files.items()):
            _add(made, name, path.read_bytes())
            if name.startswith("dovetail/") and name.endswith(".py"):
                _add(made, importlib.util.cache_from_source(name), _compiled(name, path, scratch))
    return target


def _compiled(name: str, path: Path, scratch: str) -> bytes:
    made = Path(scratch) / "module.pyc"
    compiled(
        str(path),
        str(made),
        f"/var/task/{name}",
        True,
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
    )
    return made.read_bytes()


def _add(package: zipfile.ZipFile, name: str, data: bytes) -> None:
    info = zipfile.ZipInfo(name, LONG_AGO)
    info.external_attr, info.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
    package.writestr(info, data)


def main() -> None:
    parser = argparse.ArgumentParser(description="Build a Lambda package.")
    parser.add_argument("--function", choices=PACKAGES, default=BUS.name)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--packages", type=Path, help="a folder of foreign packages, for another runtime")
    parser.add_argument("--requirements", action="store_true", help="only list what such a folder must hold")
    given = parser.parse_args()
    package = PACKAGES[given.function]
    if given.requirements:
        for name, each in sorted(distributions(contents(package)[1]).items() if package.whole else ()):
            print(f"{name}=={each.version}")
        return
    told = build(given.output and given.output.resolve(), package, given.packages)
    size, digest = told.stat().st_size, hashlib.sha256(told.read_bytes()).hexdigest()
    with zipfile.ZipFile(told) as made:
        count = sum(name.startswith("dovetail/") and name.endswith(".py") for name in made.namelist())
    runtime = f"; for Python {sys.version_info.major}.{sys.version_info.minor} on {platform.machine()}"
    fits = runtime if package.whole and given.packages is None else ""
    print(f"{told}: {count} modules, {size / 1024:.0f} KiB, sha256 {digest[:16]}…", end="; ")
    print(f"handler {package.handler}{fits}")


if __name__ == "__main__":
    main()
