"""Admission and runtime validation as plain functions: documents and records in, complaints out.

Nothing is fetched, stored or repaired here.
"""

from __future__ import annotations

from dovetail.api.manifests import Severity
from dovetail.api.validation.checking import admit_object, check_document
from dovetail.api.validation.complaint import Complaint
from dovetail.api.validation.names import label_value_errors, qualified_name_errors
from dovetail.api.validation.runtime import (
    requirement_errors,
    runtime_complaints,
    runtime_complaints_overlay,
)

__all__ = [
    "Complaint",
    "Severity",
    "admit_object",
    "check_document",
    "label_value_errors",
    "qualified_name_errors",
    "requirement_errors",
    "runtime_complaints",
    "runtime_complaints_overlay",
]
