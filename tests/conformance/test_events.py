"""Every event reason of the specification is told with its type, and asserted by a test."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# operations.md §8: reasons by type. Reasons that are the name of a condition are told by one place for all.
REASONS = {
    "Warning": """
        FailedScheduling NoCompatibleInstanceTypes InsufficientCapacityError UnregisteredTaintMissing
        FailedConsistencyCheck FailedDraining TerminationGracePeriodExpiring NodeRepairBlocked
        InvalidDoNotDisruptAnnotation SpotInterrupted CapacityReservationInstanceInterrupted InstanceStopping
        InstanceTerminating InstanceUnhealthy TerminatingOnInterruption ZonalShiftActive
        FailedResolvingNodeClass SpotServiceLinkedRoleCreationFailed
        """,
    "Normal": """
        Nominated Finalized DisruptionBlocked DisruptionLaunching DisruptionWaitingReadiness
        DisruptionTerminating Unconsolidatable ConsolidationCandidate ConsolidationRejected
        ConsolidationApproved Evicted Disrupted AwaitingVolumeDetachment DoNotDisruptUntil
        DoNotDisruptGracePeriodElapsed SpotRebalanceRecommendation WaitingOnNodeClaimTermination
        ZonalShiftCleared
        """,
}
CONDITIONS = ("Launched", "Registered", "Initialized", "Ready", "Drifted", "Consolidatable", "SubnetsReady")
LISTED = [(reason, kind) for kind, text in REASONS.items() for reason in text.split()]


@cache
def asserted() -> frozenset[str]:
    """Every text inside an assertion, a table of cases or a thing waited for, in all tests but this one."""
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("*.py"):
        if path != Path(__file__):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found.update(*(_texts(each) for each in ast.walk(tree) if _judges(each)))
    return frozenset(found)


def _judges(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr in ("events", "parametrize", "pop")
    return isinstance(node, ast.Assert | ast.Lambda)


def _texts(tree: ast.AST) -> set[str]:
    nodes = (each for each in ast.walk(tree) if isinstance(each, ast.Constant))
    return {each.value for each in nodes if isinstance(each.value, str)}


@cache
def written() -> frozenset[str]:
    """Every text of the code."""
    paths = (ROOT / "src" / "dovetail").rglob("*.py")
    return frozenset[str]().union(*(_texts(ast.parse(each.read_text(encoding="utf-8"))) for each in paths))


@cache
def told() -> dict[str, set[str]]:
    """Types by reason, from the reference that is made from the code."""
    page = (ROOT / "docs" / "reference" / "events.md").read_text(encoding="utf-8")
    found: dict[str, set[str]] = {}
    for reason, kind in re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.M):
        found.setdefault(reason, set()).add(kind)
    return found


@pytest.mark.spec("operations-18.5")
@pytest.mark.parametrize(("reason", "kind"), LISTED)
def test_a_reason_is_told_and_tested(reason: str, kind: str) -> None:
    assert reason in written()
    assert kind in told()[reason]
    assert any(reason in each for each in asserted()), f"no test asserts the event {reason}"


@pytest.mark.spec("operations-18.5")
@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_that_changes_is_told_under_its_name(condition: str) -> None:
    assert any(condition == each for each in asserted())
