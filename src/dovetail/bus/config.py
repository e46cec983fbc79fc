"""The router's configuration: one table of keys, read from a document and from the environment. Pure.

Every key of the document has a variable, so that a function needs no file: `queues.park` is also
`DOVETAIL_BUS_QUEUES_PARK`. Lists are written as JSON there. A variable wins over the document. What is rarely
chosen is a field of one key, `advanced`. Its fields were keys once; those names are read, and reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from dovetail.bus.config_values import (
    BusAccount,
    build_choice_parser,
    build_duration_parser,
    build_number_parser,
    parse_accounts,
    parse_destinations,
    parse_flag,
    parse_kinds,
    parse_queue,
    parse_region,
    parse_regions,
    parse_senders,
    parse_text,
    parse_texts,
)
from dovetail.bus.destinations import Destination, DestinationRegistry, parse_destination, render_value
from dovetail.bus.events import EventRules, TrustedSenders
from dovetail.bus.owners import TAGS
from dovetail.errors import Misconfigured

__all__ = [
    "ADVANCED",
    "ADVANCED_VARIABLE",
    "FIELDS",
    "KEYS",
    "BatchLimits",
    "BusConfig",
    "ConfigKey",
    "OldName",
    "read_config",
]

PREFIX = "DOVETAIL_BUS_"
ADVANCED, ADVANCED_VARIABLE = "advanced", f"{PREFIX}ADVANCED"


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How many messages are worked on together, and how long the first may wait for the others."""

    size: int
    window: float


class OldName(NamedTuple):
    """A key or variable that still works under a name of the past, and what to write instead."""

    name: str
    instead: str

    def __str__(self) -> str:
        return f"{self.name} is an old name: write {self.instead}"


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key: its path in the document, its default, what reads it, and what it means."""

    path: str
    default: Any
    reads: Callable[[Any, str], Any]
    meaning: str
    advanced: bool = False

    @property
    def location(self) -> str:
        """Where the document has it."""
        return f"{ADVANCED}.{self.path}" if self.advanced else self.path

    @property
    def variable(self) -> str:
        """The variable of a key; for a field of `advanced`, the one it had as a key."""
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self.path)
        return PREFIX + snake.replace(".", "_").upper()


def _advanced(path: str, default: Any, reads: Callable[[Any, str], Any], meaning: str) -> ConfigKey:
    return ConfigKey(path, default, reads, meaning, advanced=True)


KEYS = (
    ConfigKey(
        "mode", "daemon", build_choice_parser("daemon", "lambda"), "Which of the two shells reads this."
    ),
    ConfigKey("region", None, parse_region, "The region of the queues, and the one served."),
    ConfigKey("regions", (), parse_regions, "Regions served; empty means the one above."),
    ConfigKey("queues.urgent", "dovetail-bus-urgent", parse_queue, "Where rules send warnings."),
    ConfigKey("queues.bulk", "dovetail-bus-bulk", parse_queue, "Where rules send everything else."),
    ConfigKey("queues.park", "dovetail-bus-park", parse_queue, "Where events go that have no destination."),
    ConfigKey(
        "queues.dlq", "dovetail-bus-dlq", parse_queue, "Where the redrive policies send; read by replay."
    ),
    ConfigKey(
        "unresolvedUrgent",
        "broadcast",
        build_choice_parser("broadcast", "park"),
        "What a warning does without an owner.",
    ),
    ConfigKey("optionalKinds", frozenset(), parse_kinds, "Also route asg_terminate or zonal_shift."),
    ConfigKey("accounts", (), parse_accounts, "Accounts served, with the role to read their instances by."),
    ConfigKey("destinations", (), parse_destinations, "Clusters and their queues."),
    ConfigKey("registry.dynamodb", "", parse_text, "A table with more destinations."),
    ConfigKey(
        "registry.ssm", "", parse_text, "A parameter path with more destinations, one JSON document each."
    ),
    ConfigKey(
        "registry.discover",
        False,
        parse_flag,
        "Also queues tagged dovetail.sh/bus=true and dovetail.sh/cluster.",
    ),
    ConfigKey("registry.byName", False, parse_flag, "Also queues that bear their cluster's name."),
    ConfigKey("pushed.dynamodb", "", parse_text, "A table where clusters publish their instances."),
    ConfigKey(
        "senders", (), parse_senders, "More SQS SenderIds that are believed, as AROA… or AROA…=<account>."
    ),
    ConfigKey(
        "canary.every",
        0.0,
        build_duration_parser(0, 86_400),
        "How often a canary is sent through it all; 0s never.",
    ),
    ConfigKey("dryRun", False, parse_flag, "Resolve and log; send nothing, acknowledge nothing."),
)
# Fields of the one object `advanced`, by the names they had as keys of their own.
FIELDS = (
    _advanced(
        "batch.urgent.size", 100, build_number_parser(1, 10_000), "Warnings worked on together, at most."
    ),
    _advanced(
        "batch.urgent.window", 1.0, build_duration_parser(0, 300), "How long a warning waits for others."
    ),
    _advanced(
        "batch.bulk.size", 1000, build_number_parser(1, 10_000), "Other events worked on together, at most."
    ),
    _advanced(
        "batch.bulk.window",
        5.0,
        build_duration_parser(0, 300),
        "How long they wait; the daemon shortens it as it can.",
    ),
    _advanced("receivers.urgent", 2, build_number_parser(1, 64), "Long polls of the urgent queue (daemon)."),
    _advanced("receivers.bulk", 4, build_number_parser(1, 64), "Long polls of the bulk queue (daemon)."),
    _advanced(
        "receivers.wait", 20.0, build_duration_parser(0, 20), "How long a poll waits for a first message."
    ),
    _advanced("parallel", 32, build_number_parser(1, 1000), "Sends under way at once."),
    _advanced(
        "maxUndeleted",
        500,
        build_number_parser(10, 20_000),
        "Events of a lane sent and not yet deleted: what a killed daemon sends twice.",
    ),
    _advanced(
        "ec2.callsPerSecond",
        5,
        build_number_parser(0.1, 100),
        "DescribeInstances calls a second, per account and region.",
    ),
    _advanced(
        "ec2.burst", 25, build_number_parser(1, 100), "Calls that may come at once after a quiet time."
    ),
    _advanced("ec2.chunk", 200, build_number_parser(1, 200), "Instance ids in one call."),
    _advanced(
        "ec2.prefetch",
        900.0,
        build_duration_parser(0, 86_400),
        "How often every cluster's instances are read; 0s never.",
    ),
    _advanced("tags", TAGS, parse_texts, "Tags that name an instance's cluster, the most trusted first."),
    _advanced("urgentRebalance", False, parse_flag, "Rebalance recommendations are urgent."),
    _advanced(
        "registry.reload", 60.0, build_duration_parser(1, 86_400), "How often destinations are read again."
    ),
    _advanced(
        "dedupe.window", 600.0, build_duration_parser(0, 86_400), "How long a delivered event is remembered."
    ),
    _advanced(
        "dedupe.size",
        200_000,
        build_number_parser(0, 10_000_000),
        "How many are remembered (a function: 20000).",
    ),
    _advanced(
        "cache.size", 500_000, build_number_parser(1, 10_000_000), "How many instances are remembered."
    ),
    _advanced("maxBodyBytes", 262_144, build_number_parser(1_024, 1_048_576), "Larger messages are parked."),
    _advanced(
        "verifySender",
        True,
        parse_flag,
        "Believe EventBridge, the accounts' own writers and senders listed below.",
    ),
    _advanced("annotateSplits", False, parse_flag, "Mark the parts of a divided Health event."),
    _advanced(
        "maxClusterLabels",
        200,
        build_number_parser(1, 100_000),
        "Clusters with metrics of their own; the rest are `other`.",
    ),
)


@dataclass(frozen=True, slots=True)
class BusConfig:
    """Everything the router can be told, by the paths of KEYS and FIELDS."""

    values: Mapping[str, Any]
    registry: DestinationRegistry
    rules: EventRules
    old_names: tuple[OldName, ...] = ()

    def __getitem__(self, path: str) -> Any:
        return self.values[path]

    @property
    def accounts(self) -> tuple[BusAccount, ...]:
        found: tuple[BusAccount, ...] = self.values["accounts"]
        return found

    @property
    def unbound(self) -> tuple[str, ...]:
        """Other accounts whose writer is not named, so that nobody may speak for them but EventBridge."""
        return tuple(each.id for each in self.accounts if each.role_arn and not each.sender_id)

    def get_batch_limits(self, lane: str) -> BatchLimits:
        return BatchLimits(self.values[f"batch.{lane}.size"], self.values[f"batch.{lane}.window"])


def read_config(
    document: Any,
    environment: Mapping[str, str],
    *,
    where: str = "the configuration",
    defaults: Mapping[str, Any] | None = None,
) -> BusConfig:
    """The configuration in a document, under `bus:` or bare, with the environment laid over it."""
    values = {key.path: key.default for key in (*KEYS, *FIELDS)} | dict(defaults or {})
    old: list[OldName] = []
    given = dict(_unwrap_document(document, where))
    fields = given.pop(ADVANCED, None)
    for path, raw in _flatten_document(given, BY_PATH, where).items():
        values[path] = BY_PATH[path].reads(raw, f"{where}: {path}")
        if BY_PATH[path].advanced:
            old.append(OldName(path, BY_PATH[path].location))
    values |= _read_fields(fields, where, f"{where}: ")
    for key in (*KEYS, *FIELDS):
        if key.variable in environment:
            values[key.path] = key.reads(environment[key.variable], key.variable)
            if key.advanced:
                old.append(OldName(key.variable, f"{key.location}, or a field of {ADVANCED_VARIABLE}"))
    if ADVANCED_VARIABLE in environment:
        told = _parse_object(environment[ADVANCED_VARIABLE], ADVANCED_VARIABLE)
        values |= _read_fields(told, ADVANCED_VARIABLE, f"{ADVANCED_VARIABLE}: ")
    if values["region"] is None:
        told = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
        if not told:
            raise Misconfigured(f"{where}: region is missing; say which region's events are routed")
        values["region"] = parse_region(told, "AWS_REGION")
    _check_accounts(values, where)
    registry = DestinationRegistry(_build_destinations(values, where))
    return BusConfig(values, registry, _build_rules(values, registry), tuple(old))


BY_PATH = {key.path: key for key in (*KEYS, *FIELDS)}
BY_FIELD = {key.path: key for key in FIELDS}


def _read_fields(fields: Any, where: str, named: str) -> dict[str, Any]:
    """The values of `advanced`, by the paths of FIELDS."""
    if fields is None:
        return {}
    if not isinstance(fields, Mapping):
        raise Misconfigured(f"{where}: {ADVANCED} is {render_value(fields)}; it holds a mapping")
    found = _flatten_document(fields, BY_FIELD, where, ADVANCED)
    return {path: BY_FIELD[path].reads(raw, f"{named}{ADVANCED}.{path}") for path, raw in found.items()}


def _parse_object(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Misconfigured(
            f'{where} is not JSON: {error}; write an object such as {{"dedupe": {{"window": "10m"}}}}'
        ) from error


def _unwrap_document(document: Any, where: str) -> Mapping[str, Any]:
    if document is None:
        return {}
    if not isinstance(document, Mapping):
        raise Misconfigured(f"{where} is not a mapping; it starts with `bus:` and its keys below")
    inner = document.get("bus", document)
    if inner is None:
        return {}
    if not isinstance(inner, Mapping) or ("bus" in document and len(document) > 1):
        raise Misconfigured(f"{where}: `bus` stands alone and holds a mapping; move the other keys below it")
    return inner


def _flatten_document(
    document: Mapping[str, Any], known: Mapping[str, ConfigKey], where: str, holder: str = ""
) -> dict[str, Any]:
    """Values by their paths; a key that is not known is refused."""
    groups = {path[:at] for path in known for at, letter in enumerate(path) if letter == "."}
    found: dict[str, Any] = {}
    left = [("", document)]
    while left:
        above, inside = left.pop()
        for name, value in inside.items():
            path = f"{above}{name}"
            if path in known:
                found[path] = value
            elif path in groups and isinstance(value, Mapping):
                left.append((f"{path}.", value))
            else:
                shown = f"{holder}.{path}".lstrip(".")
                raise Misconfigured(
                    f"{where}: there is no key {shown}; `dovetail interruption-router keys` lists them"
                )
    return found


def _check_accounts(values: Mapping[str, Any], where: str) -> None:
    ids = [account.id for account in values["accounts"]]
    twice = next((each for each in ids if ids.count(each) > 1), None)
    if twice:
        raise Misconfigured(f"{where}: account {twice} is listed twice; keep one")


def _build_destinations(values: Mapping[str, Any], where: str) -> list[Destination]:
    accounts = values["accounts"]
    account = accounts[0].id if len(accounts) == 1 else ""
    found: dict[object, Destination] = {}
    for index, raw in enumerate(values["destinations"]):
        each = parse_destination(
            raw, f"{where}: destinations[{index}]", account=account, region=values["region"]
        )
        if each.cluster in found:
            raise Misconfigured(f"{where}: destinations[{index}] is {each.cluster} once more; keep one")
        found[each.cluster] = each
    return list(found.values())


def _build_senders(values: Mapping[str, Any]) -> TrustedSenders:
    """Roles and the accounts they speak for. A listed sender without an account speaks for all."""
    listed: dict[str, frozenset[str] | None] = {}
    for account in values["accounts"]:
        if account.sender_id:
            listed[account.sender_id] = (listed.get(account.sender_id) or frozenset()) | {account.id}
    for each in values["senders"]:
        sender, equals, account = each.partition("=")
        listed[sender] = (listed.get(sender) or frozenset()) | {account} if equals else None
    return TrustedSenders(listed)


def _build_rules(values: Mapping[str, Any], registry: DestinationRegistry) -> EventRules:
    accounts = {account.id for account in values["accounts"]} | {each.cluster.account for each in registry}
    return EventRules(
        frozenset(accounts),
        frozenset(values["regions"] or (values["region"],)),
        values["maxBodyBytes"],
        _build_senders(values) if values["verifySender"] else None,
        values["optionalKinds"],
        values["urgentRebalance"],
        bool(values["canary.every"]),
    )
