"""The errors clients meet: one constructor per reason, each a Status with code, reason and details.

Clients branch on `code`, `reason`, `details` and `causes`; messages are for people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from dovetail.api.schema.causes import Cause
    from dovetail.sim.kube.types import TypeInfo


class ApiError(DovetailError):
    """A request that did not succeed, as the client will read it."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        retry_after: int = 0,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}
        self.retry_after = retry_after
        if retry_after:
            self.details["retryAfterSeconds"] = retry_after

    @property
    def causes(self) -> list[dict[str, str]]:
        """The causes among the details."""
        found: list[dict[str, str]] = self.details.get("causes", [])
        return found

    def to_status(self) -> dict[str, Any]:
        """The Status document."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details:
            body["details"] = self.details
        elif self.code == 404:
            body["details"] = {}
        return {**body, "code": self.code}


def success_status(code: int = 0, **details: Any) -> dict[str, Any]:
    """The Status of something that worked."""
    body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        body["details"] = {key: value for key, value in details.items() if value}
    return {**body, "code": code} if code else body


def _describe_object(info: TypeInfo, name: str, **more: Any) -> dict[str, Any]:
    details: dict[str, Any] = {"name": name, "group": info.group, "kind": info.plural, **more}
    return {key: value for key, value in details.items() if value}


def not_found(info: TypeInfo, name: str) -> ApiError:
    """The object is not there."""
    return ApiError(404, "NotFound", f'{info.resource} "{name}" not found', _describe_object(info, name))


def namespace_not_found(name: str) -> ApiError:
    """The namespace an object should go to is not there."""
    details = {"name": name, "kind": "namespaces"}
    return ApiError(404, "NotFound", f'namespaces "{name}" not found', details)


def unknown_resource() -> ApiError:
    """The group version is served, the resource is not."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(info: TypeInfo, name: str) -> ApiError:
    """Someone created it first."""
    return ApiError(
        409, "AlreadyExists", f'{info.resource} "{name}" already exists', _describe_object(info, name)
    )


def conflict_error(info: TypeInfo, name: str, why: str, kind: str = "") -> ApiError:
    """The write was made against a state that is no longer, or never was, the current one."""
    details = _describe_object(info, name)
    if kind:
        details["kind"] = kind
    message = f'Operation cannot be fulfilled on {kind or info.resource} "{name}": {why}'
    return ApiError(409, "Conflict", message, details)


def object_modified(info: TypeInfo, name: str) -> ApiError:
    """The commonest conflict: the resourceVersion sent is not the current one."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict_error(info, name, why)


def apply_conflict(causes: Sequence[Cause]) -> ApiError:
    """Another manager owns fields that an apply would change."""
    listed = "\n".join(f"{cause.message}: {cause.field}" for cause in causes)
    noun = "conflict" if len(causes) == 1 else "conflicts"
    message = f"Apply failed with {len(causes)} {noun}: {listed}"
    return ApiError(409, "Conflict", message, {"causes": _encode_causes(causes)})


def _encode_causes(causes: Sequence[Cause]) -> list[dict[str, str]]:
    return [{"reason": cause.type, "message": cause.message, "field": cause.field} for cause in causes]


def invalid_object(info: TypeInfo, name: str, causes: Sequence[Cause]) -> ApiError:
    """The object breaks rules of its kind."""
    return invalid_kind(info.kind, info.group, name, causes)


def invalid_kind(kind: str, group: str, name: str, causes: Sequence[Cause]) -> ApiError:
    """The same, for kinds that are not resources (options, reviews)."""
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    subject = f"{kind}.{group}" if group else kind
    details: dict[str, Any] = {"name": name, "group": group, "kind": kind}
    details = {key: value for key, value in details.items() if value}
    details["causes"] = _encode_causes(causes)
    return ApiError(422, "Invalid", f'{subject} "{name}" is invalid: {joined}', details)


def unprocessable_request(message: str) -> ApiError:
    """The request is well-formed and cannot be carried out (a failed JSON patch, an option's value)."""
    return ApiError(422, "Invalid", message)


def bad_request(message: str) -> ApiError:
    """The request cannot be understood."""
    return ApiError(400, "BadRequest", message)


def forbidden_request(info: TypeInfo, name: str, why: str, causes: Sequence[dict[str, str]] = ()) -> ApiError:
    """The request is understood and refused."""
    details = _describe_object(info, name, causes=list(causes))
    return ApiError(403, "Forbidden", f'{info.resource} "{name}" is forbidden: {why}', details)


def namespace_terminating(info: TypeInfo, name: str, namespace: str) -> ApiError:
    """Nothing new may be created in a namespace on its way out."""
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    return forbidden_request(info, name, why, [cause])


def unauthorized_request() -> ApiError:
    """No token, or not the one this server was told to expect."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def expired_version(message: str) -> ApiError:
    """A resourceVersion or continue token from before what is still remembered."""
    return ApiError(410, "Expired", message)


def version_too_large(asked: int, current: int) -> ApiError:
    """A read asked for a revision this server has not reached."""
    message = f"Too large resource version: {asked}, current: {current}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return ApiError(504, "Timeout", message, {"causes": [cause]}, retry_after=1)


def budget_blocks(message: str, detail: str, retry_after: int = 0) -> ApiError:
    """A disruption budget does not allow the eviction now."""
    cause = {"reason": "DisruptionBudget", "message": detail}
    return ApiError(429, "TooManyRequests", message, {"causes": [cause]}, retry_after)


def too_many_requests(message: str, retry_after: int = 1) -> ApiError:
    """Slow down."""
    return ApiError(429, "TooManyRequests", message, retry_after=retry_after)


def unsupported_media(message: str) -> ApiError:
    """The body is of a type this endpoint does not read."""
    return ApiError(415, "UnsupportedMediaType", message)


def not_acceptable(offers: str) -> ApiError:
    """None of the representations the client accepts exists here."""
    message = f"only the following media types are accepted: {offers}"
    return ApiError(406, "NotAcceptable", message)


def method_not_allowed(verb: str) -> ApiError:
    """The resource has no such verb."""
    return ApiError(405, "MethodNotAllowed", f"the server does not allow {verb} on the requested resource")


def too_large(limit: int, counted: str = "") -> ApiError:
    """The body is beyond what a server reads."""
    text = f"Request entity too large: limit is {limit}"
    return ApiError(413, "RequestEntityTooLarge", f"{text} {counted}".rstrip())


def webhook_failed(obj: Mapping[str, Any], info: TypeInfo) -> ApiError:
    """An object of another version that only a webhook could convert."""
    stored = f"{obj.get('apiVersion', '')}, Kind={info.kind}"
    text = f"conversion webhook for {stored} failed: the embedded server calls no webhooks"
    return ApiError(500, "InternalError", f"{text}; ask for {obj.get('apiVersion', '')}")


def not_implemented(message: str) -> ApiError:
    """A streaming upgrade this server does not offer."""
    return ApiError(501, "NotImplemented", message)


def service_unavailable(message: str) -> ApiError:
    """Nobody is there to answer for now."""
    return ApiError(503, "ServiceUnavailable", message)


def internal_error(message: str) -> ApiError:
    """The server cannot answer, through no fault of the client's."""
    return ApiError(500, "InternalError", f"Internal error occurred: {message}")
