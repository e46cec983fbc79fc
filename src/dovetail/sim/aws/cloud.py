"""SimulatedAws implements `dovetail.aws.Aws` over simulated accounts and regions."""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

from dovetail.aws import Answer, AwsError, aws_error
from dovetail.ports import Clock
from dovetail.sim.aws.control import AwsControl
from dovetail.sim.aws.ec2.network import FIRST_ACCOUNT
from dovetail.sim.aws.iam.permissions import Principal, authorize_request, list_needs
from dovetail.sim.aws.service import OPERATIONS, AwsRequest

__all__ = ["RecordedCall", "SimulatedAws"]

# The modules whose operations are known from the start.
SERVICES = (
    *(
        "arc",
        "cloudwatch",
        "dynamodb",
        "eksaccess",
        "fis",
        "iam.sts",
        "messaging.events",
        "messaging.sns",
        "messaging.sqs",
        "s3",
        "savings_plans",
    ),
    *("ec2.fleet", "ec2.reserved_instances", "ec2.tagging", "ec2.types"),
)
ROLE_LASTS = 3600.0
CALLS_KEPT = 100_000
# Operations that look at a dry run's parameters before they say that it would have worked.
THOROUGH = frozenset({"RunInstances"})

for _each in SERVICES:
    importlib.import_module(f"dovetail.sim.aws.{_each}")


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A request that was made, and what became of it: a code, or nothing when it went well."""

    service: str
    operation: str
    account: str
    region: str
    parameters: Mapping[str, Any]
    code: str = ""

    @property
    def action(self) -> str:
        """As IAM names it."""
        return f"{self.service}:{self.operation}"


class SimulatedAws(AwsControl):
    """One account in one region, behind the port; `at` and `inside` give the others of the same world."""

    def __init__(
        self,
        clock: Clock,
        seed: int = 0,
        region: str = "us-west-2",
        account: str = FIRST_ACCOUNT,
        *,
        cluster: str = "",
        principal: Principal | None = None,
    ) -> None:
        super().__init__(clock, seed, region, account)
        # The latest requests, and every action that was needed for any of them, as IAM names it.
        self.calls: deque[RecordedCall] = deque(maxlen=CALLS_KEPT)
        self.actions: set[str] = set()
        # Who asks; without one everything is allowed.
        self.principal = principal
        self._assumed: tuple[SimulatedAws, str, str] | None = None
        self._assumed_until = float("-inf")
        if cluster:
            self.set_up_cluster(cluster)

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any], /, *, retried: bool = True
    ) -> Answer:
        request = AwsRequest(self.world, self.account, self._region, service, operation, parameters)
        await self._assume_role()
        try:
            answer = await self._answer_request(request)
        except AwsError as error:
            self._record_call(request, error.code)
            raise
        self._record_call(request, "")
        return answer

    async def _answer_request(self, request: AwsRequest) -> Answer:
        self.world.catch_up()
        await self.faults.apply_before(request)
        handler = OPERATIONS.get((request.service, request.operation))
        if handler is None:
            raise aws_error(
                f"{request.service}:{request.operation}",
                "InvalidAction",
                "the simulation does not know this operation",
                400,
            )
        self._authorize_request(request)
        if request.get("DryRun") and request.operation not in THOROUGH:
            raise request.refuse(
                "DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412
            )
        answer = handler(request)
        if isawaitable(answer):
            answer = await answer
        self.faults.apply_after(request)
        return answer

    async def _assume_role(self) -> None:
        """With the first request of a role comes the request for its credentials, an hour's worth of them."""
        if self._assumed is None or self.clock.monotonic() < self._assumed_until:
            return
        source, role, external_id = self._assumed
        asked = {"RoleArn": role, "RoleSessionName": "dovetail"}
        await source.call("sts", "AssumeRole", asked | ({"ExternalId": external_id} if external_id else {}))
        self._assumed_until = self.clock.monotonic() + ROLE_LASTS

    def _authorize_request(self, request: AwsRequest) -> None:
        if self.principal is None:
            self.actions.add(f"{request.service}:{request.operation}")
            return
        self.actions |= {need.action for need in list_needs(request)}
        if (refusal := authorize_request(request, self.principal)) is not None:
            raise refusal

    def _record_call(self, request: AwsRequest, code: str) -> None:
        self.calls.append(
            RecordedCall(
                request.service, request.operation, request.account, request.region, request.given, code
            )
        )

    def scope_to(self, *, region: str = "", role: str = "", external_id: str = "") -> SimulatedAws:
        if not role:
            return self.in_account(region=region)
        other = self.in_account(account=(role.split(":") + [""] * 5)[4], region=region)
        other._assumed = (self, role, external_id)
        return other

    def in_account(self, *, account: str = "", region: str = "") -> SimulatedAws:
        """Another account or region of this world, without a role to assume."""
        other = SimulatedAws.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.account, other._region = account or self.account, region or self._region
        return other
