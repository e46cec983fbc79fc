"""``dovetail migrate check``: can Dovetail take Karpenter's place here, and what would change?"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

import msgspec
import typer

from dovetail.api import crds
from dovetail.cli.migrating import Finding, Found, findings
from dovetail.cli.output import COMPLAINTS, Output, OutputOption, counted, note, put, structured
from dovetail.cli.seen import ContextOption, KubeconfigOption
from dovetail.errors import DovetailError, Misconfigured
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.failures import failure
from dovetail.runtime.kubeconfig import connect
from dovetail.runtime.transport import USER_AGENT, Request, Transport

Json = dict[str, Any]
CLASSES = {
    "aws": "/apis/karpenter.k8s.aws/v1/ec2nodeclasses",
    "kwok": "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses",
}
LEASE = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/karpenter-leader-election"


def migrate(
    what: Annotated[Literal["check"], typer.Argument(help="What to do: only look, so far.")],
    provider: Annotated[Literal["aws", "kwok"], typer.Option(help="Whose machines it uses.")] = "aws",
    namespace: Annotated[str, typer.Option("-n", "--namespace", help="Where the lease is.")] = "kube-system",
    ca_bundle: Annotated[
        str, typer.Option(help="The CLUSTER_CA_BUNDLE of the controller, which is part of class hashes.")
    ] = "",
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    output: OutputOption = Output.table,
) -> None:
    """See whether Dovetail can take Karpenter's place, and what changes.

    Nothing is written. The exit code is 1 while something is in the way.
    """
    found = asyncio.run(_read(provider, namespace, ca_bundle or None, kubeconfig, context))
    told = findings(found)
    _show(told, output)
    if any(each.weight == "blocker" for each in told):
        raise typer.Exit(COMPLAINTS)


async def _read(
    provider: Literal["aws", "kwok"], namespace: str, ca_bundle: str | None, kubeconfig: str, context: str
) -> Found:
    connection = connect(SystemClock(), kubeconfig, context)
    transport = connection.transport(USER_AGENT)
    try:
        definitions, deployments, daemonsets, pools, claims, classes = [
            await _listed(transport, path)
            for path in (
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                "/apis/apps/v1/deployments",
                "/apis/apps/v1/daemonsets",
                "/apis/karpenter.sh/v1/nodepools",
                "/apis/karpenter.sh/v1/nodeclaims",
                CLASSES[provider],
            )
        ]
        lease = await transport.send(Request("GET", LEASE.format(namespace)))
    except DovetailError as error:
        raise Misconfigured(
            f"reading the cluster at {connection.server}: {error}; check --kubeconfig and the right to list"
        ) from error
    finally:
        await transport.close()
    return Found(
        definitions=definitions,
        deployments=deployments,
        daemonsets=daemonsets,
        pools=pools,
        claims=claims,
        classes=classes,
        lease=msgspec.json.decode(lease.body) if lease.status == 200 else None,
        ca_bundle=ca_bundle,
        flavour=provider,
        wanted=crds.manifests(provider),
    )


async def _listed(transport: Transport, path: str) -> list[Json]:
    """Every object of a kind, page by page; none when the server has never heard of it."""
    found: list[Json] = []
    query = {"limit": "500"}
    while True:
        reply = await transport.send(Request("GET", path, query))
        if reply.status == 404:
            return found
        if reply.status != 200:
            raise failure(f"listing {path.rpartition('/')[2]}", reply.status, reply.body, reply.headers)
        page = msgspec.json.decode(reply.body)
        named = {"apiVersion": page["apiVersion"], "kind": page["kind"].removesuffix("List")}
        found += [named | item for item in page.get("items") or ()]
        following = page["metadata"].get("continue")
        if not following:
            return found
        query = {"limit": "500", "continue": following}


def _show(told: list[Finding], output: Output) -> None:
    blockers = [each for each in told if each.weight == "blocker"]
    if output is not Output.table:
        rows = [{"weight": each.weight, "about": each.about, "text": each.text} for each in told]
        structured({"ready": not blockers, "findings": rows}, output)
        return
    put("".join(f"{each}\n" for each in told))
    if blockers:
        note(f"{counted(len(blockers), 'thing')} in the way; nothing was changed")
    else:
        note("nothing is in the way; nothing was changed")
