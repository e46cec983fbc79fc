"""Questions about access: everyone may do everything here, and gets told so in the right shape."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from dovetail.sim.kube import status
from dovetail.sim.kube.meta import new_uid, stamp
from dovetail.sim.kube.writes import envelope

if TYPE_CHECKING:
    from dovetail.sim.kube.core import Core
    from dovetail.sim.kube.options import WriteOptions
    from dovetail.sim.kube.types import TypeInfo

_GROUPS = ["system:masters", "system:authenticated"]
_HOUR = 3600


def answer(info: TypeInfo, namespace: str, body: dict[str, Any], options: WriteOptions) -> dict[str, Any]:
    """A review with its status filled in."""
    review = envelope(info, body)
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
            verdict = _rules()
        case _:
            verdict = {"allowed": True, "reason": "this server lets everyone do everything"}
    if namespace:
        review["metadata"]["namespace"] = namespace
    return {**review, "status": verdict}


def _rules() -> dict[str, Any]:
    return {
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        "incomplete": False,
    }


def token(account: dict[str, Any], body: dict[str, Any], core: Core) -> dict[str, Any]:
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
            "token": f"{name}.{new_uid(core.rng)}",
            "expirationTimestamp": stamp(core.clock.now() + timedelta(seconds=seconds)),
        },
    }
