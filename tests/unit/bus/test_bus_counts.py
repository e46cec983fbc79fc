"""Numbers: the same names as log lines and for Prometheus, and clusters beyond a bound folded together."""

from __future__ import annotations

import json

from dovetail.bus.ports import METRICS, PREFIX, BusTally, EmfMetrics
from dovetail.bus.prometheus import DECLARED, PrometheusCounts
from dovetail.metrics import REGISTRY


def test_clusters_beyond_the_bound_share_a_label() -> None:
    tally = BusTally(most_clusters=2)
    for cluster in ("a", "b", "c", "d", "a"):
        tally.add("routed_total", 1, cluster, "spot_interrupted")

    counted = {key[1]: amount for key, amount in tally.totals.items()}
    assert counted == {"a": 2, "b": 1, "other": 2}


def test_a_function_writes_its_numbers_as_lines_cloudwatch_reads() -> None:
    written: list[str] = []
    emf = EmfMetrics(written.append)
    emf.add("received_total", 3, "urgent", "spot_interrupted")
    emf.add("duplicates_total", 1)
    emf.set("cache_entries", 7)
    for value in range(150):
        emf.observe("latency_seconds", value, "urgent", "receive_to_sent")

    emf.flush(1_770_112_800.0)
    lines = [json.loads(line) for line in written]

    for line in lines:
        (directive,) = line["_aws"]["CloudWatchMetrics"]
        assert directive["Namespace"] == "Dovetail/Bus"
        assert line["_aws"]["Timestamp"] == 1_770_112_800_000
        for metric in directive["Metrics"]:
            assert metric["Name"] in line
        assert all(name in line for name in directive["Dimensions"][0])
    names = {metric["Name"] for line in lines for metric in line["_aws"]["CloudWatchMetrics"][0]["Metrics"]}
    assert names == {
        PREFIX + name for name in ("received_total", "duplicates_total", "cache_entries", "latency_seconds")
    }
    assert max(len(line.get("dovetail_bus_latency_seconds", [])) for line in lines) == 100
    emf.flush(0.0)
    assert len(written) == len(lines)


def test_both_shells_use_the_same_names() -> None:
    prometheus = PrometheusCounts()
    before = REGISTRY.get_sample_value("dovetail_bus_duplicates_total") or 0.0
    prometheus.add("duplicates_total", 2)
    prometheus.observe("batch_size", 5, "bulk")
    prometheus.set("circuit_open", 1, "somewhere")

    assert set(DECLARED) == set(METRICS)
    assert REGISTRY.get_sample_value("dovetail_bus_duplicates_total") == before + 2
    assert REGISTRY.get_sample_value("dovetail_bus_circuit_open", {"cluster": "somewhere"}) == 1
