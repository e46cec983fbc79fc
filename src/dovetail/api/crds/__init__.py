"""What the API server is told about our kinds: CRDs made from the records, defaults and rules included.

Nothing is read or written here, and nothing is checked: that is dovetail.api.validation.
"""

from __future__ import annotations

from dovetail.api.crds.definition import AdmissionRule, CrdDefinition
from dovetail.api.crds.manifest import (
    apply_defaults,
    build_manifests,
    build_own_manifest,
    build_own_manifests,
    build_schema,
    build_zonal_manifest,
    find_definition,
    find_schema,
    is_own_kind,
    list_definitions,
)
from dovetail.api.crds.providers import PROVIDER_APIS, ProviderApi, find_provider_api

__all__ = [
    "PROVIDER_APIS",
    "AdmissionRule",
    "CrdDefinition",
    "ProviderApi",
    "apply_defaults",
    "build_manifests",
    "build_own_manifest",
    "build_own_manifests",
    "build_schema",
    "build_zonal_manifest",
    "find_definition",
    "find_provider_api",
    "find_schema",
    "is_own_kind",
    "list_definitions",
]
