"""``dovetail up``: a whole cluster in this process, with Dovetail autoscaling it."""

from __future__ import annotations

import asyncio
import re
import shlex
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dovetail.cli.views.output import print_note, print_text
from dovetail.errors import Misconfigured
from dovetail.settings.table import BY_FLAG

if TYPE_CHECKING:
    from dovetail.app.embedded_cluster import EmbeddedCluster, EmbeddedOptions


__all__ = ["run_dashboard"]

OPTIONS = {"context_settings": {"ignore_unknown_options": True, "allow_extra_args": True}}
FEW = 5_000
# What the cluster is called in its cloud.
CLUSTER = "dovetail"
CLUSTER_NAMES = re.compile(r"[0-9A-Za-z][-0-9A-Za-z_]{0,99}")

CloudOption = Annotated[
    Literal["aws", "kwok"],
    typer.Option(help="Where nodes come from: a simulated EC2, or nothing but objects."),
]
ClusterNameOption = Annotated[
    str, typer.Option(metavar="NAME", help="What the cluster is called in its cloud and its kubeconfig.")
]
EnvOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write what a shell needs: kubeconfig, AWS endpoint, keys."),
]
DashboardOption = Annotated[
    str,
    typer.Option(metavar="ADDRESS:PORT", help="Also show it on a web page there, as on 127.0.0.1:8090."),
]
BootOption = Annotated[
    float | None,
    typer.Option(min=0, metavar="SECONDS", help="How long instances boot; 25 to 45 seconds otherwise."),
]
PortOption = Annotated[
    int, typer.Option(min=0, max=65535, help="Port of the API server on loopback; 0 picks a free one.")
]
KubeconfigFileOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Where to write the kubeconfig; yours is never touched."),
]
DataDirOption = Annotated[
    Path | None,
    typer.Option(metavar="DIRECTORY", help="Keep objects here, so that they survive a restart."),
]
SeedOption = Annotated[int, typer.Option(help="Seed of everything random: names, addresses.")]
NodesOption = Annotated[
    int, typer.Option(min=0, max=FEW, help="Have this many simulated nodes from the start.")
]
RunControllerOption = Annotated[
    bool, typer.Option(help="Run Dovetail inside; without it, run your own against the kubeconfig.")
]
LogFileOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the controller's log lines here, not into ~/.cache."),
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show the controller's log lines here as well.")
]


def up(
    context: typer.Context,
    port: PortOption = 0,
    kubeconfig: KubeconfigFileOption = None,
    data_dir: DataDirOption = None,
    cloud: CloudOption = "aws",
    cluster_name: ClusterNameOption = CLUSTER,
    env: EnvOption = None,
    boot: BootOption = None,
    dashboard: DashboardOption = "",
    seed: SeedOption = 0,
    nodes: NodesOption = 0,
    controller: RunControllerOption = True,
    log_file: LogFileOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Start an embedded cluster with Dovetail in it and say what to type next.

    Everything runs in this process, a simulated EC2 to buy nodes from included: no account, no
    containers. It listens on loopback only, with a random token and a certificate of its own. Settings of
    `dovetail controller`, such as --batch-idle-duration 2s, are taken as flags. Stop it with Ctrl-C.
    """
    name = _check_name(cluster_name)
    _show_status("starting a cluster…")
    # Imported here, so that there is something to read meanwhile.
    from dovetail.app.embedded_cluster import EmbeddedOptions
    from dovetail.app.embedded_files import begin_log
    from dovetail.settings import read_settings

    named = (f"--cluster-name={name}", f"--interruption-queue={name}") if cloud == "aws" else ()
    settings = read_settings((*named, *_settings_given(context)), {}, provider=cloud)
    log = begin_log(log_file, settings.log_level, verbose=verbose)
    options = EmbeddedOptions(
        settings,
        port=port,
        seed=seed,
        data_dir=data_dir,
        kubeconfig=kubeconfig,
        controller=controller,
        nodes=nodes,
        complain=_show_complaint,
        cloud=cloud,
        env=env,
        boots=None if boot is None else (boot, 1.2 * boot),
        name=name,
    )
    try:
        asyncio.run(_serve_cluster(options, dashboard, log))
    finally:
        _show_status("")


def _check_name(name: str) -> str:
    if not CLUSTER_NAMES.fullmatch(name):
        raise Misconfigured(
            f"--cluster-name is {name!r}, but must be, as in EKS, up to 100 letters, digits, dashes and "
            "underscores, a letter or digit first"
        )
    return name


def _settings_given(context: typer.Context) -> tuple[str, ...]:
    """The words that are no option of this command are settings; one that is nearly an option is told."""
    own = [name for parameter in context.command.params for name in parameter.opts if name.startswith("--")]
    for word in context.args:
        flag = word.partition("=")[0]
        near = get_close_matches(flag, own, 1, cutoff=0.8) if flag not in BY_FLAG else []
        if near and flag.startswith("--"):
            raise Misconfigured(f"there is no option {flag}; did you mean {near[0]}?")
    return tuple(context.args)


async def _serve_cluster(options: EmbeddedOptions, dashboard: str, log: Path) -> None:
    from dovetail.app.embedded_cluster import run_embedded_cluster

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for one in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(one, stop.set)
    async with run_embedded_cluster(options) as cluster, _open_dashboard(cluster, dashboard) as page:
        _show_status("")
        print_text(_describe_cluster(cluster, page, log))
        stopped = asyncio.create_task(stop.wait())
        done, _ = await asyncio.wait({stopped, *cluster.parts}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        for part in done - {stopped}:
            part.result()
            raise RuntimeError("a part of the cluster ended by itself")
        print_note("stopping…")


def _open_dashboard(cluster: EmbeddedCluster, bind: str) -> AbstractAsyncContextManager[str]:
    """The address of a dashboard, where one is wanted."""
    if not bind:
        return nullcontext("")

    if cluster.beside is not None and not cluster.beside.url:
        raise Misconfigured("--dashboard asks the simulated AWS, which needs boto3; install dovetail[aws]")
    return run_dashboard(bind, cluster.kubeconfig.absolute())


def _show_status(text: str) -> None:
    """A line that is written over by what comes next; for people at a terminal only."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()


def _show_complaint(text: str) -> None:
    _show_status("")
    print_note(f"dovetail: {text}")


def _describe_cluster(cluster: EmbeddedCluster, page: str, log: Path) -> str:
    inside = "Dovetail is autoscaling it" if cluster.dovetail else "no controller is running in it"
    lines = [
        f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig.absolute()))}",
        *_list_next_steps(cluster),
    ]
    beside = cluster.beside
    bought = f"Its nodes are bought from a simulated AWS at {beside.url}.\n" if beside and beside.url else ""
    seen = f"See it on {page}\n" if page else ""
    said = f"What Dovetail does is told in {log.absolute()}; -v shows it here as well.\n"
    return (
        f"A cluster is up at {cluster.url}, and {inside}.\n{bought}{said if cluster.dovetail else ''}{seen}\n"
        + "".join(f"  {line}\n" for line in lines)
        + "\nCtrl-C stops it.\n"
    )


def _list_next_steps(cluster: EmbeddedCluster) -> list[str]:
    told = ["dovetail history    # what was decided, and why"] if cluster.dovetail else []
    # The examples come with the source; elsewhere there is kubectl alone.
    if Path("examples/inflate.yaml").exists():
        return [
            "kubectl apply -f examples/inflate.yaml    # something to run",
            "kubectl scale deployment inflate --replicas=5",
            "kubectl get nodeclaims -w",
            *told,
        ]
    pools = ["kubectl explain nodepool.spec    # what a pool of nodes looks like"]
    return [
        "kubectl create deployment web --image=web --replicas=5",
        "kubectl get nodes -w",
        *told,
        *(pools if cluster.dovetail else ()),
    ]


@asynccontextmanager
async def run_dashboard(bind: str, kubeconfig: Path) -> AsyncIterator[str]:
    """Its address, while the block lasts; Misconfigured says why there is none."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dovetail", "dashboard", "--bind", bind, "--kubeconfig", str(kubeconfig)),
        stdout=PIPE,
        stderr=PIPE,
        # Ctrl-C is for the cluster, which ends this one in its turn.
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    address = (await process.stdout.readline()).decode().strip()
    if not address:
        told = (await process.stderr.read()).decode().strip().removeprefix("dovetail: ")
        await process.wait()
        raise Misconfigured(told.replace("--bind", "--dashboard"))
    listening = asyncio.create_task(_pass_on_remarks(process.stderr))
    try:
        yield address
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        await listening


async def _pass_on_remarks(remarks: asyncio.StreamReader) -> None:
    async for line in remarks:
        if line.startswith(b"dovetail: "):
            print_note(f"dashboard: {line.decode().strip().removeprefix('dovetail: ')}")
