"""Write what the charts share with the code: definitions, and the schema of values. `make chart`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent))
from write_crds import files as crd_files
from write_dashboards import files as observability_files

from dovetail.bus.config import FIELDS, KEYS
from dovetail.settings import POLICY_FIELDS, PolicyField
from dovetail.settings.table import SETTINGS, Setting

ROOT = Path(__file__).resolve().parent.parent / "deploy" / "helm"
CHART = ROOT / "dovetail"
# Values that are not called as their variable says, for upstream spells abbreviations in capitals.
SPELLED = {
    "CLUSTER_CA_BUNDLE": "clusterCABundle",
    "ISOLATED_VPC": "isolatedVPC",
    "RESERVED_ENIS": "reservedENIs",
    "IGNORE_DRA_REQUESTS": "ignoreDRARequests",
    "KUBE_CLIENT_QPS": "kubeClientQPS",
}
# Variables the chart sets from other values, and how.
ELSEWHERE = {
    "CPU_REQUESTS": "controller.resources",
    "MEMORY_LIMIT": "controller.resources",
    "FEATURE_GATES": "settings.featureGates",
    "AWS_FEATURE_GATES": "settings.awsFeatureGates",
    "HEALTH_PROBE_PORT": "controller.healthProbe.port",
    "METRICS_PORT": "controller.metrics.port",
    "NOTIFY_FILE": "notify.secretName",
    "KARPENTER_SERVICE": "fullnameOverride",
    "LOG_ERROR_OUTPUT_PATHS": "logErrorOutputPaths",
    "LOG_LEVEL": "logLevel",
    "LOG_OUTPUT_PATHS": "logOutputPaths",
}
# Settings of zonal shifts whose values stand below `zonalShift` under another name than their variable's end.
ZONAL, ZONAL_SPELLED = (
    "ZONAL_SHIFT_",
    {"ENABLE_DO_NOT_DISRUPT": "doNotDisrupt", "SNS_AUTO_SUBSCRIBE": "snsAutoSubscribe"},
)
# The chart names the ConfigMap itself.
ZONAL_FIXED = frozenset(("ZONAL_SHIFT_CONFIG_MAP",))
# Values whose inside is Kubernetes' business or the user's own.
OPEN = {
    "additionalLabels", "additionalAnnotations", "affinity", "annotations", "appArmorProfile", "dnsConfig",
    "endpointConfig", "labels", "nodeSelector", "podAnnotations", "podLabels", "podSecurityContext",
    "resources", "seLinuxOptions", "seccompProfile", "strategy", "volume",
}  # fmt: skip
CHOICES: dict[str, list[Any]] = {
    "provider": ["aws", "kwok"],
    "imagePullPolicy": ["Always", "IfNotPresent", "Never"],
    "dnsPolicy": ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"],
    "logLevel": ["", "debug", "info", "error"],
    "settings.preferencePolicy": ["Respect", "Ignore"],
    "settings.minValuesPolicy": ["Strict", "BestEffort"],
    "settings.planner": ["packed", "one-by-one"],
    "settings.metricsDetail": ["brief", "full"],
    "zonalShift.onDisable": ["restore", "leave"],
    "zonalShift.mode": ["", "Offerings", "NodePoolEdit", "Both"],
    "zonalShift.editStrategy": ["AppendNotIn", "RemoveFromIn"],
    "zonalShift.onlyZonePolicy": ["Freeze", "Leave", "Fallback"],
    "zonalShift.autoMode": ["auto", "Native", "Clone", "Off"],
    "zonalShift.dryRun": ["false", "true", "client", True, False],
    "zonalShift.standalone.zoneSpread": ["Required", "Preferred"],
    "zonalShift.standalone.service.type": ["ClusterIP", "NodePort", "LoadBalancer"],
}
DURATION = r"^$|\{\{|^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"


def value_name(variable: str) -> str:
    """The name of a setting's value below `settings`."""
    first, *rest = variable.lower().split("_")
    return SPELLED.get(variable) or first + "".join(word.capitalize() for word in rest)


def zonal_name(variable: str) -> str:
    """The name of such a setting's value below `zonalShift`; empty for any other setting."""
    if variable.startswith(ZONAL) and variable not in ZONAL_FIXED:
        return value_name(variable.removeprefix(ZONAL))
    return ZONAL_SPELLED.get(variable, "")


def elsewhere(variable: str) -> bool:
    """Whether the setting is no value below `settings`."""
    return variable in ELSEWHERE or variable in ZONAL_FIXED or bool(zonal_name(variable))


def old_names() -> dict[str, str]:
    """Old paths of values and their new ones, as the chart's own table has them."""
    text = (CHART / "templates" / "_oldnames.tpl").read_text(encoding="utf-8")
    table = re.search(r'define "dovetail.oldnames" -}}\n(.*?)\n{{- end -}}', text, re.DOTALL)
    assert table is not None
    found: dict[str, str] = yaml.safe_load(table[1])
    return found


def schema() -> dict[str, Any]:
    """The schema of values: whatever is in values.yaml, every setting, and old names; nothing else."""
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    top = _schema_of(values, "")
    inside = top["properties"]
    for setting in (*SETTINGS, *POLICY_FIELDS):
        if name := zonal_name(setting.variable):
            inside["zonalShift"]["properties"][name] = _setting(setting, f"zonalShift.{name}")
        elif not elsewhere(setting.variable):
            name = value_name(setting.variable)
            inside["settings"]["properties"].setdefault(name, _setting(setting, f"settings.{name}"))
    inside["zonalShift"]["properties"]["standalone"]["properties"]["replicas"]["minimum"] = 2
    inside["router"]["properties"]["config"] = _bus()
    for path in old_names():
        _allow(top, path.split("."))
    image = inside["controller"]["properties"]["image"]
    inside["controller"]["properties"]["image"] = {"anyOf": [image, {"type": "string"}]}
    inside["global"] = {"type": "object"}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart dovetail",
        **top,
    }


def _setting(setting: Setting | PolicyField, path: str) -> dict[str, Any]:
    if path in CHOICES:
        return {"enum": [*CHOICES[path], None]}
    if isinstance(setting.kind.read(setting.default), tuple):
        return {"type": ["array", "string", "null"]}
    return _of_setting(setting.kind.show(setting.kind.read(setting.default)), path.rpartition(".")[2])


def _bus() -> dict[str, Any]:
    """The keys of the router's configuration, as they nest; the router itself judges their values."""
    top: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
    for key in (*KEYS, *FIELDS):
        _allow(top, key.location.split("."))
        _allow(top, key.path.split("."))  # the name it had before `advanced`, which is still read
    return top


def _schema_of(value: Any, path: str) -> dict[str, Any]:
    name = path.rpartition(".")[2]
    if path in CHOICES:
        return {"enum": CHOICES[path]}
    if isinstance(value, dict):
        if name in OPEN:
            return {"type": "object"}
        inside = {key: _schema_of(each, f"{path}.{key}".lstrip(".")) for key, each in value.items()}
        return {"type": "object", "properties": inside, "additionalProperties": False}
    if path.startswith("settings."):
        return _of_setting(str(value) if not isinstance(value, bool) else value, name)
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, list):
        # Charts and people write a map here now and then, for `{}` was upstream's default.
        return {"type": ["array", "object"]} if name == "initContainers" else {"type": "array"}
    if value is None:
        return {"type": ["integer", "null"], "minimum": 0}
    if name in ("maxUnavailable",):
        return {"type": ["integer", "string"]}
    if isinstance(value, int):
        most = {"maximum": 65535} if name == "port" else {}
        return {"type": "integer", "minimum": 0, **most}
    return {"type": "string"}


def _of_setting(default: Any, name: str) -> dict[str, Any]:
    """A setting's value may always be a text, for it may hold a template expression."""
    if default in (True, False, "true", "false"):
        return {
            "anyOf": [{"type": ["boolean", "null"]}, {"type": "string", "pattern": r"^(true|false|)$|\{\{"}]
        }
    if re.fullmatch(r"[0-9.]+", str(default)):
        return {"anyOf": [{"type": ["number", "null"]}, {"type": "string", "pattern": r"^[0-9.]*$|\{\{"}]}
    if re.fullmatch(r"([0-9.]+(ms|s|m|h))+", str(default)):
        return {"type": ["string", "null"], "pattern": DURATION}
    return {"type": ["string", "object", "null"] if name == "schedulerConfig" else ["string", "null"]}


def _allow(schema: dict[str, Any], steps: list[str]) -> None:
    for step in steps[:-1]:
        inside = schema.setdefault("properties", {})
        schema = inside.setdefault(step, {"type": "object", "properties": {}, "additionalProperties": False})
    schema["properties"].setdefault(steps[-1], {})


def definitions() -> dict[str, str]:
    """The definitions of the provider aws for both charts, by path below deploy/helm."""
    found = {}
    for path, text in crd_files().items():
        flavour, _, name = path.partition("/")
        if flavour == "aws":
            found[f"dovetail/crds/{name}"] = text
            found[f"dovetail-crd/templates/{name}"] = _templated(text)
    return found


def _templated(text: str) -> str:
    inside = (
        "    {{- with .Values.additionalAnnotations }}\n    {{- toYaml . | nindent 4 }}\n    {{- end }}\n"
    )
    head = "\nmetadata:\n"
    if f"{head}  annotations:\n" in text:
        return text.replace(f"{head}  annotations:\n", f"{head}  annotations:\n{inside}", 1)
    block = inside.replace("Annotations }}\n", "Annotations }}\n  annotations:\n", 1)
    return text.replace(head, head + block, 1)


def own_definitions() -> dict[str, str]:
    """The definitions of our own kinds, for a chart cannot reach outside of itself."""
    found = {}
    for path, text in crd_files().items():
        folder, _, name = path.partition("/")
        if folder == "own":
            found[f"dovetail/files/own/{name}"] = text
    return found


def observability() -> dict[str, str]:
    """Dashboards and rules inside the chart, for a chart cannot reach outside of itself."""
    return {
        f"dovetail/files/{path}": text
        for path, text in observability_files().items()
        if path != "scrape.yaml"
    }


def files() -> dict[str, str]:
    """Every generated file's text, by its path below deploy/helm."""
    shown = json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
    return {"dovetail/values.schema.json": shown, **definitions(), **own_definitions(), **observability()}


def main() -> None:
    for path, text in files().items():
        target = ROOT / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    for stale in (CHART / "files" / "own").glob("*.yaml"):
        if stale.relative_to(ROOT).as_posix() not in files():
            stale.unlink()
    print(f"wrote {len(files())} files below deploy/helm")


if __name__ == "__main__":
    main()
