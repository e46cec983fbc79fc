"""Amazon Linux: a bootstrap script for the second, a NodeConfig for nodeadm on 2023."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address
from typing import Any

import msgspec

from dovetail.api import manifests
from dovetail.api.core import Taint
from dovetail.errors import ClassNotReady
from dovetail.providers.aws.userdata.boot import (
    Boot,
    list_kubelet_arguments,
    node_labels,
    print_duration,
    unusable_error,
)
from dovetail.providers.aws.userdata.mime import (
    NODE_CONFIG,
    SHELL,
    MimePart,
    is_archive,
    read_archive,
    write_archive,
)

__all__ = ["write_amazon_linux_2", "write_amazon_linux_2023"]

LOGGED = "exec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1"
DOCUMENT = re.compile(r"^---(?:[ \t].*)?$", re.MULTILINE)


def write_amazon_linux_2(boot: Boot) -> str:
    """The author's parts, then a script that runs the image's own bootstrap."""
    return write_archive(
        (*_read_custom_parts(boot.custom, SHELL), MimePart.from_text(SHELL, _write_script(boot)))
    )


def _read_custom_parts(custom: str, content_type: str) -> Sequence[MimePart]:
    if not custom:
        return ()
    return read_archive(custom) if is_archive(custom) else (MimePart.from_text(content_type, custom),)


def _write_script(boot: Boot) -> str:
    authority = "" if boot.ca_bundle is None else f"--b64-cluster-ca '{boot.ca_bundle}'"
    bootstrap = f"/etc/eks/bootstrap.sh '{boot.cluster}' --apiserver-endpoint '{boot.endpoint}' {authority}"
    return "\n".join(("#!/bin/bash -xe", LOGGED, " \\\n".join((bootstrap, *_list_options(boot)))))


def _list_options(boot: Boot) -> Iterator[str]:
    if boot.dns_ip:
        if not _is_ipv4(boot.dns_ip):
            yield "--ip-family ipv6"
        yield f"--dns-cluster-ip '{boot.dns_ip}'"
    if isinstance(boot.kubelet.max_pods, int):
        yield "--use-max-pods false"
    yield f"--kubelet-extra-args '{' '.join(list_kubelet_arguments(boot))}'"
    if boot.raid0:
        yield "--local-disks raid0"


def _is_ipv4(text: str) -> bool:
    try:
        IPv4Address(text)
    except ValueError:
        return False
    return True


def write_amazon_linux_2023(boot: Boot) -> str:
    """The author's parts, then ours: nodeadm lets the last one win."""
    ours = MimePart.from_text(
        NODE_CONFIG, f"# Karpenter Generated NodeConfig\n{manifests.write_manifest(_node_config(boot))}"
    )
    kind = NODE_CONFIG if boot.custom and _is_mapping(boot.custom) else SHELL
    return write_archive((*(part.strip_headers() for part in _read_custom_parts(boot.custom, kind)), ours))


def _is_mapping(text: str) -> bool:
    """Whether the first document of a text is YAML with keys; a document that says nothing passes for one."""
    first = next((piece for piece in DOCUMENT.split(text) if piece.strip()), "")
    try:
        return isinstance(msgspec.yaml.decode(first), dict | None)
    except msgspec.DecodeError:
        return False


def _node_config(boot: Boot) -> dict[str, Any]:
    kubelet: dict[str, Any] = {"config": _build_kubelet(boot)}
    if boot.labels:
        kubelet["flags"] = [node_labels(boot.labels)]
    return {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "metadata": {},
        "spec": {
            "cluster": _build_cluster(boot),
            "containerd": {},
            "instance": {"localStorage": {"strategy": "RAID0"} if boot.raid0 else {}},
            "kubelet": kubelet,
        },
    }


def _build_cluster(boot: Boot) -> dict[str, str]:
    try:
        b64decode((boot.ca_bundle or "").replace("\r", "").replace("\n", ""), validate=True)
    except NotBase64 as error:
        raise unusable_error("the cluster's certificate authority", f"it is not base64: {error}") from error
    if not boot.service_cidr:
        raise ClassNotReady("the cluster's service CIDR is not known yet, and AL2023 nodes need it")
    authority = {"certificateAuthority": boot.ca_bundle} if boot.ca_bundle else {}
    return {"apiServerEndpoint": boot.endpoint, **authority, "cidr": boot.service_cidr, "name": boot.cluster}


def _build_kubelet(boot: Boot) -> dict[str, Any]:
    """The class's own settings and our taints, in alphabetical order as nodeadm's own tools write them."""
    config: dict[str, Any] = msgspec.to_builtins(boot.kubelet)
    if "evictionSoftGracePeriod" in config:
        grace = boot.kubelet.eviction_soft_grace_period
        config["evictionSoftGracePeriod"] = {name: print_duration(text) for name, text in grace.items()}
    config["registerWithTaints"] = [_build_taint(taint) for taint in boot.taints] or None
    return {
        name: dict(sorted(value.items())) if isinstance(value, dict) else value
        for name, value in sorted(config.items())
        if value not in ({}, [], ())
    }


def _build_taint(taint: Taint) -> dict[str, str]:
    return {"effect": taint.effect, "key": taint.key, **({"value": taint.value} if taint.value else {})}
