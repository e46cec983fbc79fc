"""Write the pages of docs/reference that are made from the code: run it after changing either.

``--check`` writes nothing and ends with 1 when a page is out of date.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from logging import getLevelName
from pathlib import Path
from pkgutil import walk_packages
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import condition_page
import crd_page

import dovetail
from dovetail.api import labels
from dovetail.api.core import Node
from dovetail.api.meta import Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.app.controller import Dovetail
from dovetail.bus.config import FIELDS
from dovetail.cli.main import COMMANDS, DeferredCommand, build_cli
from dovetail.controllers.observing.nodes import NodeGauges
from dovetail.controllers.observing.status import StatusDetail, StatusMetrics
from dovetail.disruption.candidates import BLOCKED, UNCONSOLIDATABLE
from dovetail.history.messages import build_schema
from dovetail.logs import MESSAGES
from dovetail.metrics import CONDITION_BUCKETS, PROMETHEUS_BUCKETS, REGISTRY, in_brief
from dovetail.runtime.informer import Informer
from dovetail.settings import (
    AWS_GATES,
    GATES,
    POLICY_FIELDS,
    REMOVED,
    SETTINGS,
    FeatureGates,
    PolicyField,
    Setting,
    Settings,
)
from dovetail.sim.clock import VirtualClock
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.transport import LocalTransport

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
SOURCE = ROOT / "src" / "dovetail"
MADE = "<!-- Made by hack/write_docs.py from the code; edit that instead. -->"
WIDTH = 100

SETTINGS_OPENING = """\
Everything the controller can be told. A flag wins over the environment, the environment over the default.
`dovetail settings` shows what is in force and where each value came from.

- A wrong value stops the process at start, with one sentence that names the setting, the value and what
  is allowed.
- Switches are `true` or `false`. The environment may also use the other spellings Go knows, such as `1` or
  `F`; a flag may not, and without a value it means `true`.
- Durations are written as in Go: `500ms`, `10s`, `1m30s`, `720h`.
- An empty variable counts as none where empty is not a value, so `METRICS_PORT=` means the default.
- Flags are written `--name=value` or `--name value`; a switch takes its value after `=` only."""

SCHEDULER_SECTION = """\
## The scheduler document

`SCHEDULER_CONFIG` holds a document in YAML or JSON, for clusters whose kube-scheduler spreads pods by
default. Planning then counts on the same spreading for pods that have no constraints of their own.

```yaml
podTopologySpread:
  defaultConstraints:
    - maxSkew: 1
      topologyKey: topology.kubernetes.io/zone
      whenUnsatisfiable: ScheduleAnyway
```

It is read strictly: unknown members are refused; `maxSkew` is above 0; `topologyKey` is a label name;
`whenUnsatisfiable` is `DoNotSchedule` or `ScheduleAnyway`; no two constraints share both; `labelSelector` and
`matchLabelKeys` may not be given, because selectors come from each pod's Service or owner."""

ROUTER_SECTION = """\
## Old names of the interruption router

The router has a file and variables of its own; [its guide](../guides/multi-cluster-bus.md#every-key) lists
its keys. These were keys once and are now fields of the key `advanced`. The old names are still read, and
reported when the router starts and by `dovetail interruption-router --check`.\
"""

POLICY_OPENING = """\
## The policy of zonal shift

What is rarely chosen about zonal shift is a field of its policy: a key of the ConfigMap that
`ZONAL_SHIFT_CONFIG_MAP` names (`namespace/name`), beside `policy` and `dry-run`. The controller (also in
`dovetail up` and `simulate`), `dovetail zonal-shift run` and the Lambda function read the same map. The
chart writes it: `zonalShift.minHold` becomes `min-hold`.

```yaml
apiVersion: v1
kind: ConfigMap
metadata: {name: karpenter-zonal-shift, namespace: kube-system}
data:
  policy: manual=Enforce,practice=Protect
  min-hold: 10m
  restore-batch: 50%
```

A field that counts *at once* is followed while the process runs; one that counts *at start* is read when
the process starts. A bad value changes nothing: it is logged, and the event `ZonalShiftMisconfigured` on
the map names the key, the value and what is allowed."""

FORMER_OPENING = """\
### Settings that became fields

Each field was a setting. Its old variable and its old flag still work, and are reported at the start with
their replacement. A field in the ConfigMap wins over the old flag, the old flag over the old variable, the
variable over the default. A field that is left out of the map, or is empty, is what the old names say."""

REMOVED_OPENING = """\
## Names that are no longer read

Finding one of these in the environment leads to a warning with its replacement. It is never obeyed. The
names with dots are keys of the ConfigMap `karpenter-global-settings`. `METRICS_PORT` was 8000 by default
up to 0.37, and is 8080 now."""

METRICS_OPENING = """\
What `/metrics` serves, on the port of `METRICS_PORT`. Names, types and labels are those of Karpenter,
controller-runtime and client-go; [compatibility](../compatibility.md) says which of theirs are not there yet.
A histogram adds `_bucket`, `_sum` and `_count` to its name; a summary adds `_sum` and `_count`. Labels that
depend on the provider are those of AWS.

`METRICS_DETAIL` is `brief` by default: 500 nodes then make under 2,000 series, where Karpenter has 33,000.
The column *in brief* says what is left: histograms show a few of their bounds (quantiles are coarser),
some metrics are shown only while they are not 0, and some not at all. Nodes, pods and conditions that are
alike are added up: series of nodes are told apart by `nodepool`, `capacity_type`, `zone`, `arch`, `phase` and
`managed`, for allocatable cpu and memory by `instance_type` too; those of pods have no `name`, `namespace`,
`node` and `owner`; those of conditions no `name`. Of pods that wait, the ten who waited longest are named.
Sums, shares and rates on a dashboard stay right. What *counts* series does not: the number of nodes of a pool
is `karpenter_nodepools_usage{resource_type="nodes"}`, and a table with a line for each node needs
`METRICS_DETAIL=full`, which shows everything as Karpenter does."""

EVENTS_OPENING = """\
What `kubectl get events` and `kubectl describe` show. The reasons are those of Karpenter, and so is the
reporting component, `karpenter`. The same is told once within a window of time; repeats are counted."""

LOGS_OPENING = """\
What runbooks and tools may rely on: messages, levels and keys are Karpenter's, and lines are JSON in zap's
layout. `LOG_LEVEL` is `debug`, `info` or `error`; `LOG_OUTPUT_PATHS` says where lines go.

| key | content |
| --- | --- |
| `level` | `DEBUG`, `INFO`, `WARN` or `ERROR` |
| `time` | UTC, with milliseconds |
| `logger` | `controller`; `controller.audit` for what a zonal shift writes; `controller.NAME` for a library |
| `caller` | file and line, with `LOG_LEVEL=debug` only |
| `message` | one of those below, or a sentence about trouble |
| `commit` | the build's revision (`DOVETAIL_COMMIT`), or `unknown` |
| `controller` | who says it; with `controllerGroup`, `controllerKind` and the object under its kind's name |
| `namespace`, `name`, `reconcileID` | the object, and which visit to it |
| `error` | what went wrong, in words; of several errors each, separated by semicolons. Never a stack trace |

An object is named as `{"name": "…"}`, or with its `namespace` as well. Of one message, the first hundred
lines of a second are written and then every hundredth. What would be said in every pass, such as why a pool
cannot grow, is said when it changes and then once an hour. [The log of a whole story](../guides/log.md) shows
the lines one by one."""

# Where an event's reason is the second thing said.
TELLERS = ("publish_event", "_record_event", "_record_on_node_and_claim", "DoNotDisrupt")


def pages() -> dict[str, str]:
    """Every generated page by its file name."""
    return {
        "cli.md": cli_page(),
        "settings.md": settings_page(),
        "metrics.md": metrics_page(),
        "events.md": events_page(),
        "logs.md": logs_page(),
        "conditions.md": conditions_page(),
        "crds.md": crds_page(),
        "decision.schema.json": json.dumps(build_schema(), indent=2) + "\n",
    }


def cli_page() -> str:
    """The help of every command, as it is printed."""
    group = build_cli()
    parts = [
        "# Command line",
        MADE,
        "Results also come as `-o json` and `-o yaml`. See also [exit codes](exit-codes.md).",
    ]
    with group.make_context("dovetail", [], resilient_parsing=True, terminal_width=WIDTH) as context:
        parts += ["## dovetail", _block(context.get_help())]
        for name in COMMANDS:
            command = group.commands[name]
            assert isinstance(command, DeferredCommand)
            inner = command.make_context(
                name, [], parent=context, resilient_parsing=True, terminal_width=WIDTH
            )
            parts += [f"## dovetail {name}", _block(inner.get_help())]
    return _page(parts)


def settings_page() -> str:
    """The table of settings, the gates and the names of the past."""
    parts = ["# Settings", MADE, SETTINGS_OPENING]
    for title, provider in (("Core", None), ("AWS", "aws"), ("KWOK", "kwok")):
        rows = [_setting_row(setting) for setting in SETTINGS if setting.provider == provider]
        parts += [f"## {title}", _table(("variable", "flag", "default", "allowed", "meaning"), rows)]
    fields = ("field", "default", "counts", "allowed", "meaning")
    parts += [POLICY_OPENING, _table(fields, map(_policy_row, POLICY_FIELDS))]
    former = [(f"`{each.variable}`", f"`{each.flag}`", f"`{each.key}`") for each in POLICY_FIELDS]
    parts += [FORMER_OPENING, _table(("removed variable", "removed flag", "replacement"), former)]
    parts += ["## Feature gates", "`FEATURE_GATES`, and for the last one `AWS_FEATURE_GATES`, switch these."]
    parts += [_table(("gate", "default", "stage", "since", "effect"), _gate_rows())]
    parts += [SCHEDULER_SECTION, REMOVED_OPENING, _table(("name", "read", "instead"), _removed_rows())]
    parts += [ROUTER_SECTION, _table(("old key", "old variable", "now"), _router_rows())]
    return _page(parts)


def _router_rows() -> list[Sequence[str]]:
    return [(f"`{key.path}`", f"`{key.variable}`", f"`{key.location}`") for key in FIELDS]


def _setting_row(setting: Setting) -> Sequence[str]:
    default = f"`{setting.default}`" if setting.default else "empty"
    if setting.required:
        default = "none; required"
    return (f"`{setting.variable}`", f"`{setting.flag}`", default, setting.kind.allowed, setting.meaning)


def _policy_row(field: PolicyField) -> Sequence[str]:
    default = f"`{field.default}`" if field.default else "empty"
    return (
        f"`{field.key}`",
        default,
        "at once" if field.live else "at start",
        field.kind.allowed,
        field.meaning,
    )


def _gate_rows() -> Iterable[Sequence[str]]:
    defaults = Settings()
    for gates, record in ((GATES, defaults.feature_gates), (AWS_GATES, defaults.aws_feature_gates)):
        for gate in gates:
            on = str(getattr(record, gate.field)).lower()
            yield (f"`{gate.name}`", on, gate.stage, gate.since, gate.effect)


def _removed_rows() -> Iterable[Sequence[str]]:
    for removed in REMOVED:
        instead = f"`{removed.replacement}`" if removed.replacement else removed.instead
        yield (f"`{removed.name}`", removed.era, instead + (", reversed" if removed.inverted else ""))


def metrics_page() -> str:
    """Every metric that any part of the program declares."""
    _import_everything()
    _declare()
    families: dict[str, list[tuple[str, ...]]] = {}
    # Neither the registry's list of collectors nor a collector's labels are public.
    for collector in list(REGISTRY._collector_to_names):
        for row in _metric_rows(collector):
            families.setdefault(_family(row[0]), []).append(row)
    parts = ["# Metrics", MADE, METRICS_OPENING]
    for family, rows in sorted(families.items()):
        parts += [f"## {family}", _table(("name", "type", "labels", "in brief", "counts"), sorted(rows))]
    return _page(parts)


# Old names of deployed entry points: importing one writes a warning.
OLD_NAMES = ("dovetail.runtime.function",)


def _import_everything() -> None:
    for module in walk_packages(dovetail.__path__, "dovetail."):
        if not module.name.endswith("__main__") and module.name not in OLD_NAMES:
            import_module(module.name)


def logs_page() -> str:
    """Every log message that any part of the program declares."""
    _import_everything()
    rows = [
        (
            f"`{each.text}`",
            getLevelName(each.level),
            each.about + (" Karpenter has no such line." if each.ours else ""),
            ", ".join(f"`{key}`" for key in each.keys),
        )
        for each in sorted(MESSAGES.values(), key=lambda each: each.text)
    ]
    return _page(
        ["# Log messages", MADE, LOGS_OPENING, _table(("message", "level", "said when", "keys"), rows)]
    )


def _declare() -> None:
    """Have those metrics declared whose names or labels depend on kinds and provider."""
    clock = VirtualClock()
    gates = FeatureGates(node_overlay=True, static_capacity=True, capacity_buffer=True)
    transport = LocalTransport(ApiServer(clock, Random(0)))
    everything = Settings(feature_gates=gates, spend_limits=True, commitments="Show", rule_prices="@weekly")
    made = Dovetail(everything, transport, clock=clock, chance=Random(0))
    NodeGauges(made.cluster, labels.AWS, clock)
    kinds: tuple[tuple[type[Object], tuple[str, ...]], ...] = (
        (NodeClaim, (labels.EC2_NODECLASS, labels.NODEPOOL)),
        (Node, (labels.EC2_NODECLASS, labels.NODEPOOL, labels.INITIALIZED)),
        (EC2NodeClass, ()),
    )
    for kind, extras in kinds:
        buckets = PROMETHEUS_BUCKETS if kind is EC2NodeClass else CONDITION_BUCKETS
        StatusMetrics(kind, Informer(kind), clock, made.recorder, StatusDetail(extras, buckets, each=True))


def _metric_rows(collector: Any) -> Iterator[tuple[str, ...]]:
    """A metric's name as it is shown, its type, its labels and its sentence."""
    describe = getattr(collector, "describe", collector.collect)
    names: Sequence[str] = getattr(collector, "_labelnames", ()) or getattr(collector, "_labels", ())
    labels = ", ".join(f"`{name}`" for name in names)
    for family in describe():
        shown = family.name + ("_total" if family.type == "counter" else "")
        yield (f"`{shown}`", family.type, labels, in_brief(family.name), family.documentation)


def _family(name: str) -> str:
    """The part of the program a metric speaks of, as its name begins."""
    words = name.strip("`").split("_")
    return " ".join(words[:2]) if words[0] in ("karpenter", "client", "controller") else words[0]


def events_page() -> str:
    """Every event that any part of the program writes under a name of its own."""
    told = {(reason, "Normal", "disruption/candidates.py") for reason in (BLOCKED, UNCONSOLIDATABLE)}
    for path in SOURCE.rglob("*.py"):
        if "sim" not in path.relative_to(SOURCE).parts:
            told |= set(_events(path))
    rows = [
        (f"`{reason}`", kind, f"[{home}](../../src/dovetail/{home})") for reason, kind, home in sorted(told)
    ]
    return _page(["# Events", MADE, EVENTS_OPENING, _table(("reason", "type", "told in"), rows)])


def _events(path: Path) -> Iterator[tuple[str, str, str]]:
    """The events told in a file: reasons that are written out in a call."""
    tree, home = ast.parse(path.read_text(encoding="utf-8")), str(path.relative_to(SOURCE))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) > 1 and _called(node.func) in TELLERS:
            reason = getattr(node.args[1], "value", None)
            if isinstance(reason, str):
                warning = any(k.arg == "warning" and ast.unparse(k.value) == "True" for k in node.keywords)
                yield reason, "Warning" if warning else "Normal", home


def _called(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)


def conditions_page() -> str:
    """Every condition, and the reasons it may give."""
    shared = _listed(condition_page.shared_reasons())
    parts = ["# Conditions", MADE, condition_page.OPENING, f"Reasons that any object may show: {shared}."]
    for kind, rows, given in condition_page.sections():
        parts += [f"## {kind}", _table(condition_page.COLUMNS, rows)]
        if given:
            parts.append(f"Reasons: {_listed(given)}.")
    return _page(parts)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def crds_page() -> str:
    """Every field and rule of every kind."""
    parts = ["# Kinds", MADE, crd_page.OPENING]
    for kind, about, fields, rules in crd_page.sections():
        parts += [f"## {kind}", about, _table(crd_page.COLUMNS, fields)]
        if rules:
            parts += [f"### Rules of {kind}", _table(("at", "rule", "says"), rules)]
    return _page(parts)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _block(text: str) -> str:
    return "```text\n" + "\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n```"


def _page(parts: Sequence[str]) -> str:
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or check them."""
    stale = []
    for name, text in pages().items():
        path = REFERENCE / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
            if "--check" not in arguments:
                path.write_text(text, encoding="utf-8")
    verb = "out of date" if "--check" in arguments else "written"
    print(f"{verb}: {', '.join(stale)}" if stale else "every page is up to date")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
