"""Moto beside the simulation: it answers what the simulation does not know, over one shared set of things.

Roles, instance profiles and queues exist on both sides, and rules come over from moto's, so that a stack of
CloudFormation and the controller speak of the same ones. Both sides are changed only on the event loop.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

from aiohttp import web

from dovetail.errors import Misconfigured
from dovetail.sim.aws.cloud import SimulatedAws
from dovetail.sim.aws.filters import tag_list, tags_of
from dovetail.sim.aws.iam.roles import Iam
from dovetail.sim.aws.messaging.eventbridge import EventBuses, EventRule
from dovetail.sim.aws.messaging.queues import DEFAULTS, SimQueues

__all__ = ["MotoFallback", "tell_signature_versions", "understand_policy_texts"]

Json = dict[str, Any]


def understand_policy_texts() -> None:
    """A policy in a stack may be a text, too: names in condition keys can be said no other way.

    And a role may be given policies on conditions: those that do not hold leave nothing behind.
    """
    from moto.iam import models

    _repair_properties(models.ManagedPolicy, _as_document)
    _repair_properties(models.Role, _without_nothings)


def _as_document(properties: Json) -> Json:
    given = properties.get("PolicyDocument")
    return {**properties, "PolicyDocument": json.loads(given)} if isinstance(given, str) else properties


def _without_nothings(properties: Json) -> Json:
    if "Policies" not in properties:
        return properties
    return {**properties, "Policies": [_as_text(each) for each in properties["Policies"] if each]}


def _as_text(policy: Json) -> Json:
    given = policy["PolicyDocument"]
    return policy if isinstance(given, str) else {**policy, "PolicyDocument": json.dumps(given)}


def _repair_properties(kind: Any, repair: Callable[[Json], Json]) -> None:
    """Make things of this kind from repaired properties, once and for all."""
    if getattr(kind, "takes_more", False):
        return
    made = kind.create_from_cloudformation_json.__func__

    def create(cls: Any, resource_name: str, cloudformation_json: Any, *args: Any, **more: Any) -> Any:
        properties = repair(dict(cloudformation_json.get("Properties") or {}))
        return made(cls, resource_name, {**cloudformation_json, "Properties": properties}, *args, **more)

    kind.create_from_cloudformation_json = classmethod(create)
    kind.takes_more = True


def tell_signature_versions() -> None:
    """A topic that is told how to sign says so when it is asked."""
    from moto.sns import responses

    kind: Any = responses.SNSResponse
    if getattr(kind, "tells_signatures", False):
        return
    plain = kind.get_topic_attributes

    def attributes(self: Any) -> Any:
        answer = plain(self)
        topic = self.backend.get_topic(self._get_param("TopicArn"))
        answer.result["Attributes"]["SignatureVersion"] = getattr(topic, "signature_version", "1")
        return answer

    kind.get_topic_attributes = attributes
    kind.tells_signatures = True


PARTITION = "aws"
DROPPED = ("content-length", "transfer-encoding", "connection", "content-encoding")


class MotoFallback:
    """Moto's backends in this process. Making one imports moto, which takes a while: do it in a thread."""

    def __init__(self, aws: SimulatedAws) -> None:
        # The managed policies every node role attaches are known only when moto is told to load them.
        os.environ.setdefault("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")
        try:
            from moto.events.models import events_backends
            from moto.iam.models import iam_backends
            from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
            from moto.sqs.models import sqs_backends
        except ImportError as error:
            raise Misconfigured(
                "this request needs the package moto; install dovetail with its extra `sim`"
            ) from error
        understand_policy_texts()
        tell_signature_versions()
        self._aws, self._app = aws, DomainDispatcherApplication(create_backend_app)
        self._iam, self._sqs, self._events = iam_backends, sqs_backends, events_backends
        for each in (iam_backends, sqs_backends, events_backends):
            each.reset()
        self._one_at_a_time = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="moto")
        # What came from moto or was given to it, by kind, account, region and name.
        self._shared: set[tuple[str, str, str, str]] = set()

    async def forward_request(
        self, request: web.Request, body: bytes, account: str, region: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Moto's answer, with both sides made equal before and after."""
        async with self._one_at_a_time:
            self._push_to_moto(account, region)
            held = self._list_profile_roles(account)
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(
                self._thread, self._run_moto, _build_environ(request, body, account)
            )
            self._pull_from_moto(account, region, held)
        return answer

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _run_moto(self, environ: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        from werkzeug.test import run_wsgi_app

        app = self._app.get_application(environ)
        chunks, status, headers = run_wsgi_app(app, environ, buffered=True)
        kept = {key: value for key, value in headers.items() if key.lower() not in DROPPED}
        return int(status.split()[0]), kept, b"".join(chunks)

    def _push_to_moto(self, account: str, region: str) -> None:
        """What the simulation has and moto does not know of yet; what it no longer has is gone there too."""
        world, theirs = self._aws.world, self._iam[account][PARTITION]
        mine = world.get_state(Iam, account, "")
        roles = {role.name: role for role in theirs.roles.values()}

        def gone(name: str) -> None:
            """Whether a role may go was asked of the simulation already."""
            theirs.roles.pop(roles[name].id)

        for name in self._find_missing("role", account, "", mine.roles, roles, gone):
            role = mine.roles[name]
            told = (role.boundary or None, role.description, tag_list(role.tags), str(role.lasts))
            theirs.create_role(name, role.trust, role.path, *told)
        known = theirs.instance_profiles
        for name in self._find_missing("profile", account, "", mine.profiles, known, known.pop):
            profile = mine.profiles[name]
            attached = [role.name for role in profile.roles]
            theirs.create_instance_profile(name, profile.path, attached, tag_list(profile.tags))
        for name, profile in mine.profiles.items():
            named = {role.name for role in profile.roles}
            known[name].roles = [role for role in theirs.roles.values() if role.name in named]
        queues, there = world.get_state(SimQueues, account, region).by_name, self._sqs[account][region]
        for name in self._find_missing("queue", account, region, queues, there.queues, there.delete_queue):
            there.create_queue(name, dict(queues[name].tags))

    def _find_missing(
        self,
        kind: str,
        account: str,
        region: str,
        mine: Mapping[str, Any],
        theirs: Mapping[str, Any],
        drop: Callable[[str], Any],
    ) -> list[str]:
        """Names to make on the other side; what was shared and is gone on this side is dropped there.

        What is shared and not on the other side went there meanwhile, and does not come back.
        """
        for name in [
            each for each in theirs if each not in mine and (kind, account, region, each) in self._shared
        ]:
            drop(name)
            self._shared.discard((kind, account, region, name))
        new = [
            name for name in mine if name not in theirs and (kind, account, region, name) not in self._shared
        ]
        self._shared |= {(kind, account, region, name) for name in mine}
        return new

    def _list_profile_roles(self, account: str) -> dict[str, list[str]]:
        """The roles of moto's instance profiles."""
        profiles = self._iam[account][PARTITION].instance_profiles
        return {name: [role.name for role in each.roles] for name, each in profiles.items()}

    def _pull_from_moto(self, account: str, region: str, held: Mapping[str, list[str]]) -> None:
        """What moto made, comes here; what it no longer has is gone here too.

        `held` is what its profiles held before: the simulation may have changed the same ones meanwhile.
        """
        world = self._aws.world
        mine, theirs = world.get_state(Iam, account, ""), self._iam[account][PARTITION]
        roles = {role.name: role for role in theirs.roles.values()}
        for name in self._find_missing("role", account, "", roles, mine.roles, mine.roles.pop):
            role = roles[name]
            mine.add_role(
                name,
                role.path,
                _format_text(role.assume_role_policy_document),
                tags_of(_list_tags(role.tags)),
            )
        profiles = theirs.instance_profiles
        for name in self._find_missing("profile", account, "", profiles, mine.profiles, mine.profiles.pop):
            mine.add_profile(name, profiles[name].path, tags=tags_of(_list_tags(profiles[name].tags)))
        for name, now in self._list_profile_roles(account).items():
            if now != held.get(name) and name in mine.profiles:
                mine.profiles[name].roles = [mine.roles[each] for each in now]
        self._pull_queues(account, region)
        self._pull_rules(account, region)

    def _pull_queues(self, account: str, region: str) -> None:
        queues, theirs = (
            self._aws.world.get_state(SimQueues, account, region),
            self._sqs[account][region].queues,
        )
        plain = {name: queue for name, queue in theirs.items() if not queue.fifo_queue}
        for name in self._find_missing("queue", account, region, plain, queues.by_name, queues.by_name.pop):
            told = {
                key: _format_text(value) for key, value in plain[name].attributes.items() if value is not None
            }
            wanted = (*DEFAULTS, "RedrivePolicy", "Policy", "SqsManagedSseEnabled")
            queues.add(name, {key: told[key] for key in wanted if key in told}, plain[name].tags)
        for name, queue in plain.items():
            # Messages moto's own services sent.
            for message in list(queue._messages) if name in queues.by_name else ():
                queues.by_name[name].send(message.body)
            queue._messages.clear()

    def _pull_rules(self, account: str, region: str) -> None:
        buses = self._aws.world.get_state(EventBuses, account, region)
        for name, bus in self._events[account][region].event_buses.items():
            mine = buses.by_name.get(name) or buses.add(name)
            new = self._find_missing(
                f"rule of {name}", account, region, bus.rules, mine.rules, mine.rules.pop
            )
            for each in {*new, *bus.rules}:
                rule = bus.rules[each]
                made = mine.rules.setdefault(each, EventRule(each, rule.arn))
                made.pattern, made.enabled = rule.event_pattern.get_pattern() or None, rule.state == "ENABLED"
                made.description, made.schedule = rule.description or "", rule.scheduled_expression or ""
                made.targets = {target["Id"]: target for target in rule.targets}


def _build_environ(request: web.Request, body: bytes, account: str) -> dict[str, Any]:
    from werkzeug.test import EnvironBuilder

    headers = [(key, value) for key, value in request.headers.items() if key.lower() != "content-length"]
    path, _, query = request.raw_path.partition("?")
    builder = EnvironBuilder(
        path=path if "%" in path else quote(path),
        method=request.method,
        query_string=query,
        headers=[*headers, ("X-Moto-Account-Id", account)],
        data=body,
        base_url=f"http://{request.host}",
    )
    environ: dict[str, Any] = builder.get_environ()
    environ["PATH_INFO"] = request.path
    return environ


def _list_tags(tags: Any) -> Iterable[Mapping[str, Any]]:
    """Moto keeps tags as a list, or as a dictionary."""
    if isinstance(tags, Mapping):
        return [{"Key": key, "Value": value} for key, value in tags.items()]
    return tags or ()


def _format_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else json.dumps(value)
