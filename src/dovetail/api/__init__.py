"""The nouns: frozen records of every kind Dovetail reads or writes, cloud-neutral where they can be.

No I/O, no clock, no decisions about nodes. Names are looked up in their modules when first used, so that
a command which needs one of them does not pay for all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail.api.buffers import CapacityBuffer as CapacityBuffer
    from dovetail.api.codec import Interner as Interner
    from dovetail.api.core import CSINode as CSINode
    from dovetail.api.core import DaemonSet as DaemonSet
    from dovetail.api.core import Namespace as Namespace
    from dovetail.api.core import Node as Node
    from dovetail.api.core import PersistentVolume as PersistentVolume
    from dovetail.api.core import PersistentVolumeClaim as PersistentVolumeClaim
    from dovetail.api.core import PodDisruptionBudget as PodDisruptionBudget
    from dovetail.api.core import StorageClass as StorageClass
    from dovetail.api.core import Taint as Taint
    from dovetail.api.meta import Amounts as Amounts
    from dovetail.api.meta import Condition as Condition
    from dovetail.api.meta import Kind as Kind
    from dovetail.api.meta import LabelSelector as LabelSelector
    from dovetail.api.meta import Object as Object
    from dovetail.api.meta import ObjectMeta as ObjectMeta
    from dovetail.api.meta import OwnerReference as OwnerReference
    from dovetail.api.meta import Record as Record
    from dovetail.api.nodeclaim import NodeClaim as NodeClaim
    from dovetail.api.nodeclass import EC2NodeClass as EC2NodeClass
    from dovetail.api.nodeclass import KWOKNodeClass as KWOKNodeClass
    from dovetail.api.nodepool import NodePool as NodePool
    from dovetail.api.nodepool import Requirement as Requirement
    from dovetail.api.overlay import NodeOverlay as NodeOverlay
    from dovetail.api.pod import Pod as Pod
    from dovetail.api.pod import Toleration as Toleration
    from dovetail.api.quantity import Quantity as Quantity

_HOMES = {
    "buffers": ("CapacityBuffer",),
    "codec": ("Interner",),
    "core": (
        "CSINode",
        "DaemonSet",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "PodDisruptionBudget",
        "StorageClass",
        "Taint",
    ),
    "meta": (
        "Amounts",
        "Condition",
        "Kind",
        "LabelSelector",
        "Object",
        "ObjectMeta",
        "OwnerReference",
        "Record",
    ),
    "nodeclaim": ("NodeClaim",),
    "nodeclass": ("EC2NodeClass", "KWOKNodeClass"),
    "nodepool": ("NodePool", "Requirement"),
    "overlay": ("NodeOverlay",),
    "pod": ("Pod", "Toleration"),
    "quantity": ("Quantity",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"dovetail.api has no {name}; its rooms are labels, quantity, codec and so on")
    return getattr(import_module(f"dovetail.api.{_HOME_OF[name]}"), name)
