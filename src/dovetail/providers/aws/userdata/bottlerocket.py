"""Bottlerocket: settings in TOML, ours laid over the author's."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dovetail.api.meta import AbsentMap
from dovetail.api.nodeclass import AMI, AMISelectorTerm, KubeletConfiguration
from dovetail.logs import get_logger
from dovetail.providers.aws.userdata import toml
from dovetail.providers.aws.userdata.boot import Boot, print_duration, unusable_error

__all__ = ["find_image_version", "write_bottlerocket"]

KEYS: Final = (
    *("api-server", "cloud-provider", "cluster-certificate", "cluster-name", "cluster-dns-ip"),
    *("credential-providers", "node-labels", "node-taints", "max-pods", "static-pods"),
    *("eviction-hard", "eviction-soft", "eviction-soft-grace-period", "eviction-max-pod-grace-period"),
    *("kube-reserved", "system-reserved", "allowed-unsafe-sysctls", "server-tls-bootstrap"),
    *("registry-qps", "registry-burst", "event-qps", "event-burst", "kube-api-qps", "kube-api-burst"),
    *("container-log-max-size", "container-log-max-files"),
    *("cpu-manager-policy", "cpu-manager-policy-options", "cpu-manager-reconcile-period"),
    *("memory-manager-policy", "memory-manager-reserved-memory"),
    *("topology-manager-scope", "topology-manager-policy", "topology-manager-policy-options"),
    *("image-gc-high-threshold-percent", "image-gc-low-threshold-percent"),
    *("ids-per-pod", "cpu-cfs-quota-enforced"),
    *("shutdown-grace-period", "shutdown-grace-period-for-critical-pods"),
    *("cluster-domain", "seccomp-default", "pod-pids-limit", "device-ownership-from-security-context"),
    *("single-process-oom-kill", "container-log-max-workers", "container-log-monitor-interval"),
    *("hostname-override-source", "log-level"),
)
"""What we know of `settings.kubernetes`, in the order it is written; the rest is dropped."""

# What ours is laid over must have a place for it.
TABLES: Final = (("settings", "kubernetes", "node-labels"), ("settings", "bootstrap-commands"))
COMMAND_KEYS: Final = ("commands", "mode", "essential")
MOUNT: Final = "000-mount-instance-storage"
STORAGE: Final = ("apiclient", "ephemeral-storage")
DIRECTORIES: Final = ("--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods")
# Images from here on know by themselves which directories belong on local disks.
BINDS_BY_ITSELF: Final = (1, 46)
LATEST: Final = "latest"
VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
Table = dict[str, Any]
log = get_logger()


def write_bottlerocket(boot: Boot) -> str:
    """The author's settings, and ours where the two disagree."""
    settings: Table = dict(_read_custom(boot.custom))
    settings["kubernetes"] = _build_kubernetes(boot, settings.get("kubernetes", {}))
    commands = _build_commands(boot, settings.get("bootstrap-commands", {}))
    if commands:
        settings["bootstrap-commands"] = commands
    return toml.write_toml(
        {"settings": {name: _sort_table(name, settings[name]) for name in sorted(settings)}}
    )


def _read_custom(custom: str) -> Mapping[str, Any]:
    try:
        document = tomllib.loads(custom)
    except tomllib.TOMLDecodeError as error:
        raise unusable_error("the node class's user data", f"it is not valid TOML: {error}") from error
    for path in TABLES:
        table: Any = document
        for step in path:
            table = table.get(step, {})
            if not isinstance(table, dict):
                raise unusable_error(
                    "the node class's user data", f"its {'.'.join(path)} is not a TOML table"
                )
    return dict(document.get("settings", {}))


def _sort_table(name: str, value: Any) -> Any:
    """Tables of the author in alphabetical order; those we know have one of their own."""
    if not isinstance(value, dict) or name in ("kubernetes", "bootstrap-commands"):
        return value
    return {key: _sort_table("", value[key]) for key in sorted(value)}


def _build_kubernetes(boot: Boot, given: Mapping[str, Any]) -> Table:
    unknown = sorted(given.keys() - set(KEYS))
    if unknown:
        log.warning("settings.kubernetes in user data has keys that are dropped", keys=", ".join(unknown))
    made = {**given, **dict(_list_cluster_settings(boot)), **dict(_list_kubelet_settings(boot.kubelet))}
    made["node-labels"] = {**given.get("node-labels", {}), **boot.labels}
    made["node-taints"] = _build_taints(boot)
    # An empty table says nothing, and one we replaced by nothing is gone.
    return {key: _sort_table("", made[key]) for key in KEYS if key in made and made[key] not in ({}, [])}


def _list_cluster_settings(boot: Boot) -> Iterator[tuple[str, Any]]:
    yield "api-server", boot.endpoint
    yield "cluster-name", boot.cluster
    if boot.ca_bundle is not None:
        yield "cluster-certificate", boot.ca_bundle


def _build_taints(boot: Boot) -> dict[str, list[str]]:
    taints: dict[str, list[str]] = {}
    for taint in boot.taints:
        taints.setdefault(taint.key, []).append(f"{taint.value}:{taint.effect}")
    return taints


def _list_kubelet_settings(kubelet: KubeletConfiguration) -> Iterator[tuple[str, Any]]:
    """What the class says of the kubelet; where it is silent the author's own settings stay."""
    if kubelet.cluster_dns:
        yield "cluster-dns-ip", kubelet.cluster_dns[0]
    if isinstance(kubelet.max_pods, int):
        yield "max-pods", kubelet.max_pods
    grace = kubelet.eviction_soft_grace_period
    tables: dict[str, Mapping[str, str]] = {
        "eviction-hard": kubelet.eviction_hard,
        "eviction-soft": kubelet.eviction_soft,
        "eviction-soft-grace-period": grace,
        "kube-reserved": kubelet.kube_reserved,
        "system-reserved": kubelet.system_reserved,
    }
    for name, values in tables.items():
        if not isinstance(values, AbsentMap):
            printed = values is grace
            yield name, {k: print_duration(v) if printed else v for k, v in values.items()}
    percents = {
        "image-gc-high-threshold-percent": kubelet.image_gc_high_threshold_percent,
        "image-gc-low-threshold-percent": kubelet.image_gc_low_threshold_percent,
    }
    yield from ((name, str(percent)) for name, percent in percents.items() if percent is not None)
    if kubelet.eviction_max_pod_grace_period is not None:
        yield "eviction-max-pod-grace-period", kubelet.eviction_max_pod_grace_period
    if kubelet.cpu_cfs_quota is not None:
        yield "cpu-cfs-quota-enforced", kubelet.cpu_cfs_quota


def _build_commands(boot: Boot, given: Mapping[str, Any]) -> Table:
    commands = dict(given)
    if boot.raid0:
        bind = [*STORAGE, "bind", *(() if _binds_by_itself(boot.image_version) else DIRECTORIES)]
        commands[MOUNT] = {"commands": [[*STORAGE, "init"], bind], "mode": "always", "essential": True}
    return {name: _order_command(commands[name]) for name in sorted(commands)}


def _order_command(command: Any) -> Any:
    if not isinstance(command, dict):
        return command
    known = {key: command[key] for key in COMMAND_KEYS if key in command}
    return {**known, **{key: command[key] for key in sorted(command.keys() - known.keys())}}


def _binds_by_itself(version: str) -> bool:
    found = VERSION.fullmatch(version)
    return version == LATEST or (found is not None and (int(found[1]), int(found[2])) >= BINDS_BY_ITSELF)


def find_image_version(terms: Sequence[AMISelectorTerm], images: Sequence[AMI]) -> str:
    """The version of the images a class asks for: by its alias, a name, or what was found for it."""
    for term in terms:
        if term.alias:
            return term.alias.partition("@")[2]
    ids = {term.id for term in terms if term.id}
    names = (
        *(term.name for term in terms if term.name),
        *(image.name for image in images if image.id in ids),
        *(image.name for image in images if "bottlerocket" in image.name.lower()),
    )
    return next((version for name in names if (version := _version_in(name))), "")


def _version_in(name: str) -> str:
    return next((word for word in name.split("-") if word.startswith("v") and "." in word), "")
