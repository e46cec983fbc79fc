"""What a node must know to join its cluster, and how a family may refuse to say it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dovetail.api.core import Taint
from dovetail.api.nodeclass import KubeletConfiguration
from dovetail.errors import CreateFailed
from dovetail.settings import durations

__all__ = ["Boot", "list_kubelet_arguments", "node_labels", "print_duration", "unusable_error"]


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


def unusable_error(what: str, why: str) -> CreateFailed:
    """Nothing can be launched with this; the claim's condition says so."""
    return CreateFailed("LaunchFailed", f"{what} cannot be used: {why}")


def list_kubelet_arguments(boot: Boot) -> Iterator[str]:
    """Every argument, in the order Karpenter has them."""
    kubelet = boot.kubelet
    if boot.labels:
        yield node_labels(boot.labels)
    yield f"--register-with-taints={_quote_text(','.join(map(_format_taint, boot.taints)))}"
    if isinstance(kubelet.max_pods, int):
        yield f"--max-pods={kubelet.max_pods}"
    if kubelet.pods_per_core is not None:
        yield f"--pods-per-core={kubelet.pods_per_core}"
    yield from _list_pairs("system-reserved", kubelet.system_reserved, "=")
    yield from _list_pairs("kube-reserved", kubelet.kube_reserved, "=")
    yield from _list_pairs("eviction-hard", kubelet.eviction_hard, "<")
    yield from _list_pairs("eviction-soft", kubelet.eviction_soft, "<")
    grace = {name: print_duration(text) for name, text in kubelet.eviction_soft_grace_period.items()}
    yield from _list_pairs("eviction-soft-grace-period", grace, "=")
    if kubelet.eviction_max_pod_grace_period is not None:
        yield f"--eviction-max-pod-grace-period={kubelet.eviction_max_pod_grace_period}"
    if kubelet.image_gc_high_threshold_percent is not None:
        yield f"--image-gc-high-threshold={kubelet.image_gc_high_threshold_percent}"
    if kubelet.image_gc_low_threshold_percent is not None:
        yield f"--image-gc-low-threshold={kubelet.image_gc_low_threshold_percent}"
    if kubelet.cpu_cfs_quota is not None:
        yield f"--cpu-cfs-quota={'true' if kubelet.cpu_cfs_quota else 'false'}"


def node_labels(labels: Mapping[str, str]) -> str:
    """The argument that names the labels a node registers with."""
    return f"--node-labels={_quote_text(_join_pairs(labels, '='))}"


def print_duration(text: str) -> str:
    """A duration as the kubelet prints it: `90s` becomes `1m30s`."""
    try:
        return durations.render_nanoseconds(durations.parse_nanoseconds(text))
    except ValueError as error:
        raise unusable_error("the node class's evictionSoftGracePeriod", str(error)) from error


def _list_pairs(name: str, values: Mapping[str, str], between: str) -> Iterator[str]:
    if values:
        yield f"--{name}={_quote_text(_join_pairs(values, between))}"


def _join_pairs(values: Mapping[str, str], between: str) -> str:
    return ",".join(f"{key}{between}{values[key]}" for key in sorted(values))


def _format_taint(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _quote_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
