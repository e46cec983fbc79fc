"""Where destinations are declared besides the configuration: a table, parameters, tagged queues, names.

Read again and again. A source that cannot be read, or an entry that makes no sense, is counted each time and
said once; every other entry is served. What a source gave last time stays in force while it cannot be read,
so that a slip never silences a cluster.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from dovetail.aws import Aws, AwsAbsent, AwsError, list_pages
from dovetail.bus.config import BusConfig
from dovetail.bus.destinations import BusCluster, Destination, DestinationRegistry, parse_destination
from dovetail.bus.events import EventRules, Lane
from dovetail.bus.ports import BusCounts
from dovetail.bus.queues import read_sealed
from dovetail.errors import DovetailError, Misconfigured, note_contained
from dovetail.logs import get_logger

__all__ = ["DestinationSources", "report_old_names"]

log = get_logger("bus")

BUS_TAG, CLUSTER_TAG, ACCOUNT_TAG = "dovetail.sh/bus", "dovetail.sh/cluster", "dovetail.sh/account"
# A number as DynamoDB writes it, short enough to be one that somebody meant.
NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,2})?").fullmatch
MOST_SAID = 1_000  # characters of a complaint


def report_old_names(config: BusConfig) -> None:
    """Say, once at the start, which keys have a name of the past and what to write instead."""
    for each in config.old_names:
        log.warning("a key has an old name", key=each.name, instead=each.instead)


class DestinationSources:
    """Every declared source, merged in their order: what is written in the configuration wins.

    `reread` gives the configuration as its file has it now; of it, destinations are taken.
    """

    def __init__(
        self,
        config: BusConfig,
        aws: Aws,
        *,
        counts: BusCounts,
        reread: Callable[[], BusConfig] | None = None,
    ) -> None:
        self._config, self._aws, self._counts = config, aws, counts
        self._reread, self._written = reread, config.registry
        self._last: dict[str, list[Destination]] = {}
        self._named: dict[BusCluster, Destination] = {}
        self._sealed = False
        self._problems: set[tuple[str, str]] = set()
        self._said: set[tuple[str, str]] = set()

    @property
    def rules(self) -> EventRules:
        """Which events are answered for, with the accounts of the destinations that are written now."""
        written = {each.cluster.account for each in self._written}
        accounts = frozenset({each.id for each in self._config.accounts} | written)
        senders = self._config.rules.senders
        if senders is not None and self._sealed:
            senders = replace(senders, sealed=True)
        return replace(self._config.rules, accounts=accounts, senders=senders)

    async def check_writers(self) -> None:
        """Learn whether the central queues' own policies keep strangers out, and say where they do not."""
        if self._config.rules.senders is None:
            log.warning("senders are not verified", why="advanced.verifySender is false; anybody is believed")
            return
        closed = await self._read_sealed()
        if not closed:
            log.warning(
                "the central queues let others write than their rules",
                why="their policies deny nobody; take the kit's, `interruption-router doctor` says more",
            )
        if self._config.unbound:
            named = ", ".join(self._config.unbound)
            log.warning("accounts without a senderId are heard by EventBridge alone", accounts=named)
        # A role that is not listed might be the writer of such an account, and could then speak for any.
        self._sealed = closed and not self._config.unbound

    async def _read_sealed(self) -> bool:
        """Whether both central queues keep strangers out; a policy that cannot be read keeps out nobody."""
        for lane in Lane:
            queue = self._config[f"queues.{lane}"]
            try:
                if not await read_sealed(self._aws, queue):
                    return False
            except AwsError as error:
                log.warning("the policy of a queue cannot be read", queue=queue, error=error)
                return False
        return True

    async def read_destinations(self) -> DestinationRegistry:
        """All destinations there are now."""
        self._problems = set()
        self._read_file()
        registry = self._written
        for name, source in (
            ("dynamodb", self._list_table_items),
            ("ssm", self._list_parameters),
            ("discover", self._list_tagged_queues),
        ):
            if self._config[f"registry.{name}"]:
                try:
                    self._last[name] = [each async for each in source()]
                except AwsError as error:
                    self._report_problem(name, str(error))
                except Exception as error:  # noqa: BLE001 (a source that meets a bug must not silence the others)
                    note_contained(error)
                    self._report_problem(name, f"it met a bug: {error!r}")
                registry = registry.merge_with(self._last.get(name, ()))
        await self._check_names()
        self._said &= self._problems  # what comes again is said again
        return registry.merge_with(self._named.values())

    def _read_file(self) -> None:
        if self._reread is None:
            return
        try:
            self._written = self._reread().registry
        except DovetailError as error:
            self._report_problem("file", f"{error}; the destinations it had stay in force")

    async def find_by_name(self, cluster: BusCluster) -> Destination | None:
        """The queue that bears a cluster's name, if that convention is agreed on.

        Only a queue that is there is remembered: one that is missing today may be made tomorrow.
        """
        if not self._config["registry.byName"] or cluster.region != self._aws.region:
            return None
        if cluster not in self._named:
            asked = {"QueueName": cluster.name, "QueueOwnerAWSAccountId": cluster.account}
            try:
                answer = await self._aws.call("sqs", "GetQueueUrl", asked)
            except AwsAbsent:
                return None
            self._named[cluster] = Destination(cluster, str(answer["QueueUrl"]))
        return self._named[cluster]

    async def _check_names(self) -> None:
        """Let go of queues found by name that are no longer there."""
        for cluster, known in list(self._named.items()):
            del self._named[cluster]
            try:
                await self.find_by_name(cluster)
            except AwsError as error:
                self._named[cluster] = known
                self._report_problem("byName", f"{cluster}: {error}")

    async def _list_table_items(self) -> AsyncIterator[Destination]:
        """Items with `pk` = account#region#cluster and the members of a destination, as a DynamoDB map."""
        table = self._config["registry.dynamodb"]
        start: Mapping[str, Any] | None = None
        while True:
            asked = {"TableName": table} | ({"ExclusiveStartKey": start} if start else {})
            answer = await self._aws.call("dynamodb", "Scan", asked)
            for item in answer.get("Items", ()):
                where = f"{table}: {_read_key(item)}"
                if (
                    found := self._read_entry("dynamodb", partial(_parse_item, item, where), where)
                ) is not None:
                    yield found
            start = answer.get("LastEvaluatedKey")
            if not start:
                return

    async def _list_parameters(self) -> AsyncIterator[Destination]:
        path = self._config["registry.ssm"]
        asked = {"Path": path, "Recursive": True}
        async for page in list_pages(self._aws, "ssm", "GetParametersByPath", asked):
            for each in page.get("Parameters", ()):
                where = str(each["Name"])
                if (
                    found := self._read_entry("ssm", partial(_parse_object, each["Value"], where), where)
                ) is not None:
                    yield found

    async def _list_tagged_queues(self) -> AsyncIterator[Destination]:
        async for page in list_pages(self._aws, "sqs", "ListQueues", {"MaxResults": 1000}):
            for url in page.get("QueueUrls", ()):
                try:
                    answer = await self._aws.call("sqs", "ListQueueTags", {"QueueUrl": url})
                except AwsError as error:
                    self._report_problem("discover", f"{url}: {error}")
                    continue
                tags = answer.get("Tags", {})
                if (
                    found := self._read_entry("discover", partial(_parse_tagged_queue, tags, url), url)
                ) is not None:
                    yield found

    def _read_entry(
        self, source: str, entry: Callable[[], Mapping[str, Any] | None], where: str
    ) -> Destination | None:
        """One entry; one that makes no sense, in whatever way, is set aside and named."""
        accounts = self._config.accounts
        only = accounts[0].id if len(accounts) == 1 else ""
        try:
            raw = entry()
            if raw is None:
                return None
            found = parse_destination(raw, where, account=only, region=self._config["region"])
        except Misconfigured as error:
            self._report_problem(source, str(error))
            return None
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            self._report_problem(source, f"{where} cannot be read ({type(error).__name__}); write it anew")
            return None
        served = self.rules.accounts
        if served and found.cluster.account not in served:
            self._report_problem(
                source, f"{where}: account {found.cluster.account} is not one the router serves"
            )
            return None
        return found

    def _report_problem(self, source: str, why: str) -> None:
        self._counts.add("registry_problems_total", 1, source)
        self._problems.add((source, why))
        if (source, why) not in self._said:
            self._said.add((source, why))
            log.error("a destination could not be read", source=source, why=why[:MOST_SAID])


def _read_key(item: Mapping[str, Any]) -> str:
    """The name of an item, for people."""
    told = item.get("pk")
    return str(told.get("S", "")) if isinstance(told, Mapping) else ""


def _parse_item(item: Mapping[str, Any], where: str) -> Mapping[str, Any] | None:
    """A destination as an item of the table; None for one that is not in force."""
    plain = {name: _parse_value(value, where) for name, value in item.items()}
    parts = str(plain.pop("pk", "")).split("#")
    if len(parts) != 3:
        raise Misconfigured(f"{where} is not account#region#cluster; name the item so")
    if plain.pop("state", "active") != "active":
        return None
    return {**plain, **dict(zip(("account", "region", "cluster"), parts, strict=True))}


def _parse_object(text: str, where: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Misconfigured(f"{where} is not a JSON object; write a destination's members in braces")
    return found


def _parse_tagged_queue(tags: Mapping[str, str], url: str) -> Mapping[str, Any] | None:
    if tags.get(BUS_TAG) != "true" or not tags.get(CLUSTER_TAG):
        return None
    account = tags.get(ACCOUNT_TAG) or url.rstrip("/").split("/")[-2]
    return {"account": account, "cluster": tags[CLUSTER_TAG], "queueUrl": url}


def _parse_value(value: Mapping[str, Any], where: str) -> Any:
    """A DynamoDB value as JSON has it."""
    (kind, inner), *_ = value.items()
    if kind == "N":
        if not NUMBER(inner):
            raise Misconfigured(f"{where}: the number {inner[:20]} is too long; write a shorter one")
        number = float(inner)
        return int(number) if number.is_integer() else number
    if kind == "L":
        return [_parse_value(each, where) for each in inner]
    if kind == "SS":
        return sorted(inner)
    return inner
