"""``dovetail install``: what the chart would install, applied to any cluster without helm."""

from __future__ import annotations

import asyncio
import difflib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from dovetail.api import crds, manifests
from dovetail.app.install_objects import Installation, build_objects
from dovetail.app.install_shapes import PARTS, ROLE_ARN
from dovetail.bus.config import read_config
from dovetail.cli.views.options import ContextOption, KubeconfigOption, check_provider
from dovetail.cli.views.output import (
    Output,
    OutputOption,
    format_count,
    print_note,
    print_structured,
    print_text,
)
from dovetail.errors import DovetailError, Gone, Misconfigured
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.kube import build_failure
from dovetail.runtime.kubeconfig import connect
from dovetail.runtime.transport import USER_AGENT, ApiRequest, Transport
from dovetail.settings import read_settings
from dovetail.settings.table import BY_VARIABLE

Json = dict[str, Any]
MANAGER = "dovetail-install"
# Kept by the server, or told by it: no part of what a person installs.
SERVERS_OWN = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")


@dataclass(frozen=True, slots=True)
class InstallChange:
    """What applying one object does."""

    kind: str
    name: str
    namespace: str
    action: Literal["create", "change", "same"]
    diff: str = ""

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.action:<7} {self.kind} {where}"


WITH = "Also install: router of interruptions, zonal-shift by itself, or the dashboard; may be said again."
WITHOUT = "Only the parts named by --with."
PART_ROLE = "IAM role for the account of a part; may be said again."
BUS = "The router's configuration, in YAML or JSON."
TLS = "Secret with the certificate of the HTTPS endpoint for messages about shifts."
ROLE = "IAM role for the service account; not needed with Pod Identity."
WHOSE = "Whose machines to use: EC2's (aws), or simulated ones (kwok)."
SETTING = "A setting, such as INTERRUPTION_QUEUE=my-queue; may be said again."


def install(
    cluster_name: Annotated[str, typer.Option(help="Name of the EKS cluster; needed for aws.")] = "",
    provider: Annotated[str, typer.Option(metavar="NAME", callback=check_provider, help=WHOSE)] = "aws",
    namespace: Annotated[str, typer.Option("-n", "--namespace", help="Its home.")] = "kube-system",
    release: Annotated[str, typer.Option(help="Objects are called by this name.")] = "karpenter",
    image: Annotated[str, typer.Option(help="The controller's image; else that of this version.")] = "",
    replicas: Annotated[int, typer.Option(min=0, help="How many controllers; one of them leads.")] = 2,
    role_arn: Annotated[str, typer.Option(help=ROLE)] = "",
    also: Annotated[list[str] | None, typer.Option("--with", metavar="PART", help=WITH)] = None,
    without_controller: Annotated[bool, typer.Option("--without-controller", help=WITHOUT)] = False,
    part_role: Annotated[list[str] | None, typer.Option(metavar="PART=ARN", help=PART_ROLE)] = None,
    router_config: Annotated[str, typer.Option(metavar="FILE", help=BUS)] = "",
    tls_secret: Annotated[str, typer.Option(metavar="NAME", help=TLS)] = "",
    setting: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help=SETTING)] = None,
    without_crds: Annotated[bool, typer.Option("--without-crds", help="Leave definitions alone.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it, instead of showing what would be done.")] = False,
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    output: OutputOption = Output.table,
) -> None:
    """Show what installing Dovetail would change; with --yes, do it.

    The objects are those the chart makes, applied by the server under the name dovetail-install. Running it
    again changes nothing; running it with other options changes what they say.
    """
    parts = frozenset(also or ())
    _check_parts(parts, without_controller, router_config)
    settings = _read_settings(
        setting or [], cluster_name, provider, needed=parts != {"router"} or not without_controller
    )
    wanted = Installation(
        provider=provider,
        release=release,
        namespace=namespace,
        replicas=replicas,
        settings=settings,
        account_annotations={ROLE_ARN: role_arn} if role_arn else {},
        controller=not without_controller,
        parts=parts,
        definition=not without_crds,
        part_roles=_part_roles(part_role or []),
        bus=_read_router_config(router_config),
        tls_secret=tls_secret,
        **({"image": image} if image else {}),  # type: ignore[arg-type]
    )
    if wanted.sns and not tls_secret:
        raise Misconfigured("messages over HTTPS need a certificate; name its Secret with --tls-secret")
    definitions = [] if without_crds else crds.build_manifests(provider)
    changes = asyncio.run(_apply_all([*definitions, *build_objects(wanted)], yes, kubeconfig, context))
    _show_changes(changes, yes, output)


def _check_parts(parts: frozenset[str], without_controller: bool, router_config: str) -> None:
    if unknown := parts - set(PARTS):
        raise Misconfigured(f"--with {min(unknown)}: there is no such part; there are {', '.join(PARTS)}")
    if without_controller and not parts:
        raise Misconfigured("--without-controller leaves nothing to install; name a part with --with")
    if "zonal-shift" in parts and not without_controller:
        raise Misconfigured(
            "--with zonal-shift is for pools that another autoscaler serves; say --without-controller too, "
            "or let the controller follow shifts with --setting ENABLE_ZONAL_SHIFT=true"
        )
    if ("router" in parts) != bool(router_config):
        raise Misconfigured("--with router and --router-config go together; say which queues it serves")


def _part_roles(given: list[str]) -> dict[str, str]:
    found = dict(each.partition("=")[::2] for each in given)
    for part, arn in found.items():
        if part not in PARTS or not arn:
            raise Misconfigured(
                f"--part-role {part}={arn}: say it as PART=ARN with one of {', '.join(PARTS)}"
            )
    return found


def _read_router_config(path: str) -> Json:
    """The router's configuration, without the word `bus` around it; the router would refuse what is wrong."""
    if not path:
        return {}
    try:
        document = msgspec.yaml.decode(Path(path).read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise Misconfigured(f"reading --router-config {path}: {' '.join(str(error).split())}") from error
    read_config(document, {}, where=path)
    inner: Json = document.get("bus", document)
    return inner


def _read_settings(given: list[str], cluster_name: str, provider: str, *, needed: bool) -> dict[str, str]:
    found = {"CLUSTER_NAME": cluster_name} if cluster_name else {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name not in BY_VARIABLE:
            raise Misconfigured(
                f"--setting {text}: say it as NAME=VALUE with a name that `dovetail settings` lists"
            )
        found[name] = value
    # The controller would refuse them too, but later and out of sight.
    if needed:
        read_settings((), found, provider=provider)
    return found


async def _apply_all(wanted: list[Json], yes: bool, kubeconfig: str, context: str) -> list[InstallChange]:
    connection = connect(SystemClock(), kubeconfig, context)
    transport = connection.open_transport(USER_AGENT)
    try:
        return [await _apply_object(transport, each, yes) for each in wanted]
    except DovetailError as error:
        raise type(error)(f"installing into {connection.server}: {error}") from error
    finally:
        await transport.close()


async def _apply_object(transport: Transport, wanted: Json, yes: bool) -> InstallChange:
    before = await _read_live(transport, wanted)
    query = {"fieldManager": MANAGER, "force": "true"} | ({} if yes else {"dryRun": "All"})
    request = ApiRequest(
        "PATCH", _build_path(wanted), query, msgspec.json.encode(wanted), "application/apply-patch+yaml"
    )
    reply = await transport.send(request)
    meta = wanted["metadata"]
    if reply.status >= 400:
        doing = f"applying {wanted['kind']} {meta['name']}"
        raise build_failure(doing, reply.status, reply.body, reply.headers)
    after = _strip_server_fields(msgspec.json.decode(reply.body))
    told = (wanted["kind"], meta["name"], meta.get("namespace", ""))
    if before is None:
        return InstallChange(*told, "create", _build_diff({}, after))
    diff = _build_diff(_strip_server_fields(before), after)
    return InstallChange(*told, "change" if diff else "same", diff)


async def _read_live(transport: Transport, wanted: Json) -> Json | None:
    reply = await transport.send(ApiRequest("GET", _build_path(wanted)))
    if reply.status == 404:
        return None
    if reply.status != 200:
        doing = f"reading {wanted['kind']} {wanted['metadata']['name']}"
        error = build_failure(doing, reply.status, reply.body, reply.headers)
        if isinstance(error, Gone):
            return None
        raise error
    found: Json = msgspec.json.decode(reply.body)
    return found


def _build_path(wanted: Json) -> str:
    group, _, version = wanted["apiVersion"].rpartition("/")
    # Every kind that is installed has a regular plural, in English.
    meta, plural = wanted["metadata"], re.sub(r"ys$", "ies", wanted["kind"].lower() + "s")
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    inside = f"/namespaces/{meta['namespace']}" if meta.get("namespace") else ""
    return f"{root}{inside}/{plural}/{meta['name']}"


def _strip_server_fields(live: Json) -> Json:
    meta = {key: value for key, value in live.get("metadata", {}).items() if key not in SERVERS_OWN}
    return {key: value for key, value in live.items() if key != "status"} | {"metadata": meta}


def _build_diff(before: Json, after: Json) -> str:
    now, then = (manifests.write_manifest(each).splitlines() if each else [] for each in (before, after))
    return "\n".join(difflib.unified_diff(now, then, "now", "then", lineterm=""))


def _show_changes(changes: list[InstallChange], yes: bool, output: Output) -> None:
    if output is not Output.table:
        print_structured(
            {"applied": yes, "changes": [msgspec.to_builtins(_build_row(each)) for each in changes]}, output
        )
        return
    for each in changes:
        print_text(f"{each}\n")
        if each.action == "change" or (each.action == "create" and os.environ.get("DOVETAIL_FULL_DIFF")):
            print_text("".join(f"    {line}\n" for line in each.diff.splitlines()))
    busy = [each for each in changes if each.action != "same"]
    if not busy:
        print_note("nothing to change: it is installed as asked")
    elif yes:
        print_note(f"{format_count(len(busy), 'object')} written")
    else:
        print_note(f"{format_count(len(busy), 'object')} would be written; run it again with --yes to do it")


def _build_row(change: InstallChange) -> Json:
    return {
        "kind": change.kind,
        "name": change.name,
        "namespace": change.namespace,
        "action": change.action,
        "diff": change.diff,
    }
