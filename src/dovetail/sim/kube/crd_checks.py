"""What a CustomResourceDefinition must say before it is served."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dovetail.sim.kube.structural import check_structural
from dovetail.sim.kube.validation import Cause, show

_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?\Z")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_COLUMN_TYPES = ("integer", "number", "string", "boolean", "date")


def required(field: str, detail: str = "") -> Cause:
    """A complaint about something absent."""
    return Cause(field, "FieldValueRequired", "Required value" + (f": {detail}" if detail else ""))


def invalid(field: str, value: Any, detail: str) -> Cause:
    """A complaint about a value."""
    return Cause(field, "FieldValueInvalid", f"Invalid value: {show(value)}: {detail}")


def unsupported(field: str, value: Any, allowed: Sequence[str]) -> Cause:
    """A complaint about a value that is none of the known ones."""
    options = ", ".join(map(show, allowed))
    message = f"Unsupported value: {show(value)}: supported values: {options}"
    return Cause(field, "FieldValueNotSupported", message)


def validate_crd(obj: Mapping[str, Any]) -> list[Cause]:
    """Every complaint about a definition."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return [required("spec")]
    names = spec.get("names") or {}
    return [
        *_check_group(obj, spec, names),
        *_check_names(names),
        *_check_conversion(spec.get("conversion") or {}),
        *_check_versions(spec.get("versions") or []),
    ]


def _check_group(
    obj: Mapping[str, Any], spec: Mapping[str, Any], names: Mapping[str, Any]
) -> Iterator[Cause]:
    group, scope = spec.get("group") or "", spec.get("scope") or ""
    expected = f"{names.get('plural', '')}.{group}"
    name = (obj.get("metadata") or {}).get("name")
    if name != expected:
        yield invalid("metadata.name", name, f'must be spec.names.plural+"."+spec.group ({expected})')
    if not group:
        yield required("spec.group")
    elif not _SUBDOMAIN.match(group) or "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")
    if not scope:
        yield required("spec.scope")
    elif scope not in ("Cluster", "Namespaced"):
        yield unsupported("spec.scope", scope, ("Cluster", "Namespaced"))


def _check_names(names: Mapping[str, Any]) -> Iterator[Cause]:
    for key in ("plural", "kind"):
        if not names.get(key):
            yield required(f"spec.names.{key}")
    for key in ("plural", "singular"):
        if names.get(key) and not _LABEL.match(names[key]):
            yield invalid(f"spec.names.{key}", names[key], "must be a lower-case DNS label")
    for key in ("kind", "listKind"):
        if names.get(key) and not _LABEL.match(names[key].lower()):
            yield invalid(
                f"spec.names.{key}", names[key], "may have mixed case, but should otherwise be a DNS label"
            )
    for key in ("shortNames", "categories"):
        for index, name in enumerate(names.get(key) or ()):
            if not _LABEL.match(name):
                yield invalid(f"spec.names.{key}[{index}]", name, "must be a lower-case DNS label")
    if names.get("listKind") and names.get("listKind") == names.get("kind"):
        yield invalid("spec.names.listKind", names["listKind"], "kind and listKind may not be the same")


def _check_conversion(conversion: Mapping[str, Any]) -> Iterator[Cause]:
    strategy = conversion.get("strategy") or "None"
    if strategy not in ("None", "Webhook"):
        yield unsupported("spec.conversion.strategy", strategy, ("None", "Webhook"))
    hook = conversion.get("webhook") or {}
    if strategy == "Webhook":
        if not hook.get("clientConfig"):
            yield required("spec.conversion.webhook.clientConfig", "required when strategy is set to Webhook")
        if not hook.get("conversionReviewVersions"):
            yield required("spec.conversion.webhook.conversionReviewVersions")


def _check_versions(versions: Sequence[Mapping[str, Any]]) -> Iterator[Cause]:
    if not versions:
        yield required("spec.versions", "must have at least one version")
        return
    names = [version.get("name") or "" for version in versions]
    if sum(bool(version.get("storage")) for version in versions) != 1:
        detail = "must have exactly one version marked as storage version"
        yield invalid("spec.versions", names, detail)
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        if names[index] in names[:index]:
            yield Cause(f"{path}.name", "FieldValueDuplicate", f"Duplicate value: {show(names[index])}")
        yield from _check_version(version, path, _schema_path(versions, path))


def _schema_path(versions: Sequence[Mapping[str, Any]], path: str) -> str:
    """Where a complaint about a schema stands; kube-apiserver keeps one that all versions share apart."""
    shared = all(version.get("schema") == versions[0].get("schema") for version in versions)
    return "spec.validation.openAPIV3Schema" if shared else f"{path}.schema.openAPIV3Schema"


def _check_version(version: Mapping[str, Any], path: str, schema_path: str) -> Iterator[Cause]:
    name = version.get("name") or ""
    if not _LABEL.match(name):
        yield invalid(f"{path}.name", name, "must be a lower-case DNS label")
    document = (version.get("schema") or {}).get("openAPIV3Schema")
    if not isinstance(document, dict):
        yield required(f"{path}.schema.openAPIV3Schema")
    else:
        yield from check_structural(document, schema_path)
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        yield from _check_column(column, f"{path}.additionalPrinterColumns[{index}]")
    yield from _check_scale((version.get("subresources") or {}).get("scale"), f"{path}.subresources.scale")
    for index, selectable in enumerate(version.get("selectableFields") or ()):
        where = f"{path}.selectableFields[{index}].jsonPath"
        if not re.match(r"(\.[A-Za-z_]\w*)+\Z", selectable.get("jsonPath") or ""):
            yield invalid(where, selectable.get("jsonPath"), "is an invalid path: must be a simple json path")


def _check_column(column: Mapping[str, Any], path: str) -> Iterator[Cause]:
    for key in ("name", "type", "jsonPath"):
        if not column.get(key):
            yield required(f"{path}.{key}")
    if column.get("type") and column["type"] not in _COLUMN_TYPES:
        yield unsupported(f"{path}.type", column["type"], _COLUMN_TYPES)
    if column.get("jsonPath") and not column["jsonPath"].startswith("."):
        yield invalid(f"{path}.jsonPath", column["jsonPath"], "must be a json path starting with .")


def _check_scale(scale: Mapping[str, Any] | None, path: str) -> Iterator[Cause]:
    if scale is None:
        return
    for key, prefix in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        value = scale.get(key) or ""
        if not value:
            yield required(f"{path}.{key}")
        elif not value.startswith(prefix):
            yield invalid(f"{path}.{key}", value, f"should be a json path under {prefix[:-1]}")
