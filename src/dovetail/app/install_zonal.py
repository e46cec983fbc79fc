"""What following zonal shifts takes, inside the controller or beside it: permissions, a map, a port."""

from __future__ import annotations

from dovetail.app import install_shapes as shapes
from dovetail.app.install_shapes import READ, Installation, InstallPart, Json
from dovetail.settings import POLICY_FIELDS
from dovetail.settings.zonal import ZonalPolicy

__all__ = [
    "BUFFERS",
    "CLONES",
    "SHIFTS",
    "build_endpoint_policy",
    "build_environment",
    "build_map_rule",
    "build_shift_map",
    "https_port",
    "tls_mounts",
    "tls_volumes",
]

TLS = "zonal-shift-tls"
# Also after it was switched off, with ZONAL_SHIFT_ON_DISABLE=restore: what a shift left behind is put back.
SHIFTS = (
    (
        "dovetail.sh",
        ("zoneshifts", "zoneshifts/status"),
        (*READ, "create", "patch", "update", "delete"),
    ),
)
CLONES = (("karpenter.sh", ("nodepools",), ("create", "delete")),)
BUFFERS = (("autoscaling.x-k8s.io", ("capacitybuffers",), ("create", "patch", "delete")),)
# Settings that are watched, and their keys in the ConfigMap.
WATCHED = {"ZONAL_SHIFT_POLICY": "policy", "ZONAL_SHIFT_DRY_RUN": "dry-run"}
# Old names of fields of the policy: what is given under one is written as the field.
FIELDS = {each.variable: each.key for each in POLICY_FIELDS}


def build_shift_map(given: Installation) -> Json:
    """The policy of zonal shift, which may be changed without a restart."""
    part, said = InstallPart(given, "zonal-shift"), given.settings
    defaults = {"ZONAL_SHIFT_POLICY": str(ZonalPolicy()), "ZONAL_SHIFT_DRY_RUN": "false"}
    data = {key: said.get(name, defaults[name]) for name, key in WATCHED.items()}
    data |= {key: said[name] for name, key in FIELDS.items() if said.get(name)}
    return shapes.build_config_map(part, part.name, data)


def build_map_rule(given: Installation) -> Json:
    return shapes.build_named_rule("configmaps", [InstallPart(given, "zonal-shift").name], READ)


def build_environment(given: Installation) -> list[Json]:
    """The settings, those that are watched by reference."""
    named = InstallPart(given, "zonal-shift").name
    references = [
        {"name": name, "valueFrom": {"configMapKeyRef": {"name": named, "key": key, "optional": True}}}
        for name, key in WATCHED.items()
    ]
    plain = {name: value for name, value in given.settings.items() if name not in WATCHED | FIELDS}
    return [
        *shapes.build_variables(plain | {"ZONAL_SHIFT_CONFIG_MAP": f"{given.namespace}/{named}"}),
        *references,
    ]


def https_port(given: Installation) -> dict[str, int]:
    """The endpoint's port by its name, where there is one."""
    return {"https-sns": int(given.settings.get("ZONAL_SHIFT_HTTPS_PORT", "8443"))} if given.sns else {}


def build_endpoint_policy(given: Installation, name: str, selector: dict[str, str]) -> list[Json]:
    """The endpoint is open, where there is one."""
    ports = tuple(https_port(given).values())
    part = InstallPart(given, "zonal-shift")
    return [shapes.build_network_policy(part, name, selector, (ports,))] if ports else []


def tls_volumes(given: Installation) -> list[Json]:
    return [{"name": TLS, "secret": {"secretName": given.tls_secret}}] if given.sns else []


def tls_mounts(given: Installation) -> list[Json]:
    return [{"name": TLS, "mountPath": "/var/run/dovetail/tls", "readOnly": True}] if given.sns else []
