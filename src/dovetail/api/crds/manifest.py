"""Definitions as CustomResourceDefinition manifests."""

from __future__ import annotations

from functools import cache
from typing import Any

from dovetail.api.crds.buffers import CAPACITYBUFFER
from dovetail.api.crds.definition import Column, Definition, Flavour
from dovetail.api.crds.ec2 import EC2NODECLASS
from dovetail.api.crds.kwok import KWOKNODECLASS
from dovetail.api.crds.nodeclaim import NODECLAIM
from dovetail.api.crds.nodepool import NODEPOOL
from dovetail.api.crds.overlay import NODEOVERLAY
from dovetail.api.crds.structure import structural_schema
from dovetail.api.crds.zoneshift import ZONESHIFT

_CORE = (NODEPOOL, NODECLAIM, NODEOVERLAY, CAPACITYBUFFER)
DEFINITIONS: dict[Flavour, tuple[Definition, ...]] = {
    "aws": (*_CORE, EC2NODECLASS),
    "kwok": (*_CORE, KWOKNODECLASS),
}


def manifests(flavour: Flavour) -> tuple[dict[str, Any], ...]:
    """The CRDs to install with this provider; a fresh copy, free to be changed."""
    return tuple(_manifest(definition, flavour) for definition in DEFINITIONS[flavour])


def zonal_manifest() -> dict[str, Any]:
    """The CRD of ZoneShift, which is our own: installed only where zones are shifted."""
    return _manifest(ZONESHIFT, "aws")


def definition_of(api_version: str, kind: str, flavour: Flavour) -> Definition | None:
    """What is installed under this name, if anything is."""
    return next(
        (
            definition
            for definition in DEFINITIONS[flavour]
            if (definition.record.KIND.api_version, definition.record.KIND.kind) == (api_version, kind)
        ),
        None,
    )


@cache
def schema_of(kind: str, flavour: Flavour) -> dict[str, Any]:
    """One kind's openAPIV3Schema, built once: to be read, not changed."""
    (definition,) = (d for d in DEFINITIONS[flavour] if d.record.KIND.kind == kind)
    return structural_schema(definition, flavour)


def _manifest(definition: Definition, flavour: Flavour) -> dict[str, Any]:
    kind = definition.record.KIND
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.resource},
        "spec": {
            "group": kind.group,
            "names": _names(definition),
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [_version(definition, flavour)],
        },
    }


def _names(definition: Definition) -> dict[str, Any]:
    kind = definition.record.KIND
    names: dict[str, Any] = {
        "categories": list(definition.categories),
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
    }
    return names | ({"shortNames": list(definition.short_names)} if definition.short_names else {})


def _version(definition: Definition, flavour: Flavour) -> dict[str, Any]:
    subresources: dict[str, Any] = {"status": {}}
    if definition.scale:
        subresources["scale"] = dict(definition.scale)
    version = {
        "name": definition.record.KIND.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": structural_schema(definition, flavour)},
        "subresources": subresources,
    }
    columns = [_column(column) for column in definition.columns]
    return version | ({"additionalPrinterColumns": columns} if columns else {})


def _column(column: Column) -> dict[str, Any]:
    shown = {"name": column.name, "type": column.type, "jsonPath": column.path}
    return shown | ({"priority": column.priority} if column.priority else {})
