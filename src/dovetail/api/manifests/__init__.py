"""Manifests as people write them: YAML or JSON text in, Kubernetes objects and complaints out.

The only home of PyYAML. It opens no files, checks no schema and never raises on bad input: whatever
cannot be read becomes a complaint that names its place, and the other documents are still read.
"""

from __future__ import annotations

from dovetail.api.manifests.document import Document, ManifestComplaint, Manifests, ReadLimits, Severity
from dovetail.api.manifests.text import DEFAULT, parse_manifests, write_manifest

__all__ = [
    "DEFAULT",
    "Document",
    "ManifestComplaint",
    "Manifests",
    "ReadLimits",
    "Severity",
    "parse_manifests",
    "write_manifest",
]
