"""Where destinations are declared besides the configuration: a table, parameters, tagged queues, names.

Read again and again. A source that cannot be read, or an entry that makes no sense, is counted and said; what
a source gave last time stays in force while it cannot be read, so that a slip never silences a cluster.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from dovetail.aws import Aws, AwsAbsent, AwsError, pages
from dovetail.bus.clocks import Log
from dovetail.bus.config import Config
from dovetail.bus.counts import Counts
from dovetail.bus.destinations import Cluster, Destination, Registry, destination
from dovetail.errors import Misconfigured

__all__ = ["Sources"]

BUS_TAG, CLUSTER_TAG, ACCOUNT_TAG = "dovetail.sh/bus", "dovetail.sh/cluster", "dovetail.sh/account"


class Sources:
    """Every declared source, merged in their order: what is written in the configuration wins."""

    def __init__(self, config: Config, aws: Aws, *, counts: Counts, log: Log) -> None:
        self._config, self._aws, self._counts, self._log = config, aws, counts, log
        self._last: dict[str, list[Destination]] = {}
        self._named: dict[Cluster, Destination | None] = {}

    async def read(self) -> Registry:
        """All destinations there are now."""
        registry = self._config.registry
        for name, source in (
            ("dynamodb", self._table),
            ("ssm", self._parameters),
            ("discover", self._tagged),
        ):
            if self._config[f"registry.{name}"]:
                try:
                    self._last[name] = [each async for each in source()]
                except AwsError as error:
                    self._problem(name, str(error))
                registry = registry.merged(self._last.get(name, ()))
        return registry.merged(each for each in self._named.values() if each is not None)

    async def by_name(self, cluster: Cluster) -> Destination | None:
        """The queue that bears a cluster's name, if that convention is agreed on."""
        if not self._config["registry.byName"] or cluster.region != self._aws.region:
            return None
        if cluster not in self._named:
            asked = {"QueueName": cluster.name, "QueueOwnerAWSAccountId": cluster.account}
            try:
                answer = await self._aws.call("sqs", "GetQueueUrl", asked)
            except AwsAbsent:
                self._named[cluster] = None
            else:
                self._named[cluster] = Destination(cluster, str(answer["QueueUrl"]))
        return self._named[cluster]

    async def _table(self) -> AsyncIterator[Destination]:
        """Items with `pk` = account#region#cluster and the members of a destination, as a DynamoDB map."""
        table = self._config["registry.dynamodb"]
        start: Mapping[str, Any] | None = None
        while True:
            asked = {"TableName": table} | ({"ExclusiveStartKey": start} if start else {})
            answer = await self._aws.call("dynamodb", "Scan", asked)
            for item in answer.get("Items", ()):
                plain = {name: _plain(value) for name, value in item.items()}
                key = str(plain.pop("pk", ""))
                parts = key.split("#")
                if len(parts) != 3:
                    self._problem("dynamodb", f"{table}: {key!r} is not account#region#cluster")
                    continue
                if plain.pop("state", "active") != "active":
                    continue
                named = dict(zip(("account", "region", "cluster"), parts, strict=True))
                if (found := self._read("dynamodb", {**plain, **named}, f"{table}: {key}")) is not None:
                    yield found
            start = answer.get("LastEvaluatedKey")
            if not start:
                return

    async def _parameters(self) -> AsyncIterator[Destination]:
        path = self._config["registry.ssm"]
        asked = {"Path": path, "Recursive": True}
        async for page in pages(self._aws, "ssm", "GetParametersByPath", asked):
            for each in page.get("Parameters", ()):
                try:
                    raw = json.loads(each["Value"])
                except ValueError:
                    raw = None
                if not isinstance(raw, dict):
                    self._problem("ssm", f"{each['Name']} is not a JSON object")
                elif (found := self._read("ssm", raw, str(each["Name"]))) is not None:
                    yield found

    async def _tagged(self) -> AsyncIterator[Destination]:
        async for page in pages(self._aws, "sqs", "ListQueues", {"MaxResults": 1000}):
            for url in page.get("QueueUrls", ()):
                try:
                    answer = await self._aws.call("sqs", "ListQueueTags", {"QueueUrl": url})
                except AwsError as error:
                    self._problem("discover", f"{url}: {error}")
                    continue
                tags = answer.get("Tags", {})
                if tags.get(BUS_TAG) != "true" or not tags.get(CLUSTER_TAG):
                    continue
                account = tags.get(ACCOUNT_TAG) or url.rstrip("/").split("/")[-2]
                raw = {"account": account, "cluster": tags[CLUSTER_TAG], "queueUrl": url}
                if (found := self._read("discover", raw, url)) is not None:
                    yield found

    def _read(self, source: str, raw: Mapping[str, Any], where: str) -> Destination | None:
        accounts = self._config.accounts
        only = accounts[0].id if len(accounts) == 1 else ""
        try:
            found = destination(raw, where, account=only, region=self._config["region"])
        except Misconfigured as error:
            self._problem(source, str(error))
            return None
        served = self._config.rules.accounts
        if served and found.cluster.account not in served:
            self._problem(source, f"{where}: account {found.cluster.account} is not one the router serves")
            return None
        return found

    def _problem(self, source: str, why: str) -> None:
        self._counts.add("registry_problems_total", 1, source)
        self._log.error("a destination could not be read", source=source, why=why)


def _plain(value: Mapping[str, Any]) -> Any:
    """A DynamoDB value as JSON has it."""
    (kind, inner), *_ = value.items()
    if kind == "N":
        return float(inner) if "." in inner else int(inner)
    if kind == "L":
        return [_plain(each) for each in inner]
    if kind == "SS":
        return sorted(inner)
    return inner
