"""The algebra of label requirements, by its numbered examples."""

from __future__ import annotations

import pytest

from dovetail.api import labels as names
from dovetail.api.core import Taint
from dovetail.api.labels import WELL_KNOWN
from dovetail.api.pod import PodSpec
from dovetail.api.taints import is_ephemeral
from dovetail.scheduling.model import pod_requirements
from dovetail.scheduling.model.host_ports import HostPort
from dovetail.scheduling.model.requirements import (
    EXISTS,
    NOTHING,
    Requirements,
    Values,
    build_entries,
    parse_values,
)
from support.builders import requirement
from support.worlds import node_affinity

ZONE = names.ZONE


def v(text: str) -> Values:
    """`In A B`, `Gt 1`, `Exists` and so on."""
    operator, *values = text.split()
    return parse_values(operator, values)


@pytest.mark.spec("T-035")
@pytest.mark.parametrize(("old", "new"), sorted(names.ALIASES.items()))
def test_old_label_names_are_read_as_the_new_ones(old: str, new: str) -> None:
    assert list(Requirements.from_labels({old: "x"})) == [new]
    assert list(Requirements.from_expressions([requirement(old, "In", "x")])) == [new]
    assert list(pod_requirements.build_strict_requirements(PodSpec(node_selector={old: "x"}))) == [new]
    assert list(
        pod_requirements.build_strict_requirements(PodSpec(affinity=node_affinity([(old, "Exists")])))
    ) == [new]


@pytest.mark.spec("T-036", "T-037", "T-038", "T-039", "T-040", "T-041", "T-042", "T-043")
@pytest.mark.parametrize(
    ("a", "b", "both"),
    [
        ("In A", "In B", NOTHING),
        ("In A B", "In A", v("In A")),
        ("In A B", "NotIn A", v("In B")),
        ("In A", "NotIn A", NOTHING),
        ("NotIn A", "NotIn 1 2", v("NotIn A 1 2")),
        ("Exists", "In A", v("In A")),
        ("Exists", "NotIn A", v("NotIn A")),
        ("DoesNotExist", "In A", NOTHING),
        ("DoesNotExist", "Exists", NOTHING),
        ("In 1 9", "Gt 1", v("In 9")),
        ("In 1 9", "Lt 9", v("In 1")),
        ("In 1 9", "Gt 9", NOTHING),
        ("In A", "Gt 1", NOTHING),
        ("Gt 1", "Lt 9", Values(open=True, at_least=2, at_most=8)),
        ("Gt 1", "Lt 1", NOTHING),
        ("Gt 9", "Lt 9", NOTHING),
        ("NotIn 1 2", "Gt 1", Values(frozenset({"2"}), True, at_least=2)),
        ("NotIn 1 2", "Lt 9", Values(frozenset({"1", "2"}), True, at_most=8)),
        ("NotIn 1 2", "Gt 9", Values(open=True, at_least=10)),
    ],
)
def test_intersection_keeps_what_both_allow(a: str, b: str, both: Values) -> None:
    assert v(a) & v(b) == both
    assert v(b) & v(a) == both
    assert v(a).has_intersection(v(b)) == bool(both)


@pytest.mark.spec("T-044")
def test_two_bounds_may_leave_one_number_and_print_as_two_entries() -> None:
    eight = v("Gte 8") & v("Lte 8")
    assert [n for n in ("7", "8", "9", "a") if n in eight] == ["8"]
    assert [each.operator for each in build_entries("k", eight)] == ["Gte", "Lte"]


@pytest.mark.spec("T-045")
def test_the_larger_min_values_survives_whatever_the_values_become() -> None:
    two = parse_values("In", ("A", "B"), 2)
    assert (two & v("In A")).min_values == 2
    assert (two & v("In C")).min_values == 2
    assert (two & parse_values("Exists", (), 3)).min_values == 3


@pytest.mark.spec("T-046")
@pytest.mark.parametrize(
    ("given", "entry"),
    [
        ("Gt 1", ("Gte", "2")),
        ("Gt 9", ("Gte", "10")),
        ("Lt 1", ("Lte", "0")),
        ("Lt 9", ("Lte", "8")),
    ],
)
def test_strict_bounds_print_as_inclusive_ones(given: str, entry: tuple[str, str]) -> None:
    (printed,) = build_entries("k", v(given))
    assert (printed.operator, *printed.values) == entry


@pytest.mark.spec("T-047")
def test_requirements_print_sorted() -> None:
    listed = {"in19": "In 1 9", "exists": "Exists", "greaterThan1": "Gt 1", "doesNotExist": "DoesNotExist"}
    printed = str(Requirements({key: v(text) for key, text in listed.items()}))
    assert printed == "doesNotExist DoesNotExist, exists Exists, greaterThan1 Exists >=2, in19 In [1 9]"


ALL = ("In A", "NotIn A", "Exists", "DoesNotExist", "Gt 1", "Lt 9")


@pytest.mark.spec("T-048", "T-049")
@pytest.mark.parametrize("incoming", ALL)
def test_an_undefined_label_is_excused_when_well_known_and_else_only_if_absence_will_do(
    incoming: str,
) -> None:
    wanted = Requirements({ZONE: v(incoming)})
    assert Requirements().is_compatible(wanted, WELL_KNOWN)
    assert Requirements().is_compatible(wanted) == (incoming in ("NotIn A", "DoesNotExist"))


@pytest.mark.spec("T-050", "T-051", "T-052")
@pytest.mark.parametrize(
    ("existing", "incoming", "fine"),
    [
        ("DoesNotExist", "NotIn A", True),
        ("DoesNotExist", "DoesNotExist", True),
        ("DoesNotExist", "In A", False),
        ("DoesNotExist", "Exists", False),
        ("DoesNotExist", "Gt 1", False),
        ("DoesNotExist", "Lt 9", False),
        ("Exists", "DoesNotExist", False),
        ("NotIn A", "In A", False),
        ("NotIn A", "In A B", True),
    ],
)
def test_defined_labels_must_share_a_value(existing: str, incoming: str, fine: bool) -> None:
    assert Requirements({ZONE: v(existing)}).is_compatible(Requirements({ZONE: v(incoming)})) == fine


@pytest.mark.spec("T-053", "T-054", "T-055")
@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("zone", names.ZONE),
        ("node.io/zone", names.ZONE),
        ("topology.kubernetesio/zone", names.ZONE),
        ("topology.kubernetes.io/regio", names.REGION),
        ("region", names.REGION),
        ("nodepool", names.NODEPOOL),
        ("instance-type", names.INSTANCE_TYPE),
        ("arch", names.ARCH),
        ("capacity-type", names.CAPACITY_TYPE),
        ("karpenter/nodepool", names.NODEPOOL),
        ("deployment", None),
    ],
)
def test_an_unknown_key_is_named_with_the_one_probably_meant(key: str, hint: str | None) -> None:
    (told,) = Requirements().describe_incompatibility(Requirements({key: EXISTS & v("In x")}), WELL_KNOWN)
    expected = f' (typo of "{hint}"?)' if hint else ""
    assert told == f'label "{key}" does not have known values{expected}'


@pytest.mark.spec("T-056")
@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        (("10.0.0.1", 80, "TCP"), ("10.0.0.1", 80, "TCP"), True),
        (("0.0.0.0", 80, "TCP"), ("10.0.0.1", 80, "TCP"), True),
        (("10.0.0.1", 80, "TCP"), ("::", 80, "TCP"), True),
        (("10.0.0.1", 80, "TCP"), ("10.0.0.2", 80, "TCP"), False),
        (("10.0.0.1", 80, "TCP"), ("10.0.0.1", 81, "TCP"), False),
        (("10.0.0.1", 80, "TCP"), ("10.0.0.1", 80, "UDP"), False),
    ],
)
def test_host_ports_clash_on_one_address(
    one: tuple[str, int, str], other: tuple[str, int, str], clash: bool
) -> None:
    assert HostPort(*one).conflicts_with(HostPort(*other)) == clash
    assert HostPort(*other).conflicts_with(HostPort(*one)) == clash


@pytest.mark.spec("T-057")
@pytest.mark.parametrize(
    ("key", "effect", "passing"),
    [
        ("node.kubernetes.io/not-ready", "NoSchedule", True),
        ("node.kubernetes.io/not-ready", "NoExecute", True),
        ("node.kubernetes.io/unreachable", "NoSchedule", True),
        ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule", True),
        ("karpenter.sh/unregistered", "NoExecute", True),
        ("readiness.k8s.io/x", "PreferNoSchedule", True),
        ("x.readiness.k8s.io/x", "NoSchedule", False),
        ("node.kubernetes.io/unreachable", "NoExecute", False),
        ("dedicated", "NoSchedule", False),
    ],
)
def test_taints_that_new_nodes_shed_by_themselves_are_known(key: str, effect: str, passing: bool) -> None:
    assert is_ephemeral(Taint(key=key, effect=effect)) == passing
