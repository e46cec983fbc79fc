"""What the API server is told about our kinds: CRDs made from the records, defaults and rules included.

Nothing is read or written here, and nothing is checked: that is dovetail.api.validation.
"""

from __future__ import annotations

from dovetail.api.crds.definition import AdmissionRule, CrdDefinition, Flavour
from dovetail.api.crds.manifest import (
    DEFINITIONS,
    apply_defaults,
    build_manifests,
    build_schema,
    build_zonal_manifest,
    find_definition,
    find_schema,
)

__all__ = [
    "DEFINITIONS",
    "AdmissionRule",
    "CrdDefinition",
    "Flavour",
    "apply_defaults",
    "build_manifests",
    "build_schema",
    "build_zonal_manifest",
    "find_definition",
    "find_schema",
]
