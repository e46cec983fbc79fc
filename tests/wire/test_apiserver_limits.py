"""One request may not take the server's memory or its time: each attack is refused in a Status.

What is counted is work, not seconds: bytes copied, values read, cost of rules. A pattern that backtracks is
run in a process that is stopped after some seconds of CPU, since nothing else would stop it.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import zlib
from io import BytesIO
from typing import Any

import pytest

from dovetail.api.schema import cel_cost
from dovetail.api.schema.cel import CelError, CostExceeded, compile_rule
from dovetail.api.schema.cel_cost import CALL_LIMIT, OBJECT_BUDGET, CostBudget
from dovetail.sim.kube.http.bodies import LIMIT, YAML_EVENTS_LIMIT
from dovetail.sim.kube.patch import patches
from support.apiserver import APPLY, JSON_PATCH, MERGE, config_map, definition, serving, widget

MAPS = "/api/v1/namespaces/default/configmaps"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def of_spec(**properties: Any) -> dict[str, Any]:
    """The definition of widgets whose spec has these properties."""
    spec = {"type": "object", "properties": properties}
    return definition(schema={"type": "object", "properties": {"spec": spec}})


# --- JSON patch -------------------------------------------------------------------------------------------


def doubling(times: int) -> list[dict[str, str]]:
    """Copies of everything into itself: each doubles the object."""
    return [{"op": "copy", "from": "/data", "path": f"/data/copy{number}"} for number in range(times)]


async def test_a_patch_that_doubles_an_object_61_times_is_refused() -> None:
    async with serving() as http:
        await http.post(MAPS, config_map("a", text="x" * 100))
        body = json.dumps(doubling(61))
        refused = await http.ask("PATCH", f"{MAPS}/a", 422, data=body, headers={"Content-Type": JSON_PATCH})
        assert "exceeding the limit 3145728" in refused["message"]


def test_a_patch_copies_at_most_what_its_limit_allows() -> None:
    with pytest.raises(patches.PatchError):
        patches.apply_json_patch({"data": {"a": "x" * 100}}, doubling(16))
    made = patches.apply_json_patch({"data": {"a": "x" * 100}}, doubling(14))
    assert len(json.dumps(made)) < 2 * patches.COPY_LIMIT


class Watched(dict[str, Any]):
    """A map that counts how often it is copied."""

    copies = 0

    def copy(self) -> dict[str, Any]:
        Watched.copies += 1
        return dict(self)

    def keys(self) -> Any:  # what `{**map}` asks for
        Watched.copies += 1
        return super().keys()


def test_ten_thousand_operations_copy_a_large_map_once() -> None:
    Watched.copies = 0
    document = {"data": Watched((f"k{n}", n) for n in range(100))}
    ops = [{"op": "add", "path": f"/data/k{n % 100}", "value": n} for n in range(10_000)]
    assert patches.apply_json_patch(document, ops)["data"]["k99"] == 9_999
    assert Watched.copies == 1
    assert document["data"]["k99"] == 99


# --- patterns ---------------------------------------------------------------------------------------------

_BACKTRACKS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
from dovetail.api.validation.schema import schema_complaints
from dovetail.api.schema.cel import compile_rule
from dovetail.api.schema.object_schema import Schema

text, pattern = "a" * 5_000 + "!", "^(a+)+$"
schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
assert Schema.from_openapi(schema).validate({"a": text})
assert schema_complaints(Schema.from_openapi(schema), {"a": text})
assert not compile_rule(f"self.matches('{pattern}')").evaluate(text)
assert compile_rule(f"self.find('{pattern}') == ''").evaluate(text)
assert compile_rule(f"self.findAll('{pattern}').size() == 0").evaluate(text)
print("done")
"""


def test_a_pattern_that_backtracks_takes_no_time() -> None:
    ran = subprocess.run([sys.executable, "-c", _BACKTRACKS], capture_output=True, text=True, check=False)
    assert ran.stdout == "done\n", ran.stderr[-500:] or f"stopped by signal {-ran.returncode}"


_UNCLOSED = """
import resource
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
from dovetail.api.schema.cel import CelError, compile_rule
chains = "self" + ".a" * 20_000, "+".join(["1"] * 20_000), "self" + "[0]" * 15_000
for text in ('\"\"\"' + chr(92) * 200, "'''" + chr(92) * 201, "self.all(" * 4_000, *chains):
    try:
        compile_rule(text)
    except CelError:
        print("refused")
"""


def test_a_rule_that_is_hard_to_read_is_refused() -> None:
    ran = subprocess.run([sys.executable, "-c", _UNCLOSED], capture_output=True, text=True, check=False)
    assert ran.stdout == "refused\n" * 6, ran.stderr[-500:] or f"stopped by signal {-ran.returncode}"


# --- the cost of CEL rules --------------------------------------------------------------------------------

PAIRS = f"self.all(a, self.all(b, {' && '.join(['a >= 0 && b >= 0'] * 10)}))"


@pytest.fixture
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fiftieth of the budget, so that little work spends it."""
    monkeypatch.setattr(cel_cost, "OBJECT_BUDGET", OBJECT_BUDGET // 50)


@pytest.mark.usefixtures("small_budget")
async def test_rules_are_paid_from_one_budget_of_the_object() -> None:
    """Each of these rules is cheap enough alone; thirty of them are not."""
    rules = [{"rule": f"{PAIRS} && {number} >= 0"} for number in range(30)]
    numbers = {"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": rules}
    async with serving() as http:
        await http.post(CRDS, of_spec(numbers=numbers))
        await http.post(WIDGETS, widget("few", numbers=list(range(5))))
        refused = await http.post(WIDGETS, widget("many", numbers=list(range(20))), 422)
        (cause,) = refused["details"]["causes"]
        assert cause["field"] == "spec.numbers"
        assert "running out of cost budget, no further validation rules will be run" in cause["message"]


@pytest.mark.usefixtures("small_budget")
async def test_rules_of_many_items_are_paid_from_one_budget_too() -> None:
    inner = {"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": [{"rule": PAIRS}]}
    async with serving() as http:
        await http.post(CRDS, of_spec(rows={"type": "array", "items": inner}))
        await http.post(WIDGETS, widget("few", rows=[list(range(10))] * 10))
        refused = await http.post(WIDGETS, widget("many", rows=[list(range(10))] * 200), 422)
        assert len(refused["details"]["causes"]) == 1


def test_one_evaluation_has_a_limit_of_its_own() -> None:
    budget = CostBudget()
    with pytest.raises(CostExceeded, match="call cost exceeds limit for rule"):
        compile_rule(PAIRS).evaluate(list(range(1_000)), budget=budget)
    assert budget.exhausted


def test_what_an_evaluation_costs_is_counted_and_not_guessed_where_the_guess_is_too_dear() -> None:
    # By its longest list this nests to 50 million; by its data it visits few.
    rows = [[1, 2, 3] for _ in range(50)] + [list(range(2_000))]
    budget = CostBudget()
    assert compile_rule("self.all(r, r.all(n, n >= 0) && r.exists(n, n > 1))").evaluate(rows, budget=budget)
    assert 0 < OBJECT_BUDGET - budget.left < CALL_LIMIT


def test_a_verdict_known_already_costs_what_it_cost_before() -> None:
    rule, costs = compile_rule("self.all(x, x >= -7)"), []
    for _ in range(2):
        budget = CostBudget()
        assert rule.evaluate([1, 2, 3], budget=budget)
        costs.append(OBJECT_BUDGET - budget.left)
    assert costs[0] == costs[1] > 0


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("self.replace('', self).size() > 0", "x" * 100_000),
        ("self.replace('x', self).replace('x', self).size() > 0", "x" * 3_000),
        ("'%.999999999f'.format([1.0]) != ''", "x"),
        ("lists.range(100000).distinct().size() > 0", "x"),
        ("sets.contains(lists.range(50000), lists.range(50000))", "x"),
        ("self.map(x, self).map(y, y.join('')).join('').size() > 0", ["x" * 1_000] * 1_000),
        ("lists.range(100000).map(x, x).size() > 0", "x"),
        ("self.findAll('a*b|a').size() > 0", "a" * 200_000),
        (" + ".join(["self"] * 1_000) + " != ''", "x" * 100_000),
        ("self.map(x, self.map(y, self.map(z, self))).size() > 0", list(range(1_000))),
    ],
)
def test_a_rule_that_grows_its_data_is_stopped(rule: str, value: Any) -> None:
    with pytest.raises(CelError):
        compile_rule(rule).evaluate(value)


DEAR = " && ".join(["(a == b || a != b)"] * 6)


@pytest.mark.usefixtures("small_budget")
async def test_a_policy_has_a_budget_too() -> None:
    policy = {
        "metadata": {"name": "dear"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["*"],
                        "operations": ["CREATE"],
                        "resources": ["configmaps"],
                    }
                ]
            },
            "variables": [{"name": "ks", "expression": "object.data.map(k, k)"}],
            "validations": [
                {"expression": f"variables.ks.all(a, variables.ks.all(b, a == b || a != b)) && {number} >= 0"}
                for number in range(30)
            ],
        },
    }
    binding = {"metadata": {"name": "dear"}, "spec": {"policyName": "dear", "validationActions": ["Deny"]}}
    group = "/apis/admissionregistration.k8s.io/v1"
    async with serving() as http:
        await http.post(f"{group}/validatingadmissionpolicies", policy)
        await http.post(f"{group}/validatingadmissionpolicybindings", binding)
        await http.post(MAPS, config_map("few", **{f"k{n}": "" for n in range(3)}))
        refused = await http.post(MAPS, config_map("many", **{f"k{n}": "" for n in range(40)}), 422)
        assert "running out of cost budget" in refused["message"]


# --- bodies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"a:\n" + b"- 1\n" * 750_000,
        b"a: [" + b"1," * 1_500_000 + b"1]",
        b"".join(b"k%d: v\n" % number for number in range(200_000)),
    ],
    ids=["list", "flow", "map"],
)
async def test_yaml_of_too_many_values_is_refused_before_it_is_read(body: bytes) -> None:
    assert len(body) < LIMIT
    async with serving() as http:
        for method, path, kind in (("POST", MAPS, "application/yaml"), ("PATCH", f"{MAPS}/a", APPLY)):
            query = {"fieldManager": "m"} if kind == APPLY else {}
            headers = {"Content-Type": kind}
            refused = await http.ask(method, path, 413, data=BytesIO(body), headers=headers, params=query)
            assert f"limit is {YAML_EVENTS_LIMIT}" in refused["message"]


async def test_a_second_yaml_document_is_refused_at_its_start() -> None:
    async with serving() as http:
        headers = {"Content-Type": "application/yaml"}
        refused = await http.ask("POST", MAPS, 400, data=BytesIO(b"---\n" * 700_000), headers=headers)
        assert "more than one document" in refused["message"]


async def test_a_compressed_body_is_not_inflated() -> None:
    """A real server does not either: what was sent is the body."""
    squeezed = zlib.compress(b" " * 50_000_000, wbits=31)
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with serving() as http:
        await http.ask("POST", MAPS, 400, data=squeezed, headers=headers, skip_auto_headers=["x"])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000


# --- text that is no text ---------------------------------------------------------------------------------


async def sent(url: str, head: bytes, body: bytes) -> tuple[int, bytes]:
    """The answer to a request written byte by byte."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    length = b"Content-Length: %d\r\n\r\n" % len(body)
    writer.write(head + b"Host: x\r\nConnection: close\r\n" + length + body)
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return int(answer.split(b" ", 2)[1]), answer


async def test_half_a_surrogate_pair_becomes_the_replacement_character() -> None:
    async with serving() as http:
        for name, text in (("half", rb"\ud800"), ("other", rb"\udc00a"), ("bytes", b"\xff")):
            body = b'{"metadata":{"name":"%s"},"data":{"a":"%s"}}' % (name.encode(), text)
            made = await http.ask("POST", MAPS, 201, data=body, headers={"Content-Type": "application/json"})
            assert made["data"]["a"].startswith("\ufffd")
        body = rb'{"data":{"b":"\ud83d\ude00","c":"\ud83d"}}'
        changed = await http.ask("PATCH", f"{MAPS}/half", data=body, headers={"Content-Type": MERGE})
        assert changed["data"] == {"a": "\ufffd", "b": "\U0001f600", "c": "\ufffd"}


async def test_a_client_whose_name_is_no_text_is_served() -> None:
    head = f"POST {MAPS} HTTP/1.1\r\nContent-Type: application/json\r\n".encode()
    head += b"User-Agent: \xff\xfe\r\n"
    async with serving() as http:
        code, answer = await sent(http.url, head, json.dumps(config_map("a", x="1")).encode())
        assert code == 201
        assert b'"manager":"\xef\xbf\xbd\xef\xbf\xbd"' in answer


async def test_a_field_name_of_control_characters_is_warned_about_in_one_line() -> None:
    head = f"POST {MAPS} HTTP/1.1\r\nContent-Type: application/json\r\n".encode()
    body = json.dumps({**config_map("a"), "x\r\nSet-Cookie: y\0": 1}).encode()
    async with serving() as http:
        code, answer = await sent(http.url, head, body)
        assert code == 201
        assert b'299 - "unknown field \\"x  Set-Cookie: y \\""' in answer


def test_the_prices_know_every_function_they_name() -> None:
    from dovetail.api.schema.cel_functions import FUNCTIONS

    assert set(cel_cost._DEAR) <= set(FUNCTIONS)
