"""The reference of kinds: every field of every definition, with its type, default and rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from dovetail.api.crds import build_manifests, build_own_manifests

Json = dict[str, Any]
OPENING = """\
Every field of the kinds in `deploy/crds`, which `dovetail crds` prints as well. A field's path is written
with `[]` for the entries of a list and `{}` for the values of a map. A star marks what has to be given. Rules
are CEL expressions the API server checks; `self` is the value they stand at."""
# Members of a schema that say what a value may be, and the words for them.
BOUNDS = (
    ("minimum", "≥ {}"),
    ("maximum", "≤ {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minItems", "at least {} entries"),
    ("maxItems", "at most {} entries"),
    ("minProperties", "at least {} members"),
    ("maxProperties", "at most {} members"),
    ("pattern", "matches `{}`"),
)
SCOPES = {"Cluster": "without a namespace", "Namespaced": "in a namespace"}
COLUMNS = ("field", "type", "default", "meaning", "may be")


def definitions() -> Iterator[Json]:
    """Each kind once, in the order people meet them."""
    seen = set()
    for each in (*build_manifests("aws"), *build_manifests("kwok"), *build_own_manifests()):
        name = each["metadata"]["name"]
        if name not in seen:
            seen.add(name)
            yield each


def sections() -> Iterator[tuple[str, str, list[tuple[str, ...]], list[tuple[str, ...]]]]:
    """A kind's heading, its sentence, its fields and its rules."""
    for each in definitions():
        spec = each["spec"]
        for version in spec["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            names = spec["names"]
            short = ", ".join(f"`{name}`" for name in names.get("shortNames", ()))
            about = (
                f"`apiVersion: {spec['group']}/{version['name']}`, {SCOPES[spec['scope']]}; "
                f"`kubectl get {names['plural']}`{f', in short {short}' if short else ''}. "
                f"{schema.get('description', '')}".strip()
            )
            found = [
                each
                for part in ("spec", "status")
                for each in walk(schema["properties"].get(part, {}), part, required=False)
            ]
            # Entries of lists and maps are told of with them.
            fields = [row(*each) for each in found if not each[0].endswith(("[]", "{}"))]
            rules = [
                (f"`{path}`", f"`{rule['rule']}`", rule.get("message", ""))
                for path, field, _ in found
                for rule in field.get("x-kubernetes-validations", ())
            ]
            yield names["kind"], about, fields, rules


def walk(schema: Json, path: str, *, required: bool) -> Iterator[tuple[str, Json, bool]]:
    """A field and everything below it."""
    if not schema:
        return
    yield path, schema, required
    needed = schema.get("required", ())
    for name, inside in schema.get("properties", {}).items():
        yield from walk(inside, f"{path}.{name}", required=name in needed)
    items, values = schema.get("items"), schema.get("additionalProperties")
    if isinstance(items, dict):
        yield from walk(items, f"{path}[]", required=False)
    if isinstance(values, dict):
        yield from walk(values, f"{path}{{}}", required=False)


def row(path: str, field: Json, needed: bool) -> tuple[str, ...]:
    default = f"`{json.dumps(field['default'])}`" if "default" in field else ""
    return (
        f"`{path}`{' *' if needed else ''}",
        kind(field),
        default,
        field.get("description", ""),
        may_be(field),
    )


def kind(field: Json) -> str:
    """A field's type in a word or two."""
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    match field.get("type"):
        case "array":
            return f"list of {kind(field.get('items', {}))}"
        case "object" if isinstance(field.get("additionalProperties"), dict):
            return f"map to {kind(field['additionalProperties'])}"
        case str() as name:
            return name
    return "anything"


def may_be(field: Json) -> str:
    """What a value, or an entry of a list, is allowed to be."""
    inner = field.get("items") if field.get("type") == "array" else field.get("additionalProperties")
    told = []
    for schema, prefix in ((field, ""), (inner if isinstance(inner, dict) else {}, "each ")):
        if "properties" in schema and prefix:
            continue
        if "enum" in schema:
            told.append(prefix + "one of " + ", ".join(f"`{value}`" for value in schema["enum"]))
        told += [prefix + text.format(schema[name]) for name, text in BOUNDS if name in schema]
    return "; ".join(told)
