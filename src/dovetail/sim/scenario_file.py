"""A scenario's file: read, checked field by field, and every complaint told with its line.

Names that do not exist are told with the nearest that does; then values of the wrong kind, then what could
not happen though every value is of its kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from dovetail.api import manifests
from dovetail.api.crds import find_provider_api
from dovetail.api.manifests.typed_fields import (
    WrongField,
    find_unknown_fields,
    locate_error,
    suggest_name,
)
from dovetail.errors import BadInput, Misconfigured
from dovetail.settings.durations import parse_duration as parse_duration
from dovetail.settings.table import BY_VARIABLE
from dovetail.sim.scenario import ReplicaCurve, Scenario, ScenarioEvent
from dovetail.state.unreadable import find_doubts

__all__ = ["parse_scenario", "read_scenario"]

LONGEST = timedelta(days=3660)
EARLIEST, LATEST = 1970, 2200
NAMED = ("apiVersion", "kind")

Told = Callable[[str, str], str]


def _format_complaint(where: str, message: str) -> str:
    return f"{where}: {message}"


def read_scenario(path: Path) -> Scenario:
    """The scenario in a file; BadInput says what is wrong with it, each with its line."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise BadInput(f"reading the scenario {path}: {error.strerror}") from error
    found = manifests.parse_manifests(text, str(path))
    wrong = [c for c in found.complaints if c.severity is manifests.Severity.ERROR]
    if wrong:
        raise BadInput(str(wrong[0]))
    if len(found.documents) != 1:
        raise BadInput(f"reading the scenario {path}: it must be one YAML document")
    document = found.documents[0]

    def told(where: str, message: str) -> str:
        return str(manifests.ManifestComplaint(str(path), document.line_of(where), None, where, message))

    return parse_scenario(document.value, path, told)


def parse_scenario(value: Mapping[str, Any], path: Path, told: Told = _format_complaint) -> Scenario:
    """A scenario from its parsed document. `told` puts a complaint about a field of it into words."""
    wrong = list(find_unknown_fields(value, inspect.type_info(Scenario)))
    if not wrong:
        try:
            scenario = msgspec.convert(dict(value) | {"folder": str(path.parent)}, Scenario, strict=False)
        except msgspec.ValidationError as error:
            wrong = [locate_error(error)]
        else:
            wrong = list(_find_complaints(scenario))
            if not wrong:
                return scenario
    raise BadInput("\n".join(told(*each) for each in wrong))


def _find_complaints(scenario: Scenario) -> Iterator[WrongField]:
    """What cannot happen, though every field has a value of its kind."""
    yield from _check_times(scenario)
    try:
        find_provider_api(scenario.provider)
    except Misconfigured as error:
        yield "provider", str(error)
    for name in scenario.settings:
        if name not in BY_VARIABLE:
            yield f"settings.{name}", f"there is no such setting{suggest_name(name, BY_VARIABLE)}"
    for kind, names in (("pools", _list_pool_names(scenario)), ("workloads", _list_workload_names(scenario))):
        for name, count in Counter(names).items():
            if count > 1:
                yield kind, f"{name} is there {count} times; give each a name of its own"
    for number, event in enumerate(scenario.events):
        yield from _check_event(scenario, event, f"events[{number}]")
    for number, promise in enumerate(scenario.objectives):
        if promise.workload:
            yield from _check_known(
                f"objectives[{number}].workload", promise.workload, _list_workload_names(scenario)
            )
    for number, manifest in enumerate(scenario.manifests):
        yield from _check_manifest(f"manifests[{number}]", manifest)


def _list_pool_names(scenario: Scenario) -> list[str]:
    return [pool.name for pool in scenario.pools]


def _list_workload_names(scenario: Scenario) -> list[str]:
    return [workload.name for workload in scenario.workloads]


def _check_times(scenario: Scenario) -> Iterator[WrongField]:
    yield from _check_duration("duration", scenario.duration, some=True)
    yield from _check_duration("step", scenario.step, some=True)
    if scenario.floor_every:
        yield from _check_duration("floorEvery", scenario.floor_every, some=True)
    if not EARLIEST <= scenario.start.year <= LATEST:
        yield "start", f"must be a year from {EARLIEST} to {LATEST}"
    for number, workload in enumerate(scenario.workloads):
        yield from _check_curve(f"workloads[{number}].replicas", workload.replicas)
    for number, promise in enumerate(scenario.objectives):
        if promise.pending_within:
            yield from _check_duration(f"objectives[{number}].pendingWithin", promise.pending_within)


def _check_curve(path: str, curve: ReplicaCurve) -> Iterator[WrongField]:
    yield from _check_duration(f"{path}.peak", curve.peak)
    yield from _check_duration(f"{path}.every", curve.every, some=True)
    yield from _check_duration(f"{path}.lasts", curve.lasts)
    if curve.curve == "trace" and not curve.file:
        yield path, "a trace needs a file with the columns seconds and replicas; name it in file"


def _check_duration(path: str, text: str, *, some: bool = False) -> Iterator[WrongField]:
    """A duration that is one, not below nothing and not longer than ten years."""
    try:
        length = parse_duration(text)
    except (ValueError, OverflowError) as error:
        yield path, f"{text!r} is no duration, such as 90s or 1h30m ({error})"
        return
    least = "more than 0s" if some else "0s or more"
    if length < timedelta() or (some and not length):
        yield path, f"{text} must be {least}"
    elif length > LONGEST:
        yield path, f"{text} is longer than {LONGEST.days // 366} years"


def _check_event(scenario: Scenario, event: ScenarioEvent, path: str) -> Iterator[WrongField]:
    yield from _check_duration(f"{path}.at", event.at)
    whats = [each.encode_name for each in msgspec.structs.fields(ScenarioEvent) if each.name != "at"]
    if not any(getattr(event, each.name) is not None for each in msgspec.structs.fields(ScenarioEvent)[1:]):
        yield path, f"it does not say what happens; add one of {', '.join(whats)}"
    if event.zonal_shift is not None:
        yield from _check_duration(f"{path}.zonalShift.for", event.zonal_shift.lasts, some=True)
    if event.zone_loss is not None and event.zone_loss.lasts:
        yield from _check_duration(f"{path}.zoneLoss.lasts", event.zone_loss.lasts)
    if event.rollout is not None and event.rollout.workload is not None:
        yield from _check_known(
            f"{path}.rollout.workload", event.rollout.workload, _list_workload_names(scenario)
        )
    if event.drift is not None and event.drift.pool is not None:
        yield from _check_known(f"{path}.drift.pool", event.drift.pool, _list_pool_names(scenario))
    for number, manifest in enumerate(event.apply or ()):
        yield from _check_manifest(f"{path}.apply[{number}]", manifest)


def _check_known(path: str, name: str, known: list[str]) -> Iterator[WrongField]:
    if name not in known:
        yield path, f"there is no {name}{suggest_name(name, known)}"


def _check_manifest(path: str, manifest: Mapping[str, Any]) -> Iterator[WrongField]:
    for field in NAMED:
        if not isinstance(manifest.get(field), str):
            yield path, f"a manifest needs {field}"
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        yield path, "a manifest needs metadata.name"
        return
    kind = str(manifest.get("kind"))
    for field, why in find_doubts(str(manifest.get("apiVersion")), kind, manifest):
        where = f"{path}.{field}" if field else path
        yield where, f"{kind} {metadata['name']} would be set aside: {why}"
