"""The simulated AWS over HTTP: for boto3, the AWS CLI, Terraform and whoever else speaks to AWS.

Requests are read by botocore's own service models and answered by the very handlers the port uses; what they
do not know goes to moto. This file and the port over boto3 are the only homes of botocore.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from aiohttp import web
from aiohttp.typedefs import Middleware

from dovetail.aws import AwsError
from dovetail.errors import Misconfigured
from dovetail.sim.aws.cloud import SimulatedAws
from dovetail.sim.aws.s3 import S3Buckets
from dovetail.sim.aws.service import OPERATIONS
from dovetail.sim.aws.wire.query_protocol import (
    decode_cbor,
    encode_cbor,
    error_xml,
    parse_form,
    parse_json,
    parse_rest,
    path_pattern,
    result_json,
    result_xml,
)
from dovetail.sim.aws.wire.s3_protocol import (
    find_s3_operation,
    parse_s3_request,
    write_s3_answer,
    write_s3_error,
)

if TYPE_CHECKING:
    from dovetail.sim.aws.wire.moto_fallback import MotoFallback


__all__ = ["AwsServer", "guard_requests", "serve_aws"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
ALIKE = frozenset(("same-origin", "none"))


def guard_requests(host: str) -> Middleware:
    """Let only those in who ask under a name of ours and come from no other page."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not _is_ours(request, host):
            told = f"{request.host} is not a name of the simulated AWS; ask for 127.0.0.1 or localhost"
            return web.json_response({"__type": "MisdirectedRequest", "message": told}, status=421)
        if _from_elsewhere(request):
            told = "the simulated AWS takes no requests from web pages; use the AWS CLI, an SDK or curl"
            return web.json_response({"__type": "AccessDenied", "message": told}, status=403)
        return await handler(request)

    return guarded


def _is_ours(request: web.Request, host: str) -> bool:
    """Loopback by number or by name, or the very address we listen at. Buckets have names below localhost."""
    try:
        name = (request.url.host or "").rstrip(".").lower()
    except ValueError:
        return False
    if name in ("localhost", host) or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _from_elsewhere(request: web.Request) -> bool:
    origin = request.headers.get("Origin")
    if origin is not None and origin != f"{request.scheme}://{request.host}":
        return True
    return request.headers.get("Sec-Fetch-Site", "none") not in ALIKE


SCOPE = re.compile(r"Credential=([^/]+)/\d{8}/([^/]+)/([^/]+)/aws4_request")
# Keys of the simulation carry the account they are for: AKIA or ASIA, then its twelve digits.
KEY = re.compile(r"A[KS]IA(\d{12})")
# Services that are signed under one name and modelled under another.
MODELLED = {"eventbridge": "events", "monitoring": "cloudwatch"}
# What is not found here may be there: a stack of CloudFormation can have made it.
ASK_BOTH = frozenset({("ssm", "GetParameter"), ("ssm", "GetParameters"), ("eks", "DescribeCluster")})
# Of tables and topics moto knows more than the simulation; stacks and clients see one set of them.
MOTO_ALONE = frozenset({"dynamodb", "sns"})
HAPPENINGS = "/_simulation/"
HAPPEN = ("reclaim", "rebalance", "retire", "impair", "recover")
# What happens to a zone: AWS shifts away from it, and back.
ZONAL = ("autoshift", "end-autoshift")
BODY_MOST = 16 * 1024 * 1024
CBOR = "smithy-rpc-v2-cbor"
JSON_TYPE = {"1.0": "application/x-amz-json-1.0", "1.1": "application/x-amz-json-1.1"}


@cache
def _load_model(service: str) -> Any:
    try:
        from botocore.session import get_session
    except ImportError as error:
        raise Misconfigured(
            "serving the simulated AWS needs the package boto3; install dovetail with its extra `sim`"
        ) from error
    return get_session().get_service_model(service)


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A request, as far as its envelope tells: who, where, which service and operation."""

    account: str
    region: str
    service: str
    operation: Any
    parameters: Mapping[str, Any]
    protocol: str


class AwsServer:
    """One endpoint for every service and region; told apart by what a request is signed for."""

    def __init__(self, aws: SimulatedAws, *, moto: bool = True) -> None:
        self.aws, self.url = aws, ""
        self._moto_wanted = moto
        self._moto: MotoFallback | None = None
        self._making = asyncio.Lock()

    def close(self) -> None:
        if self._moto is not None:
            self._moto.close()

    async def handle_request(self, request: web.Request) -> web.StreamResponse:
        if request.path.startswith(HAPPENINGS):
            return self._inject_event(request)
        body = await request.read()
        account, region, service = self._read_scope(request)
        try:
            asked = self._parse_request(request, body, account, region, service)
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            said = f"the request cannot be read: {type(error).__name__}: {error}"
            return web.json_response({"__type": "MalformedInput", "message": said}, status=400)
        if asked is None:
            return await self._forward_to_moto(request, body, account, region, service)
        view = self.aws.in_account(account=account, region=region)
        try:
            answer = await view.call(service, asked.operation.name, asked.parameters)
        except AwsError as error:
            absent = error.status == 404 or error.code == "ParameterNotFound"
            if absent and (service, asked.operation.name) in ASK_BOTH and self._moto is not None:
                return await self._forward_to_moto(request, body, account, region, service)
            if error.code == "NoAnswer":
                return await _drop_connection(request)
            return self._write_error(asked, error)
        return self._write_answer(asked, answer)

    def _inject_event(self, request: web.Request) -> web.Response:
        """Something happens to an instance or a zone because someone wants to see it."""
        what, _, name = request.path.removeprefix(HAPPENINGS).partition("/")
        if request.method != "POST" or what not in HAPPEN + ZONAL:
            said = f"POST {HAPPENINGS}{{{'|'.join(HAPPEN)}}}/<instance id>"
            said += f" or {HAPPENINGS}{{{'|'.join(ZONAL)}}}/<zone id>"
            return web.json_response({"message": f"ask for one of these: {said}"}, status=404)
        if what in ZONAL:
            return self._inject_zone_event(what, name)
        if name not in self.aws.instances.by_id:
            return web.json_response({"message": f"there is no instance {name}"}, status=404)
        getattr(self.aws, what)(name)
        return web.json_response({"message": f"{what}: {name}"})

    def _inject_zone_event(self, what: str, zone: str) -> web.Response:
        """AWS begins or ends an autoshift, for all who take part in autoshift or watch it."""
        known = self.aws.network.zone_ids
        zone = known.get(zone, zone)
        if zone not in known.values():
            told = f"there is no zone {zone}; there are {', '.join(sorted(known.values()))}"
            return web.json_response({"message": told}, status=404)
        running = zone in {each.away for each in self.aws.shifts.list_running_autoshifts()}
        if running == (what == "autoshift"):
            told = f"{zone} is {'shifted away already' if running else 'not shifted away by AWS'}"
            return web.json_response({"message": told}, status=409)
        (self.aws.shifts.start_autoshift if what == "autoshift" else self.aws.shifts.end_autoshift)(zone)
        return web.json_response({"message": f"{what}: {zone}"})

    def _read_scope(self, request: web.Request) -> tuple[str, str, str]:
        found = SCOPE.search(request.headers.get("Authorization", ""))
        if found is None:
            return self.aws.account, self.aws.region, ""
        key = KEY.match(found[1])
        service = MODELLED.get(found[3], found[3])
        return key[1] if key else self.aws.account, found[2], service

    def _parse_request(
        self, request: web.Request, body: bytes, account: str, region: str, service: str
    ) -> ParsedRequest | None:
        """The operation and its parameters; None when it is not one of ours."""
        if service in MOTO_ALONE or not any(known == service for known, _ in OPERATIONS):
            return None
        model = _load_model(service)
        protocol = model.metadata["protocol"]
        if protocol == CBOR and "smithy-protocol" not in request.headers:
            # Some clients prefer the text.
            protocol = "json"
        if protocol in ("ec2", "query"):
            # Some clients put the form into the address.
            form = body or request.query_string.encode()
            return self._parse_form_request(form, account, region, service, protocol)
        if protocol == "rest-xml":
            return self._parse_s3_request(request, body, account, region)
        if protocol == CBOR:
            return self._parse_cbor_request(request, body, account, region, service)
        if protocol == "json":
            target = request.headers.get("X-Amz-Target", "").rpartition(".")[2]
            if (service, target) not in OPERATIONS:
                return None
            operation = model.operation_model(target)
            return ParsedRequest(
                account, region, service, operation, parse_json(operation.input_shape, body), protocol
            )
        return self._parse_rest_request(request, body, account, region, service)

    def _parse_cbor_request(
        self, request: web.Request, body: bytes, account: str, region: str, service: str
    ) -> ParsedRequest | None:
        name = request.path.rpartition("/operation/")[2]
        if (service, name) not in OPERATIONS:
            return None
        operation = _load_model(service).operation_model(name)
        return ParsedRequest(account, region, service, operation, decode_cbor(body), CBOR)

    def _parse_form_request(
        self, body: bytes, account: str, region: str, service: str, protocol: str
    ) -> ParsedRequest | None:
        form = dict(parse_qsl(body.decode(), keep_blank_values=True))
        name = form.get("Action", "")
        if (service, name) not in OPERATIONS:
            return None
        operation = _load_model(service).operation_model(name)
        shape = operation.input_shape
        parameters = parse_form(shape, form, ec2=protocol == "ec2") if shape is not None else {}
        return ParsedRequest(account, region, service, operation, parameters, protocol)

    def _parse_rest_request(
        self, request: web.Request, body: bytes, account: str, region: str, service: str
    ) -> ParsedRequest | None:
        path = request.raw_path.partition("?")[0]
        for method, pattern, operation in _list_routes(service):
            found = pattern.fullmatch(path) or pattern.fullmatch(unquote(path))
            if method == request.method and found is not None:
                if (service, operation.name) not in OPERATIONS:
                    return None
                query = {key: request.query.getall(key) for key in request.query}
                parameters = parse_rest(operation.input_shape, found.groupdict(), query, body)
                return ParsedRequest(account, region, service, operation, parameters, "rest-json")
        return None

    def _parse_s3_request(
        self, request: web.Request, body: bytes, account: str, region: str
    ) -> ParsedRequest | None:
        name, bucket, key = find_s3_operation(request)
        # A stack of CloudFormation has its buckets in moto; those that are made here are here.
        known = bucket in self.aws.world.get_state(S3Buckets, account, "").by_name
        if not name or (self._moto_wanted and not known):
            return None
        operation = _load_model("s3").operation_model(name)
        parameters = parse_s3_request(operation.input_shape, request, body, bucket, key)
        return ParsedRequest(account, region, "s3", operation, parameters, "rest-xml")

    def _write_answer(self, asked: ParsedRequest, answer: Mapping[str, Any]) -> web.Response:
        request_id, shape = self.aws.world.random_uuid(), asked.operation.output_shape
        headers = {"x-amzn-RequestId": request_id}
        if asked.protocol == "rest-xml":
            return write_s3_answer(asked.operation, answer, request_id)
        if asked.protocol in ("ec2", "query"):
            text = result_xml(asked.operation, answer, request_id, ec2=asked.protocol == "ec2")
            return web.Response(text=text, content_type="text/xml", headers=headers)
        if asked.protocol == CBOR:
            return _write_cbor(answer, 200, headers)
        kind = JSON_TYPE.get(asked.operation.metadata.get("jsonVersion", ""), "application/json")
        if asked.service == "sqs":
            answer = _at_this_address(answer, self.url)
        return web.Response(
            text=result_json(shape, answer), content_type=kind, headers=headers, status=_read_status(asked)
        )

    def _write_error(self, asked: ParsedRequest, error: AwsError) -> web.Response:
        request_id = self.aws.world.random_uuid()
        status, code = error.status or 400, error.code
        headers = {"x-amzn-RequestId": request_id}
        if asked.protocol == "rest-xml":
            return write_s3_error(code, error.message, status, request_id)
        if asked.protocol in ("ec2", "query"):
            text = error_xml(code, error.message, request_id, ec2=asked.protocol == "ec2")
            return web.Response(text=text, content_type="text/xml", status=status, headers=headers)
        if asked.protocol == CBOR:
            return _write_cbor({"__type": code, "message": error.message}, status, headers)
        kind = code
        if asked.service == "sqs":
            # Clients of the JSON protocol are told the code of the old one beside the new.
            headers["x-amzn-query-error"] = f"{code};{'Sender' if status < 500 else 'Receiver'}"
            kind = "com.amazonaws.sqs#" + SQS_SHAPES.get(code, code.rpartition(".")[2])
        headers["x-amzn-ErrorType"] = kind
        body = {"__type": kind, "message": error.message, "Message": error.message}
        return web.json_response(body, status=status, headers=headers)

    async def _forward_to_moto(
        self, request: web.Request, body: bytes, account: str, region: str, service: str
    ) -> web.StreamResponse:
        if not self._moto_wanted:
            return web.json_response({"__type": "InvalidAction", "message": "not simulated"}, status=400)
        try:
            moto = await self._get_moto()
        except Misconfigured as error:
            return web.json_response({"__type": "InvalidAction", "message": str(error)}, status=400)
        status, headers, answer = await moto.forward_request(request, body, account, region)
        return web.Response(body=answer, status=status, headers=headers)

    async def _get_moto(self) -> MotoFallback:
        """Moto, made once: a second one would begin with forgetting what the first knows."""
        async with self._making:
            if self._moto is None:
                from dovetail.sim.aws.wire.moto_fallback import MotoFallback

                self._moto = await asyncio.to_thread(MotoFallback, self.aws)
            return self._moto


def _write_cbor(answer: Mapping[str, Any], status: int, headers: dict[str, str]) -> web.Response:
    told = {**headers, "smithy-protocol": "rpc-v2-cbor"}
    return web.Response(
        body=encode_cbor(answer), content_type="application/cbor", status=status, headers=told
    )


SQS_SHAPES = {
    "AWS.SimpleQueueService.NonExistentQueue": "QueueDoesNotExist",
    "QueueAlreadyExists": "QueueNameExists",
}


@cache
def _list_routes(service: str) -> list[tuple[str, re.Pattern[str], Any]]:
    """The addresses of a REST service, the more exact ones first."""
    model = _load_model(service)
    listed = [model.operation_model(name) for name in model.operation_names]
    # A parameter takes slashes, too: the address that says more by itself is asked first.
    listed.sort(key=lambda each: -len(re.sub(r"\{[^}]+\}", "", each.http["requestUri"])))
    return [(each.http["method"], path_pattern(each.http["requestUri"]), each) for each in listed]


def _read_status(asked: ParsedRequest) -> int:
    return int(asked.operation.http.get("responseCode", 200)) if asked.protocol == "rest-json" else 200


def _at_this_address(answer: Mapping[str, Any], url: str) -> Mapping[str, Any]:
    """Queues live at this endpoint's address, not at AWS's."""

    def here(value: str) -> str:
        return re.sub(r"^https://sqs\.[^/]+", url, value)

    found = dict(answer)
    if "QueueUrl" in found:
        found["QueueUrl"] = here(found["QueueUrl"])
    for name in ("QueueUrls", "queueUrls"):
        if name in found:
            found[name] = [here(each) for each in found[name]]
    return found


async def _drop_connection(request: web.Request) -> web.StreamResponse:
    """The connection ends without an answer."""
    if request.transport is not None:
        request.transport.close()
    return web.Response(status=500)


@asynccontextmanager
async def serve_aws(
    aws: SimulatedAws, host: str = "127.0.0.1", port: int = 0, *, moto: bool = True
) -> AsyncIterator[AwsServer]:
    """Listen while the block lasts; `url` tells where."""
    server = AwsServer(aws, moto=moto)
    app = web.Application(client_max_size=BODY_MOST, middlewares=[guard_requests(host)])
    app.router.add_route("*", "/{path:.*}", server.handle_request)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    await site.start()
    server.url = f"http://{host}:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()
        server.close()
