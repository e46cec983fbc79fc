"""What stands between a cluster and a change of controllers: pure, from what was read of it.

blocker   must be settled first
change    will be different afterwards, and is meant to be
fine      was looked at and is as it should be
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dovetail.api import codec, crds, hashes, labels, validation
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.nodepool import NodePool
from dovetail.cli.output import plural
from dovetail.errors import Misconfigured
from dovetail.settings import read
from dovetail.settings.table import BY_VARIABLE

__all__ = ["Finding", "Found", "findings"]

Json = Mapping[str, Any]
Weight = Literal["blocker", "change", "fine"]
# Variables every container has, or that older charts set; they are no settings.
NOT_SETTINGS = {"KUBERNETES_MIN_VERSION", "SYSTEM_NAMESPACE", "AWS_REGION", "AWS_DEFAULT_REGION"}
OLD_KINDS = ("provisioners.karpenter.sh", "machines.karpenter.sh", "awsnodetemplates.karpenter.k8s.aws")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at, what it means, and what to do."""

    weight: Weight
    about: str
    text: str

    def __str__(self) -> str:
        return f"{self.weight:<8}{self.about}: {self.text}"


@dataclass(frozen=True, slots=True)
class Found:
    """What was read of the cluster, as plain documents."""

    definitions: Sequence[Json] = ()
    deployments: Sequence[Json] = ()
    daemonsets: Sequence[Json] = ()
    pools: Sequence[Json] = ()
    claims: Sequence[Json] = ()
    classes: Sequence[Json] = ()
    lease: Json | None = None
    ca_bundle: str | None = None
    flavour: Literal["aws", "kwok"] = "aws"
    wanted: Sequence[Json] = field(default_factory=lambda: crds.manifests("aws"))


def findings(found: Found) -> list[Finding]:
    """Everything worth telling, blockers first."""
    listed = [
        *_definitions(found),
        *_controllers(found),
        *_neighbours(found),
        *_objects(found),
        *_hashes(found),
        *_lease(found),
    ]
    order = ("blocker", "change", "fine")
    return sorted(listed, key=lambda each: order.index(each.weight))


def _definitions(found: Found) -> Iterator[Finding]:
    there = {each["metadata"]["name"]: each for each in found.definitions}
    for name in OLD_KINDS:
        if name in there:
            text = "belongs to an older API; convert its objects with `dovetail convert`, then remove it"
            yield Finding("blocker", f"definition {name}", text)
    for wanted in found.wanted:
        name = wanted["metadata"]["name"]
        if name not in there:
            yield Finding("change", f"definition {name}", "is missing and will be installed")
            continue
        yield _definition(name, there[name], wanted)


def _definition(name: str, live: Json, wanted: Json) -> Finding:
    about, new = f"definition {name}", {each["name"] for each in wanted["spec"]["versions"]}
    stored = set((live.get("status") or {}).get("storedVersions") or ())
    if stored - new:
        text = (
            f"objects may be stored as {', '.join(sorted(stored - new))}, which is served no more; migrate "
            "them to v1 first (Karpenter 1.0 does), then drop the version from status.storedVersions"
        )
        return Finding("blocker", about, text)
    if _schemas(live) != _schemas(wanted):
        return Finding("change", about, "differs from ours and will be replaced; objects stay as they are")
    return Finding("fine", about, "is as it should be")


def _schemas(definition: Json) -> dict[str, Any]:
    return {each["name"]: each.get("schema") for each in definition["spec"]["versions"]}


def _controllers(found: Found) -> Iterator[Finding]:
    running = [each for each in found.deployments if _is_karpenter(each)]
    if not running:
        yield Finding("fine", "controller", "none is installed")
    for each in running:
        meta, wanted = each["metadata"], int((each.get("spec") or {}).get("replicas") or 0)
        about = f"Deployment {meta.get('namespace')}/{meta['name']}"
        if wanted:
            text = f"runs {wanted} of them; scale it to 0 before the change, and the lease is free"
            yield Finding("change", about, text)
        else:
            yield Finding("fine", about, "is scaled to 0")
        yield from _settings(about, each, found.flavour)


def _is_karpenter(deployment: Json) -> bool:
    known = deployment["metadata"].get("labels") or {}
    return known.get("app.kubernetes.io/name") == "karpenter" or known.get("karpenter") == "controller"


def _settings(about: str, deployment: Json, flavour: Literal["aws", "kwok"]) -> Iterator[Finding]:
    """The variables of the running controller, as ours would read them."""
    pod = deployment["spec"]["template"]["spec"]
    given = {
        each["name"]: str(each.get("value", ""))
        for container in pod.get("containers") or ()
        for each in container.get("env") or ()
        if "value" in each
    }
    unknown = sorted(name for name in given if name not in BY_VARIABLE and name not in NOT_SETTINGS)
    if unknown:
        yield Finding("change", about, f"has variables that mean nothing here: {', '.join(unknown)}")
    try:
        settings = read((), {k: v for k, v in given.items() if k in BY_VARIABLE}, provider=flavour)
    except Misconfigured as error:
        yield Finding("blocker", about, f"its settings would be refused: {error}")
        return
    for warning in settings.warnings:
        yield Finding("change", about, warning)


def _neighbours(found: Found) -> Iterator[Finding]:
    for each in (*found.deployments, *found.daemonsets):
        name = each["metadata"]["name"]
        if "cluster-autoscaler" in name and (each.get("spec") or {}).get("replicas", 1):
            text = "runs here too; two autoscalers undo each other's work, so stop one"
            yield Finding("blocker", f"Deployment {name}", text)
        if "node-termination-handler" in name:
            text = "handles interruptions as well; remove it once INTERRUPTION_QUEUE is set"
            yield Finding("change", f"DaemonSet {name}", text)


def _objects(found: Found) -> Iterator[Finding]:
    for kind, listed in (
        ("NodePool", found.pools),
        ("NodeClaim", found.claims),
        ("node class", found.classes),
    ):
        wrong = 0
        for each in listed:
            complaints = [
                c for c in validation.check(dict(each), found.flavour) if c.severity.value == "error"
            ]
            wrong += bool(complaints)
            for complaint in complaints[:3]:
                about = f"{kind} {each['metadata']['name']}"
                yield Finding("blocker", about, f"{complaint.path}: {complaint.message}")
        if not wrong:
            yield Finding(
                "fine", plural(kind), f"all {len(listed):,} are valid" if listed else "there are none"
            )


def _hashes(found: Found) -> Iterator[Finding]:
    """A claim drifts when its hash is not its pool's, or its class's, under the same version."""
    expected: dict[tuple[str, str], tuple[str, str]] = {}
    for each in found.pools:
        pool = codec.convert(NodePool, each)
        expected["pool", pool.name] = (hashes.nodepool_hash(pool), hashes.NODEPOOL_HASH_VERSION)
    for each in found.classes:
        if each.get("kind") == "EC2NodeClass":
            node_class = codec.convert(EC2NodeClass, each)
            value = hashes.nodeclass_hash(node_class, found.ca_bundle)
            expected["class", node_class.name] = (value, hashes.NODECLASS_HASH_VERSION)
    tally = Counter(_outcome(claim, expected) for claim in found.claims)
    if tally["drift"]:
        text = (
            f"{tally['drift']} of {len(found.claims)} claims carry another hash than their pool or class "
            "would get; they are replaced as drifted, within budgets"
        )
        yield Finding("change", "hashes", text)
    if tally["restamped"]:
        text = f"{tally['restamped']} claims have hashes of another version; they get new ones without drift"
        yield Finding("change", "hashes", text)
    if not tally["drift"] and not tally["restamped"]:
        yield Finding("fine", "hashes", f"no claim of {len(found.claims)} would drift")


def _outcome(claim: Json, expected: Mapping[tuple[str, str], tuple[str, str]]) -> str:
    meta = claim["metadata"]
    noted, known = meta.get("annotations") or {}, meta.get("labels") or {}
    reference = (claim.get("spec") or {}).get("nodeClassRef") or {}
    asked = (
        (("pool", known.get(labels.NODEPOOL, "")), labels.NODEPOOL_HASH, labels.NODEPOOL_HASH_VERSION),
        (("class", reference.get("name", "")), labels.EC2_NODECLASS_HASH, labels.EC2_NODECLASS_HASH_VERSION),
    )
    outcome = "same"
    for key, value_key, version_key in asked:
        value, version = noted.get(value_key), noted.get(version_key)
        if key not in expected or value is None or version is None:
            continue
        if version != expected[key][1]:
            outcome = "restamped"
        elif value != expected[key][0]:
            return "drift"
    return outcome


def _lease(found: Found) -> Iterator[Finding]:
    holder = ((found.lease or {}).get("spec") or {}).get("holderIdentity")
    if holder:
        yield Finding("change", "lease", f"is held by {holder}; it must let go before another can lead")
    else:
        yield Finding("fine", "lease", "is free")
