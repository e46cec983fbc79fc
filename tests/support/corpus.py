"""The manifests of tests/corpus, taken through a life with kubectl: created, applied, compared, deleted."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from support.kubectl import Kubectl

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "corpus"
# Folders in an order in which they can be applied, with what must be there first.
FOLDERS: dict[str, tuple[Path, ...]] = {
    "statefulsets": (),
    "ingress-controller": (),
    "ingress": (),
    "operators": (),
    "gateway": (),
    "operated": (CORPUS / "operators", CORPUS / "gateway"),
    "shop": (),
    "scaling": (),
    "policy": (),
    "pools": (ROOT / "deploy" / "crds" / "aws",),
}
REFUSED = sorted((CORPUS / "refused").glob("*.yaml"))


@dataclass
class Verdicts:
    """What kubectl said about a folder at each step, one line for each object; and the objects as created."""

    created: list[str] = field(default_factory=list)
    objects: str = ""
    applied: list[str] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)
    differing: int = 0
    difference: str = ""
    deleted: list[str] = field(default_factory=list)


def complaint(manifest: Path) -> str:
    """The field that a refused manifest says is complained about."""
    return manifest.read_text().splitlines()[0].removeprefix("# ")


async def install(kubectl: Kubectl, folder: str) -> None:
    """Apply the definitions a folder needs, and wait until they are served."""
    for needed in FOLDERS[folder]:
        await kubectl.ok("apply", "-f", str(needed))
    if FOLDERS[folder]:
        await kubectl.ok("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s", within=90)


async def live(kubectl: Kubectl, folder: str, namespace: str) -> Verdicts:
    """Take one folder through its life; its objects go to a namespace unless they name one."""
    files = ("-f", str(CORPUS / folder))
    inside: tuple[str, ...] = ()
    if folder != "ingress-controller":
        await kubectl.ok("create", "namespace", namespace)
        inside = ("-n", namespace)
    verdicts = Verdicts()
    verdicts.created = _lines(await kubectl.ok(*inside, "create", "--save-config", *files))
    verdicts.objects = await kubectl.ok(*inside, "get", *files, "-o", "json")
    verdicts.applied = _lines(await kubectl.ok(*inside, "apply", *files))
    compared = await kubectl.run(*inside, "diff", *files, within=90)
    verdicts.differing, verdicts.difference = compared.code, compared.out + compared.err
    written = await kubectl.ok(*inside, "get", *files, "-o", "yaml")
    verdicts.listed = _lines(await kubectl.ok(*inside, "apply", "-f", "-", stdin=written))
    # Where a namespace is among them, its objects may be gone before their turn. Definitions are waited for:
    # the next folder may need them anew.
    wait = f"--wait={str(folder in ('operators', 'gateway')).lower()}"
    gone = await kubectl.ok(*inside, "delete", wait, "--ignore-not-found", *files, within=180)
    verdicts.deleted = _lines(gone)
    return verdicts


def _lines(text: str) -> list[str]:
    return sorted(line.partition(" from ")[0] for line in text.splitlines())
