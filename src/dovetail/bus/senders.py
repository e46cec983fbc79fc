"""Who wrote a message into a central queue, and for which accounts that sender may speak.

SQS notes the sender of each message: `AROA…:<session>` for a role, `AIDA…` for a user or for a service of
AWS such as EventBridge. EventBridge vouches for the account an event names. A role does not: what it writes
counts for the accounts it is listed with and for no other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dovetail.aws import Aws

__all__ = ["INVOKED", "TrustedSenders", "denies_others", "read_sealed"]

# The sender of an event that came by a call of the function, which IAM has let in.
INVOKED = "lambda:invoke"
SERVICE = "AIDA"
SENDING = {"sqs:sendmessage", "sqs:*", "*"}
EXCEPT = {"arnnotlike", "arnnotequals", "stringnotlike", "stringnotequals", "bool"}
OTHERS = {"aws:principalarn", "aws:principalisawsservice"}
SOURCES = {"aws:sourcearn", "aws:sourceaccount"}


@dataclass(frozen=True, slots=True)
class TrustedSenders:
    """Senders that are believed: by the id of a role or user, the accounts it speaks for, or all for None.

    `sealed` says that the queues' own policies deny everybody but their rules and the roles they name, so
    that whoever is not listed is one of those.
    """

    listed: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    sealed: bool = False

    def trusts_sender(self, sender: str) -> bool:
        """Whether anything this sender writes is taken."""
        if sender == INVOKED or self._is_listed(sender):
            return True
        return bool(sender) and (self.sealed or (sender.startswith(SERVICE) and ":" not in sender))

    def speaks_for(self, sender: str, account: str) -> bool:
        """Whether a sender that is believed may name this account."""
        if not self._is_listed(sender):
            return True
        accounts = self.listed[sender if sender in self.listed else _find_role_id(sender)]
        return accounts is None or account in accounts

    def _is_listed(self, sender: str) -> bool:
        return sender in self.listed or _find_role_id(sender) in self.listed


def _find_role_id(sender: str) -> str:
    """A role's id, whatever its session is called."""
    return sender.partition(":")[0]


def denies_others(policy: Any) -> bool:
    """Whether a queue's policy lets nobody send but rules and topics it names, and roles it names."""
    try:
        read = json.loads(policy) if isinstance(policy, str) and policy else {}
    except (ValueError, RecursionError):
        return False
    found = read.get("Statement", ()) if isinstance(read, dict) else ()
    statements = [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, dict)]
    sending = [
        each for each in statements if SENDING & {one.lower() for one in _list_texts(each.get("Action"))}
    ]
    return any(map(_is_deny_statement, sending)) and not any(map(_allows_any_service, sending))


def _is_deny_statement(statement: Mapping[str, Any]) -> bool:
    """Whether all principals are denied but some roles."""
    everybody = statement.get("Principal") in ("*", {"AWS": "*"}, {"AWS": ["*"]})
    operators, keys = _read_conditions(statement)
    closed = operators <= EXCEPT and "aws:principalarn" in keys and keys <= OTHERS
    return statement.get("Effect") == "Deny" and everybody and closed


def _allows_any_service(statement: Mapping[str, Any]) -> bool:
    """Whether a service may send on behalf of anybody."""
    principal = statement.get("Principal")
    service = isinstance(principal, dict) and "Service" in principal
    return statement.get("Effect") == "Allow" and service and not SOURCES & _read_conditions(statement)[1]


def _read_conditions(statement: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """The operators of a statement's conditions, and their keys."""
    conditions = statement.get("Condition")
    given = conditions if isinstance(conditions, dict) else {}
    keys = {key.lower() for each in given.values() if isinstance(each, dict) for key in each}
    return {each.lower() for each in given}, keys


def _list_texts(value: Any) -> list[str]:
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)]


async def read_sealed(aws: Aws, queue: str) -> bool:
    """Ask whether a queue's own policy keeps everybody out but its rules and the roles it names."""
    url = (await aws.call("sqs", "GetQueueUrl", {"QueueName": queue}))["QueueUrl"]
    answer = await aws.call("sqs", "GetQueueAttributes", {"QueueUrl": url, "AttributeNames": ["Policy"]})
    return denies_others(answer.get("Attributes", {}).get("Policy"))
