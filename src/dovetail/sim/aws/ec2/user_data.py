"""What a machine learns from its user data when it boots: cluster, labels, taints, how many pods it takes.

Every family's format is understood as its own boot program does: nodeadm's NodeConfig, bootstrap.sh,
settings in TOML, PowerShell. A machine whose user data names no cluster boots and joins none.
"""

from __future__ import annotations

import re
import tomllib
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email import message_from_string
from typing import Any

from dovetail.api.manifests import parse_manifests

__all__ = ["BootSettings", "read_user_data"]

NODE_CONFIG = "application/node.eks.aws"
LABELS = re.compile(r'--node-labels="?([^"\s\']*)')
TAINTS = re.compile(r'--register-with-taints="?([^"\s\']*)')
MAX_PODS = re.compile(r"--max-pods=(\d+)")
SCRIPT = re.compile(r"/etc/eks/bootstrap\.sh\s+['\"]?([^'\"\s]+)")
POWERSHELL = re.compile(r"-EKSClusterName\s+['\"]([^'\"]+)")


@dataclass(frozen=True, slots=True)
class BootSettings:
    """A kubelet as it starts."""

    cluster: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    max_pods: int | None = None
    raid: bool = False

    def __or__(self, later: BootSettings) -> BootSettings:
        """What comes later wins, as for nodeadm; labels add up."""
        return BootSettings(
            later.cluster or self.cluster,
            {**self.labels, **later.labels},
            later.taints or self.taints,
            later.max_pods if later.max_pods is not None else self.max_pods,
            later.raid or self.raid,
        )


def read_user_data(encoded: str) -> BootSettings:
    """What the user data of an instance, in base64, says."""
    try:
        text = b64decode(encoded, validate=True).decode()
    except (ValueError, UnicodeDecodeError):
        return BootSettings()
    found = BootSettings()
    for kind, body in _split_parts(text):
        found = found | _read_part(kind, body)
    return found


def _split_parts(text: str) -> Iterator[tuple[str, str]]:
    if not text.lstrip().startswith(("MIME-Version:", "Content-Type:")):
        yield "", text
        return
    for part in message_from_string(text.lstrip()).walk():
        if not part.is_multipart():
            yield part.get_content_type(), str(part.get_payload())


def _read_part(kind: str, body: str) -> BootSettings:
    if "<powershell>" in body:
        return _read_arguments(body, POWERSHELL)
    if SCRIPT.search(body):
        return _read_arguments(body, SCRIPT)
    if kind == NODE_CONFIG or "kind: NodeConfig" in body:
        return _read_node_config(body)
    return _read_toml_settings(body) if "[settings" in body else BootSettings()


def _read_arguments(body: str, named: re.Pattern[str]) -> BootSettings:
    cluster, labels = named.search(body), LABELS.search(body)
    taints, most = TAINTS.search(body), MAX_PODS.search(body)
    return BootSettings(
        cluster[1] if cluster else "",
        _parse_labels(labels[1]) if labels else {},
        tuple(_parse_taint(each) for each in taints[1].split(",") if each) if taints else (),
        int(most[1]) if most else None,
        "--local-disks raid0" in body,
    )


def _parse_labels(text: str) -> dict[str, str]:
    found = (each.partition("=") for each in text.split(",") if each)
    return {key: value for key, _, value in found}


def _parse_taint(text: str) -> dict[str, str]:
    """`key=value:Effect` or `key:Effect`."""
    rest, _, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def _read_node_config(body: str) -> BootSettings:
    found = BootSettings()
    for document in parse_manifests(body, "user data").documents:
        spec: Mapping[str, Any] = document.value.get("spec") or {}
        kubelet = spec.get("kubelet") or {}
        config, flags = kubelet.get("config") or {}, " ".join(kubelet.get("flags") or ())
        labels = LABELS.search(flags)
        found = found | BootSettings(
            str((spec.get("cluster") or {}).get("name") or ""),
            _parse_labels(labels[1]) if labels else {},
            tuple(dict(each) for each in config.get("registerWithTaints") or ()),
            config.get("maxPods"),
            ((spec.get("instance") or {}).get("localStorage") or {}).get("strategy") == "RAID0",
        )
    return found


def _read_toml_settings(body: str) -> BootSettings:
    try:
        kubernetes = tomllib.loads(body).get("settings", {}).get("kubernetes", {})
    except tomllib.TOMLDecodeError:
        return BootSettings()
    taints = [
        _parse_taint(f"{key}={each}" if not each.startswith(":") else f"{key}{each}")
        for key, listed in (kubernetes.get("node-taints") or {}).items()
        for each in ([listed] if isinstance(listed, str) else listed)
    ]
    return BootSettings(
        kubernetes.get("cluster-name", ""),
        dict(kubernetes.get("node-labels") or {}),
        tuple(taints),
        kubernetes.get("max-pods"),
        "ephemeral-storage" in body,
    )
