"""Two folders of rendered manifests, and the change that leads from the one to the other."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from dovetail.api.core import HorizontalPodAutoscaler, LimitRange, PodTemplateObject
from dovetail.api.manifests import Document, Severity
from dovetail.cli.views.files import read_manifests
from dovetail.cli.views.output import format_count, print_note
from dovetail.cli.views.world_files import list_errors
from dovetail.errors import BadInput
from dovetail.state.changed_pods import DeletedObject, WorldChange
from dovetail.state.offline import KINDS, OfflineCluster
from dovetail.state.workload_pods import Owner

__all__ = ["ReviewedChange", "compare_folders"]

HOOK = "helm.sh/hook"
WORKLOADS = ("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet")
# Objects that count for others, and are taken along even where they stay as they are.
BESIDE = (HorizontalPodAutoscaler, LimitRange, PodTemplateObject)


@dataclass(frozen=True, slots=True)
class ReviewedChange:
    """What differs between two sides; None where nothing does. `class_hashes` are those of the base."""

    change: WorldChange | None
    class_hashes: dict[str, str]
    remarks: tuple[str, ...] = ()


def compare_folders(base: str, head: str) -> ReviewedChange:
    """The change from one folder of rendered manifests to another; BadInput says what cannot be read."""
    remarks: list[str] = []
    before, after = _read_side(base, remarks), _read_side(head, remarks)
    changed = {key for key, each in after.items() if key not in before or before[key].value != each.value}
    gone = [each for key, each in before.items() if key not in after]
    skipped = Counter(each.kind for key, each in after.items() if key in changed and not _is_known(each))
    skipped.update(each.kind for each in gone if not _is_known(each))
    if skipped:
        listed = ", ".join(f"{count} {kind}" for kind, count in sorted(skipped.items()))
        remarks.append(f"what differs and does not matter to a plan was left out: {listed}")
    deleted = tuple(_name_deleted(each) for each in gone if _is_known(each))
    known = {key for key in changed if _is_known(after[key])}
    hashes = _build_cluster(
        each for each in before.values() if each.kind == "EC2NodeClass"
    ).list_class_hashes()
    if not known and not deleted:
        return ReviewedChange(None, hashes, tuple(dict.fromkeys(remarks)))
    known |= _list_scaled(after, known)
    beside = {kind.KIND.kind for kind in BESIDE}
    taken = [each for key, each in after.items() if key in known or each.kind in beside]
    objects = _build_cluster(taken).build_change().objects
    rolled = {
        _identify(after[key]) for key in known & before.keys() if _has_other_template(before[key], after[key])
    }
    change = WorldChange(objects, deleted, frozenset(rolled), missing_ok=True)
    return ReviewedChange(change, hashes, tuple(dict.fromkeys(remarks)))


def _read_side(folder: str, remarks: list[str]) -> dict[tuple[str, str, str, str], Document]:
    found = read_manifests([folder])
    wrong = [each for each in found.complaints if each.severity is Severity.ERROR]
    if wrong and os.path.isdir(folder) and not found.documents and all(each.line is None for each in wrong):
        return {}  # a folder without manifests is a side without objects
    wrong += [error for document in found.documents for error in list_errors(document)]
    if wrong:
        for complaint in wrong[1:]:
            print_note(str(complaint))
        raise BadInput(f"{wrong[0]} ({format_count(len(wrong), 'complaint')} in {folder})")
    objects: dict[tuple[str, str, str, str], Document] = {}
    for each in found.documents:
        metadata = each.value.get("metadata")
        annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
        if isinstance(annotations, dict) and HOOK in annotations:
            remarks.append(f"{each.kind} {each.name} is a Helm hook, and was left out")
        elif not each.name:
            remarks.append(f"{each.kind} in {each.source} has no name of its own, and was left out")
        else:
            objects[each.api_version.partition("/")[0], each.kind, _find_namespace(each), each.name] = each
    return objects


def _is_known(each: Document) -> bool:
    return (each.api_version, each.kind) in KINDS


def _find_namespace(each: Document) -> str:
    kind = KINDS.get((each.api_version, each.kind))
    return each.namespace or ("default" if kind is not None and kind.KIND.namespaced else "")


def _name_deleted(each: Document) -> DeletedObject:
    return DeletedObject(KINDS[each.api_version, each.kind], each.name, _find_namespace(each))


def _identify(each: Document) -> Owner:
    return each.kind, _find_namespace(each), each.name


def _build_cluster(documents: Iterable[Document]) -> OfflineCluster:
    found = OfflineCluster()
    for each in documents:
        try:
            found.add(each.api_version, each.kind, each.value)
        except (BadInput, ValueError) as error:
            raise BadInput(f"{each.source}:{each.line}: {error}") from error
    return found


def _list_scaled(
    after: dict[tuple[str, str, str, str], Document], changed: set[tuple[str, str, str, str]]
) -> set[tuple[str, str, str, str]]:
    """The workloads of autoscalers that changed: these say how many pods there are."""
    targets = set()
    for key in changed:
        if after[key].kind == HorizontalPodAutoscaler.KIND.kind:
            spec = after[key].value.get("spec")
            target = spec.get("scaleTargetRef") if isinstance(spec, dict) else None
            if isinstance(target, dict):
                targets.add((str(target.get("kind")), _find_namespace(after[key]), str(target.get("name"))))
    return {key for key, each in after.items() if _is_known(each) and _identify(each) in targets}


def _has_other_template(before: Document, after: Document) -> bool:
    """Whether the pods are made of another template, in whatever of it: a new image is a rollout, too."""
    if after.kind not in WORKLOADS:
        return False
    sides = [each.value.get("spec") for each in (before, after)]
    old, new = (side.get("template") if isinstance(side, dict) else None for side in sides)
    return old != new
