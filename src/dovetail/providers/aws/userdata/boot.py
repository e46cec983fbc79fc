"""What a node must know to join its cluster, and how a family may refuse to say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dovetail.api.core import Taint
from dovetail.api.nodeclass import KubeletConfiguration
from dovetail.errors import CreateFailed

__all__ = ["Boot", "unusable"]


@dataclass(frozen=True, slots=True)
class Boot:
    """Everything user data is made of."""

    family: str
    cluster: str
    endpoint: str
    # In base64; None when the node shall not be told, which differs from an empty one.
    ca_bundle: str | None = None
    service_cidr: str = ""
    kubelet: KubeletConfiguration = field(default_factory=KubeletConfiguration)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    # What the node class adds.
    custom: str = ""
    raid0: bool = False
    # Of a Bottlerocket image: `1.46.0`, `latest`, or nothing when nobody can tell.
    image_version: str = ""

    @property
    def dns_ip(self) -> str:
        """The one resolver that bootstrap scripts take."""
        return self.kubelet.cluster_dns[0] if self.kubelet.cluster_dns else ""


def unusable(what: str, why: str) -> CreateFailed:
    """Nothing can be launched with this; the claim's condition says so."""
    return CreateFailed("LaunchFailed", f"{what} cannot be used: {why}")
