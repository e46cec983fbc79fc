"""Manifests as people write them: YAML or JSON text in, Kubernetes objects and complaints out.

The only home of PyYAML. It opens no files, checks no schema and never raises on bad input: whatever
cannot be read becomes a complaint that names its place, and the other documents are still read.
"""

from __future__ import annotations

from dovetail.api.manifests.document import Complaint, Document, Limits, Manifests, Severity
from dovetail.api.manifests.reading import DEFAULT, read
from dovetail.api.manifests.writing import write

__all__ = [
    "DEFAULT",
    "Complaint",
    "Document",
    "Limits",
    "Manifests",
    "Severity",
    "read",
    "write",
]
