"""Windows: a PowerShell script that runs the image's own bootstrap."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.providers.aws.userdata.arguments import kubelet_arguments
from dovetail.providers.aws.userdata.boot import Boot

__all__ = ["windows"]

SCRIPT = r"$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"


def windows(boot: Boot) -> str:
    """The author's lines, then the bootstrap. Local disks are the image's own business."""
    custom = f"{boot.custom}\n" if boot.custom else ""
    return (
        f"<powershell>\n{custom}"
        f'[string]$EKSBootstrapScriptFile = "{SCRIPT}"\n'
        f"& $EKSBootstrapScriptFile {' '.join(_arguments(boot))}\n"
        "</powershell>"
    )


def _arguments(boot: Boot) -> Iterator[str]:
    yield f"-EKSClusterName '{boot.cluster}'"
    yield f"-APIServerEndpoint '{boot.endpoint}'"
    if boot.ca_bundle is not None:
        yield f"-Base64ClusterCA '{boot.ca_bundle}'"
    yield f"-KubeletExtraArgs '{' '.join(kubelet_arguments(boot))}'"
    if boot.dns_ip:
        yield f"-DNSClusterIP '{boot.dns_ip}'"
