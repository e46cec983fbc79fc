"""What the image holds: a CycloneDX bill of materials and a list of licences. `make sbom`.

The closure of the project's own dependencies is walked in the installed environment, so versions are those
that were locked and tested.
"""

from __future__ import annotations

import argparse
import json
import re
import uuid
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"


def closure(name: str, extras: Iterable[str] = ()) -> dict[str, Distribution]:
    """The project and everything it needs, by normalised name."""
    found: dict[str, Distribution] = {}
    waiting: list[tuple[str, frozenset[str]]] = [(name, frozenset(extras))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        asked = waiting.pop()
        if asked in seen:
            continue
        seen.add(asked)
        try:
            found[normal(asked[0])] = package = distribution(asked[0])
        except PackageNotFoundError as error:
            raise SystemExit(f"{asked[0]} is needed but not installed; run make setup first") from error
        for text in package.requires or ():
            need = Requirement(text)
            wanted = asked[1] or {""}
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in wanted):
                waiting.append((need.name, frozenset(need.extras)))
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def licence(package: Distribution) -> str:
    """What a package says of its licence: the expression, the classifiers, or the old field."""
    meta = package.metadata
    if said := meta.get("License-Expression"):
        return said
    listed = [c.rpartition(" :: ")[2] for c in meta.get_all("Classifier", ()) if c.startswith("License ::")]
    first_line = (meta.get("License") or "").strip().splitlines()
    return "; ".join(each for each in listed if each != "OSI Approved") or (first_line or ["not stated"])[0]


def bill(packages: dict[str, Distribution]) -> dict[str, Any]:
    """The bill of materials. The same packages give the same bytes, serial number included."""
    listed = [_component(name, package) for name, package in sorted(packages.items()) if name != "dovetail"]
    own = packages["dovetail"]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(listed, sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": _component("dovetail", own) | {"type": "application"}},
        "components": listed,
    }


def _component(name: str, package: Distribution) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{package.version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": package.version,
        "purl": purl,
        "licenses": [{"license": {"name": licence(package)}}],
    }


def licences(packages: dict[str, Distribution]) -> str:
    rows = [
        f"| {name} | {package.version} | {licence(package)} |" for name, package in sorted(packages.items())
    ]
    return "# Licences\n\n| package | version | licence |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--extra", action="append", default=["aws"], help="an extra the image installs")
    packages = closure("dovetail", parser.parse_args().extra)
    BUILD.mkdir(exist_ok=True)
    (BUILD / "sbom.cdx.json").write_text(json.dumps(bill(packages), indent=2) + "\n", encoding="utf-8")
    (BUILD / "licences.md").write_text(licences(packages), encoding="utf-8")
    print(f"build/sbom.cdx.json and build/licences.md: {len(packages)} packages")


if __name__ == "__main__":
    main()
