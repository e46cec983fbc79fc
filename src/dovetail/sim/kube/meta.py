"""Names, times and the rules every object's metadata obeys."""

from __future__ import annotations

import random
import re
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dovetail.api.schema.causes import Cause
from dovetail.sim.kube.selectors import is_label_value, is_qualified_name

if TYPE_CHECKING:
    from dovetail.sim.kube.types import TypeInfo

SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_PREFIX_LENGTH = 58
_ANNOTATION_BYTES = 256 * 1024

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
# The sentences people search the web for.
_CHARACTERS = "must consist of lower case alphanumeric characters"
_ENDS = "and must start and end with an alphanumeric character"
_USED = "regex used for validation is"
_SUBDOMAIN_RULE = (
    f"a lowercase RFC 1123 subdomain {_CHARACTERS}, '-' or '.', {_ENDS} (e.g. 'example.com', {_USED} "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_RULE = (
    f"a lowercase RFC 1123 label {_CHARACTERS} or '-', {_ENDS} (e.g. 'my-name',  or '123-abc', {_USED} "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_1035_RULE = (
    f"a DNS-1035 label {_CHARACTERS} or '-', start with an alphabetic character, and end with an "
    f"alphanumeric character (e.g. 'my-name',  or 'abc-123', {_USED} '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")

# What an update may not change; the old object's word counts.
KEPT = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "name")


def format_time(moment: datetime) -> str:
    """A time as metadata carries it: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(moment: datetime) -> str:
    """A time as leases and events carry it: UTC, microseconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def generate_uid(rng: random.Random) -> str:
    """A version 4 UUID from the given chance."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def generate_name(prefix: str, rng: random.Random) -> str:
    """A generateName made into a name."""
    return prefix[:_PREFIX_LENGTH] + "".join(rng.choices(SUFFIX_ALPHABET, k=5))


def find_name_problem(info: TypeInfo, name: str) -> str:
    """Why a name cannot be an object's of this type; empty if it can."""
    match info.resource:
        case "namespaces":
            fits, limit, rule = _LABEL.match(name), 63, _LABEL_RULE
        case "services":
            fits, limit, rule = _LABEL_1035.match(name), 63, _LABEL_1035_RULE
        case _ if info.group == "rbac.authorization.k8s.io":
            bad = name in (".", "..") or "/" in name or "%" in name
            return "may not be '.', '..' or contain '/' or '%'" if bad else ""
        case _:
            fits, limit, rule = _SUBDOMAIN.match(name), 253, _SUBDOMAIN_RULE
    if len(name) > limit:
        return f"must be no more than {limit} characters"
    return "" if fits else rule


def find_metadata_problem(metadata: Any) -> str:
    """Why a client's metadata cannot even be read; empty if it can."""
    if not isinstance(metadata, dict):
        return "metadata must be an object"
    for name in ("labels", "annotations"):
        value = metadata.get(name)
        if value is not None and not _is_text_map(value):
            return f"metadata.{name} must map strings to strings"
    for name in ("name", "generateName", "namespace", "uid", "resourceVersion"):
        if not isinstance(metadata.get(name, ""), str | None):
            return f"metadata.{name} must be a string"
    finalizers = metadata.get("finalizers") or []
    if not isinstance(finalizers, list) or not all(isinstance(each, str) for each in finalizers):
        return "metadata.finalizers must be a list of strings"
    owners = metadata.get("ownerReferences") or []
    if not isinstance(owners, list) or not all(isinstance(each, dict) for each in owners):
        return "metadata.ownerReferences must be a list of objects"
    fields = metadata.get("managedFields") or []
    if not isinstance(fields, list) or not all(isinstance(each, dict) for each in fields):
        return "metadata.managedFields must be a list of objects"
    return ""


def _is_text_map(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(v, str) for v in value.values())


def metadata_causes(info: TypeInfo, metadata: dict[str, Any]) -> list[Cause]:
    """What is wrong with the values in an object's metadata."""
    causes = []
    name = metadata.get("name", "")
    if problem := find_name_problem(info, name):
        causes.append(Cause("metadata.name", "FieldValueInvalid", f'Invalid value: "{name}": {problem}'))
    causes += labels_causes("metadata.labels", metadata.get("labels") or {})
    causes += _annotation_causes(metadata.get("annotations") or {})
    for finalizer in metadata.get("finalizers") or ():
        if not is_qualified_name(finalizer):
            text = f'Invalid value: "{finalizer}": name part must consist of alphanumeric characters'
            causes.append(Cause("metadata.finalizers", "FieldValueInvalid", text))
    return causes + _owner_causes(metadata.get("ownerReferences") or ())


def labels_causes(path: str, labels: dict[str, str]) -> list[Cause]:
    """What is wrong with a map of labels."""
    causes = []
    for key, value in labels.items():
        if not is_qualified_name(key):
            text = f'Invalid value: "{key}": name part must consist of alphanumeric characters'
            causes.append(Cause(path, "FieldValueInvalid", text))
        if not is_label_value(value):
            text = (
                f'Invalid value: "{value}": a valid label must be an empty string or consist of alphanumeric'
            )
            causes.append(Cause(path, "FieldValueInvalid", text))
    return causes


def _annotation_causes(annotations: dict[str, str]) -> list[Cause]:
    causes = [
        Cause("metadata.annotations", "FieldValueInvalid", f'Invalid value: "{key}": not a qualified name')
        for key in annotations
        if not is_qualified_name(key.lower())
    ]
    if sum(len(key) + len(value) for key, value in annotations.items()) > _ANNOTATION_BYTES:
        text = f"Too long: may not be more than {_ANNOTATION_BYTES} bytes"
        causes.append(Cause("metadata.annotations", "FieldValueTooLong", text))
    return causes


def _owner_causes(owners: Any) -> list[Cause]:
    causes = []
    for index, owner in enumerate(owners):
        for name in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(name) or not isinstance(owner[name], str):
                path = f"metadata.ownerReferences[{index}].{name}"
                causes.append(Cause(path, "FieldValueRequired", "Required value"))
    if sum(1 for owner in owners if owner.get("controller")) > 1:
        text = "Invalid value: only one reference can have Controller set to true"
        causes.append(Cause("metadata.ownerReferences", "FieldValueInvalid", text))
    return causes


def find_condition(obj: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """An object's condition of a type."""
    conditions: list[dict[str, Any]] = (obj.get("status") or {}).get("conditions") or []
    for each in conditions:
        if each.get("type") == kind:
            return each
    return None


def is_condition_true(obj: dict[str, Any], kind: str) -> bool:
    """Whether an object's condition of a type says True."""
    found = find_condition(obj, kind)
    return found is not None and found.get("status") == "True"


def with_condition(status: dict[str, Any], condition: dict[str, Any], now: str) -> dict[str, Any]:
    """A status with one condition set; its transition time moves only when it turns."""
    conditions = list(status.get("conditions") or ())
    place = next((i for i, each in enumerate(conditions) if each.get("type") == condition["type"]), None)
    if place is None:
        return {**status, "conditions": [*conditions, {**condition, "lastTransitionTime": now}]}
    before = conditions[place]
    turned = before.get("status") != condition["status"]
    since = now if turned else before.get("lastTransitionTime", now)
    conditions[place] = {**condition, "lastTransitionTime": since}
    return {**status, "conditions": conditions}
