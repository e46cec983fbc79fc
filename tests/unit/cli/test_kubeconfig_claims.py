"""A kubeconfig belongs to one running cluster: the next takes the next name, and a race is seen."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from dovetail.app.embedded_files import claim_kubeconfig
from dovetail.errors import Misconfigured


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_clusters_at_once_get_a_file_each_and_a_name_that_is_taken_is_refused() -> None:
    with claim_kubeconfig(None) as first, claim_kubeconfig(None) as second:
        assert second == first.with_name("kubeconfig-2")
        with pytest.raises(Misconfigured, match="another `dovetail up` is using it"):
            claim_kubeconfig(first).__enter__()
    with claim_kubeconfig(None) as again:
        assert again == first


def test_a_lock_that_its_owner_takes_away_in_between_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who ends removes the file; a lock upon what is gone would keep nobody out."""
    lock, left = fcntl.flock, [True]

    def late(descriptor: int, operation: int) -> None:
        if left and left.pop():
            Path(os.readlink(f"/proc/self/fd/{descriptor}")).unlink()
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with claim_kubeconfig(None) as first, claim_kubeconfig(None) as second:
        assert first != second
