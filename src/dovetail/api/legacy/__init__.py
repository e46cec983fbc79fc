"""Manifests of Karpenter's alpha and beta APIs, converted to v1.

Pure and offline: it serves no old API, asks no cluster and no cloud, and hides nothing it lost or
guessed: every such step is a note with its place.
"""

from __future__ import annotations

from dovetail.api.legacy.convert import Conversion, convert_documents
from dovetail.api.legacy.notes import Note, NoteSeverity
from dovetail.api.legacy.options import ConvertOptions
from dovetail.api.legacy.render import render_conversion

__all__ = ["Conversion", "ConvertOptions", "Note", "NoteSeverity", "convert_documents", "render_conversion"]
