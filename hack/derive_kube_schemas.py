#!/usr/bin/env python3
"""Derive the field tables of Kubernetes' built-in kinds from its published Go types.

Needs Go on the PATH and a reachable Go module proxy. The struct tags and markers of k8s.io/api,
k8s.io/apimachinery and k8s.io/apiextensions-apiserver say each field's JSON name, its type, its protobuf
number, and how lists merge. Only those facts are kept; no descriptions.

    python hack/derive_kube_schemas.py [--version v0.35.0]

Each message becomes one line: a list of fields [json name, type, protobuf number, flags…]. Types are
s string, b bool, i int32, l int64, d double, y bytes, T time, M microtime, D duration, Q quantity,
I int-or-string, R any object, F a field set, V a wrapped list of strings, JSON and JSON-schema unions
J SB SA SS, @name another message, [] a list of, {} a map of. Flags are
p pointer, o left out when empty, r required, n inlined, A atomic map or struct, P= patch strategy,
K= patch merge key, L= list type, M= list map keys, D= default.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "src/dovetail/sim/kube/data/builtin.json"
API, MACHINERY, EXTENSIONS = "k8s.io/api", "k8s.io/apimachinery", "k8s.io/apiextensions-apiserver"
META = "meta/v1"
PACKAGES = (
    *("core/v1", "apps/v1", "batch/v1", "policy/v1", "storage/v1", "scheduling/v1", "coordination/v1"),
    *("events/v1", "rbac/v1", "authorization/v1", "authentication/v1", "autoscaling/v1", "autoscaling/v2"),
    *("node/v1", "networking/v1", "discovery/v1", "admissionregistration/v1", "resource/v1"),
    "certificates/v1",
)
SCALARS = {
    "string": "s",
    "bool": "b",
    "int32": "i",
    "int": "i",
    "uint32": "i",
    "int64": "l",
    "uint64": "l",
    "float64": "d",
    "float32": "d",
    "[]byte": "y",
    "types.UID": "s",
    "types.NodeName": "s",
}
SPECIAL = {
    "meta/v1.Time": "T",
    "meta/v1.MicroTime": "M",
    "meta/v1.Duration": "D",
    "meta/v1.FieldsV1": "F",
    "meta/v1.Verbs": "V",
    "resource.Quantity": "Q",
    "intstr.IntOrString": "I",
    "runtime.RawExtension": "R",
    "runtime.Object": "R",
    "authentication/v1.ExtraValue": "V",
    "authorization/v1.ExtraValue": "V",
    "certificates/v1.ExtraValue": "V",
    "apiextensions/v1.JSON": "J",
    "apiextensions/v1.JSONSchemaPropsOrBool": "SB",
    "apiextensions/v1.JSONSchemaPropsOrArray": "SA",
    "apiextensions/v1.JSONSchemaPropsOrStringArray": "SS",
}
FIELD = re.compile(r"^\t(?:(?P<name>[A-Z]\w*)\s+)?(?P<type>[\w.*\[\]]+)\s+`(?P<tags>[^`]*)`")
TAG = re.compile(r'(\w+):"([^"]*)"')


class Package:
    """The declarations of one Go package: its structs, its other named types and its imports."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.structs: dict[str, list[dict[str, Any]]] = {}
        self.atomic: set[str] = set()
        self.named: dict[str, str] = {}
        self.imports: dict[str, str] = {}
        register = (folder / "register.go").read_text()
        found = re.search(r'GroupName\s*=\s*"([^"]*)"', register)
        self.group = found.group(1) if found else "apiextensions.k8s.io"
        for path in sorted(folder.glob("*.go")):
            if not re.search(r"(_test|generated.*|_swagger.*)\.go$", path.name) and "zz_" not in path.name:
                self._read(path.read_text().splitlines())

    def _read(self, lines: list[str]) -> None:
        comments: list[str] = []
        struct: list[dict[str, Any]] | None = None
        for line in lines:
            if alias := re.match(r'^\t(\w+ )?"(k8s\.io/[^"]+)"', line):
                path = alias.group(2)
                self.imports[(alias.group(1) or path.rsplit("/", 1)[-1]).strip()] = path
            if line.strip().startswith("//"):
                comments.append(line.strip().removeprefix("//").strip())
                continue
            if opened := re.match(r"^type (\w+) struct ?\{", line):
                fresh = self.structs.setdefault(opened.group(1), [])
                struct = None if line.endswith("{}") else fresh
                if any(c in ("+structType=atomic", "+mapType=atomic") for c in comments):
                    self.atomic.add(opened.group(1))
            elif line.startswith("}"):
                struct = None
            elif named := re.match(r"^type (\w+) ([\w.\[\]*]+)$", line):
                self.named[named.group(1)] = named.group(2)
            elif struct is not None and (found := FIELD.match(line)):
                tags = dict(TAG.findall(found["tags"]))
                struct.append({"type": found["type"], "tags": tags, "marks": comments})
            comments = [] if line.strip() else comments


class Derivation:
    """All packages, and the messages reached from their kinds."""

    def __init__(self, folders: dict[str, Path]) -> None:
        self.packages = {META: Package(META, folders[MACHINERY] / "pkg/apis/meta/v1")}
        extensions = folders[EXTENSIONS] / "pkg/apis/apiextensions/v1"
        self.packages["apiextensions/v1"] = Package("apiextensions/v1", extensions)
        for name in PACKAGES:
            self.packages[name] = Package(name, folders[API] / name)
        self.messages: dict[str, dict[str, Any]] = {}
        self.kinds: dict[str, str] = {}

    def run(self) -> None:
        for name, package in self.packages.items():
            for struct, fields in package.structs.items():
                if not any(f["type"].endswith("TypeMeta") for f in fields) or struct.endswith("List"):
                    continue
                version = name.split("/")[1]
                group = f"{package.group}/" if package.group else ""
                if name != META:
                    self.kinds[f"{group}{version}/{struct}"] = f"{name}.{struct}"
                self.message(name, struct)

    def message(self, package: str, struct: str) -> str:
        key = f"{package}.{struct}"
        if key not in self.messages:
            entry: dict[str, Any] = {"fields": []}
            self.messages[key] = entry
            if struct in self.packages[package].atomic:
                entry["atomic"] = True
            fields = self.packages[package].structs[struct]
            entry["fields"] = [row for f in fields if (row := self.field(package, f))]
        return key

    def field(self, package: str, field: dict[str, Any]) -> list[Any] | None:
        tags, marks = field["tags"], field["marks"]
        name, *options = tags.get("json", "-").split(",")
        inline = "inline" in options
        if name == "-" or field["type"].endswith("TypeMeta") or not (name or inline):
            return None
        kind = self.type(package, field["type"])
        number = tags.get("protobuf", ",0").split(",")[1]
        flags = ["n"] if inline else []
        flags += ["p"] if field["type"].startswith("*") else []
        optional = "omitempty" in options or "omitzero" in options
        flags += ["o"] if optional else []
        if not (optional or inline or "+optional" in marks) or "+required" in marks:
            flags.append("r")
        flags += merging(kind, tags, marks)
        return [name, kind, int(number), *flags]

    def type(self, package: str, text: str) -> str:
        text = text.lstrip("*")
        if text in SCALARS:
            return SCALARS[text]
        if text.startswith("[]"):
            return "[]" + self.type(package, text[2:])
        if text.startswith("map["):
            return "{}" + self.type(package, text.split("]", 1)[1])
        if "." in text:
            alias, _, name = text.partition(".")
            path = self.packages[package].imports.get(alias, "")
            short = "/".join(path.split("/")[-2:])
            package = {"api/resource": "resource", "util/intstr": "intstr"}.get(short, short)
            package = "runtime" if path.endswith("pkg/runtime") else package
            text = name
        if special := SPECIAL.get(f"{package}.{text}"):
            return special
        if text in self.packages[package].named:
            return self.type(package, self.packages[package].named[text])
        return "@" + self.message(package, text)


def merging(kind: str, tags: dict[str, str], marks: list[str]) -> list[str]:
    """How patches and appliers treat the field."""
    flags = []
    strategy, key = tags.get("patchStrategy", ""), tags.get("patchMergeKey", "")
    if strategy:
        flags.append(f"P={strategy}")
    if key:
        flags.append(f"K={key}")
    listed = [m.removeprefix("+listType=") for m in marks if m.startswith("+listType=")]
    keys = [m.removeprefix("+listMapKey=") for m in marks if m.startswith("+listMapKey=")]
    if kind.startswith("[]"):
        # A list without a type of its own is taken at its patch strategy's word.
        fallback = ("map" if key else "set") if "merge" in strategy else ""
        shape = listed[0] if listed else fallback
        if shape and shape != "atomic":
            flags.append(f"L={shape}")
        if shape == "map":
            flags.append("M=" + ",".join(keys or [key]))
    if "+mapType=atomic" in marks or "+structType=atomic" in marks:
        flags.append("A")
    flags += [f"D={m.removeprefix('+default=')}" for m in marks if re.match(r'\+default=["\d]', m)]
    return flags


def download(version: str) -> dict[str, Path]:
    """The folders of the three modules, fetched by Go."""
    modules = (API, MACHINERY, EXTENSIONS)
    with tempfile.TemporaryDirectory() as folder:
        command = ["go", "mod", "download", "-json", *(f"{module}@{version}" for module in modules)]
        reply = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    decoder, position, found = json.JSONDecoder(), 0, {}
    while position < len(reply.rstrip()):
        entry, position = decoder.raw_decode(reply, position)
        found[entry["Path"]] = Path(entry["Dir"])
        position += len(reply[position:]) - len(reply[position:].lstrip())
    return found


def written(version: str, derivation: Derivation) -> str:
    """The tables as JSON with one message on each line, so that a new version reads as a diff."""
    messages = (
        f"{json.dumps(name)}: {json.dumps(entry, separators=(',', ':'))}"
        for name, entry in sorted(derivation.messages.items())
    )
    origin = f"derived by hack/derive_kube_schemas.py from {API}, {MACHINERY}, {EXTENSIONS} {version}"
    kinds = json.dumps(dict(sorted(derivation.kinds.items())), indent=0)
    lines = ",\n".join(messages)
    return f'{{"origin": {json.dumps(origin)},\n"kinds": {kinds},\n"messages": {{\n{lines}\n}}}}\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--version", default="v0.35.0")
    version = parser.parse_args().version
    derivation = Derivation(download(version))
    derivation.run()
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(written(version, derivation))
    print(f"{TARGET.name}: {len(derivation.kinds)} kinds, {len(derivation.messages)} messages")


if __name__ == "__main__":
    main()
