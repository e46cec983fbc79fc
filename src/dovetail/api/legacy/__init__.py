"""Manifests of Karpenter's alpha and beta APIs, converted to v1.

Pure and offline: it serves no old API, asks no cluster and no cloud, and hides nothing it lost or
guessed: every such step is a note with its place.
"""

from __future__ import annotations

from dovetail.api.legacy.convert import Conversion, convert
from dovetail.api.legacy.notes import Note, Severity
from dovetail.api.legacy.render import render
from dovetail.api.legacy.settings import ConvertOptions

__all__ = ["Conversion", "ConvertOptions", "Note", "Severity", "convert", "render"]
