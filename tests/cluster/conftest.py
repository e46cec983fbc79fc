"""Tests that need a real control plane. They run only when asked for: `pytest tests/cluster`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.two_servers import free_ports, real_cluster


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Plain `pytest` passes by; building a control plane takes a quarter of an hour."""
    asked = any(
        Path(arg.split("::")[0]).resolve().is_relative_to(Path(__file__).parent) for arg in config.args
    )
    return None if asked else True


@pytest.fixture(scope="session")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A real cluster of our own, or the one DOVETAIL_REAL_KUBECONFIG points at."""
    given = os.environ.get("DOVETAIL_REAL_KUBECONFIG")
    if given:
        yield Path(given)
        return
    with real_cluster(tmp_path_factory.mktemp("real") / "cluster", free_ports(4)) as found:
        yield found
