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

from dovetail.settings.table import SETTINGS

ROOT = Path(__file__).resolve().parent.parent / "deploy" / "helm"
CHART, CRD_CHART = ROOT / "dovetail", ROOT / "dovetail-crd"
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
    "KARPENTER_SERVICE": "fullnameOverride",
    "LOG_ERROR_OUTPUT_PATHS": "logErrorOutputPaths",
    "LOG_LEVEL": "logLevel",
    "LOG_OUTPUT_PATHS": "logOutputPaths",
}
# Values whose inside is Kubernetes' business or the user's own.
OPEN = {
    "additionalLabels", "additionalAnnotations", "affinity", "annotations", "appArmorProfile", "dnsConfig",
    "endpointConfig", "labels", "nodeSelector", "podAnnotations", "podLabels", "podSecurityContext",
    "resources", "seLinuxOptions", "seccompProfile", "strategy",
}  # fmt: skip
CHOICES = {
    "provider": ["aws", "kwok"],
    "imagePullPolicy": ["Always", "IfNotPresent", "Never"],
    "dnsPolicy": ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"],
    "logLevel": ["", "debug", "info", "error"],
    "settings.preferencePolicy": ["Respect", "Ignore"],
    "settings.minValuesPolicy": ["Strict", "BestEffort"],
    "settings.planner": ["packed", "one-by-one"],
    "settings.metricsDetail": ["brief", "full"],
}
DURATION = r"^$|\{\{|^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"


def value_name(variable: str) -> str:
    """The name of a setting's value below `settings`."""
    first, *rest = variable.lower().split("_")
    return SPELLED.get(variable) or first + "".join(word.capitalize() for word in rest)


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
    settings = top["properties"]["settings"]["properties"]
    for setting in SETTINGS:
        name = value_name(setting.variable)
        if setting.variable not in ELSEWHERE and name not in settings:
            chosen = CHOICES.get(f"settings.{name}")
            settings[name] = (
                {"enum": [*chosen, None]}
                if chosen
                else _of_setting(setting.kind.show(setting.kind.read(setting.default)), name)
            )
    for path in old_names():
        _allow(top, path.split("."))
    image = top["properties"]["controller"]["properties"]["image"]
    top["properties"]["controller"]["properties"]["image"] = {"anyOf": [image, {"type": "string"}]}
    top["properties"]["global"] = {"type": "object"}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart dovetail",
        **top,
    }


def _schema_of(value: Any, path: str) -> dict[str, Any]:
    name = path.rpartition(".")[2]
    if path in CHOICES:
        return {"type": "string", "enum": CHOICES[path]}
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
    if re.fullmatch(r"[0-9.]+(ms|s|m|h)", str(default)):
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
    return {"dovetail/values.schema.json": shown, **definitions(), **observability()}


def main() -> None:
    for path, text in files().items():
        target = ROOT / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    print(f"wrote {len(files())} files below deploy/helm")


if __name__ == "__main__":
    main()
