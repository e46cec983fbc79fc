"""What admission adds to containers: the container's own amounts win, then the first range's defaults."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api.core import LimitRange
from dovetail.scheduling.model.limit_ranges import apply_limit_ranges
from support.builders import pod
from support.manifests import read


def ranges(*items: dict[str, Any], kind: str = "Container") -> list[LimitRange]:
    return [
        read(
            LimitRange,
            {
                "metadata": {"name": f"range-{i}", "namespace": "default"},
                "spec": {"limits": [{"type": kind, **item}]},
            },
        )
        for i, item in enumerate(items)
    ]


def asked(own: dict[str, Any], given: list[LimitRange]) -> tuple[dict[str, str], dict[str, str]]:
    (container,) = apply_limit_ranges(pod("p", memory=None, **own).spec, "default", given).containers
    shown = container.resources.requests, container.resources.limits
    requests, limits = ({name: str(amount) for name, amount in part.items()} for part in shown)
    return requests, limits


@pytest.mark.parametrize(
    ("own", "items", "requests", "limits"),
    [
        ({"cpu": None}, [{"defaultRequest": {"cpu": "1"}}], {"cpu": "1"}, {}),
        ({"cpu": None}, [{"default": {"cpu": "2"}}], {"cpu": "2"}, {"cpu": "2"}),
        ({"cpu": None}, [{"max": {"cpu": "3"}}], {"cpu": "3"}, {"cpu": "3"}),
        ({"cpu": None}, [{"min": {"cpu": "250m"}}], {"cpu": "250m"}, {}),
        ({"cpu": "5"}, [{"defaultRequest": {"cpu": "1"}}], {"cpu": "5"}, {}),
        (
            {"cpu": None},
            [{"defaultRequest": {"cpu": "1"}}, {"defaultRequest": {"cpu": "9"}}],
            {"cpu": "1"},
            {},
        ),
    ],
)
def test_defaults_fill_what_is_missing(
    own: dict[str, Any], items: list[dict[str, Any]], requests: dict[str, str], limits: dict[str, str]
) -> None:
    assert asked(own, ranges(*items)) == (requests, limits)


def test_ranges_for_other_things_and_other_namespaces_add_nothing() -> None:
    assert asked({"cpu": None}, ranges({"default": {"cpu": "1"}}, kind="Pod")) == ({}, {})
    spec = pod("p", cpu=None, memory=None).spec
    (container,) = apply_limit_ranges(spec, "elsewhere", ranges({"default": {"cpu": "1"}})).containers
    assert container.resources.requests == {}
