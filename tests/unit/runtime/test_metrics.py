"""The machinery's numbers, under exactly the names and types dashboards ask for."""

from __future__ import annotations

import asyncio
import re
from random import Random

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dovetail.api.core import Node
from dovetail.controllers.base import DONE, Backoff, Result, Trigger
from dovetail.runtime import metrics
from dovetail.runtime.leader import ElectionTerms
from dovetail.runtime.manager import Manager
from dovetail.runtime.queue import WorkQueue
from dovetail.sim.clock import VirtualClock, run_virtual

# Operations specification, section 9.3: type, and labels beside `le`.
EXPECTED = {
    "client_go_request_total": ("counter", "code method"),
    "client_go_request_duration_seconds": ("histogram", "verb group version kind subresource"),
    "controller_runtime_reconcile_total": ("counter", "controller result"),
    "controller_runtime_reconcile_errors_total": ("counter", "controller"),
    "controller_runtime_terminal_reconcile_errors_total": ("counter", "controller"),
    "controller_runtime_reconcile_panics_total": ("counter", "controller"),
    "controller_runtime_reconcile_timeouts_total": ("counter", "controller"),
    "controller_runtime_reconcile_time_seconds": ("histogram", "controller"),
    "controller_runtime_max_concurrent_reconciles": ("gauge", "controller"),
    "controller_runtime_active_workers": ("gauge", "controller"),
    "controller_runtime_conversion_webhook_panics_total": ("counter", ""),
    "workqueue_depth": ("gauge", "name controller priority"),
    "workqueue_adds_total": ("counter", "name controller"),
    "workqueue_retries_total": ("counter", "name controller"),
    "workqueue_queue_duration_seconds": ("histogram", "name controller"),
    "workqueue_work_duration_seconds": ("histogram", "name controller"),
    "workqueue_unfinished_work_seconds": ("gauge", "name controller"),
    "workqueue_longest_running_processor_seconds": ("gauge", "name controller"),
    "leader_election_master_status": ("gauge", "name"),
    "leader_election_slowpath_total": ("counter", "name"),
}


@pytest.fixture(scope="module")
def shown() -> str:
    async def main() -> str:
        clock = VirtualClock()
        metrics.prepare_controller("shown", 1)
        WorkQueue("shown", clock)
        metrics.LEADING.labels(ElectionTerms().name).set(0)
        metrics.SLOW_RENEWALS.labels(ElectionTerms().name)
        with metrics.client_request(clock, "GET", Node.KIND, "status") as seen:
            seen.code = 200
        return metrics.render_exposition().decode()

    return run_virtual(main())


@pytest.mark.parametrize("name", EXPECTED)
def test_a_metric_has_its_name_type_and_labels(shown: str, name: str) -> None:
    kind, labels = EXPECTED[name]
    assert f"# TYPE {name} {kind}\n" in shown
    families = {family.name: family for family in text_string_to_metric_families(shown)}
    family = families[name.removesuffix("_total") if kind == "counter" else name]
    found = {label for sample in family.samples for label in sample.labels} - {"le"}
    assert found == set(labels.split())


def test_buckets_are_those_of_the_originals(shown: str) -> None:
    def buckets(name: str) -> list[float]:
        family = next(f for f in text_string_to_metric_families(shown) if f.name == name)
        return sorted({float(s.labels["le"]) for s in family.samples if s.name.endswith("_bucket")})[:-1]

    assert buckets("workqueue_queue_duration_seconds") == pytest.approx([1e-8 * 10**k for k in range(12)])
    assert buckets("client_go_request_duration_seconds") == pytest.approx([0.001 * 1.5**k for k in range(20)])
    reconcile = buckets("controller_runtime_reconcile_time_seconds")
    assert (len(reconcile), reconcile[0], reconcile[-1]) == (40, 0.005, 60)


def test_nothing_is_shown_that_nobody_asked_for(shown: str) -> None:
    assert not re.search(r"^\w+_created[ {]", shown, re.MULTILINE)
    assert "process_resident_memory_bytes" in shown


def test_a_running_manager_is_asked_before_the_numbers_are_shown() -> None:
    class Slow:
        name, concurrency, backoff = "reporting", 1, Backoff()
        singleton = False
        triggers: tuple[Trigger, ...] = ()

        async def reconcile(self, key: str) -> Result:
            await asyncio.sleep(100)
            return DONE

    async def main() -> tuple[str, str]:
        manager = Manager(VirtualClock(), Random(0), grace=1)
        queue = manager.add(Slow())
        for key in "abc":
            queue.add(key)
        running = asyncio.create_task(manager.run())
        await asyncio.sleep(30)
        during = metrics.render_exposition().decode()
        manager.stop()
        await running
        return during, metrics.render_exposition().decode()

    during, _ = run_virtual(main())
    assert 'workqueue_depth{controller="reporting",name="reporting",priority=""} 2.0' in during
    line = 'workqueue_longest_running_processor_seconds{controller="reporting",name="reporting"} 30.0'
    assert line in during
