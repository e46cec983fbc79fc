"""Workloads run by real controllers and by ours: the same steps, and how things stand after each.

Both play kubelets; ours is slower on purpose. So only states that last are compared: each step waits until
the controllers say they are done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.two_servers import MERGE, STRATEGIC, Api, Script

Json = dict[str, Any]
WORKLOADS: dict[str, Script] = {}
APPS = "/apis/apps/v1/namespaces/{ns}"
PODS = "/api/v1/namespaces/{ns}/pods"
BUDGETS = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"
JOBS = "/apis/batch/v1/namespaces/{ns}/jobs"
HOST = "kubernetes.io/hostname"
MINE = {"set": "{run}"}


def workload(function: Script) -> Script:
    WORKLOADS[function.__name__] = function
    return function


def body(name: str, replicas: int | None = None, *, pods: Json | None = None, **spec: Any) -> Json:
    """A workload whose pods stay on this run's nodes."""
    labels = {"app": name}
    inner = {
        "containers": [{"name": "c", "image": "x:1", "resources": {"requests": {"cpu": "10m"}}}],
        "nodeSelector": MINE,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        **(pods or {}),
    }
    template = {"metadata": {"labels": labels}, "spec": inner}
    size = {} if replicas is None else {"replicas": replicas}
    return {
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **size, **spec},
    }


async def nodes(api: Api, count: int) -> None:
    size = {"cpu": "4", "memory": "8Gi", "pods": "20"}
    for number in range(count):
        name = f"{api.run}-{number}"
        labels = {HOST: name, "set": api.run, "kwok.x-k8s.io/node": "fake"}
        status = {"capacity": size, "allocatable": size}
        await api.raw(
            "POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "status": status}
        )
    await api.until(
        f"/api/v1/nodes?labelSelector=set%3D{api.run}",
        lambda a: len(a["items"]) == count and not any(n["spec"].get("taints") for n in a["items"]),
    )


async def gone(api: Api, count: int) -> None:
    for number in range(count):
        await api.raw("DELETE", f"/api/v1/nodes/{api.run}-{number}")


def has(**counts: int) -> Callable[[Json], bool]:
    """Status says so, about the present generation."""

    def holds(obj: Json) -> bool:
        status = obj.get("status") or {}
        seen = status.get("observedGeneration") == obj["metadata"].get("generation")
        return seen and all(status.get(name, 0) == count for name, count in counts.items())

    return holds


async def count(api: Api, what: str, path: str, number: int, **query: str) -> None:
    """Wait for so many objects that are not on their way out."""
    text = "&".join(f"{key}={value}" for key, value in query.items())

    def alive(listed: Json) -> int:
        return sum(not item["metadata"].get("deletionTimestamp") for item in listed["items"])

    listed = await api.until(f"{path}?{text}", lambda a: len(a["items"]) == alive(a) == number)
    api.transcript.append({"asked": what, "count": len(listed["items"])})


def shown(obj: Json, *fields: str) -> Json:
    return {field: (obj.get("status") or {}).get(field) for field in fields}


@workload
async def a_deployment_is_rolled_scaled_and_rolled_back(api: Api) -> None:
    await nodes(api, 2)
    path = f"{APPS}/deployments/web"
    await api.raw("POST", f"{APPS}/deployments", body("web", 4))
    done = has(replicas=4, updatedReplicas=4, readyReplicas=4, availableReplicas=4)
    await api.until(path, done)
    await api.ask("GET", path)
    image = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "x:2"}]}}}}
    await api.raw("PATCH", path, image, STRATEGIC)
    await api.until(path, done, 40)
    await api.ask("GET", path)
    await count(api, "sets after the update", f"{APPS}/replicasets", 2)
    await api.raw("PATCH", path, {"spec": {"replicas": 2}}, MERGE)
    await api.until(path, has(replicas=2, readyReplicas=2))
    await count(api, "pods after scaling down", PODS, 2)
    image["spec"]["template"]["spec"]["containers"][0]["image"] = "x:1"
    await api.raw("PATCH", path, image, STRATEGIC)
    await api.until(path, has(replicas=2, updatedReplicas=2, readyReplicas=2), 40)
    await api.ask("GET", path)
    _, sets = await api.raw("GET", f"{APPS}/replicasets")
    revisions = sorted(
        (s["metadata"]["annotations"]["deployment.kubernetes.io/revision"], s["spec"]["replicas"])
        for s in sets["items"]
    )
    api.transcript.append({"asked": "revisions and sizes", "found": revisions})
    await api.raw("PATCH", path, {"spec": {"paused": True}}, MERGE)
    image["spec"]["template"]["spec"]["containers"][0]["image"] = "x:9"
    await api.raw("PATCH", path, image, STRATEGIC)
    await api.raw("PATCH", path, {"spec": {"replicas": 3}}, MERGE)
    await api.until(path, has(replicas=3, readyReplicas=3))
    await api.ask("GET", path)
    await api.raw("DELETE", path, {"propagationPolicy": "Foreground"})
    await count(api, "pods after a foreground delete", PODS, 0)
    await gone(api, 2)


@workload
async def a_replicaset_adopts_releases_and_survives_its_pods(api: Api) -> None:
    await nodes(api, 1)
    stray = {
        "metadata": {"name": "stray", "labels": {"app": "web"}},
        "spec": body("web")["spec"]["template"]["spec"],
    }
    await api.raw("POST", PODS, stray)
    await api.raw("POST", f"{APPS}/replicasets", body("web", 2))
    path = f"{APPS}/replicasets/web"
    done = has(replicas=2, fullyLabeledReplicas=2, readyReplicas=2, availableReplicas=2)
    await api.until(path, done)
    await api.ask("GET", path)
    await count(api, "pods with the stray one", PODS, 2)
    _, adopted = await api.raw("GET", f"{PODS}/stray")
    api.transcript.append(
        {"asked": "the stray pod", "owners": api.plain(adopted["metadata"]["ownerReferences"])}
    )
    await api.raw("PATCH", f"{PODS}/stray", {"metadata": {"labels": {"app": "free"}}}, MERGE)
    await api.until(f"{PODS}/stray", lambda a: not a["metadata"].get("ownerReferences"))
    await api.until(path, done)
    await count(api, "pods after one was let go", PODS, 3)
    await api.raw("DELETE", path, {"propagationPolicy": "Orphan"})
    await api.until(path, lambda a: a.get("code") == 404)
    await count(api, "pods after their set was taken away", PODS, 3)
    await gone(api, 1)


@workload
async def daemons_are_where_they_may_be(api: Api) -> None:
    await nodes(api, 3)
    await api.raw("PATCH", "/api/v1/nodes/{run}-0", {"spec": {"unschedulable": True}}, MERGE)
    taint = {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}}
    await api.raw("PATCH", "/api/v1/nodes/{run}-1", taint, MERGE)
    await api.raw("POST", f"{APPS}/daemonsets", body("agent"))
    path = f"{APPS}/daemonsets/agent"
    ready = has(desiredNumberScheduled=2, numberReady=2, updatedNumberScheduled=2, numberAvailable=2)
    await api.until(path, ready)
    await api.ask("GET", path)
    await api.raw("PATCH", "/api/v1/nodes/{run}-2", taint, MERGE)
    # The real controller counts anew only when it is woken for another reason.
    await api.raw("PATCH", path, {"metadata": {"annotations": {"look": "again"}}}, MERGE)
    await api.until(path, has(desiredNumberScheduled=1, numberMisscheduled=1))
    found = await api.until(path, lambda a: a["status"].get("numberReady") == 1)
    api.transcript.append({"asked": "after a taint", "status": api.plain(found["status"])})
    await count(api, "pods after a taint", PODS, 2)
    _, pods = await api.raw("GET", PODS)
    (here,) = [p for p in pods["items"] if p["spec"]["nodeName"].endswith("-2")]
    tolerations = sorted((t["key"], t["effect"]) for t in here["spec"]["tolerations"])
    affinity = api.plain(here["spec"]["affinity"])
    api.transcript.append({"asked": "a daemon pod", "tolerations": tolerations, "affinity": affinity})
    await gone(api, 3)


@workload
async def state_is_kept_in_order(api: Api) -> None:
    await nodes(api, 1)
    path = f"{APPS}/statefulsets/db"
    await api.raw("POST", f"{APPS}/statefulsets", body("db", 3, serviceName="db"))
    done = has(replicas=3, readyReplicas=3, currentReplicas=3, updatedReplicas=3)
    found = await api.until(path, done, 30)
    api.transcript.append({"asked": "spec", "spec": api.plain(found["spec"])})
    numbers = (
        "replicas",
        "readyReplicas",
        "availableReplicas",
        "currentReplicas",
        "updatedReplicas",
        "collisionCount",
    )
    api.transcript.append({"asked": "status", "status": shown(found, *numbers)})
    pod = await api.until(f"{PODS}/db-1", lambda a: a.get("kind") == "Pod")
    labels = {k: v for k, v in pod["metadata"]["labels"].items() if "hash" not in k}
    where = {k: pod["spec"].get(k) for k in ("hostname", "subdomain")}
    marked = pod["metadata"]["labels"]["controller-revision-hash"] == found["status"]["updateRevision"]
    api.transcript.append({"asked": "a pod", "labels": labels, "where": where, "marked": marked})
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    image = {"template": {"spec": {"containers": [{"name": "c", "image": "x:2"}]}}, "updateStrategy": rolling}
    await api.raw("PATCH", path, {"spec": image}, STRATEGIC)
    found = await api.until(path, has(replicas=3, readyReplicas=3, currentReplicas=2, updatedReplicas=1), 30)
    api.transcript.append({"asked": "partitioned", "status": shown(found, *numbers)})
    await api.raw("PATCH", path, {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}, MERGE)
    found = await api.until(path, done, 30)
    same = found["status"]["currentRevision"] == found["status"]["updateRevision"]
    api.transcript.append({"asked": "rolled", "status": shown(found, *numbers), "same": same})
    await api.raw("PATCH", path, {"spec": {"replicas": 1}}, MERGE)
    await api.until(path, has(replicas=1, readyReplicas=1), 30)
    await count(api, "pods after scaling down", PODS, 1)
    await gone(api, 1)


@workload
async def jobs_run_to_their_end(api: Api) -> None:
    await nodes(api, 1)
    template = {"spec": {**body("job")["spec"]["template"]["spec"], "restartPolicy": "Never"}}
    spec = {"template": template, "completions": 3, "parallelism": 2}
    await api.raw("POST", JOBS, {"metadata": {"name": "sum"}, "spec": spec})

    def complete(job: Json) -> bool:
        return any(c["type"] == "Complete" for c in (job.get("status") or {}).get("conditions") or ())

    found = await api.until(f"{JOBS}/sum", complete, 60)
    conditions = sorted((c["type"], c["status"], c.get("reason")) for c in found["status"]["conditions"])
    api.transcript.append({"asked": "the end", "conditions": conditions})
    numbers = ("active", "ready", "succeeded", "failed", "terminating")
    api.transcript.append({"asked": "status", "status": shown(found, *numbers)})
    _, pods = await api.raw("GET", PODS)
    labels = sorted({key for p in pods["items"] for key in p["metadata"]["labels"]})
    held = [p["metadata"].get("finalizers") for p in pods["items"]]
    phases = [p["status"]["phase"] for p in pods["items"]]
    api.transcript.append({"asked": "pods", "labels": labels, "finalizers": held, "phases": phases})
    await api.raw("DELETE", f"{JOBS}/sum", {"propagationPolicy": "Background"})
    await count(api, "pods after the job", PODS, 0)
    await gone(api, 1)


@workload
async def budgets_follow_their_pods(api: Api) -> None:
    await nodes(api, 2)
    await api.raw("POST", f"{APPS}/deployments", body("web", 5))
    await api.until(f"{APPS}/deployments/web", has(readyReplicas=5))
    await api.raw("POST", f"{APPS}/daemonsets", body("agent"))
    await api.until(f"{APPS}/daemonsets/agent", has(numberReady=2))
    bare = {
        "metadata": {"name": "bare", "labels": {"app": "bare"}},
        "spec": body("x")["spec"]["template"]["spec"],
    }
    await api.raw("POST", PODS, bare)
    await api.until(f"{PODS}/bare", lambda a: a["status"].get("phase") == "Running")
    everyone = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "bare"]}]}
    for name, spec in (
        ("least", {"minAvailable": 3}),
        ("share", {"minAvailable": "50%"}),
        ("most", {"maxUnavailable": "30%"}),
        ("none", {"maxUnavailable": 0}),
        ("mixed", {"maxUnavailable": 1, "selector": everyone}),
        ("counted", {"minAvailable": 1, "selector": everyone}),
        ("daemons", {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "agent"}}}),
        ("nobody", {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "nobody"}}}),
    ):
        spec = {"selector": {"matchLabels": {"app": "web"}}, **spec}
        await api.raw("POST", BUDGETS, {"metadata": {"name": name}, "spec": spec})
        found = await api.until(
            f"{BUDGETS}/{name}", lambda a: bool((a.get("status") or {}).get("conditions"))
        )
        api.transcript.append({"asked": name, "status": api.plain(found["status"])})
    await api.raw("DELETE", f"{APPS}/deployments/web")
    await api.until(f"{BUDGETS}/least", lambda a: a["status"]["currentHealthy"] == 0)
    await count(api, "pods left", PODS, 3)
    found = await api.until(f"{BUDGETS}/least", lambda a: a["status"]["expectedPods"] == 0)
    api.transcript.append({"asked": "emptied", "status": api.plain(found["status"])})
    await gone(api, 2)


@workload
async def nodes_are_tainted_and_cleared(api: Api) -> None:
    await nodes(api, 1)

    def keys(node: Json) -> list[str]:
        return sorted(f"{t['key']}:{t['effect']}" for t in node["spec"].get("taints") or ())

    async def after(what: str, wanted: Callable[[list[str]], bool]) -> None:
        found = await api.until("/api/v1/nodes/{run}-0", lambda a: wanted(keys(a)))
        api.transcript.append({"asked": what, "taints": keys(found)})

    await api.raw("PATCH", "/api/v1/nodes/{run}-0", {"spec": {"unschedulable": True}}, MERGE)
    await after("cordoned", bool)
    await api.raw("PATCH", "/api/v1/nodes/{run}-0", {"spec": {"unschedulable": None}}, MERGE)
    await after("uncordoned", lambda found: not found)
    pressure = {"type": "MemoryPressure", "status": "True", "reason": "Test", "message": "test"}
    await api.raw("PATCH", "/api/v1/nodes/{run}-0/status", {"status": {"conditions": [pressure]}}, STRATEGIC)
    await after("under pressure", bool)

    bare = {"metadata": {"name": "bare"}, "spec": body("x")["spec"]["template"]["spec"]}
    bare["spec"] = {**bare["spec"], "nodeName": "{run}-0"}
    await api.raw("POST", PODS, bare)
    await api.until(f"{PODS}/bare", lambda a: a["status"].get("phase") == "Running")
    out = {"spec": {"taints": [{"key": "out", "effect": "NoExecute"}]}}
    async with api.watching(PODS) as events:
        await api.raw("PATCH", "/api/v1/nodes/{run}-0", out, MERGE)
        await api.until(f"{PODS}/bare", lambda a: a.get("code") == 404)
    api.transcript.pop()
    targets = [
        c for e in events for c in e["object"]["status"]["conditions"] if c["type"] == "DisruptionTarget"
    ]
    why = sorted({(c["status"], c["reason"]) for c in targets})
    api.transcript.append({"asked": "evicted by taint", "why": why, "last": events[-1]["type"]})
    await gone(api, 1)


@workload
async def the_important_make_room(api: Api) -> None:
    await nodes(api, 2)
    for rank, value in (("low", 5), ("high", 100)):
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        await api.raw("POST", path, {"metadata": {"name": f"{rank}-{{run}}"}, "value": value})

    def big(name: str, node: str = "", rank: str = "", **labels: str) -> Json:
        spec = dict(body("x")["spec"]["template"]["spec"])
        spec["containers"] = [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "3"}}}]
        if node:
            spec["nodeSelector"] = {**MINE, HOST: f"{{run}}-{node}"}
        if rank:
            spec["priorityClassName"] = f"{rank}-{{run}}"
        return {"metadata": {"name": name, "labels": labels}, "spec": spec}

    def up(pod: Json) -> bool:
        return bool((pod.get("status") or {}).get("phase") == "Running")

    await api.raw("POST", PODS, big("guarded", "0", app="guarded"))
    await api.raw("POST", PODS, big("dearer", "1", "low"))
    for name in ("guarded", "dearer"):
        await api.until(f"{PODS}/{name}", up)
    guard = {"selector": {"matchLabels": {"app": "guarded"}}, "minAvailable": 1}
    await api.raw("POST", BUDGETS, {"metadata": {"name": "guarded"}, "spec": guard})
    await api.until(f"{BUDGETS}/guarded", lambda a: (a.get("status") or {}).get("currentHealthy") == 1)
    for name in ("vip", "vip-2"):
        async with api.watching(PODS) as events:
            await api.raw("POST", PODS, big(name, rank="high"))
            pod = await api.until(f"{PODS}/{name}", up, 40)
        api.transcript.pop()
        seen = [e["object"] for e in events]
        nominated = {o["status"].get("nominatedNodeName") for o in seen if o["metadata"]["name"] == name} - {
            None
        }
        reasons = {
            (o["metadata"]["name"], c["reason"])
            for o in seen
            for c in o["status"].get("conditions") or ()
            if c["type"] == "DisruptionTarget"
        }
        found = {"node": pod["spec"]["nodeName"], "nominated": sorted(nominated), "why": sorted(reasons)}
        api.transcript.append({"asked": name, "found": api.plain(found)})
    await api.raw("POST", PODS, big("equal", rank="high"))
    await api.until(f"{PODS}/equal", lambda a: bool((a.get("status") or {}).get("conditions")))
    _, left = await api.raw("GET", PODS)
    names = sorted(p["metadata"]["name"] for p in left["items"] if not p["metadata"].get("deletionTimestamp"))
    api.transcript.append({"asked": "who is left", "pods": names})
    await gone(api, 2)


@workload
async def volumes_made_by_hand_are_found(api: Api) -> None:
    await nodes(api, 2)
    claims, volumes = "/api/v1/namespaces/{ns}/persistentvolumeclaims", "/api/v1/persistentvolumes"
    for name, mode in (("wait", "WaitForFirstConsumer"), ("now", "Immediate")):
        storage = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": mode}
        path = "/apis/storage.k8s.io/v1/storageclasses"
        await api.raw("POST", path, {"metadata": {"name": f"{name}-{{run}}"}, **storage})

    def volume(name: str, storage: str, size: str, **spec: Any) -> Json:
        inner = {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": f"{storage}-{{run}}",
            "hostPath": {"path": "/x"},
            **spec,
        }
        return {"metadata": {"name": f"{name}-{{run}}"}, "spec": inner}

    def claim(name: str, storage: str, size: str) -> Json:
        resources = {"requests": {"storage": size}}
        modes = ["ReadWriteOnce"]
        spec = {"accessModes": modes, "storageClassName": f"{storage}-{{run}}", "resources": resources}
        return {"metadata": {"name": name}, "spec": spec}

    def bound(found: Json) -> bool:
        return bool((found.get("status") or {}).get("phase") == "Bound")

    here = {"matchExpressions": [{"key": HOST, "operator": "In", "values": ["{run}-1"]}]}
    affinity = {"required": {"nodeSelectorTerms": [here]}}
    for made in (
        volume("big", "now", "9Gi"),
        volume("right", "now", "3Gi"),
        volume("small", "now", "1Gi"),
        volume("local", "wait", "5Gi", nodeAffinity=affinity),
    ):
        await api.raw("POST", volumes, made)
        name = made["metadata"]["name"]
        await api.until(f"{volumes}/{name}", lambda a: (a.get("status") or {}).get("phase") == "Available")
    await api.raw("POST", claims, claim("now", "now", "2Gi"))
    await api.raw("POST", claims, claim("later", "wait", "2Gi"))
    await api.until(f"{claims}/now", bound, 40)
    await api.ask("GET", f"{claims}/now")
    await api.ask("GET", f"{volumes}/right-{{run}}")
    spec = {**body("x")["spec"]["template"]["spec"]}
    spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "later"}}]
    await api.raw("POST", PODS, {"metadata": {"name": "web"}, "spec": spec})
    pod = await api.until(f"{PODS}/web", lambda a: bool(a["spec"].get("nodeName")), 40)
    api.transcript.append({"asked": "where", "node": api.plain(pod["spec"]["nodeName"])})
    await api.until(f"{claims}/later", bound)
    await api.ask("GET", f"{claims}/later")
    await api.ask("GET", f"{volumes}/local-{{run}}")
    await api.raw("DELETE", f"{claims}/later")
    found = await api.until(f"{claims}/later", lambda a: bool(a["metadata"].get("deletionTimestamp")))
    api.transcript.append({"asked": "in use", "finalizers": found["metadata"]["finalizers"]})
    await api.raw("DELETE", f"{PODS}/web")
    await api.until(f"{claims}/later", lambda a: a.get("code") == 404, 40)
    await api.until(f"{volumes}/local-{{run}}", lambda a: a["status"]["phase"] == "Released", 40)
    for name in ("big", "right", "small", "local"):
        await api.raw("DELETE", f"{volumes}/{name}-{{run}}")
    await gone(api, 2)


@workload
async def the_scheduler_tells_why(api: Api) -> None:
    await nodes(api, 2)
    spec = body("x")["spec"]["template"]["spec"]
    huge = {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "100"}}}]}
    for name, extra in (
        ("huge", huge),
        ("elsewhere", {"nodeSelector": {**MINE, "disk": "ssd"}}),
        ("lonely", {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "nobody"}}}]}}}),
        ("claimless", {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}]}),
        ("gated", {"schedulingGates": [{"name": "example.com/g"}]}),
        ("fine", {}),
    ):  # fmt: skip
        await api.raw("POST", PODS, {"metadata": {"name": name}, "spec": {**spec, **extra}})

        def told(pod: Json) -> bool:
            return any(c["type"] == "PodScheduled" for c in (pod.get("status") or {}).get("conditions") or ())

        pod = await api.until(f"{PODS}/{name}", told)
        (said,) = [c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled"]
        # The real one goes on about preemption; the first sentence is the verdict.
        first = said.get("message", "").split(". ")[0].rstrip(".")
        line = {"asked": name, "status": said["status"], "reason": said.get("reason"), "message": first}
        api.transcript.append(line if name != "elsewhere" else {**line, "message": ""})
    await gone(api, 2)
