"""Kubernetes manifests as vectors hold them, read into records without any defaulting."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from dovetail.api.pod import Pod
from dovetail.api.quantity import Quantity

T = TypeVar("T")


def _quantity(kind: type, value: Any) -> Any:
    assert kind is Quantity
    return Quantity.parse(value)


def _present(value: Any) -> Any:
    """Null and absent mean the same."""
    if isinstance(value, dict):
        return {key: _present(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_present(each) for each in value]
    return value


def read(kind: type[T], manifest: Any) -> T:
    return msgspec.convert(_present(manifest), kind, dec_hook=_quantity)


def read_pod(manifest: dict[str, Any]) -> Pod:
    found = read(Pod, manifest)
    node = (manifest.get("spec") or {}).get("nodeName") or ""
    return msgspec.structs.replace(found, node_name=node)


def amounts(listed: dict[str, Any] | None) -> dict[str, Quantity]:
    return {name: Quantity.parse(text) for name, text in (listed or {}).items()}
