"""Old manifests as plain objects, what they convert to, and whether a v1 API server would take it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from dovetail.api.legacy import Conversion, ConvertOptions, Note, NoteSeverity, convert_documents
from dovetail.api.manifests import parse_manifests
from dovetail.api.schema.object_schema import Schema

Manifest = dict[str, Any]

PROVIDER = {"instanceProfile": "profile", "subnetSelector": {"a": "b"}, "securityGroupSelector": {"a": "b"}}
ANYTHING = [{"key": "node.kubernetes.io/instance-type", "operator": "Exists"}]


def provisioner(name: str = "default", /, **spec: Any) -> Manifest:
    """A Provisioner with a provider block, unless told otherwise."""
    described = spec if "providerRef" in spec else {"provider": PROVIDER} | spec
    return {
        "apiVersion": "karpenter.sh/v1alpha5",
        "kind": "Provisioner",
        "metadata": {"name": name},
        "spec": described,
    }


def template(name: str = "default", /, **spec: Any) -> Manifest:
    """An AWSNodeTemplate that lacks nothing."""
    return {
        "apiVersion": "karpenter.k8s.aws/v1alpha1",
        "kind": "AWSNodeTemplate",
        "metadata": {"name": name},
        "spec": PROVIDER | spec,
    }


def beta_pool(name: str = "default", /, node_class: Manifest | None = None, **spec: Any) -> Manifest:
    """A v1beta1 NodePool; keywords starting with `template_` go into its node template."""
    inner = {
        key.removeprefix("template_"): value for key, value in spec.items() if key.startswith("template_")
    }
    outer = {key: value for key, value in spec.items() if not key.startswith("template_")}
    ref = node_class or {"name": "default"}
    return {
        "apiVersion": "karpenter.sh/v1beta1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"nodeClassRef": ref, "requirements": ANYTHING} | inner}} | outer,
    }


def beta_class(name: str = "default", /, **spec: Any) -> Manifest:
    """A v1beta1 EC2NodeClass that lacks nothing."""
    terms = {
        "subnetSelectorTerms": [{"tags": {"a": "b"}}],
        "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
    }
    return {
        "apiVersion": "karpenter.k8s.aws/v1beta1",
        "kind": "EC2NodeClass",
        "metadata": {"name": name},
        "spec": {"amiFamily": "AL2", "role": "nodes"} | terms | spec,
    }


def converted(*manifests: Manifest, **options: Any) -> Conversion:
    """The conversion of some manifests, which must be well-formed; every v1 result must be admissible."""
    found = parse_manifests(json.dumps(list(manifests)), "old.json")
    assert not found.complaints
    conversion = convert_documents(found.documents, ConvertOptions(**options))
    for manifest in conversion.manifests:
        assert complaints_about(manifest) == []
    return conversion


def only(conversion: Conversion, kind: str) -> Manifest:
    """The one manifest of a kind."""
    (found,) = (manifest for manifest in conversion.manifests if manifest["kind"] == kind)
    return found


def pool(*manifests: Manifest, **options: Any) -> Manifest:
    """The spec of the one NodePool that some manifests become."""
    spec: Manifest = only(converted(*manifests, **options), "NodePool")["spec"]
    return spec


def node_class(*manifests: Manifest, **options: Any) -> Manifest:
    """The spec of the one EC2NodeClass that some manifests become."""
    spec: Manifest = only(converted(*manifests, **options), "EC2NodeClass")["spec"]
    return spec


def notes_at(conversion: Conversion, path: str, severity: NoteSeverity | None = None) -> list[Note]:
    """What was said about one field."""
    return [n for n in conversion.notes if n.path == path and severity in (None, n.severity)]


def complaints_about(manifest: Manifest) -> list[str]:
    """What the API server would say about an object of ours: unknown fields, schema and CEL rules."""
    if not str(manifest["apiVersion"]).startswith("karpenter."):
        return []
    schema = _schema(manifest["kind"])
    pruned, unknown = schema.prune(manifest)
    return [f"unknown field {path}" for path in unknown] + [
        str(c) for c in schema.validate(schema.apply_defaults(pruned))
    ]


@cache
def _schema(kind: str) -> Schema:
    files = sorted((Path(__file__).parents[2] / "deploy" / "crds" / "aws").glob("*.yaml"))
    crds = [
        document.value
        for file in files
        for document in parse_manifests(file.read_bytes(), file.name).documents
    ]
    (versions,) = (crd["spec"]["versions"] for crd in crds if crd["spec"]["names"]["kind"] == kind)
    return Schema.from_openapi(versions[0]["schema"]["openAPIV3Schema"])
