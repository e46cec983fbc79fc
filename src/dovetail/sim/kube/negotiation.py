"""Which representation a client gets: the first it accepts that exists here."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from dovetail.sim.kube import status

_JSON_TYPES = ("application/json", "application/*", "*/*")


class Form(Enum):
    """How an object is shown."""

    PLAIN = "application/json"
    TABLE = "application/json;as=Table"
    METADATA = "application/json;as=PartialObjectMetadata"
    YAML = "application/yaml"


def media_types(header: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The media types of an Accept header with their parameters, best first."""
    found = []
    for position, entry in enumerate(header.split(",")):
        kind, *rest = (part.strip() for part in entry.split(";"))
        pairs = (part.partition("=") for part in rest)
        parameters = {name.strip().lower(): value.strip().strip('"') for name, _, value in pairs}
        if kind:
            found.append((-_quality(parameters.pop("q", "")), position, kind.lower(), parameters))
    for _, _, kind, parameters in sorted(found, key=lambda each: each[:2]):
        yield kind, parameters


def _quality(text: str) -> float:
    try:
        return float(text) if text else 1.0
    except ValueError:
        return 1.0


def choose(header: str) -> Form:
    """The form of an object or list; a 406 if none is acceptable."""
    if not header.strip():
        return Form.PLAIN
    for kind, parameters in media_types(header):
        form = _form(kind, parameters)
        if form is not None:
            return form
    raise status.not_acceptable("application/json, application/yaml")


def _form(kind: str, parameters: dict[str, str]) -> Form | None:
    if kind == "application/yaml" and "as" not in parameters:
        return Form.YAML
    if kind not in _JSON_TYPES:
        return None
    wanted = parameters.get("as")
    if wanted is None:
        return Form.PLAIN
    if parameters.get("g") != "meta.k8s.io" or parameters.get("v") != "v1":
        return None
    if wanted == "Table":
        return Form.TABLE
    return Form.METADATA if wanted in ("PartialObjectMetadata", "PartialObjectMetadataList") else None


def wants_aggregated_discovery(header: str) -> bool:
    """Whether a client asks `/api` or `/apis` for everything at once."""
    for kind, parameters in media_types(header):
        if kind not in _JSON_TYPES:
            continue
        if parameters.get("as") == "APIGroupDiscoveryList":
            if parameters.get("g") == "apidiscovery.k8s.io" and parameters.get("v") == "v2":
                return True
        elif "as" not in parameters:
            return False
    return False
