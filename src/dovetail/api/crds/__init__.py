"""What the API server is told about our kinds: CRDs made from the records, defaults and rules included.

Nothing is read or written here, and nothing is checked: that is dovetail.api.validation.
"""

from __future__ import annotations

from dovetail.api.crds.defaults import defaulted
from dovetail.api.crds.definition import Definition, Flavour, Rule
from dovetail.api.crds.manifest import DEFINITIONS, definition_of, manifests, schema_of, zonal_manifest

__all__ = [
    "DEFINITIONS",
    "Definition",
    "Flavour",
    "Rule",
    "defaulted",
    "definition_of",
    "manifests",
    "schema_of",
    "zonal_manifest",
]
