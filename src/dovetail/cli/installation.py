"""What a person may say about an installation, and what follows from it for every object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dovetail import __version__

__all__ = ["NAME", "PARTS", "ROLE_ARN", "Installation", "Part"]

CHART = "dovetail"
NAME = "karpenter"
ROLE_ARN = "eks.amazonaws.com/role-arn"
OVER_HTTPS = ("ZONAL_SHIFT_TOPIC_ARN", "ZONAL_SHIFT_EVENTS_TOKEN_FILE", "ZONAL_SHIFT_EVENTS_CA_FILE")
PARTS = ("router", "zonal-shift", "dashboard")


@dataclass(frozen=True, slots=True)
class Installation:
    """What a person may say about an installation; the rest is as the chart has it."""

    provider: str = "aws"
    release: str = NAME
    namespace: str = "kube-system"
    image: str = f"dovetail/controller:{__version__}"
    replicas: int = 2
    account_annotations: Mapping[str, str] = field(default_factory=dict)
    # Variables of settings, such as CLUSTER_NAME.
    settings: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, Any] = field(default_factory=dict)
    controller: bool = True
    parts: frozenset[str] = frozenset()
    # The IAM role of a part's own account.
    part_roles: Mapping[str, str] = field(default_factory=dict)
    # Whether the definition of ZoneShifts comes along where shifts are followed.
    definition: bool = True
    # The router's configuration, and the Secret with the certificate of the endpoint for SNS.
    bus: Mapping[str, Any] = field(default_factory=dict)
    tls_secret: str = ""

    @property
    def name(self) -> str:
        return self.release if NAME in self.release else f"{self.release}-{NAME}"

    @property
    def selector(self) -> dict[str, str]:
        return {"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": self.release}

    @property
    def labels(self) -> dict[str, str]:
        return {
            "helm.sh/chart": f"{CHART}-{__version__}",
            **self.selector,
            "app.kubernetes.io/version": __version__,
            "app.kubernetes.io/managed-by": "dovetail",
        }

    @property
    def shifts_inside(self) -> bool:
        """Whether the controller follows zonal shifts."""
        return self.controller and self.settings.get("ENABLE_ZONAL_SHIFT") == "true"

    @property
    def shifts(self) -> bool:
        return self.shifts_inside or "zonal-shift" in self.parts

    @property
    def sns(self) -> bool:
        """Whether messages about shifts come over HTTPS."""
        return self.shifts and any(self.settings.get(name) for name in OVER_HTTPS)


@dataclass(frozen=True, slots=True)
class Part:
    """One of the optional parts: its own names and labels, so that nobody else's selector finds it."""

    given: Installation
    part: str

    @property
    def name(self) -> str:
        return f"{self.given.name[:48].rstrip('-')}-{self.part}"

    @property
    def namespace(self) -> str:
        return self.given.namespace

    @property
    def annotations(self) -> dict[str, str]:
        arn = self.given.part_roles.get(self.part)
        return {ROLE_ARN: arn} if arn else {}

    @property
    def selector(self) -> dict[str, str]:
        return self.given.selector | {"app.kubernetes.io/name": f"{NAME}-{self.part}"}

    @property
    def labels(self) -> dict[str, str]:
        return self.given.labels | self.selector | {"app.kubernetes.io/component": self.part}
