"""Write deploy/crds from the records in dovetail.api: `make crds`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from dovetail.api.crds import PROVIDER_APIS, build_manifests, build_own_manifests, build_zonal_manifest

DEPLOY = Path(__file__).resolve().parent.parent / "deploy" / "crds"
_HEADER = "# Generated from src/dovetail/api by `make crds`; do not edit.\n"


class _Plain(yaml.SafeDumper):
    """No anchors: every CRD reads on its own."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def files() -> dict[str, str]:
    """Every file's text, by its path below deploy/crds."""
    folders = {flavour: build_manifests(flavour) for flavour in PROVIDER_APIS}
    folders |= {"own": build_own_manifests(), "zonal": (build_zonal_manifest(),)}
    return {
        f"{folder}/{crd['spec']['group']}_{crd['spec']['names']['plural']}.yaml": _text(crd)
        for folder, crds in folders.items()
        for crd in crds
    }


def _text(crd: dict[str, Any]) -> str:
    return _HEADER + yaml.dump(crd, Dumper=_Plain, sort_keys=True, width=110, allow_unicode=True)


def main() -> None:
    wanted = files()
    for path, text in wanted.items():
        target = DEPLOY / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    for stale in DEPLOY.glob("*/*.yaml"):
        if stale.relative_to(DEPLOY).as_posix() not in wanted:
            stale.unlink()
    print(f"wrote {len(wanted)} files below {DEPLOY.name}/")


if __name__ == "__main__":
    main()
