"""``dovetail migrate check``: can Dovetail take Karpenter's place here, and what would change?"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
import typer

from dovetail.api import codec, crds, hashes, labels, validation
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.nodepool import NodePool
from dovetail.cli.views.options import ContextOption, KubeconfigOption, check_provider
from dovetail.cli.views.output import (
    COMPLAINTS,
    Output,
    OutputOption,
    format_count,
    make_plural,
    print_note,
    print_structured,
    print_text,
)
from dovetail.errors import DovetailError, Misconfigured
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.kube import build_failure
from dovetail.runtime.kubeconfig import connect
from dovetail.runtime.transport import USER_AGENT, ApiRequest, Transport
from dovetail.settings import read_settings
from dovetail.settings.table import BY_VARIABLE

__all__ = ["MigrationFinding", "MigrationInput", "list_findings"]

Document = Mapping[str, Any]
Weight = Literal["blocker", "change", "fine"]
# Variables every container has, or that older charts set; they are no settings.
NOT_SETTINGS = {"KUBERNETES_MIN_VERSION", "SYSTEM_NAMESPACE", "AWS_REGION", "AWS_DEFAULT_REGION"}
OLD_KINDS = ("provisioners.karpenter.sh", "machines.karpenter.sh", "awsnodetemplates.karpenter.k8s.aws")


@dataclass(frozen=True, slots=True)
class MigrationFinding:
    """One thing that was looked at, what it means, and what to do."""

    weight: Weight
    about: str
    text: str

    def __str__(self) -> str:
        return f"{self.weight:<8}{self.about}: {self.text}"


@dataclass(frozen=True, slots=True)
class MigrationInput:
    """What was read of the cluster, as plain documents."""

    definitions: Sequence[Document] = ()
    deployments: Sequence[Document] = ()
    daemonsets: Sequence[Document] = ()
    pools: Sequence[Document] = ()
    claims: Sequence[Document] = ()
    classes: Sequence[Document] = ()
    lease: Document | None = None
    ca_bundle: str | None = None
    provider: str = "aws"
    wanted: Sequence[Document] = field(default_factory=lambda: crds.build_manifests("aws"))


def list_findings(found: MigrationInput) -> list[MigrationFinding]:
    """Everything worth telling, blockers first."""
    listed = [
        *_check_definitions(found),
        *_check_controllers(found),
        *_check_neighbours(found),
        *_check_objects(found),
        *_check_hashes(found),
        *_check_lease(found),
    ]
    order = ("blocker", "change", "fine")
    return sorted(listed, key=lambda each: order.index(each.weight))


def _check_definitions(found: MigrationInput) -> Iterator[MigrationFinding]:
    there = {each["metadata"]["name"]: each for each in found.definitions}
    for name in OLD_KINDS:
        if name in there:
            text = "belongs to an older API; convert its objects with `dovetail convert`, then remove it"
            yield MigrationFinding("blocker", f"definition {name}", text)
    for wanted in found.wanted:
        name = wanted["metadata"]["name"]
        if name not in there:
            yield MigrationFinding("change", f"definition {name}", "is missing and will be installed")
            continue
        yield _check_definition(name, there[name], wanted)


def _check_definition(name: str, live: Document, wanted: Document) -> MigrationFinding:
    about, new = f"definition {name}", {each["name"] for each in wanted["spec"]["versions"]}
    stored = set((live.get("status") or {}).get("storedVersions") or ())
    if stored - new:
        text = (
            f"objects may be stored as {', '.join(sorted(stored - new))}, which is served no more; migrate "
            "them to v1 first (Karpenter 1.0 does), then drop the version from status.storedVersions"
        )
        return MigrationFinding("blocker", about, text)
    if _list_schemas(live) != _list_schemas(wanted):
        return MigrationFinding(
            "change", about, "differs from ours and will be replaced; objects stay as they are"
        )
    return MigrationFinding("fine", about, "is as it should be")


def _list_schemas(definition: Document) -> dict[str, Any]:
    return {each["name"]: each.get("schema") for each in definition["spec"]["versions"]}


def _check_controllers(found: MigrationInput) -> Iterator[MigrationFinding]:
    running = [each for each in found.deployments if _is_karpenter(each)]
    if not running:
        yield MigrationFinding("fine", "controller", "none is installed")
    for each in running:
        meta, wanted = each["metadata"], int((each.get("spec") or {}).get("replicas") or 0)
        about = f"Deployment {meta.get('namespace')}/{meta['name']}"
        if wanted:
            text = f"runs {wanted} of them; scale it to 0 before the change, and the lease is free"
            yield MigrationFinding("change", about, text)
        else:
            yield MigrationFinding("fine", about, "is scaled to 0")
        yield from _check_settings(about, each, found.provider)


def _is_karpenter(deployment: Document) -> bool:
    known = deployment["metadata"].get("labels") or {}
    return known.get("app.kubernetes.io/name") == "karpenter" or known.get("karpenter") == "controller"


def _check_settings(about: str, deployment: Document, provider: str) -> Iterator[MigrationFinding]:
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
        yield MigrationFinding("change", about, f"has variables that mean nothing here: {', '.join(unknown)}")
    try:
        settings = read_settings((), {k: v for k, v in given.items() if k in BY_VARIABLE}, provider=provider)
    except Misconfigured as error:
        yield MigrationFinding("blocker", about, f"its settings would be refused: {error}")
        return
    for warning in settings.warnings:
        yield MigrationFinding("change", about, warning)


def _check_neighbours(found: MigrationInput) -> Iterator[MigrationFinding]:
    for each in (*found.deployments, *found.daemonsets):
        name = each["metadata"]["name"]
        if "cluster-autoscaler" in name and (each.get("spec") or {}).get("replicas", 1):
            text = "runs here too; two autoscalers undo each other's work, so stop one"
            yield MigrationFinding("blocker", f"Deployment {name}", text)
        if "node-termination-handler" in name:
            text = "handles interruptions as well; remove it once INTERRUPTION_QUEUE is set"
            yield MigrationFinding("change", f"DaemonSet {name}", text)


def _check_objects(found: MigrationInput) -> Iterator[MigrationFinding]:
    for kind, listed in (
        ("NodePool", found.pools),
        ("NodeClaim", found.claims),
        ("node class", found.classes),
    ):
        wrong = 0
        for each in listed:
            complaints = [
                c
                for c in validation.check_document(dict(each), found.provider)
                if c.severity.value == "error"
            ]
            wrong += bool(complaints)
            for complaint in complaints[:3]:
                about = f"{kind} {each['metadata']['name']}"
                yield MigrationFinding("blocker", about, f"{complaint.path}: {complaint.message}")
        if not wrong:
            yield MigrationFinding(
                "fine", make_plural(kind), f"all {len(listed):,} are valid" if listed else "there are none"
            )


def _check_hashes(found: MigrationInput) -> Iterator[MigrationFinding]:
    """A claim drifts when its hash is not its pool's, or its class's, under the same version."""
    expected: dict[tuple[str, str], tuple[str, str]] = {}
    for each in found.pools:
        pool = codec.convert(NodePool, each)
        expected["pool", pool.name] = (hashes.hash_nodepool(pool), hashes.NODEPOOL_HASH_VERSION)
    for each in found.classes:
        if each.get("kind") == "EC2NodeClass":
            node_class = codec.convert(EC2NodeClass, each)
            value = hashes.hash_nodeclass(node_class, found.ca_bundle)
            expected["class", node_class.name] = (value, hashes.NODECLASS_HASH_VERSION)
    tally = Counter(_compare_hashes(claim, expected) for claim in found.claims)
    if tally["drift"]:
        text = (
            f"{tally['drift']} of {len(found.claims)} claims carry another hash than their pool or class "
            "would get; they are replaced as drifted, within budgets"
        )
        yield MigrationFinding("change", "hashes", text)
    if tally["restamped"]:
        text = f"{tally['restamped']} claims have hashes of another version; they get new ones without drift"
        yield MigrationFinding("change", "hashes", text)
    if not tally["drift"] and not tally["restamped"]:
        yield MigrationFinding("fine", "hashes", f"no claim of {len(found.claims)} would drift")


def _compare_hashes(claim: Document, expected: Mapping[tuple[str, str], tuple[str, str]]) -> str:
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


def _check_lease(found: MigrationInput) -> Iterator[MigrationFinding]:
    holder = ((found.lease or {}).get("spec") or {}).get("holderIdentity")
    if holder:
        yield MigrationFinding(
            "change", "lease", f"is held by {holder}; it must let go before another can lead"
        )
    else:
        yield MigrationFinding("fine", "lease", "is free")


Json = dict[str, Any]
LEASE = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/karpenter-leader-election"


def migrate(
    what: Annotated[Literal["check"], typer.Argument(help="What to do: only look, so far.")],
    provider: Annotated[
        str,
        typer.Option(metavar="NAME", callback=check_provider, help="Whose machines it uses: aws or kwok."),
    ] = "aws",
    namespace: Annotated[str, typer.Option("-n", "--namespace", help="Where the lease is.")] = "kube-system",
    ca_bundle: Annotated[
        str, typer.Option(help="The CLUSTER_CA_BUNDLE of the controller, which is part of class hashes.")
    ] = "",
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    output: OutputOption = Output.table,
) -> None:
    """Check whether Dovetail can replace Karpenter here, and what changes.

    Nothing is written. The exit code is 1 while something blocks the migration.
    """
    found = asyncio.run(_read_cluster(provider, namespace, ca_bundle or None, kubeconfig, context))
    told = list_findings(found)
    _show_findings(told, output)
    if any(each.weight == "blocker" for each in told):
        raise typer.Exit(COMPLAINTS)


async def _read_cluster(
    provider: str, namespace: str, ca_bundle: str | None, kubeconfig: str, context: str
) -> MigrationInput:
    connection = connect(SystemClock(), kubeconfig, context)
    transport = connection.open_transport(USER_AGENT)
    node_class = crds.find_provider_api(provider).kind
    try:
        definitions, deployments, daemonsets, pools, claims, classes = [
            await _list_objects(transport, path)
            for path in (
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                "/apis/apps/v1/deployments",
                "/apis/apps/v1/daemonsets",
                "/apis/karpenter.sh/v1/nodepools",
                "/apis/karpenter.sh/v1/nodeclaims",
                f"/apis/{node_class.api_version}/{node_class.plural}",
            )
        ]
        lease = await transport.send(ApiRequest("GET", LEASE.format(namespace)))
    except DovetailError as error:
        raise Misconfigured(
            f"reading the cluster at {connection.server}: {error}; check --kubeconfig and the right to list"
        ) from error
    finally:
        await transport.close()
    return MigrationInput(
        definitions=definitions,
        deployments=deployments,
        daemonsets=daemonsets,
        pools=pools,
        claims=claims,
        classes=classes,
        lease=msgspec.json.decode(lease.body) if lease.status == 200 else None,
        ca_bundle=ca_bundle,
        provider=provider,
        wanted=crds.build_manifests(provider),
    )


async def _list_objects(transport: Transport, path: str) -> list[Json]:
    """Every object of a kind, page by page; none when the server has never heard of it."""
    found: list[Json] = []
    query = {"limit": "500"}
    while True:
        reply = await transport.send(ApiRequest("GET", path, query))
        if reply.status == 404:
            return found
        if reply.status != 200:
            raise build_failure(f"listing {path.rpartition('/')[2]}", reply.status, reply.body, reply.headers)
        page = msgspec.json.decode(reply.body)
        named = {"apiVersion": page["apiVersion"], "kind": page["kind"].removesuffix("List")}
        found += [named | item for item in page.get("items") or ()]
        following = page["metadata"].get("continue")
        if not following:
            return found
        query = {"limit": "500", "continue": following}


def _show_findings(told: list[MigrationFinding], output: Output) -> None:
    blockers = [each for each in told if each.weight == "blocker"]
    if output is not Output.table:
        rows = [{"weight": each.weight, "about": each.about, "text": each.text} for each in told]
        print_structured({"ready": not blockers, "findings": rows}, output)
        return
    print_text("".join(f"{each}\n" for each in told))
    if blockers:
        print_note(f"{format_count(len(blockers), 'thing')} in the way; nothing was changed")
    else:
        print_note("nothing blocks the migration; nothing was changed")
