"""Kubelet settings written as expressions: maxPods and reservations that depend on the instance type.

The scheduler's arithmetic and a node's start must come from the same evaluation, so both ask here. The
expression library does not check types ahead of time; trying an expression on a machine everybody knows
stands in for that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

from msgspec.structs import replace

from dovetail.api.nodeclass import KubeletConfiguration
from dovetail.api.schema.cel import load_library
from dovetail.providers.aws.instance_type_info import InstanceTypeInfo
from dovetail.providers.aws.kubelet_validation import RESERVED, is_quantity

__all__ = [
    "ExpressionContext",
    "ExpressionError",
    "KubeletExpression",
    "check_expression",
    "evaluate_expression",
    "evaluate_max_pods",
    "evaluate_reserved",
    "has_expressions",
    "list_expressions",
    "resolve_kubelet",
]

MAX_PODS: Final = "maxPods"
MOST_PODS: Final = (1 << 31) - 1
NO_ROUNDING_ABOVE: Final = (1 << 63) - 1 - 16
# Unit and step of what an expression for a resource comes to; others, process IDs, are bare numbers.
UNITS: Final = {"cpu": ("m", 10), "memory": ("Mi", 16), "ephemeral-storage": ("Gi", 1)}


class ExpressionError(Exception):
    """An expression that cannot be used, and why. `invalid` when no machine would change that."""

    def __init__(self, message: str, invalid: bool = False) -> None:
        super().__init__(message)
        self.invalid = invalid


@dataclass(frozen=True, slots=True)
class KubeletExpression:
    """A setting that is written as an expression: where, for which resource, and the text."""

    field: str
    resource: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.field}[{self.resource}]" if self.resource else self.field


@dataclass(frozen=True)
class ExpressionContext:
    """What expressions may ask of an instance type. `pods` is only counted when somebody asks."""

    facts: InstanceTypeInfo
    pods: Callable[[], int]

    @cached_property
    def variables(self) -> dict[str, int | str]:
        card = self.facts.default_card
        interfaces = self.facts.interfaces
        return {
            "vcpus": self.facts.vcpus,
            "memory_mib": self.facts.memory_mib,
            "default_enis": interfaces[card] if card < len(interfaces) else 0,
            "ips_per_eni": self.facts.ipv4_per_interface,
            "max_pods": self.pods(),
            "instance_type": self.facts.name,
        }


EXAMPLE: Final = ExpressionContext(
    InstanceTypeInfo(
        name="m5.large",
        architectures=("x86_64",),
        vcpus=2,
        memory_mib=8192,
        cpu_manufacturer="Intel",
        ipv4_per_interface=10,
        interfaces=(3,),
    ),
    lambda: 29,
)


def list_expressions(kubelet: Mapping[str, Any]) -> Iterator[KubeletExpression]:
    """The expressions among the settings, as they are written."""
    most = kubelet.get(MAX_PODS)
    if isinstance(most, str):
        yield KubeletExpression(MAX_PODS, "", most)
    for field in RESERVED:
        amounts = kubelet.get(field)
        for resource, amount in amounts.items() if isinstance(amounts, Mapping) else ():
            if isinstance(amount, str) and not is_quantity(amount):
                yield KubeletExpression(field, resource, amount)


def has_expressions(kubelet: KubeletConfiguration) -> bool:
    return isinstance(kubelet.max_pods, str) or not all(
        is_quantity(amount)
        for amounts in (kubelet.kube_reserved, kubelet.system_reserved)
        for amount in amounts.values()
    )


def check_expression(text: str) -> None:
    """ExpressionError when the text is no expression over what we know that gives a number."""
    program = _load_program(text)
    unknown = sorted(set(program.variables()) - set(EXAMPLE.variables))
    if unknown:
        known = ", ".join(EXAMPLE.variables)
        raise ExpressionError(f"{text!r} speaks of {', '.join(unknown)}; it may use {known}", invalid=True)
    try:
        evaluate_expression(text, EXAMPLE)
    except ExpressionError as error:
        if error.invalid:
            raise


def evaluate_expression(text: str, machine: ExpressionContext) -> int:
    """The whole number an expression comes to for a machine, truncated toward zero."""
    program = _load_program(text)
    try:
        value = program.execute(_build_context(machine))
    except (ZeroDivisionError, OverflowError) as error:
        raise ExpressionError(f"{text!r} has no value for {machine.facts.name}: {error}") from error
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        raise ExpressionError(f"{text!r} cannot be evaluated: {_first_line(error)}", invalid=True) from error
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ExpressionError(f"{text!r} does not give a number", invalid=True)
    if isinstance(value, float) and not math.isfinite(value):
        raise ExpressionError(f"{text!r} is not finite for {machine.facts.name}")
    return math.trunc(value)


def evaluate_max_pods(text: str, machine: ExpressionContext) -> int:
    """The most pods an expression allows on a machine."""
    count = evaluate_expression(text, machine)
    if not 0 <= count <= MOST_PODS:
        raise ExpressionError(f"{text!r} gives {count} pods for {machine.facts.name}")
    return count


def evaluate_reserved(resource: str, text: str, machine: ExpressionContext) -> str:
    """What an expression reserves of a resource, with its unit and rounded up to its step."""
    amount = evaluate_expression(text, machine)
    if amount < 0:
        raise ExpressionError(f"{text!r} gives {amount} for {machine.facts.name}, and must not be negative")
    unit, step = UNITS.get(resource, ("", 1))
    rounded = amount if amount > NO_ROUNDING_ABOVE else -(-amount // step) * step
    return f"{rounded}{unit}"


def resolve_kubelet(
    kubelet: KubeletConfiguration,
    facts: InstanceTypeInfo,
    pods: Callable[[KubeletConfiguration], int],
    enabled: bool,
) -> KubeletConfiguration:
    """The settings of one instance type: every expression replaced by its value, or dropped.

    `pods` counts the pods of the type under given settings. Expressions are dropped when their gate is off,
    and where they have no usable value; the class's condition tells of both.
    """
    if not has_expressions(kubelet):
        return kubelet
    most = kubelet.max_pods
    if isinstance(most, str):
        kubelet = replace(kubelet, max_pods=None)
        default = kubelet
        try:
            count = (
                evaluate_max_pods(most, ExpressionContext(facts, lambda: pods(default))) if enabled else None
            )
        except ExpressionError:
            count = None
        kubelet = replace(kubelet, max_pods=count)
    settled = kubelet
    machine = ExpressionContext(facts, lambda: pods(settled))
    return replace(
        kubelet,
        kube_reserved=_resolve_amounts(kubelet.kube_reserved, machine, enabled),
        system_reserved=_resolve_amounts(kubelet.system_reserved, machine, enabled),
    )


def _resolve_amounts(
    amounts: Mapping[str, str], machine: ExpressionContext, enabled: bool
) -> Mapping[str, str]:
    if all(is_quantity(amount) for amount in amounts.values()):
        return amounts
    found = {}
    for resource, amount in amounts.items():
        if is_quantity(amount):
            found[resource] = amount
        elif enabled:
            try:
                found[resource] = evaluate_reserved(resource, amount, machine)
            except ExpressionError:
                continue
    return found


@lru_cache(maxsize=1024)
def _compile_expression(text: str) -> Any:
    return load_library().compile(text)


def _load_program(text: str) -> Any:
    try:
        return _compile_expression(text)
    except ValueError as error:
        raise ExpressionError(f"{text!r} is no expression: {_first_line(error)}", invalid=True) from error


def _build_context(machine: ExpressionContext) -> Any:
    context = load_library().Context(dict(machine.variables))
    context.add_function("max", lambda *given: _of_two(max, given))
    context.add_function("min", lambda *given: _of_two(min, given))
    return context


def _of_two(choose: Callable[[Any, Any], Any], given: tuple[Any, ...]) -> Any:
    """Of an int and a double, a double. With more or fewer than two there is no number to give."""
    if len(given) != 2 or any(isinstance(each, bool) or not isinstance(each, int | float) for each in given):
        return "max and min take two numbers"
    chosen = choose(*given)
    return float(chosen) if any(isinstance(each, float) for each in given) else chosen


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
