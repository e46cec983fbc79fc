"""What an AMI family means for the size of a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["FAMILIES", "Family"]


@dataclass(frozen=True, slots=True)
class Family:
    """How nodes of a family count their pods, and where they keep what pods write."""

    name: str
    ephemeral_device: str = ""
    ephemeral_size: str = "20Gi"
    interfaces_limit_pods: bool = True
    takes_pods_per_core: bool = True
    # The image's own script reserves memory by what the interfaces allow, whatever maxPods says.
    reserves_by_interfaces: bool = True
    windows_build: str = ""

    def system_on(self, architecture: str) -> str | None:
        """The operating system; Windows runs on amd64 only."""
        if not self.windows_build:
            return "linux"
        return "windows" if architecture == "amd64" else None


def _windows(name: str, build: str) -> Family:
    return Family(
        name,
        "/dev/sda1",
        "50Gi",
        interfaces_limit_pods=False,
        reserves_by_interfaces=False,
        windows_build=build,
    )


FAMILIES: Final = {
    family.name: family
    for family in (
        Family("AL2", "/dev/xvda"),
        Family("AL2023", "/dev/xvda"),
        Family("Bottlerocket", "/dev/xvdb", takes_pods_per_core=False, reserves_by_interfaces=False),
        _windows("Windows2019", "10.0.17763"),
        _windows("Windows2022", "10.0.20348"),
        _windows("Windows2025", "10.0.26100"),
        Family("Custom"),
    )
}
