"""Requests to ask two servers alike. Each script is a story of its own, in a namespace of its own."""

from __future__ import annotations

from typing import Any

from support.two_servers import APPLY, JSON_PATCH, MERGE, STRATEGIC, Api, Script

Json = dict[str, Any]
SCRIPTS: dict[str, Script] = {}
MAPS = "/api/v1/namespaces/{ns}/configmaps"
PODS = "/api/v1/namespaces/{ns}/pods"
NODES = "/api/v1/nodes"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{ns}/deployments"
BUDGETS = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def script(function: Script) -> Script:
    SCRIPTS[function.__name__] = function
    return function


def config_map(name: str, **meta: Any) -> Json:
    return {"metadata": {"name": name, **meta}, "data": {"a": "1"}}


def pod(name: str, **spec: Any) -> Json:
    """A pod nobody schedules."""
    meta = {k: spec.pop(k) for k in ("labels", "annotations", "finalizers") if k in spec}
    body = {"containers": [{"name": "c", "image": "x"}], "schedulerName": "nobody", **spec}
    body["automountServiceAccountToken"] = False  # its volume is left out on purpose
    return {"metadata": {"name": name, **meta}, "spec": body}


def deployment(name: str, replicas: int = 0) -> Json:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template, "paused": True}
    return {"metadata": {"name": name}, "spec": spec}


@script
async def objects_come_change_and_go(api: Api) -> None:
    await api.ask("POST", MAPS, config_map("one", labels={"x": "y"}))
    await api.ask("POST", MAPS, config_map("one"))
    await api.ask("GET", f"{MAPS}/one")
    await api.ask("GET", f"{MAPS}/two")
    await api.ask("PUT", f"{MAPS}/one", {**config_map("one"), "data": {"a": "2"}})
    await api.ask("PUT", f"{MAPS}/two", config_map("two"))
    await api.ask("PUT", f"{MAPS}/one", config_map("other"))
    await api.ask("PATCH", f"{MAPS}/one", {"data": {"b": "3", "a": None}}, MERGE)
    await api.ask("PATCH", f"{MAPS}/one", [{"op": "test", "path": "/data/b", "value": "4"}], JSON_PATCH)
    await api.ask("PATCH", f"{MAPS}/one", [{"op": "add", "path": "/data/c", "value": "5"}], JSON_PATCH)
    await api.ask("DELETE", f"{MAPS}/one")
    await api.ask("DELETE", f"{MAPS}/one")


@script
async def names_and_bodies_are_checked(api: Api) -> None:
    await api.ask("POST", MAPS, {"metadata": {}})
    await api.ask("POST", MAPS, config_map("Bad_Name"))
    await api.ask("POST", MAPS, config_map("x" * 254))
    await api.ask("POST", MAPS, {**config_map("wrong"), "kind": "Secret"})
    await api.ask("POST", MAPS, {**config_map("wrong"), "apiVersion": "v2"})
    await api.ask("POST", MAPS, config_map("elsewhere", namespace="kube-system"))
    await api.ask("POST", MAPS, config_map("labels", labels={"bad key": "x"}))
    await api.ask("POST", MAPS, config_map("labels", labels={"key": "bad value"}))
    await api.ask("POST", "/api/v1/namespaces/nowhere-{run}/configmaps", config_map("lost"))
    await api.ask("POST", MAPS, {**config_map("strict"), "extra": 1}, fieldValidation="Strict")
    await api.ask("POST", MAPS, {**config_map("loose"), "extra": 1})
    await api.ask("GET", "/api/v1/namespaces/{ns}/unknowns")
    await api.ask("GET", "/apis/apps/v1/unknowns")


@script
async def versions_and_uids_guard_writes(api: Api) -> None:
    made = await api.ask("POST", MAPS, config_map("one"))
    old = made["metadata"]["resourceVersion"]
    await api.ask("PATCH", f"{MAPS}/one", {"data": {"b": "1"}}, MERGE)
    await api.ask("PUT", f"{MAPS}/one", config_map("one", resourceVersion=old))
    await api.ask("PUT", f"{MAPS}/one", config_map("one", uid="00000000-0000-4000-8000-000000000000"))
    await api.ask("PATCH", f"{MAPS}/one", {"metadata": {"resourceVersion": old}, "data": {"z": "1"}}, MERGE)
    await api.ask("DELETE", f"{MAPS}/one", {"preconditions": {"uid": "00000000-0000-4000-8000-000000000000"}})
    await api.ask("DELETE", f"{MAPS}/one", {"preconditions": {"resourceVersion": old}})
    await api.ask("DELETE", f"{MAPS}/one", {"preconditions": {"uid": made["metadata"]["uid"]}})


@script
async def finalizers_hold_objects_back(api: Api) -> None:
    async with api.watching(MAPS):
        await api.ask("POST", MAPS, config_map("held", finalizers=["example.com/a", "example.com/b"]))
        await api.ask("DELETE", f"{MAPS}/held")
        await api.ask("DELETE", f"{MAPS}/held")
        await api.ask(
            "PATCH", f"{MAPS}/held", {"metadata": {"finalizers": ["example.com/b", "example.com/c"]}}, MERGE
        )
        await api.ask("PATCH", f"{MAPS}/held", {"metadata": {"finalizers": ["example.com/b"]}}, MERGE)
        await api.ask("PATCH", f"{MAPS}/held", {"metadata": {"finalizers": None}}, MERGE)
        await api.ask("GET", f"{MAPS}/held")


@script
async def watchers_see_what_their_selector_lets_them(api: Api) -> None:
    async with api.watching(MAPS), api.watching(MAPS, labelSelector="app=web"):
        await api.ask("POST", MAPS, config_map("one", labels={"app": "web"}))
        await api.ask("POST", MAPS, config_map("two", labels={"app": "db"}))
        await api.ask("PATCH", f"{MAPS}/two", {"metadata": {"labels": {"app": "web"}}}, MERGE)
        await api.ask("PATCH", f"{MAPS}/two", {"metadata": {"labels": {"app": "web"}}}, MERGE)
        await api.ask("PATCH", f"{MAPS}/one", {"metadata": {"labels": {"app": "x"}}}, MERGE)
        await api.ask("DELETE", MAPS, None, labelSelector="app in (web,x)")
    await api.ask("GET", MAPS, labelSelector="app in (")
    await api.ask("GET", MAPS, fieldSelector="data.x=1")


@script
async def lists_come_in_pages(api: Api) -> None:
    for number in range(5):
        await api.raw("POST", MAPS, config_map(f"m{number}", labels={"n": str(number % 2)}))
    first = await api.ask("GET", MAPS, limit="2", labelSelector="n")
    await api.ask("GET", MAPS, limit="2", labelSelector="n", **{"continue": first["metadata"]["continue"]})
    await api.ask("GET", MAPS, labelSelector="n=1")
    await api.ask("GET", MAPS, limit="2", **{"continue": "nonsense"})
    await api.ask("GET", MAPS, resourceVersionMatch="Exact")
    await api.ask("GET", MAPS, resourceVersion="0", resourceVersionMatch="Exact")


@script
async def pods_get_their_defaults(api: Api) -> None:
    await api.ask("POST", PODS, pod("plain"))
    await api.ask("POST", PODS, {"metadata": {"name": "empty"}, "spec": {}})
    resources = {"requests": {"cpu": "0.5", "memory": "1024Mi"}, "limits": {"cpu": "1000m"}}
    busy = {"name": "c", "image": "x:latest", "resources": resources, "ports": [{"containerPort": 80}]}
    await api.ask("POST", PODS, pod("busy", containers=[busy]))
    await api.ask("POST", PODS, pod("gated", schedulingGates=[{"name": "example.com/g"}]))
    await api.ask("POST", PODS, pod("ranked", priorityClassName="system-node-critical"))
    await api.ask("POST", PODS, pod("unranked", priorityClassName="no-such-class"))
    await api.ask("POST", PODS, pod("twice", containers=[{"name": "c", "image": "x"}] * 2))
    await api.ask("POST", PODS, pod("nameless", containers=[{"image": "x"}]))


@script
async def pods_change_only_where_they_may(api: Api) -> None:
    await api.ask("POST", PODS, pod("one"))
    await api.ask("PATCH", f"{PODS}/one", {"spec": {"nodeSelector": {"a": "b"}}}, MERGE)
    image = {"spec": {"containers": [{"name": "c", "image": "y"}]}}
    await api.ask("PATCH", f"{PODS}/one", image, STRATEGIC)
    await api.ask("PATCH", f"{PODS}/one", {"metadata": {"labels": {"a": "b"}}}, MERGE)
    await api.ask("PATCH", f"{PODS}/one", {"status": {"phase": "Running"}}, MERGE)
    await api.ask("PATCH", f"{PODS}/one/status", {"status": {"phase": "Running"}}, MERGE)
    await api.ask("PATCH", f"{PODS}/one", {"spec": {"activeDeadlineSeconds": 50}}, MERGE)
    await api.ask("PATCH", f"{PODS}/one", {"spec": {"tolerations": [{"operator": "Exists"}]}}, MERGE)


@script
async def pods_are_bound_once(api: Api) -> None:
    await api.ask("POST", PODS, pod("one"))
    await api.ask("POST", PODS, pod("gated", schedulingGates=[{"name": "example.com/g"}]))
    target = {"metadata": {"name": "one"}, "target": {"kind": "Node", "name": "nowhere-{run}"}}
    async with api.watching(PODS):
        await api.ask("POST", f"{PODS}/one/binding", target)
        await api.ask("GET", f"{PODS}/one")
        await api.ask("POST", f"{PODS}/one/binding", target)
        await api.ask("POST", f"{PODS}/gated/binding", {**target, "metadata": {"name": "gated"}})
        await api.ask("POST", f"{PODS}/none/binding", {**target, "metadata": {"name": "none"}})
        await api.ask("DELETE", f"{PODS}/one")
        await api.ask("DELETE", f"{PODS}/one", None, gracePeriodSeconds="5")
        await api.ask("DELETE", f"{PODS}/one", None, gracePeriodSeconds="60")
        await api.ask("DELETE", f"{PODS}/one", None, gracePeriodSeconds="0")
        await api.ask("GET", f"{PODS}/one")
        await api.ask("DELETE", f"{PODS}/gated")


@script
async def evictions_ask_the_budget(api: Api) -> None:
    def eviction(name: str) -> Json:
        return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}

    for name in ("a", "b", "free"):
        labels = {"app": "none" if name == "free" else "web"}
        await api.raw("POST", PODS, pod(name, labels=labels, nodeName="nowhere-{run}"))
        ready = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}
        await api.raw("PATCH", f"{PODS}/{name}/status", {"status": ready}, STRATEGIC)
    spec = {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1}
    await api.ask("POST", BUDGETS, {"metadata": {"name": "web"}, "spec": spec})
    await api.until(f"{BUDGETS}/web", lambda a: (a.get("status") or {}).get("disruptionsAllowed") == 1)
    await api.ask("GET", f"{BUDGETS}/web")
    await api.ask("POST", f"{PODS}/a/eviction", eviction("a"))
    await api.ask("POST", f"{PODS}/b/eviction", eviction("b"))
    await api.ask("POST", f"{PODS}/free/eviction", eviction("free"), dryRun="All")
    await api.ask("POST", f"{PODS}/free/eviction", eviction("other"))
    await api.ask("POST", f"{PODS}/free/eviction", eviction("free"))
    await api.ask("POST", f"{PODS}/ghost/eviction", eviction("ghost"))
    await api.ask("GET", f"{PODS}/a")
    await api.ask("POST", BUDGETS, {"metadata": {"name": "second"}, "spec": spec})
    await api.until(f"{BUDGETS}/second", lambda a: (a.get("status") or {}).get("observedGeneration") == 1)
    await api.ask("POST", f"{PODS}/b/eviction", eviction("b"))


@script
async def budgets_are_checked(api: Api) -> None:
    selector = {"matchLabels": {"app": "x"}}
    both = {"selector": selector, "minAvailable": 1, "maxUnavailable": 1}
    await api.ask("POST", BUDGETS, {"metadata": {"name": "both"}, "spec": both})
    await api.ask(
        "POST", BUDGETS, {"metadata": {"name": "odd"}, "spec": {"selector": selector, "minAvailable": "x"}}
    )
    await api.ask(
        "POST", BUDGETS, {"metadata": {"name": "minus"}, "spec": {"selector": selector, "minAvailable": -1}}
    )
    await api.ask(
        "POST",
        BUDGETS,
        {"metadata": {"name": "much"}, "spec": {"selector": selector, "maxUnavailable": "101%"}},
    )


@script
async def generations_count_what_was_asked_for(api: Api) -> None:
    def seen(obj: Any) -> bool:
        status = obj.get("status") or {}
        settled = {c["type"] for c in status.get("conditions") or ()} == {"Available", "Progressing"}
        return settled and bool(status.get("observedGeneration") == obj["metadata"]["generation"])

    path = f"{DEPLOYMENTS}/web"
    await api.ask("POST", DEPLOYMENTS, deployment("web"))
    await api.until(path, seen)
    changes: list[Json] = [{"metadata": {"labels": {"a": "b"}}}, *[{"spec": {"minReadySeconds": 5}}] * 2]
    for change in changes:
        await api.ask("PATCH", path, change, MERGE)
        await api.until(path, seen)
    await api.ask("PATCH", f"{DEPLOYMENTS}/web", {"spec": {"selector": {"matchLabels": {"app": "x"}}}}, MERGE)
    await api.ask("GET", f"{DEPLOYMENTS}/web/scale")
    await api.ask("PATCH", f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": -1}}, MERGE)
    wrong = deployment("wrong")
    wrong["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    await api.ask("POST", DEPLOYMENTS, wrong)
    await api.ask("POST", DEPLOYMENTS, {"metadata": {"name": "bare"}, "spec": {}})


@script
async def nodes_keep_their_status(api: Api) -> None:
    status = {"capacity": {"cpu": "4", "memory": "8192Mi"}}
    node = {"metadata": {"name": "node-{run}", "labels": {"a": "b"}}, "status": status}
    await api.ask("POST", NODES, node)
    # The taint of a new node goes whenever a controller comes to it, so it makes way for one that stays.
    own = [{"key": "own", "effect": "NoSchedule"}]
    await api.raw("PATCH", f"{NODES}/node-{{run}}", {"spec": {"taints": own}}, MERGE)
    await api.ask("PATCH", f"{NODES}/node-{{run}}", {"status": {"capacity": {"cpu": "8"}}}, MERGE)
    await api.ask("PATCH", f"{NODES}/node-{{run}}", {"spec": {"podCIDR": "10.0.0.0/24"}}, MERGE)
    await api.ask("PATCH", f"{NODES}/node-{{run}}", {"spec": {"providerID": "x://1"}}, MERGE)
    await api.ask("PATCH", f"{NODES}/node-{{run}}", {"spec": {"providerID": "x://2"}}, MERGE)
    taints = [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}]
    await api.ask("PATCH", f"{NODES}/node-{{run}}", {"spec": {"taints": taints}}, MERGE)
    await api.ask(
        "PATCH", f"{NODES}/node-{{run}}", {"spec": {"taints": [{"key": "a", "effect": "Never"}]}}, MERGE
    )
    await api.ask("DELETE", f"{NODES}/node-{{run}}")


@script
async def some_kinds_must_be_replaced_by_version(api: Api) -> None:
    meta: Json = {"metadata": {"name": "x-{run}"}}
    budget = {"selector": {"matchLabels": {"a": "b"}}, "minAvailable": 1}
    csi, storage = "/apis/storage.k8s.io/v1/csinodes", "/apis/storage.k8s.io/v1/storageclasses"
    ranks = "/apis/scheduling.k8s.io/v1/priorityclasses"
    for path, body in (
        (MAPS, meta),
        (BUDGETS, meta | {"spec": budget}),
        (csi, meta | {"spec": {"drivers": []}}),
        (storage, meta | {"provisioner": "x"}),
        (ranks, meta | {"value": 5}),
        (DEPLOYMENTS, {**deployment("x"), **meta}),
        ("/api/v1/namespaces/{ns}/secrets", meta),
    ):
        await api.raw("POST", path, body)
        _, answer = await api.raw("PUT", f"{path}/x-{{run}}", body)
        api.transcript.append({"asked": path, "code": answer.get("code"), "reason": answer.get("reason")})
        await api.ask("DELETE", f"{path}/x-{{run}}")


@script
async def leases_are_made_by_putting_them(api: Api) -> None:
    lease: Json = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 40}}
    await api.ask("PUT", f"{LEASES}/l", lease)
    await api.ask("PUT", f"{LEASES}/l", {**lease, "spec": {**lease["spec"], "holderIdentity": "you"}})
    await api.ask("POST", LEASES, {"metadata": {"name": "bad"}, "spec": {"leaseDurationSeconds": 0}})


@script
async def appliers_own_what_they_set(api: Api) -> None:
    def applied(**data: str) -> Json:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": data}

    path = f"{MAPS}/one"
    await api.ask("PATCH", path, applied(a="1", b="1"), APPLY, fieldManager="one", force="false")
    await api.ask("PATCH", path, applied(b="2"), APPLY, fieldManager="two")
    await api.ask("PATCH", path, applied(b="2"), APPLY, fieldManager="two", force="true")
    await api.ask("PATCH", path, applied(a="1"), APPLY, fieldManager="one")
    await api.ask("PATCH", path, applied(c="1"), APPLY, fieldManager="one")
    await api.ask("PATCH", path, applied(c="1"), APPLY)


@script
async def dry_runs_change_nothing(api: Api) -> None:
    await api.ask("POST", MAPS, config_map("one"), dryRun="All")
    await api.ask("GET", f"{MAPS}/one")
    await api.ask("POST", MAPS, config_map("one"), dryRun="Some")
    await api.raw("POST", MAPS, config_map("one"))
    await api.ask("PATCH", f"{MAPS}/one", {"data": {"a": "9"}}, MERGE, dryRun="All")
    await api.ask("DELETE", f"{MAPS}/one", None, dryRun="All")
    await api.ask("GET", f"{MAPS}/one")


@script
async def owners_take_dependents_along(api: Api) -> None:
    def owner(made: Json) -> Json:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": made["metadata"]["name"],
            "uid": made["metadata"]["uid"],
        }

    first = await api.ask("POST", MAPS, config_map("first"))
    second = await api.ask("POST", MAPS, config_map("second"))
    await api.ask("POST", MAPS, config_map("child", ownerReferences=[owner(first)]))
    await api.ask("POST", MAPS, config_map("shared", ownerReferences=[owner(first), owner(second)]))
    await api.ask("DELETE", f"{MAPS}/first", {"propagationPolicy": "Background"})
    await api.until(f"{MAPS}/child", lambda a: a.get("code") == 404)
    shared = await api.until(f"{MAPS}/shared", lambda a: len(a["metadata"]["ownerReferences"]) == 1)
    assert shared["metadata"]["ownerReferences"][0]["name"] == "second"
    await api.ask("DELETE", f"{MAPS}/second", {"propagationPolicy": "Orphan"})
    await api.until(f"{MAPS}/second", lambda a: a.get("code") == 404)
    await api.ask("GET", f"{MAPS}/shared")
    await api.ask("DELETE", f"{MAPS}/shared", {"propagationPolicy": "Sideways"})


@script
async def definitions_shape_their_objects(api: Api) -> None:
    spec = {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1},
            "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
            "parts": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
            },
        },
        "x-kubernetes-validations": [{"rule": "self.size != 13", "message": "unlucky"}],
    }
    schema = {
        "type": "object",
        "properties": {"spec": spec, "status": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    group = "{run}.example.com"
    names = {"plural": "widgets", "kind": "Widget"}
    body = {"group": group, "names": names, "scope": "Namespaced", "versions": [version]}
    await api.raw("POST", CRDS, {"metadata": {"name": f"widgets.{group}"}, "spec": body})

    def established(answer: Any) -> bool:
        conditions = (answer.get("status") or {}).get("conditions") or ()
        return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

    await api.until(f"{CRDS}/widgets.{group}", established)
    path = "/apis/{run}.example.com/v1/namespaces/{ns}/widgets"
    await api.until(path, lambda a: a.get("kind") == "WidgetList")

    def widget(name: str, **spec: Any) -> Json:
        return {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}

    await api.ask("POST", path, widget("one", size=2, unknown=1))
    await api.ask("POST", path, widget("none"))
    await api.ask("POST", path, widget("small", size=0, colour="green"))
    await api.ask("POST", path, widget("unlucky", size=13))
    await api.ask("POST", path, widget("text", size="2"))
    await api.ask("POST", path, widget("twice", size=1, parts=[{"name": "a"}, {"name": "a"}]))
    await api.ask("POST", path, widget("strict", size=1, unknown=1), fieldValidation="Strict")
    await api.ask("PATCH", f"{path}/one", {"spec": {"size": 3}}, MERGE)
    await api.ask("PATCH", f"{path}/one", {"status": {"n": 3}}, MERGE)
    await api.ask("PATCH", f"{path}/one/status", {"status": {"n": 3}, "spec": {"size": 9}}, MERGE)
    await api.ask("PUT", f"{path}/one", widget("one", size=4))
    await api.ask("PATCH", f"{path}/one", {"spec": {"size": 5}}, STRATEGIC)
    await api.ask("DELETE", f"{path}/one")
    await api.raw("DELETE", f"{CRDS}/widgets.{group}")


@script
async def namespaces_empty_themselves(api: Api) -> None:
    await api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "other-{run}"}})
    inside = "/api/v1/namespaces/other-{run}/configmaps"
    await api.raw("POST", inside, config_map("one", finalizers=["example.com/hold"]))
    await api.ask("DELETE", "/api/v1/namespaces/other-{run}")
    await api.until(f"{inside}/one", lambda a: bool(a["metadata"].get("deletionTimestamp")))
    await api.ask("POST", inside, config_map("late"))
    await api.ask("PATCH", f"{inside}/one", {"metadata": {"finalizers": None}}, MERGE)
    await api.until("/api/v1/namespaces/other-{run}", lambda a: a.get("code") == 404)
    await api.ask("DELETE", "/api/v1/namespaces/default")
