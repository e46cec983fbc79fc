"""The CRDs as a whole: current on disk, faithful to the records, and shown as kubectl users expect."""

from __future__ import annotations

import re
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dovetail.api.crds import PROVIDER_APIS, build_manifests, build_schema, list_definitions
from dovetail.api.crds.definition import constrain_field
from dovetail.api.crds.manifest import build_structural_schema
from dovetail.api.crds.other_kinds import KWOKNODECLASS
from dovetail.api.schema.cel import compile_rule
from dovetail.errors import Misconfigured
from dovetail.sim.kube.schema.crd import with_defaults
from dovetail.sim.kube.schema.crd_checks import validate_crd

ROOT = Path(__file__).parents[3]


def _crd(kind: str, flavour: str = "aws") -> dict[str, Any]:
    (found,) = (crd for crd in build_manifests(flavour) if crd["spec"]["names"]["kind"] == kind)
    return found


def _version(kind: str, flavour: str = "aws") -> dict[str, Any]:
    (version,) = _crd(kind, flavour)["spec"]["versions"]
    assert isinstance(version, dict)
    return version


def test_the_crds_on_disk_are_those_the_records_give() -> None:
    files: dict[str, str] = runpy.run_path(str(ROOT / "hack" / "write_crds.py"))["files"]()
    deployed = ROOT / "deploy" / "crds"
    on_disk = {
        path.relative_to(deployed).as_posix(): path.read_text(encoding="utf-8")
        for path in deployed.glob("*/*.yaml")
    }
    assert on_disk == files, "run `make crds`"


def test_the_crds_on_disk_read_back_as_the_manifests() -> None:
    for flavour in PROVIDER_APIS:
        for crd in build_manifests(flavour):
            name = f"{crd['spec']['group']}_{crd['spec']['names']['plural']}.yaml"
            assert yaml.safe_load((ROOT / "deploy" / "crds" / flavour / name).read_text("utf-8")) == crd


def test_a_record_field_without_a_row_is_an_error() -> None:
    fields = {path: row for path, row in KWOKNODECLASS.fields.items() if path != "spec.nodeRegistrationDelay"}
    with pytest.raises(Misconfigured, match="node_registration_delay"):
        build_structural_schema(replace(KWOKNODECLASS, fields=fields), "kwok")


def test_a_row_without_a_record_field_is_an_error() -> None:
    fields = {**KWOKNODECLASS.fields, "spec.invented": constrain_field("Nothing.")}
    with pytest.raises(Misconfigured, match=r"spec\.invented"):
        build_structural_schema(replace(KWOKNODECLASS, fields=fields), "kwok")


def test_the_schema_has_exactly_the_fields_of_the_record() -> None:
    for definitions in map(list_definitions, PROVIDER_APIS):
        for definition in definitions:
            schema = _version(definition.record.KIND.kind, "kwok" if definition is KWOKNODECLASS else "aws")
            spec = next(f for f in msgspec.structs.fields(definition.record) if f.name == "spec")
            names = {field.encode_name for field in msgspec.structs.fields(spec.type)}
            assert set(schema["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]) == names


@pytest.mark.spec("api-1")
def test_names_scopes_and_categories() -> None:
    shown = {
        crd["metadata"]["name"]: (
            crd["spec"]["scope"],
            crd["spec"]["versions"][0]["name"],
            crd["spec"]["names"]["singular"],
            crd["spec"]["names"].get("shortNames", []),
            crd["spec"]["names"]["categories"],
        )
        for flavour in PROVIDER_APIS
        for crd in build_manifests(flavour)
    }
    assert shown == {
        "nodepools.karpenter.sh": ("Cluster", "v1", "nodepool", [], ["karpenter"]),
        "nodeclaims.karpenter.sh": ("Cluster", "v1", "nodeclaim", [], ["karpenter"]),
        "nodeoverlays.karpenter.sh": ("Cluster", "v1alpha1", "nodeoverlay", ["overlays"], ["karpenter"]),
        "capacitybuffers.autoscaling.x-k8s.io": (
            "Namespaced",
            "v1beta1",
            "capacitybuffer",
            ["cb"],
            ["autoscaling"],
        ),
        "ec2nodeclasses.karpenter.k8s.aws": (
            "Cluster",
            "v1",
            "ec2nodeclass",
            ["ec2nc", "ec2ncs"],
            ["karpenter"],
        ),
        "kwoknodeclasses.karpenter.kwok.sh": (
            "Cluster",
            "v1alpha1",
            "kwoknodeclass",
            ["kwoknc", "kwokncs"],
            ["karpenter"],
        ),
    }


@pytest.mark.spec("api-1")
@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("NodePool", ["NodeClass", "Nodes", "Ready", "Age", "Weight*", "CPU*", "Memory*"]),
        (
            "NodeClaim",
            [
                *("Type", "Capacity", "Zone", "Node", "Ready", "Age"),
                *("ImageID*", "ID*", "NodePool*", "NodeClass*", "Drifted*"),
            ],
        ),
        ("NodeOverlay", ["Ready", "Age", "Weight*"]),
        (
            "CapacityBuffer",
            [
                *("Strategy", "PodTemplate", "Replicas"),
                *("ConditionsType", "ConditionsStatus", "ConditionsReason", "Age"),
            ],
        ),
        ("EC2NodeClass", ["Ready", "Age", "Role*"]),
    ],
)
def test_the_columns_kubectl_prints(kind: str, columns: list[str]) -> None:
    """A star marks a column of `-o wide`."""
    shown = [c["name"] + "*" * c.get("priority", 0) for c in _version(kind)["additionalPrinterColumns"]]
    assert shown == columns


def test_only_pools_can_be_scaled_and_every_kind_has_a_status() -> None:
    assert _version("NodePool")["subresources"]["scale"] == {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.nodes",
    }
    for kind in ("NodeClaim", "NodeOverlay", "CapacityBuffer", "EC2NodeClass"):
        assert _version(kind)["subresources"] == {"status": {}}
    assert "additionalPrinterColumns" not in _version("KWOKNodeClass", "kwok")


@pytest.mark.parametrize(
    ("kind", "required"),
    [
        ("NodePool", ["spec"]),
        ("NodeClaim", ["spec"]),
        ("NodeOverlay", ["spec"]),
        ("CapacityBuffer", ["spec"]),
        ("EC2NodeClass", []),
    ],
)
def test_what_is_required_at_the_top(kind: str, required: list[str]) -> None:
    assert _version(kind)["schema"]["openAPIV3Schema"].get("required", []) == required


def test_every_rule_stands_in_the_crd_and_compiles() -> None:
    for flavour, definitions in zip(PROVIDER_APIS, map(list_definitions, PROVIDER_APIS), strict=True):
        for definition in definitions:
            text = yaml.safe_dump(_crd(definition.record.KIND.kind, flavour), width=10_000)
            written = text.count("rule: ")
            rules = definition.rules_of(flavour)
            assert written == len(rules)
            for rule in rules:
                assert compile_rule(rule.cel).uses_old is rule.transition
                assert "\n" not in rule.says


@pytest.mark.spec("api-1")
@pytest.mark.parametrize("flavour", [*PROVIDER_APIS])
def test_the_embedded_server_installs_every_crd(flavour: str) -> None:
    for crd in build_manifests(flavour):
        assert validate_crd(with_defaults(crd)) == []


def test_rules_loop_only_over_what_is_bounded() -> None:
    """The API server refuses rules whose worst case is dear, and a list without a bound is its worst case.

    The few exceptions do so little for each key that a request of the largest size stays affordable.
    """
    unbounded = set()
    for flavour, definitions in zip(PROVIDER_APIS, map(list_definitions, PROVIDER_APIS), strict=True):
        for definition in definitions:
            schema = build_schema(definition.record.KIND.kind, flavour)
            for rule in definition.rules_of(flavour):
                for looped in re.findall(r"self((?:\.\w+)*)\.(?:all|exists|exists_one|filter)\(", rule.cel):
                    node = _node(schema, rule.at + looped)
                    if "maxItems" not in node and "maxProperties" not in node:
                        unbounded.add(rule.id)
    assert unbounded == {"EC-24", "KU-2", "KU-3", "KU-5:kubeReserved", "KU-5:systemReserved"}


def _node(schema: dict[str, Any], path: str) -> dict[str, Any]:
    for step in path.replace("[]", ".[]").split("."):
        schema = schema["items"] if step == "[]" else schema["properties"][step]
    return schema


def test_every_field_is_described_in_one_sentence() -> None:
    for flavour in PROVIDER_APIS:
        for crd in build_manifests(flavour):
            schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            for text in _descriptions(schema):
                assert text.endswith(".")
                assert ". " not in text


def _descriptions(schema: dict[str, Any]) -> list[str]:
    found = [schema["description"]] if "description" in schema else []
    for child in [*schema.get("properties", {}).values(), schema.get("items")]:
        found += _descriptions(child) if child else []
    return found


def test_the_aws_label_rules_are_absent_without_aws() -> None:
    assert "karpenter.k8s.aws" in yaml.safe_dump(_crd("NodePool", "aws"))
    for kind in ("NodePool", "NodeClaim", "NodeOverlay"):
        assert "karpenter.k8s.aws" not in yaml.safe_dump(_crd(kind, "kwok"))
