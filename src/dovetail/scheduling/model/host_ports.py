"""Host ports: two pods on one node cannot listen on the same address."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from dovetail.api.pod import Pod

__all__ = ["HostPort", "describe_conflict", "find_conflict", "list_host_ports"]

EVERYWHERE = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class HostPort:
    """One address a pod listens on, in its shortest spelling."""

    ip: str
    port: int
    protocol: str

    def conflicts_with(self, other: HostPort) -> bool:
        return (
            self.protocol == other.protocol
            and self.port == other.port
            and (self.ip == other.ip or self.ip in EVERYWHERE or other.ip in EVERYWHERE)
        )


def _normalize_ip(text: str) -> str:
    try:
        address = ip_address(text)
    except ValueError:
        return text
    return str((address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address)


def list_host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """The host ports of a pod's containers; init containers are not looked at."""
    return tuple(
        HostPort(_normalize_ip(port.host_ip or "0.0.0.0"), port.host_port, port.protocol)
        for container in pod.spec.containers
        for port in container.ports
        if port.host_port
    )


def find_conflict(wanted: Iterable[HostPort], used: Iterable[HostPort]) -> tuple[HostPort, HostPort] | None:
    """The first wanted port that is taken, and what takes it."""
    taken = tuple(used)
    for mine in wanted:
        for theirs in taken:
            if mine.conflicts_with(theirs):
                return mine, theirs
    return None


def describe_conflict(clash: tuple[HostPort, HostPort]) -> str:
    """Karpenter's words for a conflict."""
    mine, theirs = clash
    return (
        "pod hostport conflicts with existing hostport configuration ("
        f"existing-hostport-ip={theirs.ip}, existing-hostport-port={theirs.port}, "
        f"existing-hostport-protocol={theirs.protocol}, pod-hostport-ip={mine.ip}, "
        f"pod-hostport-port={mine.port}, pod-hostport-protocol={mine.protocol})"
    )
