"""The kubelet's command line, as bootstrap scripts hand it on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from dovetail.api.core import Taint
from dovetail.providers.aws.userdata.boot import Boot, unusable
from dovetail.settings import durations

__all__ = ["kubelet_arguments", "node_labels", "printed_duration"]


def kubelet_arguments(boot: Boot) -> Iterator[str]:
    """Every argument, in the order Karpenter has them."""
    kubelet = boot.kubelet
    if boot.labels:
        yield node_labels(boot.labels)
    yield f"--register-with-taints={_quoted(','.join(map(_taint, boot.taints)))}"
    if isinstance(kubelet.max_pods, int):
        yield f"--max-pods={kubelet.max_pods}"
    if kubelet.pods_per_core is not None:
        yield f"--pods-per-core={kubelet.pods_per_core}"
    yield from _pairs("system-reserved", kubelet.system_reserved, "=")
    yield from _pairs("kube-reserved", kubelet.kube_reserved, "=")
    yield from _pairs("eviction-hard", kubelet.eviction_hard, "<")
    yield from _pairs("eviction-soft", kubelet.eviction_soft, "<")
    grace = {name: printed_duration(text) for name, text in kubelet.eviction_soft_grace_period.items()}
    yield from _pairs("eviction-soft-grace-period", grace, "=")
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
    return f"--node-labels={_quoted(_joined(labels, '='))}"


def printed_duration(text: str) -> str:
    """A duration as the kubelet prints it: `90s` becomes `1m30s`."""
    try:
        return durations.render_nanoseconds(durations.nanoseconds(text))
    except ValueError as error:
        raise unusable("the node class's evictionSoftGracePeriod", str(error)) from error


def _pairs(name: str, values: Mapping[str, str], between: str) -> Iterator[str]:
    if values:
        yield f"--{name}={_quoted(_joined(values, between))}"


def _joined(values: Mapping[str, str], between: str) -> str:
    return ",".join(f"{key}{between}{values[key]}" for key in sorted(values))


def _taint(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
