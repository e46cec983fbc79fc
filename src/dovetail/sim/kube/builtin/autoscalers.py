"""HorizontalPodAutoscalers: defaults, rules, and the older `autoscaling/v1` beside `autoscaling/v2`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from dovetail.api.schema.causes import Cause
from dovetail.sim.kube.builtin.rules_pods import invalid_cause, required_cause, unsupported_cause

Json = dict[str, Any]
_CPU_PERCENT = 80
_OTHERS = "autoscaling.alpha.kubernetes.io/metrics"
_BEHAVIOUR = "autoscaling.alpha.kubernetes.io/behavior"
_SOURCES = {
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
}
_TARGETS = {"Utilization": "averageUtilization", "Value": "value", "AverageValue": "averageValue"}


def _cpu_metric(percent: int) -> Json:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def default_autoscaler(obj: Json) -> None:
    """Defaults of either version."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("minReplicas", 1)
    if obj.get("apiVersion", "").endswith("/v1"):
        return
    if not spec.get("metrics"):
        spec["metrics"] = [_cpu_metric(_CPU_PERCENT)]
    behaviour = spec.get("behavior")
    if behaviour is not None:
        up = [
            {"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15},
        ]
        grows = {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": up}
        shrinks = {"selectPolicy": "Max", "policies": [up[1]]}
        behaviour["scaleUp"] = grows | (behaviour.get("scaleUp") or {})
        behaviour["scaleDown"] = shrinks | (behaviour.get("scaleDown") or {})


def autoscaler_causes(obj: Json, old: Json | None) -> Iterator[Cause]:
    """What is wrong with an autoscaler of either version."""
    spec = obj["spec"]
    least, most = spec.get("minReplicas", 1), spec.get("maxReplicas", 0)
    if least < 1:
        yield invalid_cause("spec.minReplicas", least, "must be greater than or equal to 1")
    if most < 1:
        yield invalid_cause("spec.maxReplicas", most, "must be greater than 0")
    if most < least:
        yield invalid_cause("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`")
    target = spec.get("scaleTargetRef") or {}
    for name in ("kind", "name"):
        if not target.get(name):
            yield required_cause(f"spec.scaleTargetRef.{name}")
    percent = spec.get("targetCPUUtilizationPercentage")
    if percent is not None and percent < 1:
        yield invalid_cause("spec.targetCPUUtilizationPercentage", percent, "must be greater than 0")
    for index, metric in enumerate(spec.get("metrics") or ()):
        yield from _metric_causes(metric, f"spec.metrics[{index}]")


def _metric_causes(metric: Json, path: str) -> Iterator[Cause]:
    kind = metric.get("type", "")
    if not kind:
        yield required_cause(f"{path}.type", "must specify a metric source type")
    elif kind not in _SOURCES:
        yield unsupported_cause(f"{path}.type", kind, sorted(_SOURCES))
    elif not metric.get(_SOURCES[kind]):
        yield required_cause(
            f"{path}.{_SOURCES[kind]}", "must populate information for the given metric source"
        )
    else:
        source = metric[_SOURCES[kind]]
        target = source.get("target") or {}
        where = f"{path}.{_SOURCES[kind]}.target"
        if not target.get("type"):
            yield required_cause(f"{where}.type", "must specify a metric target type")
        elif target["type"] not in _TARGETS:
            yield unsupported_cause(f"{where}.type", target["type"], sorted(_TARGETS))
        elif not any(target.get(field) for field in _TARGETS.values()):
            yield required_cause(f"{where}.{_TARGETS[target['type']]}", "must set a target")


def to_v2(obj: Json) -> Json:
    """An autoscaler of either version as `autoscaling/v2` spells it."""
    if not obj.get("apiVersion", "").endswith("/v1"):
        return obj
    notes = dict(obj["metadata"].get("annotations") or {})
    spec = dict(obj.get("spec") or {})
    percent = spec.pop("targetCPUUtilizationPercentage", None)
    others = _read_note(notes.pop(_OTHERS, ""), list)
    metrics = [*([_cpu_metric(percent)] if percent is not None else []), *others]
    spec["metrics"] = metrics or [_cpu_metric(_CPU_PERCENT)]
    if _BEHAVIOUR in notes:
        spec["behavior"] = _read_note(notes.pop(_BEHAVIOUR), dict)
    return {**obj, "apiVersion": "autoscaling/v2", "metadata": _replace_annotations(obj, notes), "spec": spec}


def to_v1(obj: Json) -> Json:
    """An autoscaler of either version as `autoscaling/v1` spells it; what v1 lacks goes into annotations."""
    if obj.get("apiVersion", "").endswith("/v1"):
        return obj
    notes = dict(obj["metadata"].get("annotations") or {})
    spec = dict(obj.get("spec") or {})
    metrics = spec.pop("metrics", None) or []
    simple = next((each for each in metrics if _is_cpu_percent(each)), None)
    if simple is not None:
        spec["targetCPUUtilizationPercentage"] = simple["resource"]["target"]["averageUtilization"]
    if others := [each for each in metrics if each is not simple]:
        notes[_OTHERS] = json.dumps(others)
    if "behavior" in spec:
        notes[_BEHAVIOUR] = json.dumps(spec.pop("behavior"))
    return {**obj, "apiVersion": "autoscaling/v1", "metadata": _replace_annotations(obj, notes), "spec": spec}


def _is_cpu_percent(metric: Json) -> bool:
    resource = metric.get("resource") or {}
    return resource.get("name") == "cpu" and "averageUtilization" in (resource.get("target") or {})


def _read_note(text: str, kind: type[Any]) -> Any:
    """What an annotation holds of this type; anybody may write it, so anything else is nothing."""
    try:
        found: Any = json.loads(text or "null")
    except (ValueError, RecursionError):
        found = None
    whole = isinstance(found, kind) and (kind is dict or all(isinstance(each, dict) for each in found))
    return found if whole else kind()


def _replace_annotations(obj: Json, notes: dict[str, str]) -> Json:
    metadata = {key: value for key, value in obj["metadata"].items() if key != "annotations"}
    return {**metadata, "annotations": notes} if notes else metadata
