"""``dovetail controller``: the production process."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Annotated

import typer

from dovetail.app.process import run_controller
from dovetail.cli.views.options import check_provider
from dovetail.cli.views.output import print_note
from dovetail.runtime import logs
from dovetail.settings import read_settings

OPTIONS = {"context_settings": {"ignore_unknown_options": True, "allow_extra_args": True}}


def controller(
    context: typer.Context,
    provider: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            callback=check_provider,
            help="Whose machines to use: EC2's (aws), or simulated ones (kwok).",
        ),
    ] = "kwok",
    kubeconfig: Annotated[
        str,
        typer.Option(metavar="FILE", help="Kubeconfig; else $KUBECONFIG, the pod's own, or ~/.kube/config."),
    ] = "",
) -> None:
    """Run the autoscaler against a cluster until it is told to stop.

    Every setting is a flag (`--batch-idle-duration 2s`) or an environment variable of the same name
    (`BATCH_IDLE_DURATION`); `dovetail settings` lists them all.
    """
    settings = read_settings(tuple(context.args), dict(os.environ), provider=provider)
    logs.configure_logging(settings.log_level, settings.log_output_paths)
    for warning in settings.warnings:
        print_note(f"dovetail: {warning}")
    sys.exit(asyncio.run(run_controller(settings, provider, kubeconfig, print_note)))
