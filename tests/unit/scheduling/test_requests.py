"""What pods ask for, all told."""

from __future__ import annotations

import copy
import pickle

import msgspec
import pytest
from msgspec.structs import replace

from dovetail.api.meta import Condition
from dovetail.api.pod import Container, ContainerStatus, Pod, PodSpec, ResourceRequirements
from dovetail.scheduling.model.resources import compute_nano_requests, compute_requests
from support.builders import amounts, container, pod
from support.worlds import World, instance_type


def app(cpu: str, memory: str) -> Container:
    return container("app", cpu=cpu, memory=memory)


def init(cpu: str, memory: str) -> Container:
    return container("init", cpu=cpu, memory=memory)


def sidecar(cpu: str, memory: str) -> Container:
    return container("side", cpu=cpu, memory=memory, restart_policy="Always")


@pytest.mark.spec("T-117", "T-118", "T-119", "T-120", "T-124")
@pytest.mark.parametrize(
    ("spec", "cpu", "memory"),
    [
        pytest.param(
            PodSpec(containers=(app("2", "1Gi"),), init_containers=(sidecar("1", "2Gi"),)),
            "3",
            "3Gi",
            id="T-117 a sidecar adds up",
        ),
        pytest.param(
            PodSpec(
                containers=(app("2", "1Gi"),),
                init_containers=(init("4", "2Gi"), sidecar("3", "3Gi")),
                overhead=amounts(cpu="5", memory="1Gi"),
            ),
            "10",
            "5Gi",
            id="T-118 init before the sidecar, and overhead",
        ),
        pytest.param(
            PodSpec(containers=(app("2", "1Gi"),), init_containers=(sidecar("4", "2Gi"), init("10", "2Gi"))),
            "14",
            "4Gi",
            id="T-119 init beside the sidecar",
        ),
        pytest.param(
            PodSpec(containers=(app("2", "2Gi"),), init_containers=(sidecar("4", "2Gi"), init("1", "1Gi"))),
            "6",
            "4Gi",
            id="T-120 the app is the larger",
        ),
        pytest.param(
            PodSpec(
                containers=(app("1", "1Gi"),),
                resources=ResourceRequirements(requests=amounts(cpu="2", memory="2Gi")),
            ),
            "2",
            "2Gi",
            id="T-124 the pod's own word",
        ),
    ],
)
def test_containers_add_up(spec: PodSpec, cpu: str, memory: str) -> None:
    assert compute_requests(Pod(spec=spec)) == amounts(cpu=cpu, memory=memory)


TYPES = [
    instance_type(f"{cpu}-{memory}", cpu + 0.1, f"{memory * 1024 + 10}Mi")
    for cpu, memory in ((10, 4), (11, 5), (12, 6))
]


@pytest.mark.spec("T-121", "T-122", "T-123")
@pytest.mark.parametrize(
    ("spec", "chosen"),
    [
        pytest.param(
            PodSpec(
                containers=(app("6", "2Gi"),), init_containers=(init("10", "4Gi"), sidecar("4900m", "2900Mi"))
            ),
            "11-5",
            id="T-121 init first",
        ),
        pytest.param(
            PodSpec(
                containers=(app("6", "2Gi"),), init_containers=(sidecar("4900m", "2900Mi"), init("5", "1Gi"))
            ),
            "11-5",
            id="T-122 the app is larger",
        ),
        pytest.param(
            PodSpec(
                containers=(app("5", "1Gi"),), init_containers=(sidecar("4900m", "2900Mi"), init("6", "2Gi"))
            ),
            "11-5",
            id="T-122 init is larger",
        ),
        pytest.param(
            PodSpec(
                containers=(app("20", "20Gi"),),
                resources=ResourceRequirements(requests=amounts(cpu="9900m", memory="3900Mi")),
            ),
            "10-4",
            id="T-123 the pod's word wins",
        ),
    ],
)
def test_the_smallest_type_that_holds_all_phases_is_chosen(spec: PodSpec, chosen: str) -> None:
    world = World(types=TYPES)
    world.provision(replace(pod("web"), spec=spec))
    assert world.type_of("web") == chosen


def resizing(asked: str, given: str | None, infeasible: bool = False) -> Pod:
    waiting = pod("web", cpu=asked, memory=None)
    resources = ResourceRequirements(requests=amounts(cpu=given)) if given else None
    status = ContainerStatus(name="app", resources=resources, allocated_resources=amounts(cpu=given))
    pending = (Condition(type="PodResizePending", status="True", reason="Infeasible"),) if infeasible else ()
    return replace(waiting, status=replace(waiting.status, container_statuses=(status,), conditions=pending))


@pytest.mark.spec("T-125")
@pytest.mark.parametrize(
    ("resized", "counted"),
    [
        pytest.param(resizing("1", "2"), "2", id="on the way down"),
        pytest.param(resizing("2", "1"), "2", id="on the way up"),
        pytest.param(resizing("2", None), "2", id="not reported"),
        pytest.param(resizing("5", "1", infeasible=True), "1", id="never to be"),
    ],
)
def test_a_container_that_is_resized_counts_by_the_larger(resized: Pod, counted: str) -> None:
    assert compute_requests(resized)["cpu"] == amounts(cpu=counted)["cpu"]
    plain = replace(resized, status=replace(resized.status, container_statuses=()))
    for each in (plain, resized, plain):
        # What a spec requests is computed once; a resize of one of its pods is not lost for that.
        assert compute_nano_requests(each)["cpu"] == compute_requests(each)["cpu"].nano


def test_what_a_spec_requests_is_computed_once_and_stays_with_the_spec() -> None:
    waiting = pod("web", cpu="2")
    spec = waiting.spec
    assert (
        compute_nano_requests(waiting)
        is spec.nano_requests
        is compute_nano_requests(replace(pod("other"), spec=spec))
    )
    assert spec.nano_requests["pods"] == 10**9
    for other in (pickle.loads(pickle.dumps(spec)), copy.copy(spec), replace(spec)):
        assert other == spec
        assert other.__dict__ == {}
    assert b"nano" not in msgspec.json.encode(spec, enc_hook=str)
    assert "nano" not in repr(spec)
