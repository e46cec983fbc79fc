"""What an instance reads when it first starts, in the words of its image family.

Pure text: what a node must know goes in, its user data comes out, to the byte as Karpenter writes it. Asks
nothing of AWS and knows nothing of launch templates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import msgspec

from dovetail.providers.aws.userdata.boot import Boot, list_kubelet_arguments
from dovetail.providers.aws.userdata.bottlerocket import find_image_version, write_bottlerocket
from dovetail.providers.aws.userdata.linux import write_amazon_linux_2, write_amazon_linux_2023

__all__ = ["Boot", "find_image_version", "render_user_data", "write_windows"]

SCRIPT = r"$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"


def write_windows(boot: Boot) -> str:
    """The author's lines, then the bootstrap. Local disks are the image's own business."""
    custom = f"{boot.custom}\n" if boot.custom else ""
    return (
        f"<powershell>\n{custom}"
        f'[string]$EKSBootstrapScriptFile = "{SCRIPT}"\n'
        f"& $EKSBootstrapScriptFile {' '.join(_list_arguments(boot))}\n"
        "</powershell>"
    )


def _list_arguments(boot: Boot) -> Iterator[str]:
    yield f"-EKSClusterName '{boot.cluster}'"
    yield f"-APIServerEndpoint '{boot.endpoint}'"
    if boot.ca_bundle is not None:
        yield f"-Base64ClusterCA '{boot.ca_bundle}'"
    yield f"-KubeletExtraArgs '{' '.join(list_kubelet_arguments(boot))}'"
    if boot.dns_ip:
        yield f"-DNSClusterIP '{boot.dns_ip}'"


def render_user_data(boot: Boot) -> str:
    """The user data of a node, not yet in base64.

    CreateFailed when the class's own user data cannot be merged with ours; ClassNotReady while something
    that nodes of the family need is not known yet.
    """
    return _write_cached(_Sealed(msgspec.msgpack.encode(boot), boot))


@dataclass(frozen=True, slots=True)
class _Sealed:
    """A boot that can be looked up: equal when all of it is."""

    contents: bytes
    boot: Boot = field(compare=False)


@lru_cache(maxsize=1024)
def _write_cached(sealed: _Sealed) -> str:
    """Claims of a pool boot alike, and a burst of them would write the same text a thousand times."""
    return WRITERS.get(sealed.boot.family, _write_custom)(sealed.boot)


def _write_custom(boot: Boot) -> str:
    """A custom image is told what its author wrote and nothing else."""
    return boot.custom


WRITERS: Final[Mapping[str, Callable[[Boot], str]]] = {
    "AL2": write_amazon_linux_2,
    "AL2023": write_amazon_linux_2023,
    "Bottlerocket": write_bottlerocket,
    "Windows2019": write_windows,
    "Windows2022": write_windows,
    "Windows2025": write_windows,
}
