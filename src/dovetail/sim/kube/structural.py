"""Whether a schema is structural: every place typed, nothing that could not be pruned or defaulted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dovetail.api.patterns import PatternError, compile_pattern
from dovetail.sim.kube.cel import CelError, Rule, compile_rule
from dovetail.sim.kube.nodes import escaped
from dovetail.sim.kube.schema import Schema
from dovetail.sim.kube.validation import Cause, show

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
        yield _invalid(f"{path}.type", document.get("type") or "", "must be object at the root")
    yield from _check_metadata(document, path)
    if not (problems := list(_check(document, path, correlatable=True))):
        yield from _check_defaults(document, path)
    yield from problems


def _invalid(field: str, value: Any, detail: str) -> Cause:
    return Cause(field, "FieldValueInvalid", f"Invalid value: {show(value)}: {detail}")


def _required(field: str, detail: str) -> Cause:
    return Cause(field, "FieldValueRequired", f"Required value: {detail}")


def _forbidden(field: str, detail: str) -> Cause:
    return Cause(field, "FieldValueForbidden", f"Forbidden: {detail}")


def _check_metadata(document: Mapping[str, Any], path: str) -> Iterator[Cause]:
    metadata = (document.get("properties") or {}).get("metadata") or {}
    stray = set(metadata.get("properties") or {}) - {"name", "generateName"}
    for name in sorted(stray):
        detail = "only name and generateName may be restricted here"
        yield _forbidden(f"{path}.properties[metadata].properties[{name}]", detail)


def _check(doc: Mapping[str, Any], path: str, *, correlatable: bool) -> Iterator[Cause]:
    kind = doc.get("type") or ""
    loose = doc.get("x-kubernetes-preserve-unknown-fields") or doc.get("x-kubernetes-int-or-string")
    if not kind and not loose:
        yield _required(f"{path}.type", "must not be empty for specified object fields")
    elif kind and kind not in _TYPES:
        options = ", ".join(map(show, _TYPES))
        message = f"Unsupported value: {show(kind)}: supported values: {options}"
        yield Cause(f"{path}.type", "FieldValueNotSupported", message)
    for key in _FORBIDDEN:
        if doc.get(key):
            yield _forbidden(f"{path}.{key}", f"{key} is not supported")
    if doc.get("uniqueItems"):
        yield _forbidden(f"{path}.uniqueItems", "uniqueItems cannot be set to true; use a list type")
    if doc.get("properties") and doc.get("additionalProperties"):
        yield _forbidden(
            f"{path}.additionalProperties", "additionalProperties and properties exclude each other"
        )
    yield from _check_pattern(doc, path)
    yield from _check_list(doc, path)
    yield from _check_rules(doc, path, correlatable)
    yield from _check_junctors(doc, path)
    yield from _check_below(doc, path, correlatable)


def _check_below(doc: Mapping[str, Any], path: str, correlatable: bool) -> Iterator[Cause]:
    for name, child in (doc.get("properties") or {}).items():
        yield from _check(child, f"{path}.properties[{name}]", correlatable=correlatable)
    additional = doc.get("additionalProperties")
    if isinstance(additional, dict):
        yield from _check(additional, f"{path}.additionalProperties", correlatable=correlatable)
    items = doc.get("items")
    if isinstance(items, dict):
        keyed = correlatable and doc.get("x-kubernetes-list-type") == "map"
        yield from _check(items, f"{path}.items", correlatable=keyed)
    elif doc.get("type") == "array":
        yield _required(f"{path}.items", "must be specified")


def _check_pattern(doc: Mapping[str, Any], path: str) -> Iterator[Cause]:
    if not doc.get("pattern"):
        return
    try:
        compile_pattern(doc["pattern"])
    except PatternError as error:
        yield _invalid(f"{path}.pattern", doc["pattern"], f"must be a valid regular expression: {error}")


def _check_list(doc: Mapping[str, Any], path: str) -> Iterator[Cause]:
    shape = doc.get("x-kubernetes-list-type")
    keys = doc.get("x-kubernetes-list-map-keys") or ()
    if shape and doc.get("type") != "array":
        yield _invalid(
            f"{path}.type", doc.get("type"), "must be array if x-kubernetes-list-type is specified"
        )
        return
    if shape != "map":
        if keys:
            yield _forbidden(f"{path}.x-kubernetes-list-map-keys", "only for x-kubernetes-list-type map")
        return
    if not keys:
        yield _required(f"{path}.x-kubernetes-list-map-keys", "must be set if x-kubernetes-list-type is map")
    items = doc.get("items") or {}
    properties = items.get("properties") or {}
    for index, key in enumerate(keys):
        where = f"{path}.x-kubernetes-list-map-keys[{index}]"
        if key not in properties:
            yield _invalid(where, key, "must be one of the properties of the items")
        elif key not in (items.get("required") or ()) and "default" not in properties[key]:
            yield _required(
                f"{path}.items.properties[{key}].default", "list map keys must be required or defaulted"
            )


def _check_rules(doc: Mapping[str, Any], path: str, correlatable: bool) -> Iterator[Cause]:
    for index, entry in enumerate(doc.get("x-kubernetes-validations") or ()):
        where = f"{path}.x-kubernetes-validations[{index}]"
        text = entry.get("rule") or ""
        if not text.strip():
            yield _required(f"{where}.rule", "rule is not specified")
            continue
        if entry.get("reason") and entry["reason"] not in _REASONS:
            message = f"Unsupported value: {show(entry['reason'])}: supported values: " + ", ".join(
                map(show, _REASONS)
            )
            yield Cause(f"{where}.reason", "FieldValueNotSupported", message)
        try:
            rule = compile_rule(text)
            compile_rule(entry.get("messageExpression") or "''")
        except CelError as error:
            yield _invalid(f"{where}.rule", entry, f"compilation failed: {error}")
            continue
        for name in _undefined(doc, rule, root=path.endswith("openAPIV3Schema")):
            yield _invalid(f"{where}.rule", entry, f"compilation failed: undefined field '{name}'")
        if rule.uses_old and not correlatable and not entry.get("optionalOldSelf"):
            yield _invalid(
                f"{where}.rule", entry, "oldSelf cannot be used on the uncorrelatable portion of the schema"
            )
        if entry.get("optionalOldSelf") and not rule.uses_old:
            yield _invalid(f"{where}.optionalOldSelf", True, "may not be set if oldSelf is not used in rule")


def _undefined(doc: Mapping[str, Any], rule: Rule, *, root: bool) -> Iterator[str]:
    """Fields a rule selects that its schema does not have."""
    for chain in sorted(rule.paths):
        place = {**doc, "properties": {**_TYPED, **(doc.get("properties") or {})}} if root else doc
        for name in chain:
            known = {escaped(key): child for key, child in (place.get("properties") or {}).items()}
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
                yield _forbidden(f"{where}.{key}", "must be empty to be structural")


def _check_defaults(document: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """Defaults must be values their own schema would take."""
    for doc, where in _places(document, path):
        if "default" not in doc:
            continue
        schema = Schema.from_openapi({**doc, "x-kubernetes-validations": []})
        value = doc["default"]
        filled = schema.default(value) if isinstance(value, dict) else value
        for cause in schema.validate(filled):
            yield _invalid(f"{where}.default", value, f"{cause.field}: {cause.message}")


def _places(doc: Mapping[str, Any], path: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    yield doc, path
    for name, child in (doc.get("properties") or {}).items():
        yield from _places(child, f"{path}.properties[{name}]")
    for key in ("items", "additionalProperties"):
        if isinstance(doc.get(key), dict):
            yield from _places(doc[key], f"{path}.{key}")
