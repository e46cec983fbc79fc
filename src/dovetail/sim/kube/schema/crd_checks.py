"""What a CustomResourceDefinition must say before it is served."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dovetail.api.patterns import PatternError, compile_pattern
from dovetail.api.schema.causes import Cause, format_value
from dovetail.api.schema.cel import CelError, CelRule, compile_rule
from dovetail.api.schema.nodes import escape_name
from dovetail.api.schema.object_schema import Schema

_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?\Z")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_COLUMN_TYPES = ("integer", "number", "string", "boolean", "date")


def required_cause(field: str, detail: str = "") -> Cause:
    """A complaint about something absent."""
    return Cause(field, "FieldValueRequired", "Required value" + (f": {detail}" if detail else ""))


def invalid_cause(field: str, value: Any, detail: str) -> Cause:
    """A complaint about a value."""
    return Cause(field, "FieldValueInvalid", f"Invalid value: {format_value(value)}: {detail}")


def unsupported_cause(field: str, value: Any, allowed: Sequence[str]) -> Cause:
    """A complaint about a value that is none of the known ones."""
    options = ", ".join(map(format_value, allowed))
    message = f"Unsupported value: {format_value(value)}: supported values: {options}"
    return Cause(field, "FieldValueNotSupported", message)


def validate_crd(obj: Mapping[str, Any]) -> list[Cause]:
    """Every complaint about a definition."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return [required_cause("spec")]
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
        yield invalid_cause("metadata.name", name, f'must be spec.names.plural+"."+spec.group ({expected})')
    if not group:
        yield required_cause("spec.group")
    elif not _SUBDOMAIN.match(group) or "." not in group:
        yield invalid_cause("spec.group", group, "should be a domain with at least one dot")
    if not scope:
        yield required_cause("spec.scope")
    elif scope not in ("Cluster", "Namespaced"):
        yield unsupported_cause("spec.scope", scope, ("Cluster", "Namespaced"))


def _check_names(names: Mapping[str, Any]) -> Iterator[Cause]:
    for key in ("plural", "kind"):
        if not names.get(key):
            yield required_cause(f"spec.names.{key}")
    for key in ("plural", "singular"):
        if names.get(key) and not _LABEL.match(names[key]):
            yield invalid_cause(f"spec.names.{key}", names[key], "must be a lower-case DNS label")
    for key in ("kind", "listKind"):
        if names.get(key) and not _LABEL.match(names[key].lower()):
            yield invalid_cause(
                f"spec.names.{key}", names[key], "may have mixed case, but should otherwise be a DNS label"
            )
    for key in ("shortNames", "categories"):
        for index, name in enumerate(names.get(key) or ()):
            if not _LABEL.match(name):
                yield invalid_cause(f"spec.names.{key}[{index}]", name, "must be a lower-case DNS label")
    if names.get("listKind") and names.get("listKind") == names.get("kind"):
        yield invalid_cause("spec.names.listKind", names["listKind"], "kind and listKind may not be the same")


def _check_conversion(conversion: Mapping[str, Any]) -> Iterator[Cause]:
    strategy = conversion.get("strategy") or "None"
    if strategy not in ("None", "Webhook"):
        yield unsupported_cause("spec.conversion.strategy", strategy, ("None", "Webhook"))
    hook = conversion.get("webhook") or {}
    if strategy == "Webhook":
        if not hook.get("clientConfig"):
            yield required_cause(
                "spec.conversion.webhook.clientConfig", "required when strategy is set to Webhook"
            )
        if not hook.get("conversionReviewVersions"):
            yield required_cause("spec.conversion.webhook.conversionReviewVersions")


def _check_versions(versions: Sequence[Mapping[str, Any]]) -> Iterator[Cause]:
    if not versions:
        yield required_cause("spec.versions", "must have at least one version")
        return
    names = [version.get("name") or "" for version in versions]
    if sum(bool(version.get("storage")) for version in versions) != 1:
        detail = "must have exactly one version marked as storage version"
        yield invalid_cause("spec.versions", names, detail)
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        if names[index] in names[:index]:
            yield Cause(
                f"{path}.name", "FieldValueDuplicate", f"Duplicate value: {format_value(names[index])}"
            )
        yield from _check_version(version, path, _find_schema_path(versions, path))


def _find_schema_path(versions: Sequence[Mapping[str, Any]], path: str) -> str:
    """Where a complaint about a schema stands; kube-apiserver keeps one that all versions share apart."""
    shared = all(version.get("schema") == versions[0].get("schema") for version in versions)
    return "spec.validation.openAPIV3Schema" if shared else f"{path}.schema.openAPIV3Schema"


def _check_version(version: Mapping[str, Any], path: str, schema_path: str) -> Iterator[Cause]:
    name = version.get("name") or ""
    if not _LABEL.match(name):
        yield invalid_cause(f"{path}.name", name, "must be a lower-case DNS label")
    document = (version.get("schema") or {}).get("openAPIV3Schema")
    if not isinstance(document, dict):
        yield required_cause(f"{path}.schema.openAPIV3Schema")
    else:
        yield from check_structural(document, schema_path)
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        yield from _check_column(column, f"{path}.additionalPrinterColumns[{index}]")
    yield from _check_scale((version.get("subresources") or {}).get("scale"), f"{path}.subresources.scale")
    for index, selectable in enumerate(version.get("selectableFields") or ()):
        where = f"{path}.selectableFields[{index}].jsonPath"
        if not re.match(r"(\.[A-Za-z_]\w*)+\Z", selectable.get("jsonPath") or ""):
            yield invalid_cause(
                where, selectable.get("jsonPath"), "is an invalid path: must be a simple json path"
            )


def _check_column(column: Mapping[str, Any], path: str) -> Iterator[Cause]:
    for key in ("name", "type", "jsonPath"):
        if not column.get(key):
            yield required_cause(f"{path}.{key}")
    if column.get("type") and column["type"] not in _COLUMN_TYPES:
        yield unsupported_cause(f"{path}.type", column["type"], _COLUMN_TYPES)
    if column.get("jsonPath") and not column["jsonPath"].startswith("."):
        yield invalid_cause(f"{path}.jsonPath", column["jsonPath"], "must be a json path starting with .")


def _check_scale(scale: Mapping[str, Any] | None, path: str) -> Iterator[Cause]:
    if scale is None:
        return
    for key, prefix in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        value = scale.get(key) or ""
        if not value:
            yield required_cause(f"{path}.{key}")
        elif not value.startswith(prefix):
            yield invalid_cause(f"{path}.{key}", value, f"should be a json path under {prefix[:-1]}")


_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_FORBIDDEN = (
    "$ref",
    "definitions",
    "dependencies",
    "discriminator",
    "id",
    "patternProperties",
    "additionalItems",
)
# What every whole object has, whether its schema says so or not.
_TYPED = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
_REASONS = ("FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate")
# Value checks may use these only at the structural level, so that there is one answer to what is pruned.
_ONLY_STRUCTURAL = (
    *("type", "default", "additionalProperties", "nullable", "description", "title"),
    *("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource", "x-kubernetes-list-type"),
)


def check_structural(document: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """Every reason why the schema of a whole object cannot be served."""
    if document.get("type") != "object":
        yield _invalid_schema(f"{path}.type", document.get("type") or "", "must be object at the root")
    yield from _check_metadata(document, path)
    if not (problems := list(_check_schema(document, path, correlatable=True))):
        yield from _check_defaults(document, path)
    yield from problems


def _invalid_schema(field: str, value: Any, detail: str) -> Cause:
    return Cause(field, "FieldValueInvalid", f"Invalid value: {format_value(value)}: {detail}")


def _required_schema(field: str, detail: str) -> Cause:
    return Cause(field, "FieldValueRequired", f"Required value: {detail}")


def _forbidden_schema(field: str, detail: str) -> Cause:
    return Cause(field, "FieldValueForbidden", f"Forbidden: {detail}")


def _check_metadata(document: Mapping[str, Any], path: str) -> Iterator[Cause]:
    metadata = (document.get("properties") or {}).get("metadata") or {}
    stray = set(metadata.get("properties") or {}) - {"name", "generateName"}
    for name in sorted(stray):
        detail = "only name and generateName may be restricted here"
        yield _forbidden_schema(f"{path}.properties[metadata].properties[{name}]", detail)


def _check_schema(doc: Mapping[str, Any], path: str, *, correlatable: bool) -> Iterator[Cause]:
    kind = doc.get("type") or ""
    loose = doc.get("x-kubernetes-preserve-unknown-fields") or doc.get("x-kubernetes-int-or-string")
    if not kind and not loose:
        yield _required_schema(f"{path}.type", "must not be empty for specified object fields")
    elif kind and kind not in _TYPES:
        options = ", ".join(map(format_value, _TYPES))
        message = f"Unsupported value: {format_value(kind)}: supported values: {options}"
        yield Cause(f"{path}.type", "FieldValueNotSupported", message)
    for key in _FORBIDDEN:
        if doc.get(key):
            yield _forbidden_schema(f"{path}.{key}", f"{key} is not supported")
    if doc.get("uniqueItems"):
        yield _forbidden_schema(f"{path}.uniqueItems", "uniqueItems cannot be set to true; use a list type")
    if doc.get("properties") and doc.get("additionalProperties"):
        yield _forbidden_schema(
            f"{path}.additionalProperties", "additionalProperties and properties exclude each other"
        )
    yield from _check_pattern(doc, path)
    yield from _check_list(doc, path)
    yield from _check_rules(doc, path, correlatable)
    yield from _check_junctors(doc, path)
    yield from _check_below(doc, path, correlatable)


def _check_below(doc: Mapping[str, Any], path: str, correlatable: bool) -> Iterator[Cause]:
    for name, child in (doc.get("properties") or {}).items():
        yield from _check_schema(child, f"{path}.properties[{name}]", correlatable=correlatable)
    additional = doc.get("additionalProperties")
    if isinstance(additional, dict):
        yield from _check_schema(additional, f"{path}.additionalProperties", correlatable=correlatable)
    items = doc.get("items")
    if isinstance(items, dict):
        keyed = correlatable and doc.get("x-kubernetes-list-type") == "map"
        yield from _check_schema(items, f"{path}.items", correlatable=keyed)
    elif doc.get("type") == "array":
        yield _required_schema(f"{path}.items", "must be specified")


def _check_pattern(doc: Mapping[str, Any], path: str) -> Iterator[Cause]:
    if not doc.get("pattern"):
        return
    try:
        compile_pattern(doc["pattern"])
    except PatternError as error:
        yield _invalid_schema(
            f"{path}.pattern", doc["pattern"], f"must be a valid regular expression: {error}"
        )


def _check_list(doc: Mapping[str, Any], path: str) -> Iterator[Cause]:
    shape = doc.get("x-kubernetes-list-type")
    keys = doc.get("x-kubernetes-list-map-keys") or ()
    if shape and doc.get("type") != "array":
        yield _invalid_schema(
            f"{path}.type", doc.get("type"), "must be array if x-kubernetes-list-type is specified"
        )
        return
    if shape != "map":
        if keys:
            yield _forbidden_schema(
                f"{path}.x-kubernetes-list-map-keys", "only for x-kubernetes-list-type map"
            )
        return
    if not keys:
        yield _required_schema(
            f"{path}.x-kubernetes-list-map-keys", "must be set if x-kubernetes-list-type is map"
        )
    items = doc.get("items") or {}
    properties = items.get("properties") or {}
    for index, key in enumerate(keys):
        where = f"{path}.x-kubernetes-list-map-keys[{index}]"
        if key not in properties:
            yield _invalid_schema(where, key, "must be one of the properties of the items")
        elif key not in (items.get("required") or ()) and "default" not in properties[key]:
            yield _required_schema(
                f"{path}.items.properties[{key}].default", "list map keys must be required or defaulted"
            )


def _check_rules(doc: Mapping[str, Any], path: str, correlatable: bool) -> Iterator[Cause]:
    for index, entry in enumerate(doc.get("x-kubernetes-validations") or ()):
        where = f"{path}.x-kubernetes-validations[{index}]"
        text = entry.get("rule") or ""
        if not text.strip():
            yield _required_schema(f"{where}.rule", "rule is not specified")
            continue
        if entry.get("reason") and entry["reason"] not in _REASONS:
            message = f"Unsupported value: {format_value(entry['reason'])}: supported values: " + ", ".join(
                map(format_value, _REASONS)
            )
            yield Cause(f"{where}.reason", "FieldValueNotSupported", message)
        try:
            rule = compile_rule(text)
            compile_rule(entry.get("messageExpression") or "''")
        except CelError as error:
            yield _invalid_schema(f"{where}.rule", entry, f"compilation failed: {error}")
            continue
        for name in _find_undefined_fields(doc, rule, root=path.endswith("openAPIV3Schema")):
            yield _invalid_schema(f"{where}.rule", entry, f"compilation failed: undefined field '{name}'")
        if rule.uses_old and not correlatable and not entry.get("optionalOldSelf"):
            yield _invalid_schema(
                f"{where}.rule", entry, "oldSelf cannot be used on the uncorrelatable portion of the schema"
            )
        if entry.get("optionalOldSelf") and not rule.uses_old:
            yield _invalid_schema(
                f"{where}.optionalOldSelf", True, "may not be set if oldSelf is not used in rule"
            )


def _find_undefined_fields(doc: Mapping[str, Any], rule: CelRule, *, root: bool) -> Iterator[str]:
    """Fields a rule selects that its schema does not have."""
    for chain in sorted(rule.paths):
        place = {**doc, "properties": {**_TYPED, **(doc.get("properties") or {})}} if root else doc
        for name in chain:
            known = {escape_name(key): child for key, child in (place.get("properties") or {}).items()}
            if not known or place.get("additionalProperties") or name == "metadata":
                break
            if name not in known:
                yield name
                break
            place = known[name]


def _check_junctors(doc: Mapping[str, Any], path: str) -> Iterator[Cause]:
    parts = [
        (part, f"{path}.{name}[{index}]")
        for name in ("allOf", "anyOf", "oneOf")
        for index, part in enumerate(doc.get(name) or ())
    ]
    if doc.get("not"):
        parts.append((doc["not"], f"{path}.not"))
    either = bool(doc.get("x-kubernetes-int-or-string"))
    for part, where in parts:
        for key in _ONLY_STRUCTURAL:
            if part.get(key) and not (either and key == "type"):
                yield _forbidden_schema(f"{where}.{key}", "must be empty to be structural")


def _check_defaults(document: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """Defaults must be values their own schema would take."""
    for doc, where in _walk_schemas(document, path):
        if "default" not in doc:
            continue
        schema = Schema.from_openapi({**doc, "x-kubernetes-validations": []})
        value = doc["default"]
        filled = schema.apply_defaults(value) if isinstance(value, dict) else value
        for cause in schema.validate(filled):
            yield _invalid_schema(f"{where}.default", value, f"{cause.field}: {cause.message}")


def _walk_schemas(doc: Mapping[str, Any], path: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    yield doc, path
    for name, child in (doc.get("properties") or {}).items():
        yield from _walk_schemas(child, f"{path}.properties[{name}]")
    for key in ("items", "additionalProperties"):
        if isinstance(doc.get(key), dict):
            yield from _walk_schemas(doc[key], f"{path}.{key}")
