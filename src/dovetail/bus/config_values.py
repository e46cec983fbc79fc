"""What the values of the router's configuration may be, in JSON or as the text of a variable. Pure.

Each function takes a value and where it stands; it gives what the router uses, or says in one sentence what
to write instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dovetail.bus.destinations import render_value
from dovetail.bus.events import OPTIONAL_KINDS
from dovetail.errors import Misconfigured

__all__ = [
    "BusAccount",
    "build_choice_parser",
    "build_duration_parser",
    "build_number_parser",
    "parse_accounts",
    "parse_destinations",
    "parse_flag",
    "parse_kinds",
    "parse_queue",
    "parse_region",
    "parse_regions",
    "parse_senders",
    "parse_text",
    "parse_texts",
]

DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)").fullmatch
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?").fullmatch
REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]").fullmatch
ACCOUNT = re.compile(r"[0-9]{12}").fullmatch
ROLE = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/.+").fullmatch
QUEUE = re.compile(r"[A-Za-z0-9_-]{1,80}").fullmatch
SENDER = re.compile(r"[A-Za-z0-9]{4,128}(:[\w+=,.@-]{1,64})?").fullmatch


@dataclass(frozen=True, slots=True)
class BusAccount:
    """An account the router serves, the role it reads instances with there, and the role that writes."""

    id: str
    role_arn: str = ""
    external_id: str = ""
    sender_id: str = ""


def parse_text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise Misconfigured(f"{where} is {render_value(value)}; it must be a text, so put it in quotes")
    return value


def parse_flag(value: Any, where: str) -> bool:
    if value in (True, "true"):
        return True
    if value in (False, "false"):
        return False
    raise Misconfigured(f"{where} is {render_value(value)}; it is true or false")


def build_number_parser(least: float, most: float) -> Callable[[Any, str], Any]:
    def reads(value: Any, where: str) -> Any:
        if isinstance(value, str) and NUMBER(value):
            value = float(value) if "." in value else int(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise Misconfigured(f"{where} is {render_value(value)}; give a number from {least:g} to {most:g}")
        return value

    return reads


def build_duration_parser(least: float, most: float) -> Callable[[Any, str], float]:
    def reads(value: Any, where: str) -> float:
        parts = DURATION(value) if isinstance(value, str) else None
        seconds = float(parts[1]) * SECONDS[parts[2]] if parts else -1.0
        if not least <= seconds <= most:
            raise Misconfigured(
                f"{where} is {render_value(value)}; "
                f"give a duration such as 500ms or 15m, from {least:g}s to {most:g}s"
            )
        return seconds

    return reads


def build_choice_parser(*choices: str) -> Callable[[Any, str], str]:
    def reads(value: Any, where: str) -> str:
        if value not in choices:
            raise Misconfigured(f"{where} is {render_value(value)}; it is one of {', '.join(choices)}")
        return str(value)

    return reads


def parse_list(value: Any, where: str) -> list[Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise Misconfigured(f'{where} is not JSON: {error}; write a list such as ["a", "b"]') from error
    if not isinstance(value, list):
        raise Misconfigured(f"{where} is {render_value(value)}; it is a list")
    return value


def parse_texts(value: Any, where: str) -> tuple[str, ...]:
    return tuple(parse_text(each, f"{where}[{index}]") for index, each in enumerate(parse_list(value, where)))


def parse_region(value: Any, where: str) -> str:
    if not isinstance(value, str) or not REGION(value):
        raise Misconfigured(
            f"{where} is {render_value(value)}, which is no AWS region; write it as us-east-2"
        )
    return value


def parse_regions(value: Any, where: str) -> tuple[str, ...]:
    return tuple(
        parse_region(each, f"{where}[{index}]") for index, each in enumerate(parse_list(value, where))
    )


def parse_queue(value: Any, where: str) -> str:
    if not isinstance(value, str) or not QUEUE(value):
        raise Misconfigured(f"{where} is {render_value(value)}; give the name of a queue, not its URL or ARN")
    return value


def parse_kinds(value: Any, where: str) -> frozenset[str]:
    named = parse_texts(value, where)
    unknown = sorted(set(named) - OPTIONAL_KINDS)
    if unknown:
        raise Misconfigured(
            f"{where}: there is no {unknown[0]}; there are {', '.join(sorted(OPTIONAL_KINDS))}"
        )
    return frozenset(named)


def parse_senders(value: Any, where: str) -> tuple[str, ...]:
    named = parse_texts(value, where)
    for index, each in enumerate(named):
        sender, equals, account = each.partition("=")
        if not SENDER(sender) or (equals and not ACCOUNT(account)):
            raise Misconfigured(
                f"{where}[{index}] is {render_value(each)}; "
                "give a SenderId, or one and its account as AROA…=123456789012"
            )
    return named


def parse_accounts(value: Any, where: str) -> tuple[BusAccount, ...]:
    return tuple(
        parse_account(each, f"{where}[{index}]") for index, each in enumerate(parse_list(value, where))
    )


def parse_account(raw: Any, where: str) -> BusAccount:
    if not isinstance(raw, Mapping) or not set(raw) <= {"id", "roleArn", "externalId", "senderId"}:
        raise Misconfigured(
            f"{where} is {render_value(raw)}; an account has id, roleArn, externalId and senderId"
        )
    named, role, external = raw.get("id"), raw.get("roleArn") or "", raw.get("externalId") or ""
    if not isinstance(named, str) or not ACCOUNT(named):
        raise Misconfigured(f"{where}.id is {render_value(named)}; an account id is twelve digits in quotes")
    if role and (not isinstance(role, str) or not ROLE(role)):
        raise Misconfigured(
            f"{where}.roleArn is {render_value(role)}; write it as arn:aws:iam::<account>:role/<name>"
        )
    if role and not external:
        raise Misconfigured(
            f"{where}: a reader role needs an externalId; set the one its trust policy asks for"
        )
    sender = raw.get("senderId") or ""
    if sender and (not isinstance(sender, str) or not SENDER(sender)):
        raise Misconfigured(
            f"{where}.senderId is {render_value(sender)}; "
            "give the unique id of the role that writes, such as AROA…"
        )
    return BusAccount(named, role, parse_text(external, f"{where}.externalId"), sender)


def parse_destinations(value: Any, where: str) -> tuple[Any, ...]:
    for index, each in enumerate(parse_list(value, where)):
        if not isinstance(each, Mapping):
            raise Misconfigured(
                f"{where}[{index}] is {render_value(each)}; a destination has account, cluster and queueUrl"
            )
    return tuple(parse_list(value, where))
