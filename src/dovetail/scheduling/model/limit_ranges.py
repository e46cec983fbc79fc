"""What admission will add to pods that do not exist yet: the defaults of their namespace's LimitRanges.

Kubernetes fills these in when a pod is created and never on a template, so whoever plans for pods that are
still to come has to do the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from dovetail.api.core import LimitRange, LimitRangeItem
from dovetail.api.meta import Amounts
from dovetail.api.pod import Container, PodSpec

__all__ = ["apply_limit_ranges"]


def apply_limit_ranges(spec: PodSpec, namespace: str, ranges: Iterable[LimitRange]) -> PodSpec:
    """The pod as it will be: limits stand in for missing requests, then the ranges' defaults do."""
    items = tuple(_list_items(namespace, ranges))
    return replace(
        spec,
        containers=tuple(_fill_container(each, items) for each in spec.containers),
        init_containers=tuple(_fill_container(each, items) for each in spec.init_containers),
    )


def _list_items(namespace: str, ranges: Iterable[LimitRange]) -> Iterator[LimitRangeItem]:
    for each in sorted((each for each in ranges if each.namespace == namespace), key=lambda one: one.name):
        yield from (item for item in each.spec.limits if item.type == "Container")


def _fill_container(container: Container, items: Iterable[LimitRangeItem]) -> Container:
    limits = dict(container.resources.limits)
    requests = {**limits, **container.resources.requests}
    for item in items:
        most, asked = _read_defaults(item)
        # What is there already wins, be it the container's own or an earlier range's.
        limits = {**most, **limits}
        requests = {**asked, **requests}
    return replace(container, resources=replace(container.resources, requests=requests, limits=limits))


def _read_defaults(item: LimitRangeItem) -> tuple[Amounts, Amounts]:
    """Limits and requests. The API server stores them filled in; files may leave them out."""
    limits = {**item.max, **item.default}
    return limits, {**item.min, **limits, **item.default_request}
