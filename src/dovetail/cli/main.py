"""The entrance: every command by name, and what the process says and returns when one fails.

Only names and sentences live here. A command's module is imported when that command is called, so
that asking for help, or completing a word in a shell, costs next to nothing.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from dovetail.cli.views.output import COMPLAINTS, INTERNAL, MISUSE, print_note, print_text
from dovetail.errors import BadInput, DovetailError, Misconfigured

COMMANDS = {
    "demo": "Watch a Deployment get nodes and lose them again, on an embedded cluster.",
    "up": "Start an embedded cluster with Dovetail in it and say what to type next.",
    "controller": "Run the autoscaler against a cluster until it is told to stop.",
    "interruption-router": "Send each interruption event to the cluster that owns the instance.",
    "zonal-shift": "Shift away from an impaired zone and back, or see what that would mean.",
    "plan": "Plan nodes for pods in files, in a snapshot or in a live cluster.",
    "explain": "Say where a pod will run or why it cannot, or why a node is blocked.",
    "history": "Say what happened to a node, a pod or a NodePool, and why.",
    "bill": "Say what the nodes of a cluster cost an hour, and who has them in use.",
    "spend": "Say what SpendLimits allow, what nodes cost, and which pods are held.",
    "price-of": "Say what budgets, affinities, requirements and other rules cost.",
    "dashboard": "Show a cluster, and what Dovetail would do in it, on a web page.",
    "verify": "Check a cluster, now or after a change, against expectations.",
    "review": "Say what a pull request would do to a cluster, as a comment for it.",
    "snapshot": "Save what Dovetail sees of a cluster, to plan and explain it later.",
    "record": "Record what a cluster looks like, to look at any moment of it later.",
    "recording": "Look into a recording of what decisions saw, or make another one of it.",
    "replay": "Replay a recorded cluster, as it was ruled and under other rules.",
    "shadow": "Say what Dovetail would have done beside the autoscaler that runs today.",
    "simulate": "Play a scenario through with the real controllers, and say what it cost.",
    "install": "Show what installing Dovetail would change; with --yes, do it.",
    "migrate": "Check whether Dovetail can replace Karpenter here, and what changes.",
    "validate": "Check manifests and say what is wrong with them.",
    "convert": "Turn manifests of older Karpenter versions into today's.",
    "hash": "Print the drift hashes of NodePools and EC2NodeClasses.",
    "crds": "Print the CustomResourceDefinitions to install.",
    "notify": "Try the sinks of notifications, and see what they would have been sent.",
    "settings": "Show every setting, its value and where that came from.",
    "version": "Print the version.",
}
DEBUG = "DOVETAIL_DEBUG"


class DeferredCommand(TyperCommand):
    """A command known by its name and sentence; the rest is imported when it is called."""

    def load(self) -> TyperCommand:
        """The command itself, from the module and the function that bear its name."""
        function = str(self.name).replace("-", "_")
        module = import_module(f"dovetail.cli.{function}")
        home = typer.Typer(add_completion=False, rich_markup_mode=None)
        home.command(self.name, **getattr(module, "OPTIONS", {}))(getattr(module, function))
        command = typer.main.get_command(home)
        assert isinstance(command, TyperCommand)
        return command

    # The types of typer's contexts have no public name, hence Any here.
    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        return self.load().make_context(*args, **kwargs)


def _print_version(wanted: bool) -> None:
    if wanted:
        from dovetail import __version__

        print_text(f"dovetail {__version__}\n")
        raise typer.Exit


def _dovetail(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """A node autoscaler platform for Kubernetes.

    Every command explains itself with --help. Exit codes: 0 fine, 1 complaints, 2 misuse.
    """


def build_cli() -> TyperGroup:
    """The whole command line, with nothing behind its doors imported yet."""
    app = typer.Typer(
        name="dovetail",
        rich_markup_mode=None,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_dovetail)
    group = typer.main.get_group(app)
    for name, sentence in COMMANDS.items():
        group.add_command(DeferredCommand(name, help=sentence, rich_markup_mode=None))
    group.params += typer.main.get_install_completion_arguments()
    return group


def _exit_code(error: DovetailError) -> int:
    """A file that cannot be used is a complaint about it; a setting that cannot is misuse."""
    if isinstance(error, BadInput):
        return COMPLAINTS
    return MISUSE if isinstance(error, Misconfigured) else COMPLAINTS


def run(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and end the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A name or a message that the terminal cannot show must not be what makes a command fail.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        build_cli()(arguments, prog_name="dovetail")
    except DovetailError as error:
        print_note(f"dovetail: {error}")
        sys.exit(_exit_code(error))
    except Exception as error:  # the last stop: a person gets a sentence, not a traceback
        if os.environ.get(DEBUG):
            raise
        what = " ".join(f"{type(error).__name__}: {error}".split())
        print_note(f"dovetail: this is a bug ({what}); run it again with {DEBUG}=1 to see the traceback")
        sys.exit(INTERNAL)
    sys.exit(0)
