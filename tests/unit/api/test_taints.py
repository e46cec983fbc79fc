"""Which taints a new node sheds by itself."""

from __future__ import annotations

import pytest

from dovetail.api import taints
from dovetail.api.core import Taint
from support.builders import taint


@pytest.mark.parametrize("known", taints.KNOWN_EPHEMERAL)
def test_a_known_taint_is_ephemeral_whatever_its_value(known: Taint) -> None:
    assert taints.is_ephemeral(known)
    assert taints.is_ephemeral(taint(known.key, known.effect, "anything"))
    assert not taints.is_ephemeral(taint(known.key, "PreferNoSchedule"))


@pytest.mark.parametrize("effect", ["NoSchedule", "PreferNoSchedule", "NoExecute"])
def test_readiness_taints_are_ephemeral_by_their_prefix(effect: str) -> None:
    assert taints.is_ephemeral(taint("readiness.k8s.io/net", effect))
    assert not taints.is_ephemeral(taint("readiness.k8s.io", effect))


def test_the_disrupted_taint_stays() -> None:
    assert not taints.is_ephemeral(taints.DISRUPTED)
    assert taints.is_same_taint(taints.DISRUPTED, taint("karpenter.sh/disrupted", "NoSchedule", "x"))
    assert not taints.is_same_taint(taints.DISRUPTED, taint("karpenter.sh/disrupted", "NoExecute"))
