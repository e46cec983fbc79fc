"""Resources below resources, and kinds that are answered and not stored."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from dovetail.api.schema.causes import Cause
from dovetail.sim.kube import status
from dovetail.sim.kube.meta import format_time, generate_uid, with_condition
from dovetail.sim.kube.types import ScalePaths
from dovetail.sim.kube.verbs.conversion import convert_record
from dovetail.sim.kube.verbs.deletes import Evictor
from dovetail.sim.kube.verbs.patch import apply_patch
from dovetail.sim.kube.verbs.writes import build_envelope

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core, WriteOptions
    from dovetail.sim.kube.store import Key, StoredRecord
    from dovetail.sim.kube.types import TypeInfo
    from dovetail.sim.kube.verbs.deletes import Deleter
    from dovetail.sim.kube.verbs.patch import Patcher, PatchKind
    from dovetail.sim.kube.verbs.writes import ObjectWriter


_BUILTIN = ScalePaths(".spec.replicas", ".status.replicas")


def build_scale(info: TypeInfo, obj: dict[str, Any]) -> dict[str, Any]:
    """An object as a Scale."""
    paths = info.scale or _BUILTIN
    replicas = _read_path(obj, paths.spec_replicas)
    if replicas is None:
        if info.custom:
            raise status.internal_error(f"the spec replicas field {paths.spec_replicas!r} does not exist")
        replicas = 0
    metadata = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    spec = {"replicas": replicas} if replicas else {}
    state: dict[str, Any] = {"replicas": _read_path(obj, paths.status_replicas) or 0}
    if selector := _read_scale_selector(info, obj, paths):
        state["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": spec,
        "status": state,
    }


def with_scale(info: TypeInfo, obj: dict[str, Any], scale: dict[str, Any]) -> dict[str, Any]:
    """The object with the replicas a Scale asks for, and its optimistic lock."""
    metadata, spec = scale.get("metadata") or {}, scale.get("spec") or {}
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else None
    if isinstance(replicas, bool) or not isinstance(replicas, int) or not isinstance(metadata, dict):
        raise status.bad_request("Scale cannot be decoded: spec.replicas must be a whole number")
    name = obj["metadata"]["name"]
    if metadata.get("name") not in (None, "", name):
        raise status.bad_request("the name of the scale does not match the name on the URL")
    if replicas < 0:
        text = f"Invalid value: {replicas}: must be greater than or equal to 0"
        cause = Cause("spec.replicas", "FieldValueInvalid", text)
        raise status.invalid_kind("Scale", "autoscaling", name, [cause])
    lock = {key: metadata[key] for key in ("uid", "resourceVersion") if metadata.get(key)}
    changed = _write_path(obj, (info.scale or _BUILTIN).spec_replicas.strip(".").split("."), replicas)
    base = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    return {**changed, "metadata": {**base, **lock}}


def _read_scale_selector(info: TypeInfo, obj: dict[str, Any], paths: ScalePaths) -> str:
    if info.custom:
        return str(_read_path(obj, paths.selector) or "") if paths.selector else ""
    selector = obj.get("spec", {}).get("selector") or {}
    if info.resource == "replicationcontrollers":
        selector = {"matchLabels": selector}
    return format_label_selector(selector)


def format_label_selector(selector: dict[str, Any]) -> str:
    """A LabelSelector document in the comma-separated form."""
    terms = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        key, values = expression["key"], ",".join(sorted(expression.get("values") or ()))
        form = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "DoesNotExist": f"!{key}"}
        terms.append(form.get(expression["operator"], key))
    return ",".join(sorted(terms))


def _read_path(obj: dict[str, Any], path: str) -> Any:
    value: Any = obj
    for part in path.strip(".").split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _write_path(obj: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    head, rest = path[0], path[1:]
    if not rest:
        return {**obj, head: value}
    child = obj.get(head)
    return {**obj, head: _write_path(child if isinstance(child, dict) else {}, rest, value)}


_GROUPS = ["system:masters", "system:authenticated"]
_HOUR = 3600


def answer_review(
    info: TypeInfo, namespace: str, body: dict[str, Any], options: WriteOptions
) -> dict[str, Any]:
    """A review with its status filled in."""
    review = build_envelope(info, body)
    spec = review.get("spec") or {}
    if not isinstance(spec, dict):
        raise status.bad_request(f"{info.kind} cannot be decoded: spec must be an object")
    user = {"username": options.user, "groups": _GROUPS}
    match info.kind:
        case "SelfSubjectReview":
            verdict: dict[str, Any] = {"userInfo": user}
        case "TokenReview":
            known = bool(spec.get("token"))
            verdict = {"authenticated": True, "user": user} if known else {"authenticated": False, "user": {}}
        case "SelfSubjectRulesReview":
            verdict = _describe_rules()
        case _:
            verdict = {"allowed": True, "reason": "this server lets everyone do everything"}
    if namespace:
        review["metadata"]["namespace"] = namespace
    return {**review, "status": verdict}


def _describe_rules() -> dict[str, Any]:
    return {
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        "incomplete": False,
    }


def issue_token(account: dict[str, Any], body: dict[str, Any], core: Core) -> dict[str, Any]:
    """A TokenRequest with an opaque token and when it ends."""
    spec = body.get("spec") or {}
    seconds = spec.get("expirationSeconds", _HOUR) if isinstance(spec, dict) else None
    if isinstance(seconds, bool) or not isinstance(seconds, int):
        raise status.bad_request("TokenRequest cannot be decoded: expirationSeconds must be a whole number")
    seconds = min(max(seconds, 600), 1 << 32)
    metadata = account["metadata"]
    name = f"system:serviceaccount:{metadata['namespace']}:{metadata['name']}"
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {key: metadata[key] for key in ("name", "namespace", "creationTimestamp")},
        "spec": {"audiences": ["https://kubernetes.default.svc"], **spec, "expirationSeconds": seconds},
        "status": {
            "token": f"{name}.{generate_uid(core.rng)}",
            "expirationTimestamp": format_time(core.clock.now() + timedelta(seconds=seconds)),
        },
    }


class Binder:
    """Assigns pods. The node need not exist; a scheduler may know better."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def bind(self, key: Key, body: dict[str, Any], options: WriteOptions) -> dict[str, Any]:
        """Bind a pod to the node a Binding names."""
        with self.core.turn():
            node, annotations = _read_target(key[1], body)
            pods = self.core.find_type("pods")
            record = self.core.store.get("pods", key)
            if record is None:
                raise status.not_found(pods, key[1])
            pod = record.obj
            uid = (body.get("metadata") or {}).get("uid")
            if uid and uid != pod["metadata"]["uid"]:
                raise status.conflict_error(
                    pods, key[1], f"the UID in the precondition ({uid}) is another pod's"
                )
            self._check_bindable(pod, key[1])
            if not options.dry_run:
                self.core.put(record.info, key, self._build_bound_pod(pod, node, annotations))
            return status.success_status(201)

    def _check_bindable(self, pod: dict[str, Any], name: str) -> None:
        pods = self.core.find_type("pods")
        if pod["metadata"].get("deletionTimestamp"):
            why = f"pod {name} is being deleted, cannot be assigned to a host"
        elif pod["spec"].get("nodeName"):
            why = f"pod {name} is already assigned to node {pod['spec']['nodeName']}"
        elif pod["spec"].get("schedulingGates"):
            why = f"pod {name} has non-empty .spec.schedulingGates"
        else:
            return
        raise status.conflict_error(pods, name, why, kind="pods/binding")

    def _build_bound_pod(self, pod: dict[str, Any], node: str, annotations: dict[str, str]) -> dict[str, Any]:
        metadata = dict(pod["metadata"])
        if annotations:
            metadata["annotations"] = {**metadata.get("annotations", {}), **annotations}
        condition = {"type": "PodScheduled", "status": "True"}
        pod_status = with_condition(pod.get("status", {}), condition, self.core.format_now())
        return {
            **pod,
            "metadata": metadata,
            "spec": {**pod["spec"], "nodeName": node},
            "status": pod_status,
        }


def _read_target(name: str, body: dict[str, Any]) -> tuple[str, dict[str, str]]:
    metadata, target = body.get("metadata") or {}, body.get("target") or {}
    if not isinstance(metadata, dict) or not isinstance(target, dict):
        raise status.bad_request("Binding cannot be decoded: metadata and target must be objects")
    if body.get("kind") not in (None, "", "Binding"):
        raise status.bad_request(
            f"the kind in the data ({body['kind']}) does not match the expected kind (Binding)"
        )
    if metadata.get("name") not in (None, "", name):
        raise status.bad_request("the name of the binding does not match the name on the URL")
    node = target.get("name")
    if not node or not isinstance(node, str):
        raise status.bad_request("target.name: Required value")
    if target.get("kind") not in (None, "", "Node"):
        raise status.bad_request('target.kind: Unsupported value: supported values: "Node"')
    return node, metadata.get("annotations") or {}


# What needs a container that runs, and why there is none.
_OF_CONTAINERS = {
    "attach": "there is no output to attach to",
    "exec": "there is nothing to execute a command in",
    "portforward": "there is no port to forward to",
    "ephemeralcontainers": "a debug container would never start",
}


class SubresourceHandler:
    """Everything that is neither an object nor its status."""

    def __init__(self, core: Core, writer: ObjectWriter, patcher: Patcher, deleter: Deleter) -> None:
        self.core = core
        self.writer = writer
        self.patcher = patcher
        self.binder = Binder(core)
        self.evictor = Evictor(core, deleter)

    def refuse_containers(self, info: TypeInfo, key: Key, subresource: str, verb: str) -> None:
        """Refuse what only a running container could answer; clients would wait for it."""
        if info.resource != "pods" or subresource not in _OF_CONTAINERS:
            return
        if subresource == "ephemeralcontainers" and verb == "get":
            return
        pod = self._find_record(info, key).obj
        if subresource != "ephemeralcontainers" and not pod["spec"].get("nodeName"):
            raise status.bad_request(f"pod {key[1]} does not have a host assigned")
        why = _OF_CONTAINERS[subresource]
        raise status.not_implemented(
            f"this cluster runs no containers: pod {key[1]} is an object only, and {why}"
        )

    def answer_unstored(
        self, info: TypeInfo, namespace: str, body: dict[str, Any], options: WriteOptions
    ) -> dict[str, Any]:
        """Answer a POST of a kind that is not stored."""
        if info.resource == "bindings":
            name = (body.get("metadata") or {}).get("name") or ""
            return self.binder.bind((namespace, name), body, options)
        return answer_review(info, namespace, body, options)

    def create(
        self, info: TypeInfo, key: Key, subresource: str, body: dict[str, Any], options: WriteOptions
    ) -> dict[str, Any]:
        """Answer a POST below an object."""
        match subresource:
            case "binding":
                return self.binder.bind(key, body, options)
            case "eviction":
                return self.evictor.evict_body(key, body, options)
            case "token":
                account = self._find_record(info, key)
                return issue_token(account.obj, body, self.core)
            case _:
                raise status.method_not_allowed("POST")

    def get(self, info: TypeInfo, key: Key, subresource: str) -> dict[str, Any]:
        """Read a subresource that is a document."""
        record = convert_record(self._find_record(info, key), info)
        return build_scale(info, record.obj) if subresource == "scale" else record.obj

    def update(
        self, info: TypeInfo, key: Key, subresource: str, body: dict[str, Any], options: WriteOptions
    ) -> dict[str, Any]:
        """Replace a subresource."""
        with self.core.turn():
            record = self._find_record(info, key)
            if subresource == "scale":
                return self._write_scale(info, record, body, options)
            if subresource == "finalize":
                obj = {**record.obj, "metadata": body.get("metadata") or {}, "spec": body.get("spec") or {}}
                return self.writer.replace(info, record, _keep_metadata(obj, record), options, "finalize")
            return self._write_pod_part(info, record, subresource, body, options)

    def patch(
        self, info: TypeInfo, key: Key, subresource: str, body: Any, kind: PatchKind, options: WriteOptions
    ) -> dict[str, Any]:
        """Change part of a subresource."""
        with self.core.turn():
            record = self._find_record(info, key)
            if subresource != "scale":
                obj = self.patcher.build_patched(info, record, body, kind)
                return self._write_pod_part(info, record, subresource, obj, options)
            current = build_scale(info, convert_record(record, info).obj)
            merged = apply_patch(info, current, body, "merge" if kind in ("apply", "strategic") else kind)
            try:
                return self._write_scale(info, record, merged, options)
            except status.ApiError as error:
                raise _blame_patch(error) from error

    def _write_scale(
        self, info: TypeInfo, record: StoredRecord, scale: dict[str, Any], options: WriteOptions
    ) -> dict[str, Any]:
        obj = with_scale(info, convert_record(record, info).obj, scale)
        return build_scale(info, self.writer.replace(info, record, obj, options, "scale"))

    def _write_pod_part(
        self,
        info: TypeInfo,
        record: StoredRecord,
        subresource: str,
        body: dict[str, Any],
        options: WriteOptions,
    ) -> dict[str, Any]:
        if subresource not in ("ephemeralcontainers", "resize"):
            raise status.method_not_allowed(subresource)
        obj = {**record.obj, "metadata": body.get("metadata") or {}}
        obj["spec"] = _merge_pod_spec(record.obj["spec"], body.get("spec") or {}, subresource)
        return self.writer.replace(info, record, _keep_metadata(obj, record), options, subresource)

    def _find_record(self, info: TypeInfo, key: Key) -> StoredRecord:
        record = self.core.store.get(info.storage, key)
        if record is None:
            raise status.not_found(info, key[1])
        return record


def _blame_patch(error: status.ApiError) -> status.ApiError:
    """A Scale that a patch made unreadable is the patch's fault."""
    if error.code != 400:
        return error
    cause = Cause("patch", "FieldValueInvalid", f"Invalid value: {error.message}")
    return status.invalid_kind("", "", "", [cause])


def _keep_metadata(obj: dict[str, Any], record: StoredRecord) -> dict[str, Any]:
    """The object under its old metadata, but with the client's word on which version it saw."""
    metadata = dict(record.obj["metadata"])
    given = obj["metadata"] if isinstance(obj["metadata"], dict) else {}
    metadata.update({key: given[key] for key in ("uid", "resourceVersion") if given.get(key)})
    return {**obj, "metadata": metadata}


def _merge_pod_spec(old: dict[str, Any], new: dict[str, Any], subresource: str) -> dict[str, Any]:
    """A pod's spec with only the part a subresource may write taken from the new one."""
    if subresource == "ephemeralcontainers":
        return {**old, "ephemeralContainers": new.get("ephemeralContainers") or []}
    sizes = {each.get("name"): each.get("resources") for each in new.get("containers") or ()}
    containers = [{**each, "resources": sizes.get(each["name"]) or {}} for each in old.get("containers", ())]
    return {**old, "containers": containers}
