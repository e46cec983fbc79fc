"""Unknown fields: dropped, and reported as the client asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.sim.kube.builtin import schema_for
from dovetail.sim.kube.status import bad_request

if TYPE_CHECKING:
    from dovetail.sim.kube.options import WriteOptions
    from dovetail.sim.kube.schema import Schema
    from dovetail.sim.kube.types import TypeInfo


def schema_of(info: TypeInfo) -> Schema:
    """The schema of a custom or built-in type."""
    if info.schema is not None:
        return info.schema
    return schema_for(info.group, info.version, info.kind)


def check_types(info: TypeInfo, obj: dict[str, Any], old: dict[str, Any] | None = None) -> None:
    """A built-in kind whose fields have other types than it says cannot even be decoded."""
    causes = [cause for cause in schema_of(info).validate(obj, old) if cause.type == "FieldValueTypeInvalid"]
    if causes:
        listed = ", ".join(f"{cause.field}: {cause.message}" for cause in causes)
        raise bad_request(
            f"{info.kind} in version {info.version!r} cannot be handled as a {info.kind}: {listed}"
        )


def shape(
    info: TypeInfo, obj: dict[str, Any], options: WriteOptions, old: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The object without unknown fields; they are an error, a warning or nothing, as asked."""
    schema = schema_of(info)
    if not info.custom:
        check_types(info, obj, old)
    pruned, unknown = schema.prune(obj)
    if unknown and options.validation == "Strict":
        listed = ", ".join(f'unknown field "{path}"' for path in unknown)
        kind = f'{info.kind} in version "{info.version}" cannot be handled as a {info.kind}: '
        raise bad_request(f"{'' if info.custom else kind}strict decoding error: {listed}")
    if options.validation == "Warn":
        options.warnings.extend(f'unknown field "{path}"' for path in unknown)
    return pruned
